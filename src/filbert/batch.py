"""PackedBatch: sequences of tokens end to end, without padding.

T tokens in the batch, S sequences, L the longest sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedBatch:
    """T tokens of S sequences, end to end.

    Attributes:
        input_ids: int64 (T,).
        position_ids: int64 (T,), 0 at the start of every sequence. They are stored per token, so
            learned absolute positions need no mask.
        token_type_ids: int64 (T,).
        lengths: The S sequence lengths as Python integers on the host, so that planning attention
            never waits for the device.
    """

    input_ids: Tensor
    position_ids: Tensor
    token_type_ids: Tensor
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all sequences, T."""
        return int(self.input_ids.shape[0])

    @property
    def num_sequences(self) -> int:
        """Number of sequences, S."""
        return len(self.lengths)

    @cached_property
    def max_seqlen(self) -> int:
        """Length of the longest sequence."""
        return max(self.lengths, default=0)

    @cached_property
    def starts(self) -> Tensor:
        """Row of the first token of every sequence: int64 (S,)."""
        return self.cu_seqlens[:-1].long()

    @cached_property
    def cu_seqlens(self) -> Tensor:
        """Borders, int32 (S + 1,): sequence s is rows cu_seqlens[s] to cu_seqlens[s + 1]."""
        borders = list(accumulate(self.lengths, initial=0))
        return torch.tensor(borders, dtype=torch.int32, device=self.input_ids.device)

    def to(self, device: torch.device | str) -> PackedBatch:
        """Return the same batch on `device`; the host does not wait for a GPU."""
        device = torch.device(device)
        if self.input_ids.device == device:
            return self
        rows = onto(device, torch.stack([self.input_ids, self.position_ids, self.token_type_ids]))
        moved = PackedBatch(rows[0], rows[1], rows[2], self.lengths)
        moved.__dict__["cu_seqlens"] = onto(device, self.cu_seqlens)
        return moved


def onto(device: torch.device, tensor: Tensor) -> Tensor:
    """Return a tensor on `device`; the host does not wait for a GPU."""
    to_gpu = device.type == "cuda" and tensor.device.type == "cpu"
    # Copies from unpinned memory make the host wait.
    return (tensor.pin_memory() if to_gpu else tensor).to(device, non_blocking=to_gpu)


def pack(
    sequences: Sequence[np.ndarray | Sequence[int]],
    token_type_ids: Sequence[np.ndarray | Sequence[int]] | None = None,
) -> PackedBatch:
    """Lay sequences of token ids end to end."""
    arrays = [np.asarray(ids, dtype=np.int64) for ids in sequences]
    lengths = tuple(len(ids) for ids in arrays)
    if not arrays or 0 in lengths:
        raise ValueError("a packed batch needs at least one sequence, and no empty one")
    input_ids = torch.from_numpy(np.concatenate(arrays))
    positions = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths]))
    if token_type_ids is None:
        types = torch.zeros_like(input_ids)
    else:
        types = torch.from_numpy(
            np.concatenate([np.asarray(ids, dtype=np.int64) for ids in token_type_ids])
        )
        assert types.shape == input_ids.shape
    return PackedBatch(input_ids, positions, types, lengths)


def split(rows_T: Tensor, batch: PackedBatch) -> tuple[Tensor, ...]:
    """Cut one row per token, (T, ...), into S pieces, one per sequence."""
    return torch.split(rows_T, list(batch.lengths))
