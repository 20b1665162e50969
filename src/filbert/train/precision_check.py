"""What bf16 and int8 cost a model that was just trained: its dev rows, as `predict` has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.inference.building import built
from filbert.inference.forward import default_max_tokens, run_model
from filbert.inference.precision_loss import precision_loss
from filbert.model.int8 import has_integer_products
from filbert.model.precision import Precision, choose_precision
from filbert.tasks.base import Task, set_vector_head
from filbert.train.prepare import Split


def precision_losses(
    checkpoint: Checkpoint,
    weights: dict[str, Tensor],
    task: Task,
    dev: Split,
    exact: dict[str, Any],
    device: torch.device,
) -> dict[str, dict[str, Any] | None]:
    """How the metrics on the dev rows move when the model computes in less than float32.

    Args:
        checkpoint: what the model was built from.
        weights: by the names of Model.state_dict(), as they are saved.
        task: calibrated, with its thresholds.
        dev: the rows.
        exact: their metrics in float32.
        device: where the model runs.

    Returns:
        `bf16_loss`, what `--precision auto` goes by, and `int8_loss`, what is told of int8. Each
        has `metric`, the one that falls most, its values in `float32` and `bf16` or `int8`, `loss`
        (the first less the second, as a share), `change` (the largest of any metric, up or down)
        and `rows`. None where that format is not fast, so that nobody would take it, for a task
        whose metrics are no shares or correlations, and where one of them is no longer defined.
    """
    # Nothing that was noted on int8 of the weights before training is true of these.
    trained = replace(checkpoint, tensors=weights, filbert=None)
    wanted = {"bf16": choose_precision("auto", device).name == "bf16"}
    wanted["int8"] = device.type == "cpu" and has_integer_products()
    return {
        f"{name}_loss": _loss(trained, name, task, dev, exact, device) if is_fast else None
        for name, is_fast in wanted.items()
    }


def _loss(
    trained: Checkpoint,
    name: str,
    task: Task,
    dev: Split,
    exact: dict[str, Any],
    device: torch.device,
) -> dict[str, Any] | None:
    """The same of one format."""
    model = built(trained, Precision(name, "compared"), device)
    set_vector_head(model, task)
    outputs = run_model(
        model,
        dev.examples,
        max_tokens=default_max_tokens(device, model.config, name),
        # The model's own layers are in that format, so that nothing has to be cast.
        precision=Precision("float32", "as it is"),
    )
    found = task.metrics(dev.gold, task.decode(outputs, dev.examples))
    compared = precision_loss(exact, found, task.spec.metric_names, whole=task.spec.metric_scale)
    worst = compared.worst
    if worst is None or compared.lost:
        return None
    return {
        "metric": worst.name,
        "float32": worst.exact,
        name: worst.other,
        "loss": worst.share,
        "change": compared.largest_change,
        "rows": len(dev.rows),
    }
