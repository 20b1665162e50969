"""Adam as Google's BERT has it, LAMB on top of it, and the fused pass that both are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from filbert.train.spread import first_own_row, own_rows, summed

# Any beta to this power is 0, so that the correction of the bias divides by 1.
_ENDLESS = 1e30


def adam_pass(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    steps: Sequence[Tensor],
    group: dict[str, Any],
) -> None:
    """One AdamW step in place: `torch.optim.AdamW`'s fused pass, which reads everything once.

    Args:
        weights: and all that follow: one tensor each per parameter, whole or this rank's rows.
        steps: how many steps each has made, float32 scalars; they are counted up.
        group: lr, betas, eps and weight_decay.
    """
    # A rank that has no rows of a small parameter has nothing to do for it.
    kept = [i for i, weight in enumerate(weights) if weight.numel()]
    if not kept:
        return
    beta1, beta2 = group["betas"]
    adamw(
        [weights[i] for i in kept],
        [gradients[i] for i in kept],
        [means[i] for i in kept],
        [squares[i] for i in kept],
        [],
        [steps[i] for i in kept],
        fused=True,
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=False,
    )


def learning(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that have a gradient."""
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def own_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Their gradients: the rows of them that lie on this rank."""
    return [own_rows(p.grad) for p in parameters if p.grad is not None]


class BertAdam(torch.optim.Optimizer):
    """Adam without bias correction, and LAMB.

    With m and v the running means of gradient and squared gradient: u = m / (sqrt(v) + eps) + decay
    w, then w -= lr u. LAMB multiplies lr by |w| / |u| for every matrix; the ratio is 1 for vectors
    and where a norm is 0.

    Args:
        groups: each with "params", "weight_decay" and "parts": how many matrices lie below each
            other in each parameter, 0 for vectors. Each of them has a ratio of its own, as query,
            key and value have in the original.
        adapts: LAMB.

    Source: google-research/bert, optimization.py; google-research/albert, lamb_optimizer.py;
    You et al. 2020, algorithm 2, which corrects the bias where the code does not.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        adapts: bool = False,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})
        self.adapts = adapts

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the parameters; under FSDP, LAMB's is a meeting of the ranks."""
        adapted: list[_Part] = []
        for group in self.param_groups:
            parameters = learning(group)
            weights = [own_rows(parameter) for parameter in parameters]
            moments = [self._moments(parameter) for parameter in parameters]
            targets, asked = weights, group
            if self.adapts and group["parts"]:
                # From a weight of 0, with a rate of 1, the pass gives Adam's part of -u.
                targets = [torch.zeros_like(weight) for weight in weights]
                asked = group | {"lr": 1.0, "weight_decay": 0.0}
            # Counting it up changes nothing: 1e30 + 1 is 1e30.
            steps = [weights[0].new_full((), _ENDLESS)] * len(weights) if weights else []
            means, squares = [list(kind) for kind in zip(*moments, strict=True)] or [[], []]
            adam_pass(targets, own_gradients(parameters), means, squares, steps, asked)
            if targets is not weights and targets:
                torch._foreach_add_(targets, weights, alpha=-group["weight_decay"])
                adapted += [
                    _Part(parameter, weight, update, group, part)
                    for parameter, weight, update in zip(parameters, weights, targets, strict=True)
                    for part in range(group["parts"])
                ]
        if adapted:
            _adapt(adapted)

    def _moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return own_rows(state["exp_avg"]), own_rows(state["exp_avg_sq"])


class _Part:
    """One matrix of a parameter, as far as it lies on this rank: its weights and -u."""

    def __init__(
        self, parameter: Tensor, weight: Tensor, update: Tensor, group: dict[str, Any], part: int
    ) -> None:
        height = len(parameter) // group["parts"]
        begin = first_own_row(parameter)
        rows = slice(max(0, part * height - begin), max(0, (part + 1) * height - begin))
        self.parameter = parameter
        self.weight, self.update = weight[rows], update[rows]
        self.lr: float = group["lr"]


def _adapt(parts: Sequence[_Part]) -> None:
    """Take LAMB's step."""
    tensors = [part.weight for part in parts] + [part.update for part in parts]
    squared = torch.stack(torch._foreach_norm(tensors)).double().square_()
    norms = summed(squared, parts[0].parameter).sqrt_().view(2, -1).tolist()
    for part, weight, update in zip(parts, *norms, strict=True):
        ratio = weight / update if weight > 0 and update > 0 else 1.0
        part.weight.add_(part.update, alpha=part.lr * ratio)
