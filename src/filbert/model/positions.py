"""How attention knows positions: rotations of queries and keys, and values by distance.

T tokens in the batch, A heads, D head size, P distances.

Rotary positions rotate queries and keys by angles that grow with a token's position.

Source: Su et al. 2021 (RoFormer), section 3.2. Element i is rotated together with element
i + D / 2, as in GPT-NeoX and its successors; the paper pairs neighbours.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor


class Angles(NamedTuple):
    """Cosine and sine of every token's angles: float32 (T, 1, 1, D / 2) for all dtypes.

    bf16 cannot distinguish neighbouring positions beyond 256.
    """

    cos: Tensor
    sin: Tensor


def rotary_frequencies(head_size: int, base: float, scaling: float, device: Any = None) -> Tensor:
    """Compute 1 / base ** (2 i / D) for pair i, float32 (D / 2,).

    A factor `scaling` slows every pair down by scaling ** (2 (i + 1) / D): the slowest completely,
    the fastest hardly, so that neighbours stay apart at lengths that pre-training has not seen.

    Source: the modelling code of Alibaba-NLP/new-impl ("ntk"); scaling 1 is Su et al. 2021.
    """
    pairs = torch.arange(0, head_size, 2, dtype=torch.float32, device=device)
    slower: float = scaling ** (2 / head_size)
    return 1.0 / torch.pow(base * scaling, pairs / head_size) / slower


def rotary_angles(
    position_ids_T: Tensor, head_size: int, base: float, scaling: float = 1.0
) -> Angles:
    """Compute the angle p / base ** (2 i / D) of position p and pair i.

    Args:
        position_ids_T: int64 (T,).
        head_size: D, even.
        base: Of the geometric series of frequencies; larger for longer sequences.
        scaling: As for `rotary_frequencies`.
    """
    frequencies = rotary_frequencies(head_size, base, scaling, position_ids_T.device)
    angles = (position_ids_T.float()[:, None] * frequencies)[:, None, None, :]
    return Angles(angles.cos(), angles.sin())


def rotate(qkv_T3AD: Tensor, angles: Angles) -> Tensor:
    """Rotate queries and keys, but not values: (T, 3, A, D) to the same shape and dtype.

    There may be more angles than rows; the last ones are not used.
    """
    cos, sin = (values[: len(qkv_T3AD)] for values in angles)
    return cast("Tensor", _Rotate.apply(qkv_T3AD, cos, sin))  # type: ignore[no-untyped-call]


def _rotated(qkv_T3AD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = qkv_T3AD.shape[-1] // 2
    first, second = qkv_T3AD[:, :2].float().chunk(2, -1)
    out = torch.empty_like(qkv_T3AD)
    out[:, :2, :, :half] = first * cos - second * sin
    out[:, :2, :, half:] = second * cos + first * sin
    out[:, 2] = qkv_T3AD[:, 2]
    return out


class _Rotate(torch.autograd.Function):
    """The gradient is rotated back; autograd would allocate a full-size zero tensor per slice."""

    @staticmethod
    def forward(ctx: Any, qkv_T3AD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(qkv_T3AD, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(grads[0], cos, -sin), None, None


# Distances


def bucket_of(ahead_P: Tensor, count: int, max_distance: int) -> Tensor:
    """Return the bucket of each distance, int64 (P,).

    Half of the buckets are for keys after the query. Of each half, the first half are distances of
    their own, and the others grow logarithmically.

    Args:
        ahead_P: Position of the key less that of the query, int64.
        count: Number of buckets.
        max_distance: From here on all distances have the last bucket.

    Source: Raffel et al. 2020, section 2.1, and mesh_tensorflow, transformer_layers.py.
    """
    half, exact = count // 2, count // 4
    apart = ahead_P.abs()
    growth = torch.log(apart.float() / exact) / math.log(max_distance / exact)
    # The logarithm of distance 0 is infinite; that distance has its own bucket.
    far = exact + (growth * (half - exact)).clamp(0, half).long()
    return torch.where(apart < exact, apart, far.clamp(max=half - 1)) + half * (ahead_P > 0)


def row_of_distance(behind_P: Tensor, count: int, max_distance: int) -> Tensor:
    """Return the row of each distance in a table of 2 `count` rows, int64 (P,).

    Row `count` is distance 0. Distances up to half of `count` have rows of their own, and the
    others grow logarithmically.

    Args:
        behind_P: Position of the query less that of the key, int64.
        count: Rows for each direction.
        max_distance: From here on all distances have the last row.

    Source: He et al. 2023 (DeBERTaV3), and microsoft/DeBERTa, da_utils.py, make_log_bucket_dict.
    """
    middle = count // 2
    apart = behind_P.abs().clamp(min=middle)
    growth = torch.log(apart / middle) / torch.log(torch.tensor((max_distance - 1) / middle))
    far = (torch.ceil(growth * (middle - 1)) + middle) * behind_P.sign()
    rows = torch.where(behind_P.abs() <= middle, behind_P.float(), far).long() + count
    return rows.clamp(0, 2 * count - 1)


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the fall of the scores per token of distance for each head.

    A geometric series from 2 ** (-8 / n) for n heads, a power of two. Further heads have every
    second value of the series for 2 n.

    Source: Press et al. 2022, section 3, and ofirpress/attention_with_linear_biases.
    """
    power = 1 << (num_heads.bit_length() - 1)
    first = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    further = [2.0 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return (first + further)[:num_heads]
