"""Dense layers in 8-bit integers: one scale per row of the weights, one per token of activations.

T tokens in the batch, K width in, N width out. A product of codes is exact in 32-bit integers, so
the only loss is the rounding to codes. A scale per token makes every token independent of its
neighbours in the batch. A `StaticLinear` has one scale for all tokens, which was measured before:
it is faster and less exact.

Source: Dettmers et al. 2022 (LLM.int8()), section 2.1, for the vector-wise scales.
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from filbert.model.cpu import FUSED, InferenceLinear, activate

# Lower bound of an activation; both forms of GELU end at -0.1700, here with a margin for bf16
# rounding. Codes that start there use their whole range.
LEAST = {"gelu": -0.1702, "gelu_tanh": -0.1702, "relu": 0.0}

# For a row of zeros, which any scale fits.
_SMALLEST = 1e-30

# Values of ONEDNN_MAX_CPU_ISA that exclude VNNI.
_WITHOUT_VNNI = ("SSE41", "AVX", "AVX2", "AVX512_CORE")


def quantize_rows(
    rows_TK: Tensor, least: float | None = None
) -> tuple[Tensor, Tensor, Tensor | float]:
    """Quantise float32 or bf16 rows, each from its minimum to its maximum.

    The range is not symmetric about zero: a LayerNorm's output has a few large values, most of one
    sign, and a symmetric range doubles the error of whole models (docs/log.md).

    Args:
        least: Lower bound of all values (see `LEAST`); None for each row's own minimum.

    Returns:
        Codes, uint8 (T, K), scales and lower bounds, (T, 1), of approximately scale * code + bound.
    """
    # torch computes minimum and maximum of bf16 rows four times as slowly as of float32 rows.
    rows_TK = rows_TK.float()
    low = rows_TK.amin(1, keepdim=True) if least is None else least
    scale = ((rows_TK.amax(1, keepdim=True) - low) / 255).clamp_min_(_SMALLEST)
    factor = scale.reciprocal()
    values = (rows_TK * factor).sub_(factor * low + 128)
    # To int8 and by one bit to uint8: three times faster than to(uint8) in torch 2.13.
    signed = values.round_().to(torch.int8)
    return signed.view(torch.uint8).bitwise_xor_(128), scale, low


def quantize_weight(weight_NK: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise a weight: int8 (N, K) in -127..127 and float32 scales (N,), one per output."""
    weight_NK = weight_NK.detach().float()
    scale_N = (weight_NK.abs().amax(1) / 127).clamp_min_(_SMALLEST)
    return (weight_NK / scale_N[:, None]).round_().to(torch.int8), scale_N


@cache
def has_integer_products() -> bool:
    """Return whether this CPU multiplies bytes four at a time (VNNI) and torch's build uses it.

    Without VNNI oneDNN adds pairs of products in 16 bits, which saturate; such CPUs compute the
    same numbers by float32 products, without the speed.
    """
    # Read by oneDNN, which then has no kernel with VNNI either.
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in _WITHOUT_VNNI:
        return False
    return torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported()  # type: ignore[no-untyped-call]


class QuantizedLinear(InferenceLinear):
    """A dense layer by an integer product, for inference on a CPU.

    Args:
        least: Lower bound of the inputs; see `quantize_rows`.
        dtype: Of the result; None for that of the rows.
    """

    form = "int8"

    def __init__(
        self,
        layer: nn.Linear,
        *,
        least: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(layer)
        self.least, self.dtype = least, dtype
        self.codes_NK, self.scale_N = quantize_weight(layer.weight)
        sums_N = self.codes_NK.long().sum(1) * self.scale_N.double()
        bias_N = torch.zeros_like(sums_N) if layer.bias is None else layer.bias.detach().double()
        # Factor of the rows' minima; a bound that all rows share goes into the bias.
        self.sums_N = sums_N.float()
        self.bias_N = (bias_N if least is None else bias_N + least * sums_N).float()
        self.zeros_N = torch.zeros(self.out_features, dtype=torch.int32)
        self.packed: Tensor | None = None
        if has_integer_products():
            self.packed = torch.ops.onednn.qlinear_prepack(self.codes_NK, None)

    def forward(self, rows_TK: Tensor, activation: str | None = None) -> Tensor:
        """Compute activation(rows @ weight.T + bias), (T, K) to (T, N)."""
        codes, scale, least = quantize_rows(rows_TK, self.least)
        values = self._product(codes)
        # In one pass each: bias + values * scale, and least * sums.
        torch.addcmul(self.bias_N, values, scale, out=values)
        if isinstance(least, Tensor):
            values.addcmul_(least, self.sums_N)
        return activate(values, activation).to(self.dtype or rows_TK.dtype)

    def _product(self, codes_TK: Tensor) -> Tensor:
        """Multiply codes by the weight, scaled per output, float32 (T, N)."""
        if self.packed is None:
            return (codes_TK.float() @ self.codes_NK.float().T).mul_(self.scale_N)
        # The codes are unsigned: with signed ones oneDNN 3.12 falls back to plain loops on Zen,
        # 20,000 times slower.
        product = torch.ops.onednn.qlinear_pointwise(
            codes_TK, 1.0, 0, self.packed, self.scale_N, self.zeros_N, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return cast(Tensor, product)


class InputRange(NamedTuple):
    """The range of a layer's inputs, measured on rows of the kind that it will read.

    Attributes:
        low, high: Of the inputs divided by `factors`; 0 is between them.
        factors: Of the columns, float32 (K,); None for 1.
        apart: Columns far above all others; an export multiplies them in float32.
    """

    low: float
    high: float
    factors: Tensor | None = None
    apart: tuple[int, ...] = ()

    @property
    def scale(self) -> float:
        """The step between two codes."""
        return max((self.high - self.low) / 255, _SMALLEST)

    @property
    def zero(self) -> int:
        """The code of 0."""
        return round(-self.low / self.scale)


# The exponent of the inputs in `smoothed_range`: of 0 to 0.65, the largest least cosine on MiniLM.
_SMOOTHING = 0.65


def smoothed_range(layer: nn.Linear, low_K: Tensor, high_K: Tensor, *, smooth: bool) -> InputRange:
    """Return the range of a layer's inputs from the least and largest value of each column.

    Args:
        smooth: Divide columns of large values by a factor, and multiply their weights by it. If
            not, columns more than twice as large as nearly all others are `apart`.

    Source: Xiao et al. 2023 (SmoothQuant), equation 4; Dettmers et al. 2022 (LLM.int8()).
    """
    largest_K = torch.maximum(low_K.abs(), high_K.abs())
    factors, apart = None, []
    if smooth:
        weights = layer.weight.detach().float().abs().amax(0).clamp_min(1e-5)
        factors = largest_K.clamp_min(1e-5) ** _SMOOTHING / weights ** (1 - _SMOOTHING)
        factors = factors / factors.median()
        low_K, high_K = low_K / factors, high_K / factors
    else:
        apart = (largest_K > 2 * largest_K.quantile(0.99)).nonzero().flatten().tolist()
    low, high = min(float(low_K.min()), 0.0), max(float(high_K.max()), 0.0)
    return InputRange(low, high, factors, tuple(apart))


class StaticLinear(InferenceLinear):
    """A dense layer by an integer product with one scale for all tokens, for inference on a CPU.

    Args:
        inputs: The range of its inputs.
        outputs: The range of its outputs, if it gives codes to the next layer.
        dtype: Of the outputs without `outputs`.
    """

    form = "static int8"

    def __init__(
        self,
        layer: nn.Linear,
        inputs: InputRange,
        *,
        outputs: InputRange | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(layer)
        self.inputs, self.outputs, self.dtype = inputs, outputs, dtype
        weight_NK, factors = layer.weight.detach().float(), inputs.factors
        self.codes_NK, self.scale_N = quantize_weight(
            weight_NK if factors is None else weight_NK * factors
        )
        # Codes are rounded as signed ones and become unsigned by one bit, as in `quantize_rows`.
        self.offset = torch.tensor(float(inputs.zero - 128))
        steps = inputs.scale * (torch.ones(()) if factors is None else factors)
        self.per_step = steps.reciprocal()
        self.bias_N = None if layer.bias is None else layer.bias.detach().float()
        self.zeros_N = torch.zeros(self.out_features, dtype=torch.int32)
        self.packed: Tensor | None = None
        if has_integer_products():
            self.packed = torch.ops.onednn.qlinear_prepack(self.codes_NK, None)

    def forward(self, rows_TK: Tensor, activation: str | None = None) -> Tensor:
        """Compute activation(rows @ weight.T + bias), (T, K) to (T, N), also of codes (uint8)."""
        codes = rows_TK
        if codes.dtype != torch.uint8:
            values = torch.addcmul(self.offset, rows_TK.float(), self.per_step)
            codes = values.round_().clamp_(-128, 127).to(torch.int8)
            codes = codes.view(torch.uint8).bitwise_xor_(128)
        if self.packed is None:
            rows = (codes.float() - self.inputs.zero) * self.inputs.scale
            result = rows @ (self.codes_NK.float() * self.scale_N[:, None]).T
            result = activate(result if self.bias_N is None else result + self.bias_N, activation)
            if self.outputs is None:
                return result.to(self.dtype)
            result = (result / self.outputs.scale).round_().add_(self.outputs.zero)
            return result.clamp_(0, 255).to(torch.uint8)
        unary, algorithm = FUSED[activation]
        outputs, dtype = self.outputs or InputRange(0.0, 255.0), self.dtype
        product = torch.ops.onednn.qlinear_pointwise(
            codes, self.inputs.scale, self.inputs.zero, self.packed,
            self.scale_N, self.zeros_N, self.bias_N, outputs.scale, outputs.zero,
            torch.uint8 if self.outputs else dtype, unary, [], algorithm,
        )  # fmt: skip
        return cast(Tensor, product)
