"""AdamW and the learning-rate schedule."""

from __future__ import annotations

import torch
from torch import nn

from filbert.train.options import TrainOptions


def new_optimizer(model: nn.Module, options: TrainOptions) -> torch.optim.AdamW:
    """Bias-corrected AdamW with decoupled decay, none on biases and LayerNorm (every vector).

    Bias correction is what the first releases lacked and what small data sets need (Zhang et al.
    2021, section 4).
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim >= 2]
    vectors = [p for p in trained if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": options.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=options.lr, betas=(options.beta1, options.beta2), eps=options.eps, fused=True
    )


def learning_rate(step: int, *, steps: int, warmup: float, peak: float) -> float:
    """Rise linearly to `peak` over the first `warmup` share of `steps`, then fall linearly to 0.

    Step counts from 0; the last step still has a rate above 0. As transformers' "linear" schedule.
    """
    rising = int(warmup * steps)
    if step < rising:
        return peak * step / rising
    return peak * (steps - step) / max(1, steps - rising)
