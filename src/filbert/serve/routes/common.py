"""What the routes share: checked inputs, work for an engine, answers with their headers."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from fastapi import Response
from pydantic_core import to_json

from filbert.errors import ConfigError, FilbertError
from filbert.serve.answers import ErrorReply
from filbert.serve.engine import Answers, Engine, Failed, Late, Overloaded
from filbert.serve.engines import Engines
from filbert.serve.errors import Refusal, log_failure
from filbert.serve.settings import Settings
from filbert.text.tokenizer import Tokenizer

_T = TypeVar("_T")

# Numbers, and bytes, that are written as JSON before other requests get their turn.
_NUMBERS_AT_ONCE = 50_000
_BYTES_AT_ONCE = 1_000_000
_ITEMS_AT_ONCE = 100

# What reads more characters than this has to wait for its kind: what they hold adds up.
_LARGE = 65_536
_LARGE_AT_ONCE = 2

# Characters that the tokeniser reads again and again for one request: some seconds of its time.
_MOST_REPEATED = 10_000_000

_REFUSALS = {
    400: "An input is empty.",
    401: "A key is wanted.",
    404: "No such model.",
    408: "The request was not sent in time.",
    413: "Too much: the body, the number of texts, a text, or the answer.",
    422: "The request is malformed, or does not go with the model.",
    424: "The model cannot do this, or failed at it.",
    429: "Too much is waiting; see Retry-After.",
    503: "The answer took too long, or no model is ready.",
}


def documented(summary: str, description: str, model: Any, *, tag: str) -> dict[str, Any]:
    """The keywords of a POST route that give it its place in /openapi.json."""
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorReply, "description": sentence}
        for status, sentence in _REFUSALS.items()
    }
    responses[200] = {"model": model, "description": description}
    return {"summary": summary, "responses": responses, "tags": [tag]}


@dataclass(frozen=True)
class Desk:
    """Where routes hand in their work."""

    engines: Engines
    settings: Settings
    _large: ThreadPoolExecutor = field(
        init=False, default_factory=lambda: ThreadPoolExecutor(_LARGE_AT_ONCE, "large")
    )

    def engine(self, name: str | None, needs: str) -> Engine:
        """The model of a name, or the first that can do it.

        Raises:
            NoSuchModel: there is none of that name.
            Refusal: 424, it cannot do it, or none can.
        """
        try:
            return self.engines.get(name, needs)
        except ConfigError as error:
            raise Refusal(424, str(error)) from error

    async def run(
        self, engine: Engine, kind: str, inputs: Sequence[Any], **options: Any
    ) -> Answers:
        """`Engine.run` within the time of a request.

        Raises:
            Refusal: 424, the model failed for no reason that is the client's.
            FilbertError, Overloaded, Late, Failed: as `Engine.run`.
        """
        seconds = self.settings.request_seconds
        try:
            return await engine.run(kind, inputs, seconds=seconds, **options)
        except (FilbertError, Overloaded, Late, Failed):
            raise
        except Exception as error:
            log_failure(error)
            message = "The model failed at this request; the server's log says where."
            raise Refusal(424, message) from error

    async def beside(self, call: Callable[[], _T], size: int) -> _T:
        """The result of a call in another thread, within the time of a request.

        Args:
            call: what needs no model, such as tokenising.
            size: characters or ids that it reads.

        Raises:
            Late: the time is over. A call that has begun goes on.
        """
        seconds = self.settings.request_seconds
        pool = self._large if size > _LARGE else None
        running = asyncio.get_running_loop().run_in_executor(pool, call)
        try:
            return await asyncio.wait_for(running, seconds)
        except asyncio.TimeoutError as error:
            raise Late(f"No answer within {seconds:g} seconds.") from error

    def check(self, texts: Sequence[Any], name: str) -> None:
        """See that there are inputs, not too many, none empty and none too long.

        Args:
            texts: texts, and lists of texts or token ids.
            name: of the field, for messages.

        Raises:
            Refusal: 400 or 413.
        """
        if not texts:
            raise Refusal(400, f"`{name}` cannot be empty.")
        most = self.settings.max_inputs
        if len(texts) > most:
            raise Refusal(
                413, f"`{name}` holds {len(texts):,} inputs; at most {most:,} go at once."
            )
        longest = self.settings.max_characters
        for index, text in enumerate(texts):
            size = len(text) if isinstance(text, str) else sum(map(_size_of, text))
            if size == 0:
                raise Refusal(400, f"`{name}`: input {index} is empty.")
            if size > longest:
                raise Refusal(
                    413,
                    f"`{name}`: input {index} has {size:,} characters; at most {longest:,} are "
                    "read.",
                )

    def check_repeated(self, name: str, texts: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """See that texts which are read anew with each of others are not read too often.

        Args:
            name: of the field.
            texts: each with its others.

        Raises:
            Refusal: 413.
        """
        size = sum(len(text) * len(others) for text, others in texts)
        if size > _MOST_REPEATED:
            text, others = max(texts, key=lambda one: len(one[0]) * len(one[1]))
            raise Refusal(
                413,
                f"`{name}` has {len(text):,} characters and is read with each of {len(others):,} "
                f"texts: {size:,} characters in all, and {_MOST_REPEATED:,} are read at most. Send "
                "fewer texts at once.",
            )

    def refuse_cut(
        self, answers: Answers, truncate: bool | None, max_length: int, advice: str = ""
    ) -> None:
        """Refuse texts that were cut, where the request does not want that.

        Args:
            answers: in the order of the inputs.
            truncate: what the request says of it; None where it says nothing.
            max_length: tokens that the model reads.
            advice: what else the client may do, such as ", or ask for less".

        Raises:
            Refusal: 413.
        """
        if self.settings.auto_truncate if truncate is None else truncate:
            return
        for index, done in enumerate(answers.items):
            if done.truncated:
                raise Refusal(
                    413,
                    f"Input {index} has {done.num_tokens} tokens; this model reads {max_length}. "
                    f"Shorten it{advice}.",
                )


def reply(content: Any, answers: Answers, started: float) -> Response:
    """An answer as JSON, or JSON that is written already, with the times in its headers.

    Args:
        content: a JSON value, or bytes.
        answers: what it was made of.
        started: `time.perf_counter` when the request was there.

    Raises:
        Refusal: 424, a number is not finite.
    """
    try:
        body = content if isinstance(content, bytes) else _json(content)
    except ValueError as error:
        raise _not_finite() from error
    times = answers.times
    milliseconds = {
        "x-total-time": time.perf_counter() - started,
        "x-tokenization-time": times.tokenization,
        "x-queue-time": times.queue,
        "x-inference-time": times.inference,
    }
    headers = {name: f"{1000 * seconds:.3f}" for name, seconds in milliseconds.items()}
    headers["x-compute-tokens"] = str(times.tokens)
    headers["x-num-tokens"] = str(sum(done.num_tokens for done in answers.items))
    headers["x-truncated"] = str(any(done.truncated for done in answers.items)).lower()
    return Response(body, media_type="application/json", headers=headers)


async def json_of(content: Any, most: int) -> bytes:
    """A JSON value, written in pieces; other requests get their turn while much is written.

    Raises:
        Refusal: 413, it is longer than `most` bytes; 424, a number is not finite.
    """
    found: list[bytes] = []
    length = recent = 0
    try:
        for piece in _pieces(content):
            found.append(piece)
            length += len(piece)
            if length > most:
                raise too_large(most)
            recent += len(piece)
            if recent > _BYTES_AT_ONCE:
                recent = 0
                await asyncio.sleep(0)
    except ValueError as error:
        raise _not_finite() from error
    return b"".join(found)


def _pieces(content: Any) -> Iterator[bytes]:
    """A value's JSON; long lists, and what holds them, item by item."""
    is_list = isinstance(content, list)
    if is_list and len(content) > _ITEMS_AT_ONCE or is_list and any(map(_holds_much, content)):
        for index, item in enumerate(content):
            yield b"," if index else b"["
            yield from _pieces(item)
        yield b"]"
    elif _holds_much(content):
        for index, (key, value) in enumerate(content.items()):
            yield (b"," if index else b"{") + _json(key) + b":"
            yield from _pieces(value)
        yield b"}"
    else:
        yield _json(content)


def _holds_much(value: Any) -> bool:
    lists = (part for part in value.values()) if isinstance(value, dict) else ()
    return any(isinstance(part, list) and len(part) > _ITEMS_AT_ONCE for part in lists)


async def json_of_arrays(
    arrays: Iterable[np.ndarray], most: int | None = None, *, digits: int | None = None
) -> bytes:
    """Arrays as a JSON list; see `json_parts`."""
    return b"[" + b",".join(await json_parts(arrays, most, digits=digits)) + b"]"


async def json_parts(
    arrays: Iterable[np.ndarray],
    most: int | None = None,
    *,
    as_base64: bool = False,
    digits: int | None = None,
) -> list[bytes]:
    """Each array as JSON; other requests get their turn while much is written.

    Args:
        arrays: float32, of any shape.
        most: bytes that all may have together.
        as_base64: a string each, base64 of little-endian float32, in place of nested lists.
        digits: behind the point, that numbers are rounded to; all when not given.

    Raises:
        Refusal: 413, they are longer than `most` bytes; 424, a number is not finite.
    """
    found: list[bytes] = []
    length = recent = 0
    for array in arrays:
        if not np.isfinite(array).all():
            raise _not_finite()
        parts: list[bytes] = []
        for part in _base64_of(array) if as_base64 else _written(array, digits):
            parts.append(part)
            length += len(part)
            if most is not None and length > most:
                raise too_large(most)
            recent += len(part)
            if recent > _BYTES_AT_ONCE:
                recent = 0
                await asyncio.sleep(0)
        found.append(parts[0] if len(parts) == 1 else b"".join(parts))
    return found


def _base64_of(array: np.ndarray) -> Iterator[bytes]:
    yield b'"' + b64encode(array.astype("<f4").tobytes()) + b'"'


def _written(array: np.ndarray, digits: int | None) -> Iterator[bytes]:
    """An array as nested lists, in parts of a bounded size."""
    if array.size > _NUMBERS_AT_ONCE and array.ndim > 1:
        for index, row in enumerate(array):
            yield b"," if index else b"["
            yield from _written(row, digits)
        yield b"]"
        return
    if digits is not None:
        array = np.round(array.astype(float), digits)
    yield to_json(array.tolist())


def too_large(most: int) -> Refusal:
    """An answer has more than so many bytes."""
    return Refusal(413, f"The answer is larger than {most:,} bytes. Ask for less at once.")


def prompted(engine: Engine, name: str | None, text: Any) -> Any:
    """A text, or a list of token ids, with the model's prompt of this name before it.

    Raises:
        Refusal: 422, the model has no such prompt, or puts another before every text.
    """
    way = engine.predictor.sentence_vectors
    if name is None or name == way.default_prompt:
        return text
    if name not in way.prompts:
        raise Refusal(422, f"This model has the prompts {sorted(way.prompts)} and no other.")
    if way.default_prompt is not None or not isinstance(text, str):
        raise Refusal(422, "Another prompt cannot be put before this input.")
    return way.prompts[name] + text


def readable(ids: Sequence[int], tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> str:
    """The text of token ids.

    Raises:
        InputError: an id is not in the vocabulary.
    """
    tokenizer.tokens(ids)
    return str(tokenizer.backend.decode(list(ids), skip_special_tokens=skip_special_tokens))


def last_words(
    text: str, tokenizer: Tokenizer, max_length: int, prompt: str = ""
) -> tuple[str, int]:
    """The end of a text that fits behind a prompt, and the tokens of prompt and text.

    It begins with a whole word.
    """
    (encoding,) = tokenizer.encode([prompt + text], with_offsets=True)
    count = encoding.num_tokens
    if count <= max_length:
        return text, count
    assert encoding.offsets is not None and encoding.words is not None
    inside = np.flatnonzero((encoding.words >= 0) & (encoding.offsets[:, 1] > len(prompt)))
    room = max(1, max_length - (count - len(inside)))
    kept = inside[len(inside) - room :]
    before = encoding.words[inside[-room - 1]]
    whole = kept[encoding.words[kept] != before]
    first = whole[0] if len(whole) else kept[0]
    return text[max(0, int(encoding.offsets[first][0]) - len(prompt)) :], count


def _json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _not_finite() -> Refusal:
    return Refusal(424, "The model gave a number that is not finite.")


def _size_of(part: Any) -> int:
    return len(part) if isinstance(part, str) else 1
