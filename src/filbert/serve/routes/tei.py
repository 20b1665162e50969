"""Routes of text-embeddings-inference: the same paths, bodies and answers.

Source: huggingface/text-embeddings-inference, docs/openapi.json. In addition a body may name its
`model`, /predict accepts multiple choice, and /rerank works with sentence vectors too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from pydantic_core import to_json

from filbert.data.texts import cleaned
from filbert.serve.engine import Engine, Results
from filbert.serve.errors import Refusal
from filbert.serve.routes import shared
from filbert.serve.routes.shared import Call, Caller, json_list, json_parts, refusals
from filbert.serve.schema import (
    Choices,
    DecodeRequest,
    EmbedAllRequest,
    EmbedRequest,
    PredictRequest,
    Prompted,
    RerankRequest,
    SimilarityRequest,
    TokenizeRequest,
    Truncation,
)

router = APIRouter(tags=["text-embeddings-inference"], responses=refusals())

# A number of a vector has at least so many bytes in JSON: 0.123456 and a comma.
_BYTES_PER_NUMBER = 9


@router.post("/embed", summary="One vector per text")
async def embed(body: EmbedRequest, call: Caller) -> Response:
    """Return one vector per text, of unit length unless `normalize` is false."""
    if body.pooling == "none":
        raise Refusal(422, "Pooling none gives one vector per token; use /embed_all.")
    given = {"pooling": body.pooling, "layers": body.layers, "dimensions": body.dimensions}
    options = {name: value for name, value in given.items() if value is not None}
    options |= {"normalize": body.normalize}
    engine, texts = call.start(body.model, "embed", body.inputs)
    results = await _run(call, engine, "embed", texts, body=body, **options)
    vectors = [result.value for result in results.items]
    return await call.reply(json_list(await json_parts(vectors)), results)


@router.post("/embed_all", summary="One matrix per text")
async def embed_all(body: EmbedAllRequest, call: Caller) -> Response:
    """Return one vector per token of the last layer, special tokens included."""
    engine, texts = call.start(body.model, "embed", body.inputs)
    # Refuse before the model runs what would be too large.
    bytes_per_token = engine.predictor.vector_size(pooling="none") * _BYTES_PER_NUMBER
    most = shared.MAX_RESPONSE_BYTES // bytes_per_token
    results = await _run(call, engine, "embed", texts, body=body, pooling="none", max_tokens=most)
    return await call.reply([result.value for result in results.items], results)


@router.post("/similarity", summary="One cosine per sentence")
async def similarity(body: SimilarityRequest, call: Caller) -> Response:
    """Return the cosine of the source sentence with each of the others."""
    options = body.parameters or Prompted()
    engine = call.engines.find(body.model or options.model, "similarity")
    call.check([body.inputs.source_sentence], "source_sentence")
    call.check(body.inputs.sentences, "sentences")
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    results = await _run(call, engine, "embed", texts, body=options, normalize=True)
    return await call.reply(_cosines(results), results)


@router.post("/predict", summary="Labels and scores, best first")
async def predict(body: PredictRequest, call: Caller) -> Response:
    """Return every label with its probability, best first; a regression gives its value."""
    inputs = body.inputs
    single = not isinstance(inputs, list) or all(isinstance(text, str) for text in inputs)
    parts: list[Any] = [inputs] if single else list(inputs)  # type: ignore[arg-type]
    items = [_item(part) for part in parts]
    abilities = {"choose" if isinstance(item, dict) else "predict" for item in items}
    if len(abilities) > 1:
        raise Refusal(422, "`inputs` mixes texts and choices; send them in two requests.")
    engine = call.engines.find(body.model, abilities.pop() if abilities else "predict")
    call.check([_texts_of(item) for item in items], "inputs")
    for item in items:
        if isinstance(item, dict):
            call.check(item["choices"], "choices")
    raw = body.raw_scores
    results = await _run(call, engine, "predict", items, body=body, raw=raw)
    scores = [
        _scores(engine, item, result.value, raw=raw)
        for item, result in zip(items, results.items, strict=True)
    ]
    return await call.reply(scores, results, single=single)


@router.post("/rerank", summary="Texts by relevance, best first")
async def rerank(body: RerankRequest, call: Caller) -> Response:
    """Return indices of the texts with their scores, best first.

    The score is the model's for the pair of query and text, between 0 and 1 unless `raw_scores` is
    true. For sentence vectors it is their cosine.
    """
    engine = _reranker(call, body.model)
    call.check([body.query], "query")
    call.check(body.texts, "texts")
    task = engine.predictor.task
    if task is None or task.spec.name == "embedding":
        texts = [body.query, *body.texts]
        results = await _run(call, engine, "embed", texts, body=body, normalize=True)
        scores = _cosines(results)
    else:
        pairs = [(body.query, text) for text in body.texts]
        raw = body.raw_scores
        results = await _run(call, engine, "predict", pairs, body=body, raw=raw)
        scores = [_relevance(task, one.value, raw=raw) for one in results.items]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    ranks: list[dict[str, Any]] = [{"index": i, "score": scores[i]} for i in order]
    if body.return_text:
        ranks = [rank | {"text": body.texts[rank["index"]]} for rank in ranks]
    return await call.reply(ranks, results)


@router.post("/tokenize", summary="Tokens of each text")
async def tokenize(body: TokenizeRequest, call: Caller) -> Response:
    """Return every token with its place in the text; nothing is cut."""
    engine, texts = call.start(body.model, "tokenize", body.inputs)
    way = engine.predictor.vector_settings(prompt=body.prompt_name)
    if body.prompt_name is not None:
        texts = [way.prepared(text) for text in texts]

    def write() -> bytes:
        lists, size = [], 0
        for text in texts:
            tokens = _tokens(engine, text, with_special=body.add_special_tokens)
            lists.append(to_json(tokens))
            size += len(lists[-1])
            shared.refuse_size(size)
        return json_list(lists)

    content = await engine.in_pool(write, call.settings.request_seconds)
    return Response(content, media_type="application/json")


@router.post("/decode", summary="One text per list of ids")
async def decode(body: DecodeRequest, call: Caller) -> Response:
    """Return the text of each list of token ids."""
    engine, lists = call.start(body.model, "tokenize", body.ids, "ids")
    tokenizer, skip = engine.predictor.tokenizer, body.skip_special_tokens

    def write() -> bytes:
        texts, size = [], 0
        for ids in lists:
            tokenizer.tokens(ids)  # raises InputError for an id that is not in the vocabulary
            texts.append(str(tokenizer.backend.decode(list(ids), skip_special_tokens=skip)))
            size += len(texts[-1])
            shared.refuse_size(size)
        return to_json(texts)

    content = await engine.in_pool(write, call.settings.request_seconds)
    return Response(content, media_type="application/json")


def _tokens(engine: Engine, text: str, *, with_special: bool) -> list[dict[str, Any]]:
    tokenizer = engine.predictor.tokenizer
    (encoding,) = tokenizer.encode([text], with_offsets=True)
    assert encoding.offsets is not None and encoding.sequence is not None
    ids = encoding.input_ids
    rows = zip(ids, tokenizer.tokens(ids), encoding.offsets, encoding.sequence, strict=True)
    tokens = []
    for number, name, (start, stop), sequence in rows:
        token = {"id": int(number), "text": name, "token": name, "special": True}
        if int(sequence) < 0:
            token |= {"start": None, "stop": None}
        else:
            start, stop = int(start), int(stop)
            token |= {"text": text[start:stop], "special": False, "start": start, "stop": stop}
        if with_special or not token["special"]:
            tokens.append(token)
    return tokens


def _scores(engine: Engine, item: Any, answer: dict[str, Any], *, raw: bool) -> Any:
    """Return one prediction as a list of labels and scores, best first."""
    task = engine.predictor.known_task()
    if "value" in answer:
        return [{"score": answer["value"], "label": "value"}]
    if task.spec.name == "multiple_choice":
        pairs = list(zip(item["choices"], answer["logits" if raw else "scores"], strict=True))
    elif raw:
        pairs = list(zip(task.spec.labels or (), answer["logits"], strict=True))
    else:
        pairs = list(answer["scores"].items())
    pairs.sort(key=lambda pair: -pair[1])
    return [{"score": score, "label": label} for label, score in pairs]


def _relevance(task: Any, answer: dict[str, Any], *, raw: bool) -> float:
    """Return the score of a pair: its value, or the probability of the positive class."""
    if "value" in answer and raw:
        return float(answer["logits"][0])
    if "value" in answer:
        value = float(answer["value"])
        # The sigmoid, which some cross-encoders have already.
        return value if task.activation == "Sigmoid" else 0.5 * (1.0 + math.tanh(0.5 * value))
    spec, positive = task.spec, task.spec.positive
    if raw:
        number = spec.labels.index(positive)
        return float(answer["logits"][number] - answer["logits"][1 - number])
    return float(answer["scores"][positive])


def _reranker(call: Call, name: str | None) -> Engine:
    """Return the model for /rerank: regression of pairs before vectors before two classes."""

    def rank(engine: Engine) -> int | None:
        task = engine.predictor.task
        if task is not None and task.spec.name == "regression":
            return 0
        if (task is None or task.spec.name == "embedding") and "similarity" in engine.can:
            return 1
        return 2 if task is not None and task.spec.positive is not None else None

    asked = list(call.engines.values()) if name is None else [call.engines.find(name, "tokenize")]
    able = [(place, engine) for engine in asked if (place := rank(engine)) is not None]
    if not able:
        raise Refusal(
            424,
            "/rerank needs a model with one value or two classes for a pair, or with sentence "
            "vectors.",
        )
    return min(able, key=lambda pair: pair[0])[1]


def _cosines(results: Results) -> list[float]:
    """Return cosines of the first vector with each of the others; all have unit length."""
    vectors = np.stack([result.value for result in results.items])
    # Rounding may give 1.0000001.
    return np.clip(vectors[1:] @ vectors[0], -1.0, 1.0).tolist()  # type: ignore[no-any-return]


async def _run(
    call: Call, engine: Engine, kind: str, items: Sequence[Any], *, body: Truncation, **options: Any
) -> Results:
    """Run the query with the prompt of the body, and texts cut on the side that it names."""
    if isinstance(body, Prompted) and body.prompt_name is not None:
        if not all(isinstance(item, str) for item in items):
            raise Refusal(422, "A prompt cannot be put in front of token ids.")
        options["prompt"] = body.prompt_name
    predictor = engine.predictor
    task, tokenizer = predictor.task, predictor.tokenizer
    reads_all = kind == "predict" and task is not None and task.spec.windows
    is_left = body.truncation_direction.lower() == "left" and not reads_all
    if is_left and not all(isinstance(item, str) for item in items):
        raise Refusal(422, "`truncation_direction` left is only possible for single texts.")

    def last_tokens() -> tuple[list[list[int]], list[int]]:
        """Return the ids that fit, without special tokens, and each text's number of tokens."""
        texts = [cleaned(item, predictor.cleaning) for item in items]
        if kind == "embed":
            known = {name: options[name] for name in ("pooling", "prompt") if name in options}
            way = predictor.vector_settings(**known)
            texts = [way.prepared(text) for text in texts]
        encodings = tokenizer.encode(texts, with_offsets=True)
        ids = [e.input_ids[e.sequence >= 0] for e in encodings]  # type: ignore[operator]
        most = predictor.max_length - tokenizer.template(pair=False).size
        return [own[-most:].tolist() for own in ids], [e.num_tokens for e in encodings]

    if is_left:
        ids, counts = await engine.in_pool(last_tokens, call.settings.request_seconds)
        results = await call.run(engine, kind, ids, **options)
        pairs = zip(results.items, counts, strict=True)
        counted = [
            one._replace(num_tokens=count, truncated=one.truncated or count > one.num_tokens)
            for one, count in pairs
        ]
        results = results._replace(items=counted)
    else:
        results = await call.run(engine, kind, items, **options)
    advice = ", or send truncate: true"
    call.refuse_cut(results, body.truncate, predictor.max_length, advice=advice)
    return results


def _item(part: Any) -> Any:
    """Return an item as the model takes it: a text, a pair, or a mapping with choices."""
    if isinstance(part, Choices):
        return part.model_dump()
    if isinstance(part, str):
        return part
    return part[0] if len(part) == 1 else tuple(part)


def _texts_of(item: Any) -> list[str]:
    if isinstance(item, str):
        return [item]
    return [item["context"], *item["choices"]] if isinstance(item, dict) else list(item)
