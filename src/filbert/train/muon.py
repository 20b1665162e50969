"""Muon for the matrices inside the layers, AdamW for everything else, in one optimiser.

N matrices of a shape, R rows, C columns of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from filbert.model.batched import float32_by_onednn
from filbert.train.adam import adam_pass, learning, own_gradients
from filbert.train.spread import all_rows, first_own_row, own_rows

# Chosen so that five steps bring any singular value between 0.01 and 1 near 1 (0.7 to 1.2).
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_SMALLEST_NORM = 1e-7
_MOMENTUM = 0.95
# Root mean square of AdamW's updates, which Muon's are scaled to.
_USUAL_RMS = 0.2


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal before they are added.

    The same learning rate and decay as AdamW's fit, since the updates are as large.

    Args:
        groups: each with "params", "weight_decay", "in_layer": whether Muon takes them, if they are
            matrices, and "parts": how many matrices lie below each other in each parameter, 0 for
            vectors. Each of them is made orthogonal by itself.
        lr: of all; changed by "lr" of a group.
        betas: AdamW's, as is eps.
        eps: of AdamW.
        dtype: of the products that make matrices orthogonal; everything else is float32. bf16 is
            the original's; against float64 it is 12 to 15 % off (float32: 0.0006 %), which is less
            than what the five steps leave undone.

    Source: Jordan et al. 2024 (kellerjordan.github.io/posts/muon) for momentum, Nesterov's form and
    the iteration; Liu et al. 2025 (arXiv 2502.16982), section 2.2, for scale and decay.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the parameters; a meeting of the ranks under FSDP."""
        for group in self.param_groups:
            parameters = learning(group)
            if not parameters:
                continue
            if group["in_layer"] and group["parts"]:
                self._turn(parameters, group)
            else:
                self._adam(parameters, group)

    def _turn(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Muon's step."""
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        gradients = own_gradients(parameters)
        momenta = [own_rows(self.state[parameter]["momentum"]) for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1.0 - _MOMENTUM)
        wanted = torch._foreach_lerp(gradients, momenta, _MOMENTUM)
        shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for parameter, update in zip(parameters, wanted, strict=True):
            shapes.setdefault(parameter.shape, []).append((parameter, update.to(self.dtype)))
        for (height, width), some in shapes.items():
            whole = torch.stack([all_rows(update, parameter) for parameter, update in some])
            matrices = whole.view(-1, height // group["parts"], width)
            turned = orthogonal(matrices).reshape(whole.shape)
            scale = _USUAL_RMS * math.sqrt(max(matrices.shape[1:]))
            for (parameter, _), update in zip(some, turned, strict=True):
                weight, begin = own_rows(parameter), first_own_row(parameter)
                weight.mul_(1.0 - group["lr"] * group["weight_decay"])
                weight.add_(update[begin : begin + len(weight)], alpha=-group["lr"] * scale)

    def _adam(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """AdamW's step."""
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        adam_pass(
            [own_rows(parameter) for parameter in parameters],
            own_gradients(parameters),
            [own_rows(state["exp_avg"]) for state in states],
            [own_rows(state["exp_avg_sq"]) for state in states],
            [state["step"] for state in states],
            group,
        )


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrices, roughly: their singular values become 0.7 to 1.2.

    Five steps of a Newton-Schulz iteration of fifth order, in the dtype of `matrices`.

    Args:
        matrices: (N, R, C). Their size does not matter; all zeros stay zeros.

    Returns:
        (N, R, C).
    """
    # Products with the shorter side are the smaller ones.
    is_tall = matrices.shape[1] > matrices.shape[2]
    turned = matrices.mT.contiguous() if is_tall else matrices
    norms = turned.norm(dim=(1, 2), keepdim=True).clamp_min(_SMALLEST_NORM)
    turned = turned / norms
    a, b, c = _COEFFICIENTS
    with float32_by_onednn(turned.device.type == "cpu" and turned.dtype == torch.float32):
        for _ in range(_ITERATIONS):
            square = turned @ turned.mT
            fourth = torch.baddbmm(square, square, square, beta=b, alpha=c)
            turned = torch.baddbmm(turned, fourth, turned, beta=a)
    return turned.mT if is_tall else turned
