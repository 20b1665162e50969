"""A request on its way through an engine: its pieces, their sequences, and what has come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from filbert.data.examples import Example
from filbert.serve.queue import Lane
from filbert.serve.work import Fillings, Prepared, TooLong, Work

# What is tokenised at a time: a large request takes turns with others there too.
_PIECE_ROWS = 128
_PIECE_CHARACTERS = 65_536
# Answers of so few sequences are sooner put together than handed to another thread.
_FEW = 4
# Characters of candidates that are no longer few.
_MANY_CHARACTERS = 100_000
# Before it is tokenised, a text is taken to have a token for so many characters.
_CHARACTERS_PER_TOKEN = 4

# An input and its number in the request.
Numbered = tuple[int, Any]


class Queued(NamedTuple):
    """What the model's thread has to know of a sequence in the queue."""

    request: Request
    piece: Piece
    place: int
    example: Example

    @property
    def lane(self) -> Lane:
        """Of its request."""
        return self.request.lane

    @property
    def size(self) -> int:
        """In tokens."""
        return len(self.example.input_ids)


class Request:
    """What is known of a request while it is answered.

    Args:
        work: what is done with its inputs.
        inputs: what it is done with.
        most_tokens: that all of them may be together.

    Attributes:
        work: what is done with its inputs.
        lane: its part of the queue.
        expected: tokens that are not in the queue yet, about.
        tokens: that have been queued.
        tokenization: seconds.
        queued, began, ended: when the first sequence was queued and taken, and when the last output
            came, by time.perf_counter; 0 before.
    """

    def __init__(self, work: Work, inputs: Iterable[Any], most_tokens: int | None = None) -> None:
        self.work, self.lane = work, Lane()
        self._most = most_tokens
        self.expected, self.tokens = sum(map(likely_tokens, inputs)), 0
        self.tokenization = self.queued = self.began = self.ended = 0.0

    @property
    def left(self) -> int:
        """Tokens that the model has still to read for it, about."""
        return self.expected + self.lane.tokens

    def is_quick(self, prepared: Prepared) -> bool:
        """Whether answers are put together sooner than another thread would begin to."""
        if isinstance(self.work, Fillings):
            written = sum(len(text) * len(spans) for text, spans, _ in prepared.about)
            return self.work.top * written <= _MANY_CHARACTERS
        return len(prepared.examples) <= _FEW

    def queued_as(self, examples: Sequence[Example], piece: Piece) -> list[Queued]:
        """The sequences of a piece, to be put into the queue now.

        Raises:
            TooLong: the request has more than `most_tokens` with them.
        """
        self.queued = self.queued or time.perf_counter()
        found = [Queued(self, piece, place, example) for place, example in enumerate(examples)]
        self.tokens += sum(sequence.size for sequence in found)
        if self._most is not None and self.tokens > self._most:
            raise TooLong(
                f"The answer would be too large: the inputs have more than {self._most:,} tokens "
                "together. Send less at once."
            )
        return found


class Piece:
    """Neighbouring inputs of a request that are tokenised together, and their outputs.

    Args:
        size: sequences that they became.
        loop: where they are waited for.
    """

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self._outputs: list[Any] = [None] * size
        self._missing = size
        self._error: Exception | None = None
        self._is_settled = False
        self._loop = loop
        self._settled: asyncio.Future[None] = loop.create_future()
        if not size:
            self._settled.set_result(None)

    def put(self, place: int, output: Any) -> None:
        """The output of a sequence, or its error; in the model's thread."""
        if isinstance(output, Exception):
            self.settle(output)
            return
        self._outputs[place] = output
        self._missing -= 1
        if not self._missing:
            self.settle(None)

    def settle(self, error: Exception | None) -> None:
        """All is there, or an error; from any thread, and the first call counts."""
        if self._is_settled:
            return
        self._error, self._is_settled = error, True
        # A loop that has ended waits for nothing.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._settled.done():
            self._settled.set_result(None)

    async def outputs(self) -> Sequence[Any] | Exception:
        """One output a sequence, or the error of one."""
        await self._settled
        return self._outputs if self._error is None else self._error


def pieces_of(inputs: Iterable[Numbered]) -> Iterator[list[Numbered]]:
    """Inputs in pieces of a size that is tokenised within some hundredths of a second."""
    piece: list[Numbered] = []
    size = 0
    for index, item in inputs:
        piece.append((index, item))
        size += _characters(item)
        if len(piece) == _PIECE_ROWS or size >= _PIECE_CHARACTERS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def likely_tokens(item: Any) -> int:
    """How many tokens an input may have, special ones too, from its length alone."""
    return _characters(item) // _CHARACTERS_PER_TOKEN + 2


def _characters(item: Any) -> int:
    if isinstance(item, str):
        return len(item)
    if isinstance(item, Mapping):
        item = item.values()
    elif not isinstance(item, list | tuple):
        return 0
    return sum(map(_characters, cast("Iterable[Any]", item)))
