"""Which examples a step trains on: a function of (seed, step), so resuming restores nothing."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numpy as np

from filbert.data.examples import Example, by_row

Item = TypeVar("Item")


class Loader:
    """Examples by step.

    Rows are shuffled in every epoch; a step reads the next `batch_size` rows (the last step of an
    epoch may have fewer). Its rows are dealt to the ranks and split into micro-batches of at most
    `max_tokens` tokens, similar lengths together, the same number on every rank.

    Args:
        batch_size: Rows per optimizer step, over all ranks.
        max_tokens: Tokens per micro-batch on one rank; may be lowered between two steps. A longer
            row is a micro-batch of its own.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        batch_size: int,
        max_tokens: int,
        seed: int = 0,
    ) -> None:
        self.rows = by_row(examples)
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self._order = lru_cache(maxsize=2)(lambda epoch: epoch_order(seed, epoch, len(self.rows)))

    @property
    def steps_per_epoch(self) -> int:
        """Steps that read every row once."""
        return -(-len(self.rows) // self.batch_size)

    def steps_for(self, epochs: float) -> int:
        """Return the least number of steps that read the rows so many times."""
        # 2.2 * 25 is 55.00000000000001.
        return math.ceil(epochs * self.steps_per_epoch - 1e-9)

    def epochs_at(self, step: int) -> float:
        """Return how often every row was read before step `step` (from 0)."""
        return step / self.steps_per_epoch

    @property
    def stand_in(self) -> list[Example]:
        """The examples of any row, for a rank without rows in a step."""
        return self.rows[0]

    def rows_of(self, step: int) -> list[list[Example]]:
        """Return the rows of optimizer step `step` (from 0), over all ranks, shortest first."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        chosen = self._order(epoch)[inside * self.batch_size : (inside + 1) * self.batch_size]
        # The row number breaks ties, so that the order does not depend on the shuffle.
        return sorted(
            (self.rows[i] for i in chosen),
            key=lambda row: (max(len(example.input_ids) for example in row), row[0].row),
        )

    def step(self, step: int, rank: int = 0, world: int = 1) -> list[list[Example]]:
        """Return the micro-batches of one rank in a step; the last ones may be empty."""
        rows = self.rows_of(step)
        sizes = [sum(len(example.input_ids) for example in row) for row in rows]
        dealt = deal(sizes, max_tokens=self.max_tokens, rank=rank, world=world)
        return [[example for i in batch for example in rows[i]] for batch in dealt]


def epoch_order(seed: int, epoch: int, num_rows: int) -> np.ndarray:
    """Return the rows of an epoch in random order, int64 (`num_rows`,)."""
    # Philox is counter-based: the key alone decides the order, on every machine.
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(num_rows)


def deal(sizes: Sequence[int], *, max_tokens: int, rank: int, world: int) -> list[list[int]]:
    """Return the rows of each micro-batch of one rank; the last ones may be empty.

    Every rank gets every world-th row, so with sorted lengths all ranks have nearly equal work.
    `sizes` are the tokens of every row of the step.
    """
    plans = [_cut(range(r, len(sizes), world), sizes, max_tokens) for r in range(world)]
    count = max(len(plan) for plan in plans)
    return plans[rank] + [[] for _ in range(count - len(plans[rank]))]


def by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Return indices in batches of at most `max_tokens` tokens, of similar length.

    For prediction. The longest come first, so that a lack of memory shows at once.
    """
    return _cut(sorted(range(len(lengths)), key=lambda i: -lengths[i]), lengths, max_tokens)


def _cut(rows: Sequence[int], sizes: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Split rows into batches of at most `max_tokens` tokens, in order."""
    batches: list[list[int]] = []
    free = 0
    for row in rows:
        if not batches or sizes[row] > free:
            batches.append([])
            free = max_tokens
        batches[-1].append(row)
        free -= sizes[row]
    return batches


# Reading ahead


def one_ahead(items: Iterable[Item]) -> Generator[Item, None, None]:
    """Yield the same items, each computed in a thread while the one before it is in use.

    Errors are raised in the place of their item. Closing it waits for the item being computed.
    """
    source = ([item] for item in items)
    with ThreadPoolExecutor(1, "next item") as pool:
        pending: Future[list[Item]] = pool.submit(next, source, [])
        while item := pending.result():
            pending = pool.submit(next, source, [])
            yield item[0]
