"""How far a student is from its teacher in held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from filbert.data.examples import Example
from filbert.data.loader import by_length
from filbert.model.student import Student, Taught
from filbert.speed.precision import Precision
from filbert.tasks.distillation import PretrainingDistillation
from filbert.train.step import model_forward


def mean_losses(
    model: Student,
    task: PretrainingDistillation,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    precision: Precision,
) -> dict[str, float]:
    """The losses of a student on held-out sequences, without dropout.

    Returns:
        `loss`, the weighted sum that is trained, and each kind's mean by its name, not weighted.
    """
    device = next(model.parameters()).device
    forward = model_forward(model, device)
    was_training = model.training
    model.eval()
    sums, counts = [0.0] * len(task.weights), [0.0] * len(task.weights)
    for indices in by_length([len(e.input_ids) for e in examples], max_tokens):
        batch = [examples[i] for i in indices]
        targets = task.targets(batch).to(device)
        with torch.no_grad(), precision.autocast(device):
            losses = task.loss(cast("Taught", forward(batch, targets)), targets).tolist()
        sums = [a + b for a, b in zip(sums, losses, strict=True)]
        counts = [a + b for a, b in zip(counts, task.count(targets), strict=True)]
    model.train(was_training)
    means = [value / (count or 1.0) for value, count in zip(sums, counts, strict=True)]
    kinds = zip(task.loss_names, means, task.weights, strict=True)
    return {"loss": sum(means)} | {name: mean / weight for name, mean, weight in kinds}
