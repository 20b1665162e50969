"""The dialect of text-embeddings-inference: the same paths, bodies and answers.

Source: huggingface/text-embeddings-inference, docs/openapi.json. Beyond it a body may name its
`model`, /predict takes multiple choice, /rerank also works with models of sentence vectors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from filbert.data.texts import cleaned
from filbert.serve.answers import Rank, Score
from filbert.serve.engine import Answers, Engine
from filbert.serve.errors import Refusal
from filbert.serve.routes.common import (
    Desk,
    documented,
    json_of,
    json_of_arrays,
    last_words,
    prompted,
    reply,
)
from filbert.serve.schema import (
    Choices,
    Cutting,
    EmbedAllRequest,
    EmbedRequest,
    PredictRequest,
    Prompted,
    RerankRequest,
    SimilarityRequest,
)

TAG = "text-embeddings-inference"

# What a number of a vector takes in JSON at least, nearly always: 0.123456 and a comma.
_FEWEST_BYTES = 9
# What to do about a text that is too long, where `truncate` is a key of the request.
_ADVICE = ", or send truncate: true"

_Scores = list[Score]
_Matrices = list[list[list[float]]]


def add(app: FastAPI, desk: Desk) -> None:
    """Add the routes."""

    @app.post(
        "/embed",
        **documented("Vectors of texts", "One vector a text.", list[list[float]], tag=TAG),
    )
    async def embed(body: EmbedRequest) -> Response:
        """One vector a text, of unit length unless `normalize` is false."""
        started = time.perf_counter()
        engine = desk.engine(body.model, "embed")
        # What is kept of a vector gets its unit length afterwards.
        options: dict[str, Any] = {"normalize": body.normalize and body.dimensions is None}
        options |= {} if body.pooling is None else {"pooling": body.pooling}
        options |= {} if body.layers is None else {"layers": tuple(body.layers)}
        if body.pooling == "none":
            raise Refusal(422, "For a vector a token, which pooling none means, use /embed_all.")
        texts = listed(body.inputs)
        desk.check(texts, "inputs")
        answers = await _vectors(desk, engine, texts, body, **options)
        arrays = [done.value for done in answers.items]
        if body.dimensions is not None:
            arrays = shortened(arrays, body.dimensions, body.normalize)
        return reply(await json_of_arrays(arrays), answers, started)

    @app.post(
        "/embed_all",
        **documented("A vector for every token", "A matrix a text.", _Matrices, tag=TAG),
    )
    async def embed_all(body: EmbedAllRequest) -> Response:
        """One vector a token, special tokens included, as the last layer has it."""
        started = time.perf_counter()
        engine = desk.engine(body.model, "embed")
        texts = listed(body.inputs)
        desk.check(texts, "inputs")
        # Else all of it would be there before it is known to be too much.
        width = engine.predictor.vector_size("none")
        most = desk.settings.max_response_bytes // (width * _FEWEST_BYTES)
        answers = await _vectors(desk, engine, texts, body, pooling="none", most_tokens=most)
        arrays = [done.value for done in answers.items]
        content = await json_of_arrays(arrays, desk.settings.max_response_bytes)
        return reply(content, answers, started)

    @app.post(
        "/similarity",
        **documented("Cosines of sentences", "One cosine a sentence.", list[float], tag=TAG),
    )
    async def similarity(body: SimilarityRequest) -> Response:
        """The cosine of the source sentence with each of the others."""
        started = time.perf_counter()
        cutting = body.parameters or Prompted()
        engine = desk.engine(body.model or cutting.model, "similarity")
        desk.check([body.inputs.source_sentence], "source_sentence")
        desk.check(body.inputs.sentences, "sentences")
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        answers = await _vectors(desk, engine, texts, cutting, normalize=True)
        return reply(_cosines(answers), answers, started)

    @app.post(
        "/predict",
        **documented(
            "Classes of texts", "Labels, the best first.", _Scores | list[_Scores], tag=TAG
        ),
    )
    async def predict(body: PredictRequest) -> Response:
        """Every label with its probability, the best first; of a regression its value."""
        started = time.perf_counter()
        inputs = body.inputs
        single = not isinstance(inputs, list) or all(isinstance(text, str) for text in inputs)
        given: list[Any] = [inputs] if single else list(inputs)  # type: ignore[arg-type]
        items = [_item(part) for part in given]
        kinds = {"choose" if isinstance(item, dict) else "predict" for item in items}
        if len(kinds) > 1:
            raise Refusal(422, "`inputs` mixes texts and choices; send them in two requests.")
        engine = desk.engine(body.model, kinds.pop() if kinds else "predict")
        desk.check([list(_texts_of(item)) for item in items], "inputs")
        questions = [item for item in items if isinstance(item, dict)]
        for item in questions:
            desk.check(item["choices"], "choices")
        desk.check_repeated("context", [(item["context"], item["choices"]) for item in questions])
        answers = await _predictions(desk, engine, items, body)
        scores = [
            scores_of(engine, item, done.value, raw=body.raw_scores)
            for item, done in zip(items, answers.items, strict=True)
        ]
        content = scores[0] if single else scores
        most = desk.settings.max_response_bytes
        return reply(await json_of(content, most), answers, started)

    @app.post(
        "/rerank",
        **documented("Texts in the order of a query", "The best first.", list[Rank], tag=TAG),
    )
    async def rerank(body: RerankRequest) -> Response:
        """Numbers of the texts with their scores, the best first.

        The score is the model's for the pair of query and text, between 0 and 1 unless `raw_scores`
        is true; of a model of sentence vectors it is their cosine.
        """
        started = time.perf_counter()
        engine = _reranker(desk, body.model)
        desk.check([body.query], "query")
        desk.check(body.texts, "texts")
        task = engine.predictor.task
        if task is None or task.name == "embedding":
            texts = [body.query, *body.texts]
            answers = await _vectors(desk, engine, texts, body, normalize=True)
            scores = _cosines(answers)
        else:
            desk.check_repeated("query", [(body.query, body.texts)])
            pairs = [(body.query, text) for text in body.texts]
            answers = await _predictions(desk, engine, pairs, body)
            scores = [_relevance(task, done.value, raw=body.raw_scores) for done in answers.items]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        ranks: list[dict[str, Any]] = [{"index": i, "score": scores[i]} for i in order]
        if body.return_text:
            ranks = [rank | {"text": body.texts[rank["index"]]} for rank in ranks]
        content = ranks
        most = desk.settings.max_response_bytes
        return reply(await json_of(content, most), answers, started)

    async def what_it_is_for(body: dict[str, Any]) -> Response:
        """What the model was made for, as text-embeddings-inference has it at these addresses."""
        name = body.get("model")
        engine = (
            next(iter(desk.engines)) if name is None else desk.engines.get(str(name), "tokenize")
        )
        kind: Any = EmbedRequest
        answer: Any = embed
        if "query" in body:
            kind, answer = RerankRequest, rerank
        elif engine.can[0] in ("predict", "choose"):
            kind, answer = PredictRequest, predict
        try:
            asked = kind.model_validate({**body, "model": engine.name})
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from error
        response: Response = await answer(asked)
        return response

    for path in ("/", "/invocations"):
        app.post(path, include_in_schema=False)(what_it_is_for)


def shortened(arrays: Sequence[np.ndarray], dimensions: int, normalize: bool) -> list[np.ndarray]:
    """The first numbers of each vector, as Matryoshka models are made for (Kusupati et al. 2022).

    Raises:
        Refusal: 422, a vector has less.
    """
    width = len(arrays[0])
    if dimensions > width:
        raise Refusal(422, f"`dimensions` is {dimensions}; vectors of this model have {width}.")
    kept = [array[:dimensions] for array in arrays]
    if not normalize:
        return kept
    return [array / max(float(np.linalg.norm(array)), 1e-12) for array in kept]


def scores_of(engine: Engine, item: Any, answer: dict[str, Any], *, raw: bool) -> Any:
    """One prediction as text-embeddings-inference lists it: labels and scores, the best first."""
    task = engine.predictor.known_task()
    if "value" in answer:
        return [{"score": answer["value"], "label": "value"}]
    if task.name == "multiple_choice":
        pairs = list(zip(item["choices"], answer["logits" if raw else "scores"], strict=True))
    elif raw:
        pairs = list(zip(task.labels or (), answer["logits"], strict=True))
    else:
        pairs = list(answer["scores"].items())
    pairs.sort(key=lambda pair: -pair[1])
    return [{"score": score, "label": label} for label, score in pairs]


def _relevance(task: Any, answer: dict[str, Any], *, raw: bool) -> float:
    """How well a pair goes together: its value, or the probability of the positive class."""
    if "value" in answer:
        value = float(answer["value"])
        return value if raw else _sigmoid(value)
    positive = task.positive_id
    if raw:
        return float(answer["logits"][positive] - answer["logits"][1 - positive])
    return float(answer["scores"][task.labels[positive]])


def _sigmoid(value: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * value))


def _reranker(desk: Desk, name: str | None) -> Engine:
    """The model for /rerank: a regression over pairs before vectors before two classes."""

    def place(engine: Engine) -> int | None:
        task = engine.predictor.task
        if task is not None and task.name == "regression":
            return 0
        if (task is None or task.name == "embedding") and "similarity" in engine.can:
            return 1
        return 2 if getattr(task, "is_binary", False) else None

    asked = list(desk.engines) if name is None else [desk.engines.get(name, "tokenize")]
    able = [(found, engine) for engine in asked if (found := place(engine)) is not None]
    if not able:
        raise Refusal(
            424,
            "/rerank needs a model with one value or two classes for a pair, or one of sentence "
            "vectors.",
        )
    return min(able, key=lambda pair: pair[0])[1]


def _cosines(answers: Answers) -> list[float]:
    """Of the first vector, of unit length as all of them, with each of the others."""
    vectors = np.stack([done.value for done in answers.items])
    # Sums of squares that were rounded come to 1.0000001.
    return np.clip(vectors[1:] @ vectors[0], -1.0, 1.0).tolist()  # type: ignore[no-any-return]


async def _vectors(
    desk: Desk, engine: Engine, inputs: Sequence[Any], body: Cutting, **options: Any
) -> Answers:
    prompt = body.prompt_name if isinstance(body, Prompted) else None
    texts = [prompted(engine, prompt, part) for part in inputs]
    return await _cut(desk, engine, "embed", texts, body, **options)


async def _predictions(
    desk: Desk, engine: Engine, items: Sequence[Any], body: PredictRequest | RerankRequest
) -> Answers:
    raw = {"raw": True} if body.raw_scores else {}
    return await _cut(desk, engine, "predict", items, body, **raw)


async def _cut(
    desk: Desk, engine: Engine, kind: str, items: Sequence[Any], body: Cutting, **options: Any
) -> Answers:
    """Run, with the side cut off that the body names, or nothing at all."""
    task = engine.predictor.task
    reads_all = kind == "predict" and task is not None and task.windows
    if body.truncation_direction.lower() == "right" or reads_all:
        answers = await desk.run(engine, kind, items, **options)
        desk.refuse_cut(answers, body.truncate, engine.predictor.max_length, _ADVICE)
        return answers
    if not all(isinstance(item, str) for item in items):
        raise Refusal(422, "`truncation_direction` left is for single texts alone.")
    predictor = engine.predictor
    # What is counted and cut is the text as the model reads it; cleaning it again changes nothing.
    cleaner = getattr(predictor.task, "clean", None)
    if cleaner is not None:
        items = await desk.beside(
            lambda: [cleaned(text, cleaner) for text in items], sum(map(len, items))
        )
    way = predictor.sentence_vectors
    # With a pooling of the request's choosing there is no prompt.
    own = kind == "embed" and options.get("pooling") is None
    prompt = way.prompts[way.default_prompt] if own and way.default_prompt else ""

    def ends() -> list[tuple[str, int]]:
        limit = predictor.max_length
        return [last_words(text, predictor.tokenizer, limit, prompt) for text in items]

    kept = await desk.beside(ends, sum(map(len, items)))
    answers = await desk.run(engine, kind, [text for text, _ in kept], **options)
    done = [
        one._replace(num_tokens=count, truncated=one.truncated or text != whole)
        for one, (text, count), whole in zip(answers.items, kept, items, strict=True)
    ]
    answers = answers._replace(items=done)
    desk.refuse_cut(answers, body.truncate, predictor.max_length, _ADVICE)
    return answers


def listed(inputs: Any) -> list[Any]:
    """One text or one list of ids as a list of inputs."""
    single = isinstance(inputs, str) or (inputs and all(isinstance(i, int) for i in inputs))
    return [inputs] if single else list(inputs)


def _item(part: Any) -> Any:
    """What the model takes: a text, a pair, or a mapping with choices."""
    if isinstance(part, Choices):
        return part.model_dump()
    if isinstance(part, str):
        return part
    return part[0] if len(part) == 1 else tuple(part)


def _texts_of(item: Any) -> Sequence[str]:
    if isinstance(item, str):
        return [item]
    return [item["context"], *item["choices"]] if isinstance(item, dict) else item
