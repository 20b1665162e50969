"""Example: one sequence for the encoder; `collate` joins several end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from filbert.batch import PackedBatch, pack


@dataclass(frozen=True, slots=True)
class Example:
    """One sequence of token ids and its target.

    Attributes:
        row: Index of its row; windows and choices of one row share it and stay together.
        input_ids: Integers (n,), special tokens included.
        token_type_ids: Integers (n,).
        num_tokens: Length before truncation, special tokens included.
        target: The target in the task's own form; None for prediction.
        source: What the task needs to decode outputs: offsets, words, texts.
        row_tokens: Tokens of the whole row before truncation, if it became several sequences.
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
        """Whether the text was truncated."""
        return self.num_tokens > len(self.input_ids)


def collate(examples: Sequence[Example]) -> PackedBatch:
    """Return the sequences of `examples`, in order, as one batch."""
    return pack([e.input_ids for e in examples], [e.token_type_ids for e in examples])


def rows_of(examples: Sequence[Example]) -> tuple[int, ...]:
    """Return the number of examples of each row, in order: its windows or choices."""
    return tuple(len(list(group)) for _, group in groupby(examples, lambda e: e.row))


def lengths_of(examples: Sequence[Example], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return for each row whether it was truncated, and its tokens before that.

    Args:
        examples: Of R rows.
        sizes: Of the rows, from `rows_of`.
    """
    lengths, start = [], 0
    for size in sizes:
        row = examples[start : start + size]
        whole = row[0].row_tokens or max(example.num_tokens for example in row)
        lengths.append({"truncated": any(e.truncated for e in row), "num_tokens": whole})
        start += size
    return lengths
