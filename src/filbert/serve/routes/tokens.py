"""The routes of text-embeddings-inference that need a tokenizer and no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import FastAPI, Response
from pydantic_core import to_json

from filbert.serve.answers import Token
from filbert.serve.request import pieces_of
from filbert.serve.routes.common import Desk, documented, prompted, readable, too_large
from filbert.serve.routes.tei import TAG, listed
from filbert.serve.schema import DecodeRequest, TokenizeRequest
from filbert.text.tokenizer import Encoding, Tokenizer

# Tokens that are written as JSON before other threads get their turn.
_TOKENS_AT_ONCE = 1_000


def add(app: FastAPI, desk: Desk) -> None:
    """Add the routes."""
    most = desk.settings.max_response_bytes

    @app.post(
        "/tokenize",
        **documented("Texts as tokens", "A list a text.", list[list[Token]], tag=TAG),
    )
    async def tokenize(body: TokenizeRequest) -> Response:
        """Every token with its place in the text; nothing is cut."""
        engine = desk.engine(body.model, "tokenize")
        desk.check(listed(body.inputs), "inputs")
        texts = [prompted(engine, body.prompt_name, text) for text in listed(body.inputs)]
        tokenizer = engine.predictor.tokenizer

        def content() -> bytes:
            return _written(texts, tokenizer, body.add_special_tokens, most)

        written = await desk.beside(content, sum(map(len, texts)))
        return Response(written, media_type="application/json")

    @app.post("/decode", **documented("Token ids as texts", "A text a list.", list[str], tag=TAG))
    async def decode(body: DecodeRequest) -> Response:
        """The text of each list of ids."""
        tokenizer = desk.engine(body.model, "tokenize").predictor.tokenizer
        nested = all(isinstance(part, list) for part in body.ids)
        lists: list[Any] = list(body.ids) if nested else [body.ids]
        desk.check(lists, "ids")
        skip = body.skip_special_tokens

        def content() -> bytes:
            texts, size = [], 0
            for ids in lists:
                texts.append(readable(ids, tokenizer, skip_special_tokens=skip))
                size += len(texts[-1])
                if size > most:
                    raise too_large(most)
            return to_json(texts)

        written = await desk.beside(content, sum(map(len, lists)))
        return Response(written, media_type="application/json")


def _written(texts: Sequence[str], tokenizer: Tokenizer, with_specials: bool, most: int) -> bytes:
    """The answer of /tokenize, of at most so many bytes.

    Raises:
        Refusal: 413, it is longer.
    """
    parts: list[bytes] = []
    size = 0
    for piece in pieces_of(enumerate(texts)):
        encodings = tokenizer.encode([text for _, text in piece], with_offsets=True)
        for (_, text), encoding in zip(piece, encodings, strict=True):
            found = []
            for part in _parts(text, encoding, tokenizer, with_specials):
                size += len(part)
                if size > most:
                    raise too_large(most)
                found.append(part)
            parts.append(b"[" + b",".join(found) + b"]")
    return b"[" + b",".join(parts) + b"]"


def _parts(
    text: str, encoding: Encoding, tokenizer: Tokenizer, with_specials: bool
) -> Iterator[bytes]:
    """The tokens of a text as JSON, some at a time."""
    assert encoding.offsets is not None and encoding.sequence is not None
    for at in range(0, len(encoding.input_ids), _TOKENS_AT_ONCE):
        own = slice(at, at + _TOKENS_AT_ONCE)
        ids = encoding.input_ids[own]
        rows = zip(
            ids, tokenizer.tokens(ids), encoding.offsets[own], encoding.sequence[own], strict=True
        )
        found = [
            _token(text, int(number), name, int(start), int(stop), is_special=int(side) < 0)
            for number, name, (start, stop), side in rows
            if with_specials or int(side) >= 0
        ]
        if found:
            yield to_json(found)[1:-1]


def _token(
    text: str, number: int, name: str, start: int, stop: int, *, is_special: bool
) -> dict[str, Any]:
    return {
        "id": number,
        "text": name if is_special else text[start:stop],
        "token": name,
        "special": is_special,
        "start": None if is_special else start,
        "stop": None if is_special else stop,
    }
