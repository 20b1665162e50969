"""Several models that answer as one: the mean of their probabilities, or of their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.batch import PackedBatch
from filbert.errors import ConfigError
from filbert.inference.onnx_session import SessionModel
from filbert.model.heads import Model
from filbert.tasks.base import Task, TaskSpec, changed, task_to_dict

# Entries of a task that are fitted on dev rows; those of the members may differ.
_MEANS = ("thresholds", "null_threshold")


class Ensemble(Model):
    """Models with one tokenizer and one task; the output is the mean of theirs.

    Source: Hansen and Salamon 1990; the ensembles of BERT are in Devlin et al. 2019, table 2.
    """

    def __init__(self, models: Sequence[Model], mean: Callable[[Sequence[Tensor]], Tensor]) -> None:
        super().__init__(models[0].encoder, models[0].head)
        self.others = nn.ModuleList(models[1:])
        self._mean = mean

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> Tensor:
        """Compute the mean of the outputs of all members."""
        own = cast(Tensor, super().forward(batch, at))
        return self._mean([own, *(one(batch, at) for one in self.others)])


def ensemble(models: Sequence[Model | SessionModel], tasks: Sequence[Task]) -> tuple[Model, Task]:
    """Return one model and one task for several; thresholds are the mean of the members'.

    Raises:
        ConfigError: The tasks differ, or have no outputs that can be averaged.
    """
    first, specs = tasks[0], [task.spec for task in tasks]
    if any(_compared(task) != _compared(first) for task in tasks):
        raise ConfigError("These models have different tasks or labels. Name models of one task.")
    if specs[0].head_kind is None:
        raise ConfigError("Vectors of several models have no mean. Name one model.")
    if any(isinstance(model, SessionModel) for model in models):
        raise ConfigError("Several models run in torch only; leave --backend out.")
    members = [model for model in models if isinstance(model, Model)]
    fitted: dict[str, Any] = {"temperature": 1.0} if "temperature" in task_to_dict(first) else {}
    for name in _MEANS:
        values = [task_to_dict(task).get(name) for task in tasks]
        if all(value is not None for value in values):
            fitted[name] = torch.tensor(values, dtype=torch.float64).mean(0).tolist()
    heats = [spec.temperature for spec in specs]
    model = Ensemble(members, lambda outputs: _mean(outputs, heats, specs[0]))
    return model, changed(first, **fitted)


def _compared(task: Task) -> dict[str, Any]:
    own = {*_MEANS, "temperature", "class_weights", "loss_weights"}
    return {key: value for key, value in task_to_dict(task).items() if key not in own}


def _mean(outputs: Sequence[Tensor], temperatures: Sequence[float], spec: TaskSpec) -> Tensor:
    """Return the logits of the mean probabilities; of scores without classes, their mean."""
    if spec.num_labels is None or spec.problem_type == "regression":
        return torch.stack([output.float() for output in outputs]).mean(0)
    pairs = zip(outputs, temperatures, strict=True)
    logits = torch.stack([output.float() / heat for output, heat in pairs])
    if spec.multilabel:
        # The logit of a mean of sigmoids.
        return F.logsigmoid(logits).logsumexp(0) - F.logsigmoid(-logits).logsumexp(0)
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(outputs))
