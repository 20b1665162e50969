"""What only filbert serves: masks filled, words tagged, questions answered, attention shown."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Response
from pydantic_core import to_json

from filbert.data.texts import cleaned
from filbert.serve.answers import Answered, Attention, Filled, Tagged
from filbert.serve.engine import Engine
from filbert.serve.errors import Refusal
from filbert.serve.routes.common import Desk, documented, json_of, json_of_arrays, reply
from filbert.serve.schema import AnswerRequest, AttentionRequest, FillRequest, TagRequest
from filbert.serve.settings import Settings
from filbert.text.masks import mask_spans
from filbert.text.tokenizer import Text

TAG = "filbert"

# Up to so many tokens all heads are shown when none are named.
SHOWN_WHOLE = 64
# What one number of a map takes in JSON: 0.1234 and a comma.
_BYTES_PER_NUMBER = 7

_NBEST = 5


def add(app: FastAPI, desk: Desk) -> None:
    """Add the routes."""
    settings = desk.settings

    @app.post(
        "/fill",
        **documented("Words for masks", "One object a text.", Filled | list[Filled], tag=TAG),
    )
    async def fill(body: FillRequest) -> Response:
        """What the model expects in place of every [MASK], the best first."""
        started = time.perf_counter()
        engine = desk.engine(body.model, "fill")
        single = isinstance(body.inputs, str)
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        desk.check(texts, "inputs")
        # Every candidate comes with the whole text that it would make.
        masks = (len(mask_spans(text, engine.predictor.tokenizer)) for text in texts)
        size = body.top * sum(n * len(text) for n, text in zip(masks, texts, strict=True))
        if size > settings.max_response_bytes:
            raise Refusal(
                413,
                f"The candidates would take {size:,} bytes; at most "
                f"{settings.max_response_bytes:,} are sent. Ask for fewer of them, or for less "
                "text.",
            )
        answers = await desk.run(engine, "fill", texts, top=body.top)
        desk.refuse_cut(answers, None, engine.predictor.max_length)
        found = [done.value for done in answers.items]
        content = found[0] if single else found
        most = desk.settings.max_response_bytes
        return reply(await json_of(content, most), answers, started)

    @app.post(
        "/tag",
        **documented("Words and entities", "One object a text.", Tagged | list[Tagged], tag=TAG),
    )
    async def tag(body: TagRequest) -> Response:
        """One tag for every word, however long the text is, and the entities that they make."""
        started = time.perf_counter()
        engine = desk.engine(body.model, "tag")
        single = isinstance(body.inputs, str)
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        desk.check(texts, "inputs")
        answers = await desk.run(engine, "predict", texts)
        found = [done.value for done in answers.items]
        content = found[0] if single else found
        most = desk.settings.max_response_bytes
        return reply(await json_of(content, most), answers, started)

    @app.post(
        "/answer",
        **documented("Answers in texts", "The best answer.", Answered, tag=TAG),
    )
    async def answer(body: AnswerRequest) -> Response:
        """The best answer that stands in one of the documents, which are read in full."""
        started = time.perf_counter()
        engine = desk.engine(body.model, "answer")
        single = isinstance(body.context, str)
        documents = [body.context] if isinstance(body.context, str) else body.context
        desk.check([body.question], "question")
        desk.check(documents, "context")
        desk.check_repeated("question", [(body.question, documents)])
        items = [{"question": body.question, "context": text} for text in documents]
        answers = await desk.run(engine, "predict", items)
        ranked = best_first([done.value for done in answers.items])
        best = ranked[0] | {
            "truncated": any(done.truncated for done in answers.items),
            "num_tokens": sum(done.num_tokens for done in answers.items),
        }
        content = best if single else best | {"answers": ranked}
        most = desk.settings.max_response_bytes
        return reply(await json_of(content, most), answers, started)

    @app.post(
        "/attention",
        **documented("What heads look at", "Maps of all heads.", Attention, tag=TAG),
    )
    async def attention(body: AttentionRequest) -> Response:
        """The exact attention maps of a text or a pair: every row is one token's, and sums to 1."""
        started = time.perf_counter()
        engine = desk.engine(body.model, "attention")
        text: Text = body.inputs if isinstance(body.inputs, str) else tuple(body.inputs)  # type: ignore[assignment]
        desk.check([text], "inputs")
        size = len(text) if isinstance(text, str) else sum(map(len, text))
        shown = await desk.beside(lambda: _shown(engine, text, settings), size)
        count = len(shown["tokens"])
        if count > SHOWN_WHOLE and body.layers is None and body.heads is None:
            raise Refusal(
                422,
                f"The text has {count} tokens. Above {SHOWN_WHOLE}, name the `layers` or the "
                "`heads` to show.",
            )
        config = engine.predictor.model.config
        layers = _numbers("layers", body.layers, config.num_hidden_layers)
        heads = _numbers("heads", body.heads, config.num_attention_heads)
        size = len(layers) * len(heads) * count**2 * _BYTES_PER_NUMBER
        if size > settings.max_response_bytes:
            raise Refusal(
                413,
                f"The maps would take {size:,} bytes; at most {settings.max_response_bytes:,} are "
                "sent. Name fewer layers or heads.",
            )
        answers = await desk.run(
            engine,
            "attention",
            [text],
            layers=layers,
            heads=heads,
            max_length=settings.max_attention_tokens,
        )
        most = min(settings.max_attention_tokens, engine.predictor.max_length)
        desk.refuse_cut(answers, None, most)
        (done,) = answers.items
        maps = await json_of_arrays(done.value.maps, digits=4)
        content = shown | {
            "layers": layers,
            "heads": heads,
            "truncated": done.truncated,
            "num_tokens": done.num_tokens,
        }
        return reply(to_json(content)[:-1] + b',"maps":' + maps + b"}", answers, started)


def best_first(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers from several documents in order, with scores that can be compared.

    Args:
        found: predictions of span_qa, one a document, each with its candidates' logits.

    Returns:
        One object a document; its `score` is a share among the candidates of all documents. Those
        without an answer stand last.
    """
    totals = [e["start_logit"] + e["end_logit"] for one in found for e in one["nbest"]]
    highest = max(totals, default=0.0)
    mass = sum(math.exp(total - highest) for total in totals)

    def share(entry: dict[str, Any]) -> float:
        return math.exp(entry["start_logit"] + entry["end_logit"] - highest) / mass

    ranked = []
    for number, one in enumerate(found):
        entries = [{"text": e["text"], "score": share(e)} for e in one["nbest"]]
        score = next((e["score"] for e in entries if e["text"] == one["answer"]), 0.0)
        kept = {key: one[key] for key in ("answer", "start", "end", "null_score", "truncated")}
        ranked.append(
            kept
            | {"num_tokens": one["num_tokens"], "score": score, "document": number}
            | {"nbest": entries[:_NBEST]}
        )
    return sorted(ranked, key=lambda one: (one["answer"] == "", -one["score"]))


def _shown(engine: Engine, text: Text, settings: Settings) -> dict[str, Any]:
    """The tokens of a text as the model gets them."""
    predictor = engine.predictor
    text = cleaned(text, getattr(predictor.task, "clean", None))
    limit = min(predictor.max_length, settings.max_attention_tokens)
    (encoding,) = predictor.tokenizer.encode([text], max_length=limit, with_offsets=True)
    assert encoding.words is not None and encoding.sequence is not None
    return {
        "tokens": predictor.tokenizer.tokens(encoding.input_ids),
        "ids": encoding.input_ids.tolist(),
        "words": encoding.words.tolist(),
        "sequences": encoding.sequence.tolist(),
    }


def _numbers(name: str, chosen: Sequence[int] | None, count: int) -> list[int]:
    """The numbers that are meant, counted from 0; negative ones count from the end."""
    if chosen is None:
        return list(range(count))
    if not chosen:
        raise Refusal(400, f"`{name}` cannot be empty.")
    for number in chosen:
        if not -count <= number < count:
            raise Refusal(422, f"`{name}`: {number} is not in {-count}..{count - 1}.")
    return [number % count for number in chosen]
