"""Filbert's own routes: /fill, /tag, /answer and /attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from pydantic_core import to_json

from filbert.data.texts import cleaned
from filbert.inspect.attention import layers_and_heads
from filbert.serve.engine import Engine
from filbert.serve.errors import Refusal
from filbert.serve.routes.shared import Caller, json_list, json_parts, refusals, refuse_size
from filbert.serve.schema import AnswerRequest, AttentionRequest, FillRequest, TagRequest
from filbert.text.masks import mask_spans
from filbert.text.tokenizer import Text

router = APIRouter(tags=["filbert"], responses=refusals())

# A number of a map in JSON: 0.1234 and a comma.
_BYTES_PER_NUMBER = 7

# Longer texts are cut.
_MAX_ATTENTION_TOKENS = 512

_NUM_BEST = 5


@router.post("/fill", summary="Words for masks")
async def fill(body: FillRequest, call: Caller) -> Response:
    """Return candidates for every [MASK], best first."""
    engine, texts = call.start(body.model, "fill", body.inputs)
    # Every candidate comes with the whole text.
    masks = [len(mask_spans(text, engine.predictor.tokenizer)) for text in texts]
    refuse_size(body.top * sum(n * len(text) for n, text in zip(masks, texts, strict=True)))
    results = await call.run(engine, "fill", texts, top=body.top)
    call.refuse_cut(results, None, engine.predictor.max_length)
    single = isinstance(body.inputs, str)
    return await call.reply([result.value for result in results.items], results, single=single)


@router.post("/tag", summary="Tags and entities")
async def tag(body: TagRequest, call: Caller) -> Response:
    """Return one tag for every word of a text of any length, and the entities that they form."""
    engine, texts = call.start(body.model, "tag", body.inputs)
    results = await call.run(engine, "predict", texts)
    single = isinstance(body.inputs, str)
    return await call.reply([result.value for result in results.items], results, single=single)


@router.post("/answer", summary="The best answer")
async def answer(body: AnswerRequest, call: Caller) -> Response:
    """Return the best answer in one of the documents, which are read in full."""
    call.check([body.question], "question")
    engine, documents = call.start(body.model, "answer", body.context, "context")
    items = [{"question": body.question, "context": text} for text in documents]
    results = await call.run(engine, "predict", items)
    ranked = rank_answers([result.value for result in results.items])
    best = ranked[0] | {
        "truncated": any(result.truncated for result in results.items),
        "num_tokens": sum(result.num_tokens for result in results.items),
    }
    if not isinstance(body.context, str):
        best["answers"] = ranked
    return await call.reply([best], results, single=True)


@router.post("/attention", summary="Attention maps")
async def attention(body: AttentionRequest, call: Caller) -> Response:
    """Return the exact attention maps of a text or a pair; each row sums to 1."""
    engine = call.engines.find(body.model, "attention")
    text: Text = body.inputs if isinstance(body.inputs, str) else tuple(body.inputs)  # type: ignore[assignment]
    call.check([text], "inputs")
    config = engine.predictor.model.config
    numbers = (
        _counted_from_0("layers", body.layers, config.num_hidden_layers),
        _counted_from_0("heads", body.heads, config.attention.heads),
    )
    layers, heads = layers_and_heads(engine.predictor.model, *numbers)
    limit = min(engine.predictor.max_length, _MAX_ATTENTION_TOKENS)
    seconds = call.settings.request_seconds
    content = await engine.in_pool(lambda: _tokens(engine, text, limit), seconds)
    refuse_size(len(layers) * len(heads) * len(content["tokens"]) ** 2 * _BYTES_PER_NUMBER)
    results = await call.run(
        engine, "attention", [text], layers=layers, heads=heads, max_length=limit
    )
    call.refuse_cut(results, None, limit)
    (result,) = results.items
    maps = json_list(await json_parts(np.round(result.value.astype(float), 4)))
    content |= {"layers": layers, "heads": heads}
    content |= {"truncated": result.truncated, "num_tokens": result.num_tokens}
    return await call.reply(to_json(content)[:-1] + b',"maps":' + maps + b"}", results)


def rank_answers(predictions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return answers from several documents, best first, with comparable scores.

    Args:
        predictions: Of span_qa, one per document, with the logits of the candidates.

    Returns:
        One object per document. `score` is a share among the candidates of all documents. Documents
        without an answer come last.
    """
    totals = [e["start_logit"] + e["end_logit"] for one in predictions for e in one["nbest"]]
    highest = max(totals, default=0.0)
    mass = sum(math.exp(total - highest) for total in totals)

    def share(entry: dict[str, Any]) -> float:
        return math.exp(entry["start_logit"] + entry["end_logit"] - highest) / mass

    ranked = []
    for number, one in enumerate(predictions):
        entries = [{"text": e["text"], "score": share(e)} for e in one["nbest"]]
        score = next((e["score"] for e in entries if e["text"] == one["answer"]), 0.0)
        names = ("answer", "start", "end", "null_score", "truncated", "num_tokens")
        own = {"score": score, "document": number, "nbest": entries[:_NUM_BEST]}
        ranked.append({name: one[name] for name in names} | own)
    return sorted(ranked, key=lambda one: (one["answer"] == "", -one["score"]))


def _tokens(engine: Engine, text: Text, max_length: int) -> dict[str, Any]:
    """Return the tokens of a text as the model reads them."""
    predictor = engine.predictor
    text = cleaned(text, predictor.cleaning)
    (encoding,) = predictor.tokenizer.encode([text], max_length=max_length, with_offsets=True)
    assert encoding.words is not None and encoding.sequence is not None
    return {
        "tokens": predictor.tokenizer.tokens(encoding.input_ids),
        "ids": encoding.input_ids.tolist(),
        "words": encoding.words.tolist(),
        "sequences": encoding.sequence.tolist(),
    }


def _counted_from_0(name: str, numbers: Sequence[int] | None, count: int) -> list[int] | None:
    """Return the numbers counted from 0; those from -count to -1 count from the end."""
    if numbers is not None and not numbers:
        raise Refusal(400, f"`{name}` cannot be empty.")
    return None if numbers is None else [n + count if -count <= n < 0 else n for n in numbers]
