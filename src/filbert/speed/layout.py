"""Sequences and dummies laid into tensors of fixed shapes, which programs are recorded for.

T tokens, S sequences, L the longest sequence. All numbers of a batch lie in one buffer of int64,
so that one transfer brings them to a GPU: T ids, T positions, T token types, S first rows, and the
S + 1 borders as int32, two in each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Bucket(NamedTuple):
    """What batches are filled to.

    Attributes:
        num_tokens: T, even: programs assume that inputs begin at multiples of 16 bytes.
        num_sequences: S, even.
        longest: L.
    """

    num_tokens: int
    num_sequences: int
    longest: int

    def takes(self, lengths: Sequence[int]) -> bool:
        """Whether sequences of these lengths fit, with dummies in all that is left over."""
        return self.holds(sum(lengths), len(lengths), max(lengths, default=0))

    def holds(self, num_tokens: int, num_sequences: int, longest: int) -> bool:
        """The same from sums, which a search through many buckets makes once."""
        left, spare = self.num_tokens - num_tokens, self.num_sequences - num_sequences
        return 0 <= left <= spare * self.longest and spare >= 0 and longest <= self.longest

    @property
    def num_places(self) -> int:
        """Numbers in the buffer."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> tuple[int, ...]:
        tokens, sequences, _ = self
        return tokens, tokens, tokens, sequences, sequences // 2 + 1


class Inputs(NamedTuple):
    """What a buffer holds, in the order of a `StaticBatch`.

    Attributes:
        input_ids, position_ids, token_type_ids: int64 (T,).
        cu_seqlens: borders, int32 (S + 1,).
        starts: row of every sequence's first token, int64 (S,); 0 for empty ones.
    """

    input_ids: Tensor
    position_ids: Tensor
    token_type_ids: Tensor
    cu_seqlens: Tensor
    starts: Tensor


def lay_out(
    places: np.ndarray,
    bucket: Bucket,
    input_ids: np.ndarray,
    token_type_ids: np.ndarray,
    lengths: Sequence[int],
) -> None:
    """Write a batch and its dummies into `places`, every one of them.

    Dummies are sequences of id 0 after the real ones: as many as it takes, each as long as may be,
    so that they attend to themselves alone. Sequences that are then left over stay empty.

    Args:
        places: int64 (bucket.num_places,).
        bucket: that takes `lengths`.
        input_ids, token_type_ids: integers (n,), n at most T.
        lengths: of the real sequences; their sum is n.
    """
    num_tokens, num_sequences, longest = bucket
    assert bucket.takes(lengths)
    real = len(input_ids)
    # What dummies there are begins after the real tokens and ends with the bucket.
    dummies = real + longest * np.arange(1, num_sequences - len(lengths) + 1)
    borders = np.zeros(num_sequences + 1, dtype=np.int64)
    np.cumsum(lengths, out=borders[1 : len(lengths) + 1])
    np.minimum(dummies, num_tokens, out=borders[len(lengths) + 1 :])
    ids, positions, types, starts, ends = np.split(places, np.cumsum(bucket._sizes)[:-1])
    for row, values in ((ids, input_ids), (types, token_type_ids)):
        row[:real] = values
        row[real:] = 0
    positions[:] = np.arange(num_tokens)
    positions -= np.repeat(borders[:-1], np.diff(borders))
    starts[:] = borders[:-1]
    starts[starts == num_tokens] = 0
    ends.view(np.int32)[: num_sequences + 1] = borders


def views(buffer: Tensor, bucket: Bucket) -> Inputs:
    """The tensors that lie in a buffer of int64 (bucket.num_places,); nothing is copied."""
    ids, positions, types, starts, ends = torch.split(buffer, list(bucket._sizes))
    borders = ends.view(torch.int32)[: bucket.num_sequences + 1]
    return Inputs(ids, positions, types, borders, starts)
