"""What waits for a model: sequences of many requests, closed into batches that are fair to all.

Requests take turns by tokens (deficit round robin, Shreedhar and Varghese 1995): in every turn a
request may send a fixed number of tokens, so that one of 10,000 texts delays a small one by no more
than its own turn.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from threading import Condition
from typing import Any, Generic, Protocol, TypeVar

# A request's turn, as a share of the batch: eight large requests fill one.
_TURNS_IN_BATCH = 8
# A batch waits for company no longer than this share of the time that the one before took, so that
# waiting in vain costs little.
_PATIENCE = 0.25


class Lane:
    """What one request has in the queue.

    Attributes:
        waiting: its sequences, in order.
        tokens: of those.
        credit: tokens that it may still send in this turn.
        since: when the first of those waiting came, by time.perf_counter.
    """

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.tokens = 0
        self.credit = 0
        self.since = 0.0


class Sequence(Protocol):
    """What waits: it has a lane and a size in tokens."""

    @property
    def lane(self) -> Lane: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102


_T = TypeVar("_T", bound=Sequence)


class Queue(Generic[_T]):
    """Lanes that take turns. All methods may be called from any thread; `take` blocks.

    Args:
        max_batch_tokens: a batch is closed before it would hold more; a longer sequence makes a
            batch of its own.
        max_wait: seconds that a sequence waits for company at most.

    Attributes:
        turn: tokens that a request may send before it is the next one's turn.
    """

    def __init__(self, max_batch_tokens: int, max_wait: float) -> None:
        self._budget, self._max_wait = max_batch_tokens, max_wait
        self.turn = max(1, max_batch_tokens // _TURNS_IN_BATCH)
        self._changed = Condition()
        self._lanes: deque[Lane] = deque()
        self._rows = self._tokens = 0
        self._company = 1
        self._handed_out = 0.0
        self._closed = False

    @property
    def size(self) -> tuple[int, int]:
        """Sequences and tokens that wait."""
        return self._rows, self._tokens

    def put(self, sequences: Iterable[_T]) -> bool:
        """Add sequences; False when closed."""
        with self._changed:
            if self._closed:
                return False
            for sequence in sequences:
                lane = sequence.lane
                if not lane.waiting:
                    lane.since = time.perf_counter()
                    self._lanes.append(lane)
                lane.waiting.append(sequence)
                self._count(lane, 1, sequence.size)
            self._changed.notify()
            return True

    def drop(self, lane: Lane) -> int:
        """Take out what a request still has here; how many sequences it was."""
        with self._changed:
            rows = len(lane.waiting)
            if rows:
                self._lanes.remove(lane)
                lane.waiting.clear()
                self._count(lane, -rows, -lane.tokens)
            return rows

    def close(self) -> list[_T]:
        """Let nothing in any more and take out everything."""
        with self._changed:
            self._closed = True
            left = [sequence for lane in self._lanes for sequence in lane.waiting]
            for lane in self._lanes:
                lane.waiting.clear()
                lane.tokens = 0
            self._lanes.clear()
            self._rows = self._tokens = 0
            self._changed.notify_all()
            return left

    def take(self) -> list[_T] | None:
        """The next batch, as soon as there is one; None once closed.

        A batch is closed when it is full, when as many requests wait as had a part in the batch
        before, or when its first sequence has waited for `max_wait` or a quarter of the time since
        that batch was handed out. A client alone so never waits, and clients that call in rhythm
        wait for each other.
        """
        with self._changed:
            busy = time.perf_counter() - self._handed_out
            patience = min(self._max_wait, _PATIENCE * busy)
            while not self._closed:
                if not self._lanes:
                    self._changed.wait()
                    continue
                rest = self._lanes[0].since + patience - time.perf_counter()
                if rest > 0 and self._tokens < self._budget and len(self._lanes) < self._company:
                    self._changed.wait(rest)
                    continue
                batch = self._next()
                self._company = len({sequence.lane for sequence in batch})
                self._handed_out = time.perf_counter()
                return batch
            return None

    def _next(self) -> list[_T]:
        batch: list[_T] = []
        room = self._budget
        while self._lanes:
            lane = self._lanes.popleft()
            lane.credit += self.turn
            while lane.waiting and lane.waiting[0].size <= lane.credit:
                size = lane.waiting[0].size
                if batch and size > room:
                    # Its turn goes on in the next batch.
                    lane.credit -= self.turn
                    self._lanes.appendleft(lane)
                    return batch
                batch.append(lane.waiting.popleft())
                lane.credit -= size
                room -= size
                self._count(lane, -1, -size)
            if lane.waiting:
                self._lanes.append(lane)
            else:
                lane.credit = 0
        return batch

    def _count(self, lane: Lane, rows: int, tokens: int) -> None:
        lane.tokens += tokens
        self._rows += rows
        self._tokens += tokens
