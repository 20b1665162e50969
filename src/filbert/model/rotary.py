"""Rotary positions: queries and keys turned by angles that grow with a token's place.

T tokens in the batch, A heads, D head size.

Source: Su et al. 2021 (RoFormer), section 3.2. Element i is turned together with element i + D / 2,
as in GPT-NeoX and all who followed it; the paper pairs neighbours.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor


class Rotary(NamedTuple):
    """Cosine and sine of every token's angles: float32 (T, 1, 1, D / 2), whatever the model's type.

    bf16 cannot tell neighbouring positions apart beyond 256.
    """

    cos: Tensor
    sin: Tensor


def rotary_tables(position_ids: Tensor, head_size: int, base: float) -> Rotary:
    """Angle p / base ** (2 i / D) of position p and pair i.

    Args:
        position_ids: int64 (T,).
        head_size: D, even.
        base: of the geometric series of frequencies; larger for longer sequences.
    """
    pairs = torch.arange(0, head_size, 2, dtype=torch.float32, device=position_ids.device)
    frequencies = 1.0 / base ** (pairs / head_size)
    angles = (position_ids.float()[:, None] * frequencies)[:, None, None, :]
    return Rotary(angles.cos(), angles.sin())


def rotate(qkv_T3AD: Tensor, rotary: Rotary) -> Tensor:
    """Queries and keys turned, values as they were: (T, 3, A, D) to the same, of the same dtype."""
    return cast("Tensor", _Rotate.apply(qkv_T3AD, *rotary))  # type: ignore[no-untyped-call]


def _turned(qkv_T3AD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = qkv_T3AD.shape[-1] // 2
    first, second = qkv_T3AD[:, :2].float().chunk(2, -1)
    out = torch.empty_like(qkv_T3AD)
    out[:, :2, :, :half] = first * cos - second * sin
    out[:, :2, :, half:] = second * cos + first * sin
    out[:, 2] = qkv_T3AD[:, 2]
    return out


class _Rotate(torch.autograd.Function):
    """The gradient of a turn is the turn back; autograd's own makes a full-size zero per slice."""

    @staticmethod
    def forward(ctx: Any, qkv_T3AD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(qkv_T3AD, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grads[0], cos, -sin), None, None
