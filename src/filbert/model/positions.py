"""Rotary positions: queries and keys are rotated by angles that grow with a token's position.

T tokens in the batch, A heads, D head size.

Source: Su et al. 2021 (RoFormer), section 3.2. Element i is rotated together with element
i + D / 2, as in GPT-NeoX and its successors; the paper pairs neighbours.
"""

from __future__ import annotations

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
    """Compute the angle p / base ** (2 i / D) of position p and pair i, for an even D.

    A larger base is for longer sequences; `scaling` is that of `rotary_frequencies`.
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
