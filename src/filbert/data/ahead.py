"""The next step's examples, made while the device works on this step's."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from threading import Thread
from typing import Generic, TypeVar

from filbert.data.examples import Example
from filbert.data.loader import Batches

log = logging.getLogger(__name__)

Item = TypeVar("Item")
# Seconds; tokenising a chunk takes less, waiting for standard input may take forever.
_PATIENCE = 2.0


def one_ahead(items: Iterable[Item]) -> Generator[Item, None, None]:
    """The same items in the same order, each made in a thread while the one before it is in use.

    Never more than one is made ahead, and what making it raises is raised in its place.
    """
    source = iter(items)
    making = _Pulling(source)
    try:
        while (item := making.found()) is not None:
            making = _Pulling(source)
            yield item[0]
    finally:
        making.leave()


class _Pulling(Generic[Item]):
    """The next item of an iterator, pulled in a thread."""

    def __init__(self, source: Iterator[Item]) -> None:
        self._source = source
        self._item: tuple[Item] | None = None
        self._error: BaseException | None = None
        # A daemon: it may wait for standard input, and an interrupted run must not.
        self._thread = Thread(target=self._pull, name="next item", daemon=True)
        self._thread.start()

    def found(self) -> tuple[Item] | None:
        """The item, or None where there are no more."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._item

    def leave(self) -> None:
        """Nobody wants the item: give the thread a little time to end in peace.

        A process that ends while native code runs in one of its threads may die of that.
        """
        self._thread.join(_PATIENCE)

    def _pull(self) -> None:
        try:
            self._item = (next(self._source),)
        except StopIteration:
            pass
        except BaseException as error:  # raised again where the item is asked for
            self._error = error


class Ahead:
    """Batches that begin with step n + 1 in a thread when step n is asked for.

    The answers are those of `batches`: a step is a pure function of its number, so nothing needs
    to be restored when a run resumes, and a wrong guess costs time alone. Asked for by one thread.

    Args:
        batches: `step` may run in another thread than the other methods.
    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._next: _Making | None = None

    @property
    def max_tokens(self) -> int:
        """Tokens per micro-batch on one rank; what was made with another number is made again."""
        return self.batches.max_tokens

    @max_tokens.setter
    def max_tokens(self, value: int) -> None:
        self.batches.max_tokens = value

    @property
    def steps_per_epoch(self) -> int:
        """Steps that take every row once."""
        return self.batches.steps_per_epoch

    def steps_for(self, epochs: float) -> int:
        """The least steps that take the rows so many times."""
        return self.batches.steps_for(epochs)

    def epochs_at(self, step: int) -> float:
        """How often every row was taken before step `step` (from 0)."""
        return self.batches.epochs_at(step)

    @property
    def stand_in(self) -> list[Example]:
        """The examples of any row."""
        return self.batches.stand_in

    def rows_of(self, step: int) -> list[list[Example]]:
        """The rows of a step, over all ranks."""
        return self.batches.rows_of(step)

    def step(self, step: int, rank: int = 0, world: int = 1) -> list[list[Example]]:
        """The micro-batches of one rank in a step.

        Raises:
            Exception: whatever making this step raised; never what making another one did.
        """
        ready, self._next = self._next, None
        if ready is not None:
            ready.join()
        if ready is not None and ready.is_for(step, rank, world):
            found = ready.found
        else:
            found = self.batches.step(step, rank, world)
        self._next = _Making(self.batches, step + 1, rank, world)
        self._next.start()
        return found


class _Making:
    """One step in the making.

    After an error it is for no step, so that the caller's own call makes it again and raises.
    """

    def __init__(self, batches: Batches, step: int, rank: int, world: int) -> None:
        self.found: list[list[Example]] = []
        self._batches = batches
        self._asked = (step, rank, world, batches.max_tokens)
        self._is_done = False
        # A daemon, so that an interrupted run need not wait for it.
        self._thread = Thread(target=self._make, name="next step", daemon=True)
        self.start, self.join = self._thread.start, self._thread.join

    def is_for(self, step: int, rank: int, world: int) -> bool:
        """Whether this is made, and what is now asked for."""
        return self._is_done and self._asked == (step, rank, world, self._batches.max_tokens)

    def _make(self) -> None:
        try:
            self.found = self._batches.step(*self._asked[:3])
            self._is_done = True
        except Exception:
            log.debug("the next step could not be made ahead", exc_info=True)
