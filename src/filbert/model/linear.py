"""Dense layers by the fastest product at hand.

Off the tape, a processor's products go straight to oneDNN, which can also apply the activation
while the result is still in registers. torch itself sends float32 products to MKL, which keeps to
256-bit instructions on AMD processors: 220 GFLOP/s on two Zen 5 cores, where oneDNN reaches 490
(docs/log.md).
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Our activation -> oneDNN's (unary operation, algorithm).
FUSED = {
    None: ("none", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
}

# Smaller layers stay with torch's product: there is little to gain, and its sums come in the order
# that other tools have, to the last bit.
_WORTH_WEIGHTS = 2**17


def activate(values: Tensor, name: str | None) -> Tensor:
    """The non-linearity called `name`: gelu (erf form), gelu_tanh, relu, tanh; None for none.

    BERT's published weights mean the erf form; Google's repository switched to the tanh form on
    2019-02-07.
    """
    if name is None:
        return values
    if name == "gelu":
        return F.gelu(values)
    if name == "gelu_tanh":
        return F.gelu(values, approximate="tanh")
    if name == "relu":
        return F.relu(values)
    if name == "tanh":
        return torch.tanh(values)
    raise ValueError(f"no activation {name!r}")


@cache
def _fused_dtypes() -> frozenset[torch.dtype]:
    """What oneDNN can multiply on this processor."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return frozenset()
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return frozenset({torch.float32, torch.bfloat16})
    return frozenset({torch.float32})


def bf16_is_fused() -> bool:
    """Whether oneDNN multiplies bf16 on this processor."""
    return torch.bfloat16 in _fused_dtypes()


def fuses(layer: nn.Linear) -> bool:
    """Whether oneDNN has a product for a layer's weight that is worth the call."""
    weight = layer.weight
    return (
        weight.device.type == "cpu"
        and weight.numel() >= _WORTH_WEIGHTS
        and weight.dtype in _fused_dtypes()
    )


def dense(rows: Tensor, layer: nn.Module, activation: str | None = None) -> Tensor:
    """activation(rows @ weight.T + bias): (T, in) to (T, out).

    A layer that is no nn.Linear, such as a quantised or packed one, knows its own product.
    """
    if not isinstance(layer, nn.Linear):
        return layer(rows, activation)  # type: ignore[no-any-return]
    fused = (
        fuses(layer)
        and rows.device.type == "cpu"
        and activation in FUSED
        and rows.dtype == layer.weight.dtype
        # Whoever listens to the layer would hear nothing.
        and not layer._forward_hooks
        and not (torch.is_grad_enabled() and (rows.requires_grad or layer.weight.requires_grad))
        and not torch.is_autocast_enabled("cpu")
    )
    if not fused:
        return activate(layer(rows), activation)
    unary, algorithm = FUSED[activation]
    return product(rows, layer.weight, layer.bias, unary, [], algorithm)


def product(*arguments: Any) -> Tensor:
    """oneDNN's: rows, weight, bias, unary operation, its scalars, its algorithm."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(*arguments))
