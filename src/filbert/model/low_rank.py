"""Low-rank adapters (LoRA): dense layers whose weights are frozen, with trained additions.

T rows, K width in, N width out, P parts of a layer, R rank.

Source: Hu et al. 2021, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.model.cpu import activate

# The addition is scaled by alpha / rank. With alpha twice the rank, the usual choice, the learning
# rate need not change with the rank.
SCALE = 2.0


class LowRankLinear(nn.Linear):
    """A dense layer that computes W x + b + SCALE B A x, of which only A and B are trained.

    Where W is several matrices, such as query, key and value, each has an A and a B of its own, as
    in files that hold the matrices separately. Created by `add_low_rank`.
    """

    def __init__(self, layer: nn.Linear, rank: int, rows: Sequence[int]) -> None:
        """Share the weights of a layer, which stop learning, and draw A.

        Args:
            rows: Rows of W that belong to each of the P parts.
        """
        has_bias = layer.bias is not None
        super().__init__(layer.in_features, layer.out_features, has_bias, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.requires_grad_(False)
        self.rows = list(rows)
        self.lora_A = nn.Parameter(torch.empty(len(rows) * rank, layer.in_features))
        self.lora_B = nn.Parameter(torch.zeros(layer.out_features, rank))
        # As in the authors' code and in PEFT: the addition begins at 0.
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, rows_TK: Tensor, activation: str | None = None) -> Tensor:
        """Compute activation(W x + b + SCALE B A x), (T, N)."""
        narrow_TM = F.linear(rows_TK, self.lora_A)
        whole_TN = F.linear(rows_TK, self.weight, self.bias)
        whole_TN = torch.addmm(whole_TN, narrow_TM, self._wide_NM().T, alpha=SCALE)
        return activate(whole_TN, activation)

    def _wide_NM(self) -> Tensor:
        """Return the B of all parts in one matrix, M = P R, with zeros for the A of other parts."""
        if len(self.rows) == 1:
            return self.lora_B
        return torch.block_diag(*torch.split(self.lora_B, self.rows))  # type: ignore[no-any-return,no-untyped-call]

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return the plain layer with the weights W + SCALE B A."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        product = torch.addmm(self.weight, self._wide_NM(), self.lora_A, alpha=SCALE)
        layer.weight, layer.bias = nn.Parameter(product), self.bias
        return layer


def merge(model: nn.Module) -> None:
    """Replace the low-rank layers of a model by plain ones that compute the same."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, LowRankLinear):
                setattr(parent, name, child.merged())
