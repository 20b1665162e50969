"""Any number of rows through a model: in order, in fixed memory, and to be continued after a kill.

Rows are read in chunks; an engine answers the chunks, here or elsewhere; an output takes the
answers in order.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import Protocol

from filbert.data.loader import one_ahead
from filbert.data.records import Row
from filbert.data.texts import chunks
from filbert.errors import ConfigError, Interrupted
from filbert.inference.bulk.output import Output
from filbert.inference.bulk.work import Chunk, Part, Work, rows_digest


class Engine(Protocol):
    """Answers chunks, in their order."""

    def __call__(self, chunks: Iterator[Chunk]) -> Generator[Part, None, None]:
        """The answers, one part a chunk."""
        ...


class Watch(Protocol):
    """Is told how far the work is."""

    def kept(self, rows: int, truncated: int) -> None:
        """An earlier run has answered these."""
        ...

    def done(self, rows: int, truncated: int) -> None:
        """Further rows are answered."""
        ...


def carry_out(
    work: Work, rows: Iterable[Row], output: Output, *, engine: Engine, watch: Watch
) -> None:
    """Answer all rows that the output has not got yet.

    Args:
        work: what is done to a chunk.
        rows: all of them, from the first.
        output: takes the answers.
        engine: answers the chunks.
        watch: is told how far it is.

    Raises:
        InputError: a row is wrong. The chunks before its own are in the output.
        ConfigError: the first rows are not those that the output has answers to.
        Interrupted: Ctrl-C or SIGTERM.
    """
    for entry in output.kept:
        watch.kept(entry.rows, entry.truncated)
    try:
        with _sigterm_as_interrupt(), closing(engine(_fresh(work, rows, output))) as parts:
            for part in parts:
                output.add(part)
                watch.done(part.num_rows, part.num_truncated)
    except KeyboardInterrupt:
        raise Interrupted("interrupted.") from None


def here(
    work: Work,
    on_share: Callable[[int, float], None] = lambda rows, share: None,
    *,
    ahead: bool = True,
) -> Engine:
    """The engine of this process: while the model answers a chunk, the next one is tokenised.

    Args:
        work: what is done to a chunk.
        on_share: is told the rows of the chunk in work, and the share of them that is done.
        ahead: not so for standard input: Python cannot end while a thread waits for it.
    """

    def answers(chunks: Iterator[Chunk]) -> Generator[Part, None, None]:
        encoded = ((chunk, work.encode(chunk)) for chunk in chunks)
        with closing(one_ahead(encoded) if ahead else encoded) as ready:
            for chunk, examples in ready:
                total = sum(len(example.input_ids) for example in examples)
                yield work.answer(chunk, examples, _Share(len(chunk.rows), total, on_share))

    return answers


class _Share:
    """Sums up the tokens of a chunk's batches."""

    def __init__(self, rows: int, total: int, tell: Callable[[int, float], None]) -> None:
        self._rows, self._total, self._tell, self._done = rows, total, tell, 0

    def __call__(self, num_tokens: int) -> None:
        self._done += num_tokens
        self._tell(self._rows, min(1.0, self._done / self._total))


def _fresh(work: Work, rows: Iterable[Row], output: Output) -> Iterator[Chunk]:
    """The chunks without answers, after a look at those that have some."""
    kept = list(output.kept)
    first = 0
    number = -1
    for number, found in enumerate(chunks(rows, work.size_of, work.limit)):
        chunk = Chunk(number, first, found, rows_digest(found))
        first += len(found)
        if number >= len(kept):
            yield chunk
        elif kept[number].digest != chunk.digest:
            raise ConfigError(
                f"rows {chunk.first + 1:,} to {first:,} ({found[0].where} and the following) are "
                "not those that the unfinished run has answered. Give --overwrite to begin anew."
            )
    if number + 1 < len(kept):
        raise ConfigError(
            f"the unfinished run has answered {sum(entry.rows for entry in kept):,} rows, and the "
            f"file holds only {first:,}. Give --overwrite to begin anew."
        )


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the work as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
