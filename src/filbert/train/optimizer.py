"""AdamW and the learning-rate schedule."""

from __future__ import annotations

import torch
from torch import Tensor

from filbert.model.heads import Model
from filbert.train.options import TrainOptions
from filbert.train.trainable import rate_shares


def new_optimizer(model: Model, options: TrainOptions) -> torch.optim.AdamW:
    """Bias-corrected AdamW with decoupled decay, none on biases and LayerNorm (every vector).

    Bias correction is what the first releases lacked and what small data sets need (Zhang et al.
    2021, section 4). A group's "share" is what its learning rate is to be multiplied by.
    """
    shares = rate_shares(model, options.layer_decay)
    groups: dict[tuple[float, bool], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((shares[name], parameter.ndim >= 2), []).append(parameter)
    described = [
        {"params": some, "weight_decay": options.weight_decay * decays, "share": share}
        for (share, decays), some in groups.items()
    ]
    return torch.optim.AdamW(
        described, lr=options.lr, betas=(options.beta1, options.beta2), eps=options.eps, fused=True
    )


def learning_rate(step: int, *, steps: int, warmup: float, peak: float) -> float:
    """Rise linearly to `peak` over the first `warmup` share of `steps`, then fall linearly to 0.

    Step counts from 0; the last step still has a rate above 0. As transformers' "linear" schedule.
    """
    rising = int(warmup * steps)
    if step < rising:
        return peak * step / rising
    return peak * (steps - step) / max(1, steps - rising)
