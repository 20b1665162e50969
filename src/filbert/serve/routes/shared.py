"""What the routes share: checks of inputs, calls of engines, and answers with their headers."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json

from filbert.serve.engine import Engine, Engines, Results
from filbert.serve.errors import Refusal
from filbert.serve.schema import ErrorReply
from filbert.serve.settings import Settings

# Bytes of JSON written before other requests get a turn on the event loop.
_BYTES_PER_TURN = 1_000_000

# Most characters in one text, and most bytes of an answer that has not one vector per text.
MAX_CHARACTERS = 500_000
MAX_RESPONSE_BYTES = 32_000_000

_REFUSALS = {
    400: "An input is empty.",
    401: "A key is required.",
    404: "No such model.",
    408: "The request was not sent in time.",
    413: "Too large: the body, the number of inputs, a text, or the answer.",
    422: "The request is malformed, or does not fit the model.",
    424: "The model does not support this, or failed.",
    429: "Too much work is waiting; see Retry-After.",
    503: "The answer took too long, or no model is ready.",
}


def refusals(model: type[BaseModel] = ErrorReply) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of routes for /openapi.json."""
    return {status: {"model": model, "description": text} for status, text in _REFUSALS.items()}


class Call:
    """One request of a route: its engines, settings and start time."""

    def __init__(self, request: Request) -> None:
        self.engines: Engines = request.app.state.engines
        self.settings: Settings = request.app.state.settings
        self._started = time.perf_counter()

    def start(
        self, model: str | None, ability: str, inputs: Any, name: str = "inputs"
    ) -> tuple[Engine, list[Any]]:
        """Return the engine for a request, and its inputs as a list.

        One text or one list of token ids is a list of one input.

        Raises:
            Refusal: 404 or 424, no such engine; 400 or 413, see `check`.
        """
        engine = self.engines.find(model, ability)
        single = isinstance(inputs, str) or (inputs and all(isinstance(i, int) for i in inputs))
        texts = [inputs] if single else list(inputs)
        self.check(texts, name)
        return engine, texts

    async def run(
        self, engine: Engine, kind: str, inputs: Sequence[Any], **options: Any
    ) -> Results:
        """Return the result of `Engine.run` within the time limit of a request."""
        return await engine.run(kind, inputs, seconds=self.settings.request_seconds, **options)

    def check(self, texts: Sequence[Any], name: str) -> None:
        """Check the number and lengths of inputs: texts, and lists of texts or token ids.

        Raises:
            Refusal: 400, there is none or one is empty; 413, too many or too long.
        """
        if not texts:
            raise Refusal(400, f"`{name}` cannot be empty.")
        most, longest = self.settings.max_inputs, MAX_CHARACTERS
        if len(texts) > most:
            raise Refusal(
                413, f"`{name}` has {len(texts):,} inputs; at most {most:,} are allowed at once."
            )
        for index, text in enumerate(texts):
            parts = [text] if isinstance(text, str) else text
            size = sum(len(part) if isinstance(part, str) else 1 for part in parts)
            if size == 0:
                raise Refusal(400, f"`{name}`: input {index} is empty.")
            if size > longest:
                raise Refusal(
                    413,
                    f"`{name}`: input {index} has {size:,} characters; at most {longest:,} are "
                    "allowed.",
                )

    def refuse_cut(
        self, results: Results, truncate: bool | None, max_length: int, *, advice: str = ""
    ) -> None:
        """Refuse texts that were cut with 413, unless the request or the settings allow it."""
        if self.settings.auto_truncate if truncate is None else truncate:
            return
        for index, result in enumerate(results.items):
            if result.truncated:
                raise Refusal(
                    413,
                    f"Input {index} has {result.num_tokens} tokens; this model reads "
                    f"{max_length}. Shorten it{advice}.",
                )

    async def reply(self, content: Any, results: Results, *, single: bool = False) -> Response:
        """Return an answer of at most `MAX_RESPONSE_BYTES`, from JSON or from JSON values.

        Args:
            content: JSON as bytes, or a list of values.
            results: What it was made of, for the headers.
            single: Whether to send the only element of the list instead of the list.
        """
        if not isinstance(content, bytes):
            parts = await json_parts(content, is_limited=True)
            content = parts[0] if single else json_list(parts)
        seconds = {
            "x-total-time": time.perf_counter() - self._started,
            "x-tokenization-time": results.tokenization,
            "x-queue-time": results.queue,
            "x-inference-time": results.inference,
        }
        headers = {name: f"{1000 * value:.3f}" for name, value in seconds.items()}
        headers["x-compute-tokens"] = str(results.tokens)
        headers["x-num-tokens"] = str(sum(result.num_tokens for result in results.items))
        headers["x-truncated"] = str(any(result.truncated for result in results.items)).lower()
        return Response(content, media_type="application/json", headers=headers)


Caller = Annotated[Call, Depends(Call)]


async def json_parts(
    values: Iterable[Any], *, is_limited: bool = False, as_base64: bool = False
) -> list[bytes]:
    """Return each value as JSON. Other requests get their turn after every megabyte.

    Args:
        values: JSON values, or arrays of any shape.
        is_limited: Refuse more than `MAX_RESPONSE_BYTES` in total with 413.
        as_base64: Write arrays as base64 of little-endian float32 instead of nested lists.

    Raises:
        Refusal: 424, a number is not finite.
    """
    parts: list[bytes] = []
    length = written = 0
    for value in values:
        parts.append(_json_of(value, as_base64=as_base64))
        length += len(parts[-1])
        if is_limited:
            refuse_size(length)
        if length - written > _BYTES_PER_TURN:
            written = length
            await asyncio.sleep(0)
    return parts


def _json_of(value: Any, *, as_base64: bool) -> bytes:
    try:
        if not isinstance(value, np.ndarray):
            text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
            return text.encode()
        if not np.isfinite(value).all():
            raise ValueError
    except ValueError as error:
        raise Refusal(424, "The model gave a number that is not finite.") from error
    if as_base64:
        return b'"' + b64encode(value.astype("<f4").tobytes()) + b'"'
    return to_json(value.tolist())


def json_list(parts: Iterable[bytes]) -> bytes:
    """Return a JSON list of values that are JSON already."""
    return b"[" + b",".join(parts) + b"]"


def refuse_size(size: int) -> None:
    """Refuse an answer of more than `MAX_RESPONSE_BYTES` with 413."""
    if size > MAX_RESPONSE_BYTES:
        message = f"The answer is larger than {MAX_RESPONSE_BYTES:,} bytes. Ask for less at once."
        raise Refusal(413, message)
