"""Dense layers in 8-bit integers: weights one scale a row, activations one scale a token.

T tokens in the batch, K width in, N width out. A product of codes is exact in 32-bit integers, so
all that is lost is lost in the rounding to codes. Scales of their own make every token independent
of its neighbours in the batch.

Source: Dettmers et al. 2022 (LLM.int8()), section 2.1, for the vector-wise scales.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from filbert.model.linear import activate

# What an activation never goes below; both forms of GELU end at -0.1700, here with room for a bf16
# rounding. Codes that start there waste nothing on the other side of zero.
LEAST = {"gelu": -0.1702, "gelu_tanh": -0.1702, "relu": 0.0}

# A row of zeros has any scale.
_SMALLEST = 1e-30


class Codes(NamedTuple):
    """Rows as integers: about `scale * codes + least`.

    Attributes:
        codes: uint8 (T, K).
        scale: float32 (T, 1).
        least: float32 (T, 1), or the one number that was given.
    """

    codes: Tensor
    scale: Tensor
    least: Tensor | float


def quantize_rows(rows_TK: Tensor, least: float | None = None) -> Codes:
    """Rows to codes, each from its least to its largest value.

    The range is not symmetric about zero: a LayerNorm's output has a few large values, most of one
    sign, and a symmetric range doubles the error of whole models (docs/log.md).

    Args:
        rows_TK: float32 or bfloat16 (T, K).
        least: no value is below this (see `LEAST`); when None, each row's own minimum.
    """
    # torch finds the ends of bf16 rows four times as slowly as those of float32 ones.
    rows_TK = rows_TK.float()
    low = rows_TK.amin(1, keepdim=True) if least is None else least
    scale = ((rows_TK.amax(1, keepdim=True) - low) / 255).clamp_min_(_SMALLEST)
    factor = scale.reciprocal()
    values = (rows_TK * factor).sub_(factor * low + 128)
    # To int8 and by one bit to uint8: three times faster than to(uint8) in torch 2.13.
    signed = values.round_().to(torch.int8)
    return Codes(signed.view(torch.uint8).bitwise_xor_(128), scale, low)


def quantize_weight(weight_NK: Tensor) -> tuple[Tensor, Tensor]:
    """A weight as int8 (N, K) in -127..127 and float32 scales (N,), one an output."""
    weight_NK = weight_NK.detach().float()
    scale_N = (weight_NK.abs().amax(1) / 127).clamp_min_(_SMALLEST)
    return (weight_NK / scale_N[:, None]).round_().to(torch.int8), scale_N


@cache
def has_integer_products() -> bool:
    """Whether this processor multiplies bytes four at a time (VNNI) and torch's build uses it.

    Without VNNI oneDNN adds pairs of products in 16 bits, which saturate; such processors get the
    same numbers from float32 products, without the speed.
    """
    return torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported()  # type: ignore[no-untyped-call]


class QuantizedLinear(nn.Module):
    """A dense layer by an integer product, for inference on a processor.

    It holds no parameters or buffers: `model.to(dtype)` must not touch its scales, and a copy of
    the model may share what never changes.
    """

    def __init__(
        self,
        layer: nn.Linear,
        *,
        least: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Args:
        layer: what it stands for; its weight is not kept.
        least: no input is below this; see `quantize_rows`.
        dtype: of the result; that of the rows when not given.
        """
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.least, self.dtype = least, dtype
        self.codes_NK, self.scale_N = quantize_weight(layer.weight)
        sums_N = self.codes_NK.long().sum(1) * self.scale_N.double()
        bias_N = torch.zeros_like(sums_N) if layer.bias is None else layer.bias.detach().double()
        # What the rows' least values are multiplied with; one that all rows share goes into the
        # bias.
        self.sums_N = sums_N.float()
        self.bias_N = (bias_N if least is None else bias_N + least * sums_N).float()
        self.zeros_N = torch.zeros(self.out_features, dtype=torch.int32)
        self.packed: Tensor | None = None
        if has_integer_products():
            self.packed = torch.ops.onednn.qlinear_prepack(self.codes_NK, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedLinear:
        return self

    def forward(self, rows_TK: Tensor, activation: str | None = None) -> Tensor:
        """activation(rows @ weight.T + bias), (T, K) to (T, N)."""
        codes, scale, least = quantize_rows(rows_TK, self.least)
        values = self._product(codes)
        # In one pass each: bias + values * scale, and least * sums.
        torch.addcmul(self.bias_N, values, scale, out=values)
        if isinstance(least, Tensor):
            values.addcmul_(least, self.sums_N)
        return activate(values, activation).to(self.dtype or rows_TK.dtype)

    def _product(self, codes_TK: Tensor) -> Tensor:
        """Codes by the weight, scaled by output, float32 (T, N)."""
        if self.packed is None:
            return (codes_TK.float() @ self.codes_NK.float().T).mul_(self.scale_N)
        # The codes are unsigned: with signed ones oneDNN 3.12 falls back to plain loops on Zen,
        # 20,000 times slower.
        return cast(
            Tensor,
            torch.ops.onednn.qlinear_pointwise(
                *(codes_TK, 1.0, 0, self.packed, self.scale_N, self.zeros_N, None),
                *(1.0, 0, torch.float32, "none", [], ""),
            ),
        )

    def extra_repr(self) -> str:
        """Widths, as nn.Linear has them."""
        return f"in_features={self.in_features}, out_features={self.out_features}, int8"
