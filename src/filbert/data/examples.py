"""Example: one sequence ready for the encoder; collate lays several end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filbert.batch import PackedBatch, pack


@dataclass(frozen=True, slots=True)
class Example:
    """One sequence of token ids and what should come out of it.

    Attributes:
        row: index of the row it was made from; windows and choices of one row share it and never
            part.
        input_ids: integers (n,), special tokens included.
        token_type_ids: integers (n,).
        num_tokens: length before cutting, special tokens included; more than n when the text was
            cut.
        target: what the task wants, in the task's own form; None when predicting.
        source: what the task needs to turn outputs back into an answer: offsets, words, texts.
        row_tokens: tokens of the whole row before cutting, where it became several sequences.
    """

    row: int
    input_ids: np.ndarray
    token_type_ids: np.ndarray
    num_tokens: int
    target: Any = None
    source: Any = None
    row_tokens: int | None = None

    @property
    def truncated(self) -> bool:
        """Whether the text was cut."""
        return self.num_tokens > len(self.input_ids)


def collate(examples: Sequence[Example]) -> PackedBatch:
    """The sequences of `examples`, in order, as one batch."""
    return pack([e.input_ids for e in examples], [e.token_type_ids for e in examples])


def rows_of(examples: Sequence[Example]) -> tuple[int, ...]:
    """How many examples each row has, in order: its windows or choices."""
    sizes: list[int] = []
    before = None
    for example in examples:
        if example.row == before:
            sizes[-1] += 1
        else:
            sizes.append(1)
            before = example.row
    return tuple(sizes)


def lengths_of(examples: Sequence[Example], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """What every prediction says about its row: whether it was cut, and its tokens before that.

    Args:
        examples: of R rows.
        sizes: as `rows_of` gives them.
    """
    found, start = [], 0
    for size in sizes:
        row = examples[start : start + size]
        whole = row[0].row_tokens or max(example.num_tokens for example in row)
        found.append({"truncated": any(e.truncated for e in row), "num_tokens": whole})
        start += size
    return found
