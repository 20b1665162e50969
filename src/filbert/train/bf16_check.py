"""What bf16 costs a model that has just been trained: its dev rows, as `predict` answers them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from filbert.formats.checkpoint import Checkpoint
from filbert.speed.execution import default_max_tokens, run_model
from filbert.speed.loss import precision_loss, whole_of
from filbert.speed.precision import Precision, choose_precision
from filbert.tasks.base import Task
from filbert.train.prepare import Split


def bf16_loss(
    checkpoint: Checkpoint,
    weights: dict[str, Tensor],
    task: Task,
    dev: Split,
    exact: dict[str, Any],
    device: torch.device,
) -> dict[str, Any] | None:
    """How far the worst metric falls on the dev rows when all weights are in bf16.

    Args:
        checkpoint: what the model was built from.
        weights: by the names of Model.state_dict(), as they are saved.
        task: calibrated, with its thresholds.
        dev: the rows.
        exact: their metrics in float32.
        device: where the model runs.

    Returns:
        `metric`, its values in `float32` and `bf16`, `loss` (the first less the second, as a share)
        and `rows`: what `--precision auto` goes by. None where bf16 is not fast, so that nobody
        would take it, for a task whose metrics are no shares or correlations, and where one of them
        is no longer defined.
    """
    if choose_precision("auto", device).name != "bf16":
        return None
    model = replace(checkpoint, tensors=weights).build(dtype=torch.bfloat16).to(device)
    if task.head_kind is None:
        model.head = task.head(model.config)
    outputs = run_model(
        model,
        dev.examples,
        max_tokens=default_max_tokens(device, model.config),
        # Weights that are bf16 themselves need no casts.
        precision=Precision("float32", "as it is"),
    )
    found = task.metrics(dev.gold, task.decode(outputs, dev.examples))
    compared = precision_loss(exact, found, task.metric_names, whole=whole_of(task))
    worst = compared.worst
    if worst is None or compared.lost:
        return None
    facts = {"metric": worst.name, "float32": worst.exact, "bf16": worst.other, "loss": worst.share}
    return facts | {"rows": len(dev.rows)}
