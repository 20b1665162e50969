"""The queue in front of a model: batches by tokens, and fair turns between requests.

A batch holds up to `max_batch_tokens` tokens of any requests. Requests take turns by tokens, so a
request of one text is in the next batch even if another one with ten thousand came before it.

Source: deficit round robin (Shreedhar and Varghese 1995) with tokens in place of bytes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from threading import Condition
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")

# The turn of a request, as a share of the batch: eight large requests fill one.
_TURNS_PER_BATCH = 8
# A batch waits for further requests at most for this share of the previous batch's time, so that
# waiting without success costs little.
_MAX_WAIT_SHARE = 0.25


class RequestQueue:
    """The sequences of one request that wait in the queue.

    Attributes:
        waiting: The number of tokens of each, and the sequence.
        credit: Tokens that the request may still send in this turn.
        since: `time.perf_counter` when the first of those waiting was added.
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Any]] = deque()
        self.tokens = 0
        self.credit = 0
        self.since = 0.0


class Queue(Generic[_T]):
    """Queues of requests that take turns. Thread-safe; `take` blocks.

    Args:
        max_batch_tokens: A batch is closed before it would hold more. A longer sequence becomes a
            batch of its own.
        max_wait: Longest time in seconds that a sequence waits for further requests.

    Attributes:
        turn: Tokens that a request may send before the next request's turn.
    """

    def __init__(self, max_batch_tokens: int, max_wait: float) -> None:
        self._budget, self._max_wait = max_batch_tokens, max_wait
        self.turn = max(1, max_batch_tokens // _TURNS_PER_BATCH)
        self._changed = Condition()
        self._requests: deque[RequestQueue] = deque()
        self._rows = self._tokens = 0
        self._num_last_requests = 1
        self._handed_out = 0.0
        self._closed = False

    @property
    def size(self) -> tuple[int, int]:
        """Number of waiting sequences, and of their tokens."""
        return self._rows, self._tokens

    def put(self, own: RequestQueue, sequences: Iterable[tuple[int, _T]]) -> bool:
        """Add sequences of a request with their tokens; return False if the queue is closed."""
        with self._changed:
            if self._closed:
                return False
            for size, sequence in sequences:
                if not own.waiting:
                    own.since = time.perf_counter()
                    self._requests.append(own)
                own.waiting.append((size, sequence))
                self._count(own, 1, size)
            self._changed.notify()
            return True

    def drop(self, own: RequestQueue) -> int:
        """Remove the waiting sequences of a request, and return how many there were."""
        with self._changed:
            rows = len(own.waiting)
            if rows:
                self._requests.remove(own)
                own.waiting.clear()
                self._count(own, -rows, -own.tokens)
            return rows

    def close(self) -> list[_T]:
        """Refuse new sequences, and return all that wait."""
        with self._changed:
            self._closed = True
            left = [sequence for own in self._requests for _, sequence in own.waiting]
            for own in list(self._requests):
                self.drop(own)
            self._changed.notify_all()
            return left

    def take(self) -> list[_T] | None:
        """Wait for the next batch and return it; None once the queue is closed.

        A batch is closed when it is full, when as many requests wait as were in the previous batch,
        or when its first sequence has waited for `max_wait` or for a quarter of the time since that
        batch was handed out. A single client therefore never waits, and several clients that each
        wait for their answer share batches.
        """
        with self._changed:
            busy = time.perf_counter() - self._handed_out
            max_wait = min(self._max_wait, _MAX_WAIT_SHARE * busy)
            while not self._closed:
                if not self._requests:
                    self._changed.wait()
                    continue
                rest = self._requests[0].since + max_wait - time.perf_counter()
                is_complete = len(self._requests) >= self._num_last_requests
                if rest > 0 and self._tokens < self._budget and not is_complete:
                    self._changed.wait(rest)
                    continue
                batch = self._next()
                self._num_last_requests = len({id(own) for own, _ in batch})
                self._handed_out = time.perf_counter()
                return [sequence for _, sequence in batch]
            return None

    def _next(self) -> list[tuple[RequestQueue, _T]]:
        batch: list[tuple[RequestQueue, _T]] = []
        free = self._budget
        while self._requests:
            own = self._requests.popleft()
            own.credit += self.turn
            while own.waiting and own.waiting[0][0] <= own.credit:
                size, sequence = own.waiting[0]
                if batch and size > free:
                    # Its turn continues in the next batch.
                    own.credit -= self.turn
                    self._requests.appendleft(own)
                    return batch
                own.waiting.popleft()
                batch.append((own, sequence))
                own.credit -= size
                free -= size
                self._count(own, -1, -size)
            if own.waiting:
                self._requests.append(own)
            else:
                own.credit = 0
        return batch

    def _count(self, own: RequestQueue, rows: int, tokens: int) -> None:
        own.tokens += tokens
        self._rows += rows
        self._tokens += tokens
