"""Dense layers whose weights lie in the order in which oneDNN reads them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from filbert.errors import ConfigError
from filbert.model.linear import FUSED, product


class PackedLinear(nn.Module):
    """A dense layer for inference on a processor: a product need not sort the weights first.

    That is a fifth to a half of the time of a short text, and nothing of a full batch. No
    parameters or buffers: `model.to(dtype)` could not follow, and a copy of the model may share
    what never changes.
    """

    def __init__(self, layer: nn.Linear) -> None:
        """Args:
        layer: what it stands for, float32 or bf16; its weight is not kept.
        """
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        weight = layer.weight.detach()
        self.dtype = weight.dtype
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        self.own_bias = None if layer.bias is None else layer.bias.detach().clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedLinear:
        return self

    def forward(self, rows_TK: Tensor, activation: str | None = None) -> Tensor:
        """activation(rows @ weight.T + bias), (T, K) to (T, N).

        Raises:
            ConfigError: a gradient is asked for.
        """
        if torch.is_grad_enabled() and rows_TK.requires_grad:
            raise ConfigError(
                "This model's weights are packed for inference, and no gradient goes through them. "
                "Take it as filbert.load gives it."
            )
        unary, algorithm = FUSED[activation]
        rows_TK = rows_TK.to(self.dtype)
        return product(rows_TK, self.packed, self.own_bias, unary, [], algorithm)

    def extra_repr(self) -> str:
        """Widths, as nn.Linear has them."""
        return f"in_features={self.in_features}, out_features={self.out_features}, packed"
