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
    """

    row: int
    input_ids: np.ndarray
    token_type_ids: np.ndarray
    num_tokens: int
    target: Any = None

    @property
    def truncated(self) -> bool:
        """Whether the text was cut."""
        return self.num_tokens > len(self.input_ids)


def collate(examples: Sequence[Example]) -> PackedBatch:
    """The sequences of `examples`, in order, as one batch."""
    return pack([e.input_ids for e in examples], [e.token_type_ids for e in examples])
