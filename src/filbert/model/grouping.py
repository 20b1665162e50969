"""Rows brought together: a token for its sequence or their mean, windows averaged, choices joined.

T tokens, S sequences, R rows, G the most sequences of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from filbert.batch import PackedBatch


def standing_rows(batch: PackedBatch, *, causal: bool) -> Tensor:
    """The row of the token that stands for each sequence, int64 (S,).

    The first; the last where attention is causal, as only that one has seen the whole sequence.
    """
    return batch.cu_seqlens[1:].long() - 1 if causal else batch.starts


def mean_of_sequences(rows_TH: Tensor, cu_seqlens: Tensor) -> Tensor:
    """The mean of every sequence's rows, (S, H), differentiable; zeros for an empty one.

    Args:
        rows_TH: float (T, H). Sums are float32, the result is of their dtype.
        cu_seqlens: borders, int32 (S + 1,), from 0 to T.
    """
    lengths = cu_seqlens.diff().long()
    sums = torch.segment_reduce(rows_TH.float(), "sum", lengths=lengths, unsafe=True)
    return (sums / lengths.clamp_min(1)[:, None]).to(rows_TH.dtype)


def max_of_sequences(rows_TH: Tensor, cu_seqlens: Tensor) -> Tensor:
    """The maximum of every sequence's rows, element by element, (S, H), differentiable.

    Args:
        rows_TH: float (T, H).
        cu_seqlens: borders, int32 (S + 1,), from 0 to T; no sequence is empty.
    """
    lengths = cu_seqlens.diff().long()
    most = torch.segment_reduce(rows_TH.float(), "max", lengths=lengths, unsafe=True)
    return most.to(rows_TH.dtype)


def mean_of_groups(values: Tensor, groups: Sequence[int]) -> Tensor:
    """The mean over each run of neighbouring sequences, (R, ...), differentiable.

    Args:
        values: float (S, ...).
        groups: how many sequences each row has, in order; R numbers above zero with the sum S.
            Where each row has one, `values` themselves come back.
    """
    if all(size == 1 for size in groups):
        return values
    lengths = torch.tensor(groups, device=values.device)
    # Faster than a loop, and unlike index_add on a GPU it adds in the same order every time.
    return torch.segment_reduce(values, "mean", lengths=lengths)


def table_of_groups(values: Tensor, groups: Sequence[int]) -> Tensor:
    """One score per sequence as one line per row, (R, G), differentiable.

    Args:
        values: float (S,).
        groups: as for `mean_of_groups`. Rows with fewer than G sequences end in -inf, to which a
            softmax gives nothing.
    """
    widest = max(groups)
    if all(size == widest for size in groups):
        return values.view(-1, widest)
    sizes = torch.tensor(groups, device=values.device)
    table = values.new_full((len(groups), widest), float("-inf"))
    inside = torch.arange(widest, device=values.device) < sizes[:, None]
    return table.masked_scatter(inside, values)
