"""The model of a checkpoint in a number format, and what the format costs in metrics."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.errors import ConfigError, printable
from filbert.inference.int8 import quantized, recorded
from filbert.inference.onnx_session import SessionModel
from filbert.model.config import INFERENCE_PRECISIONS
from filbert.model.cpu import PackedLinear, fuses, mkl_is_faster
from filbert.model.encoder import DENSE
from filbert.model.heads import Model
from filbert.model.precision import MIN_GAIN, Precision, choose_device, choose_precision, gain
from filbert.tasks.base import Task

log = logging.getLogger(__name__)

# The most that "auto" may change any metric on the dev rows, up or down: 0.3 points.
AUTO_MAY_CHANGE = 0.003
# Metrics without a fixed range, of which less is better: reported, but held to no limit.
_NOT_SHARES = ("loss", "mse", "perplexity")


def open_model(
    folder: Path, checkpoint: Checkpoint, task: Task | None, options: Mapping[str, Any]
) -> tuple[Model | SessionModel, Precision]:
    """Return a model, and the format that its products are cast to.

    The options are those of `Predictor.load`, after `check_backend`. If `packed`, weights are laid
    out for inference, and no gradient goes through them; see `pack_layers`.
    """
    uncast = Precision("float32", "default")
    if options["backend"] == "onnxruntime":
        return SessionModel(folder, checkpoint), uncast
    device = choose_device(options["device"])
    chosen = choose_precision(options["precision"], device, INFERENCE_PRECISIONS)
    if options["precision"] == "auto":
        chosen = keeping_answers(chosen, checkpoint, task, device)
    model = built(checkpoint, chosen, device)
    if options["packed"]:
        pack_layers(model)
    # Weights that are bf16 need no casts.
    return model, uncast if chosen.name == "bf16" else chosen


def built(checkpoint: Checkpoint, precision: Precision, device: torch.device) -> Model:
    """Return the encoder and head of a checkpoint; int8 follows what filbert.json notes on it.

    Int8 on a GPU is a ConfigError.
    """
    if precision.name != "int8":
        return checkpoint.build(dtype=precision.dtype).to(device)
    # An int8 model shares nothing with the one that it is made from.
    model = checkpoint.build(copy=False).to(device)
    keep, ranges = recorded(checkpoint, model)
    return quantized(model, keep=keep, ranges=ranges)


def number_format(model: Model | SessionModel, precision: Precision, checkpoint: Checkpoint) -> str:
    """Return the number format of a loaded model's products: float32, bf16 or int8.

    bf16 weights need no casts. `checkpoint` notes what a graph, which has no weights, was made in.
    """
    if isinstance(model, SessionModel):
        noted = (checkpoint.filbert or {}).get("onnx") or {}
        return str(noted.get("precision", "float32"))
    is_bf16 = next(model.parameters()).dtype == torch.bfloat16
    return "bf16" if precision.name == "float32" and is_bf16 else precision.name


def pack_layers(model: Model) -> None:
    """Put `PackedLinear` in the place of an encoder's dense layers.

    One layer after the other, so that the old weights can go at once. Models on a GPU, in int8 or
    smaller than the fast products stay as they are.
    """
    for layer in model.encoder.layers:
        for name in DENSE:
            dense = getattr(layer, name)
            if (
                isinstance(dense, nn.Linear)
                and fuses(dense)
                and not any(mkl_is_faster(dense.weight, rows) for rows in (16, 128))
            ):
                setattr(layer, name, PackedLinear(dense))


# Costs that training recorded


def keeping_answers(
    fast: Precision, checkpoint: Checkpoint, task: Task | None, device: torch.device
) -> Precision:
    """Return what "auto" uses for a model: the fastest format that training found to keep answers.

    `fast` is the faster one of bf16 and float32 on this machine.
    """
    if task is None:
        return fast
    reason = _changed_answers(checkpoint, "bf16") if fast.name == "bf16" else None
    least = gain("bf16") if fast.name == "bf16" and reason is None else MIN_GAIN
    keeps = device.type == "cpu" and _changed_answers(checkpoint, "int8") is None
    if keeps and (times := gain("int8")) > least:
        return Precision("int8", f"it is {times:.1f} times as fast as float32 here")
    if reason is None:
        return fast
    log.info("precision auto: float32, since %s", printable(reason, 200))
    return Precision("float32", reason)


def _changed_answers(checkpoint: Checkpoint, name: str) -> str | None:
    """Return why "auto" does not use a format for a model; None if it keeps the answers."""
    cost = _measured_cost(checkpoint, f"{name}_loss")
    if cost is None:
        return f"the cost of {name} for this model's answers was not measured"
    if not cost["loss"] <= AUTO_MAY_CHANGE:  # also NaN
        points, metric = 100 * cost["loss"], cost.get("metric")
        return f"{name} costs {points:.2f} points of {metric} on its dev rows"
    if not cost["change"] <= AUTO_MAY_CHANGE:
        return f"{name} moves a metric by {100 * cost['change']:.2f} points on its dev rows"
    return None


def int8_warning(precision: Precision, checkpoint: Checkpoint, task: Task | None) -> str | None:
    """Return a warning if int8 is known to cost accuracy, or if its cost was not measured."""
    stored = checkpoint.filbert or {}
    exported, unmeasured = stored.get("onnx"), "int8 was not compared with float32 on labelled rows"
    if task is None or isinstance(stored.get("int8"), dict):
        return None
    if isinstance(exported, dict):
        is_unmeasured = exported.get("precision") == "int8" and "data" not in exported
        return f"{unmeasured}: filbert export --data FILE" if is_unmeasured else None
    if precision.name != "int8":
        return None
    cost = _measured_cost(checkpoint, "int8_loss")
    if cost is None:
        return f"{unmeasured}: filbert convert --to int8 --data FILE compares them"
    if cost["loss"] <= AUTO_MAY_CHANGE:
        return None
    metric = printable(str(cost.get("metric")), 50)
    return (
        f"int8 costs {100 * cost['loss']:.2f} points of {metric} on the dev rows of its training: "
        "filbert convert --to int8 chooses layers that stay float32"
    )


def _measured_cost(checkpoint: Checkpoint, name: str) -> dict[str, Any] | None:
    """Return what training recorded about a number format, with its `loss` and `change`."""
    cost = (checkpoint.filbert or {}).get(name)
    is_number = isinstance(cost, dict) and all(
        isinstance(cost.get(key), int | float) for key in ("loss", "change")
    )
    return cost if is_number else None


# Costs in metrics


class MetricChange(NamedTuple):
    """One metric in two precisions; `whole` is the most that it can be, such as 1 or 100."""

    name: str
    exact: float
    other: float
    whole: float = 1.0

    @property
    def loss(self) -> float:
        """By how much `other` is worse; negative where it is better."""
        less_is_better = self.name in _NOT_SHARES
        return self.other - self.exact if less_is_better else self.exact - self.other

    @property
    def share(self) -> float:
        """The loss as a share of the whole, which is what limits are about."""
        return self.loss / self.whole


class PrecisionLoss(NamedTuple):
    """How the metrics of a task change.

    Attributes:
        changes: Of the metrics that both have.
        worst: Of the shares and correlations among them the one that loses most; None without any.
        lost: Shares and correlations that are no longer defined.
        largest_change: Of one of them, up or down, as a share of the whole; 0 without any.
    """

    changes: tuple[MetricChange, ...]
    worst: MetricChange | None
    lost: tuple[str, ...] = ()
    largest_change: float = 0.0

    def fault(self, limit: float) -> str | None:
        """Return why a limit such as 0.005 is exceeded, without a full stop; None if it is kept.

        Raises:
            ConfigError: There is no share or correlation that the limit could be about.
        """
        if self.lost:
            return f"{self.lost[0]} is no longer defined, as when all answers are the same"
        if self.worst is None:
            raise ConfigError(
                f"There is no metric that --max-loss could hold to {limit:g}. Give labelled rows "
                "on which one is defined: with more than one label or value."
            )
        if self.worst.share <= limit:
            return None
        name, exact, other, whole = self.worst
        of = "" if whole == 1.0 else f" of {whole:g}"
        fall = f"{name} falls from {exact:.4f} to {other:.4f}, by {self.worst.loss:.4f}{of}"
        return f"{fall}, and --max-loss allows {limit}"

    def check(self, limit: float, what: str, precision: str = "float32") -> None:
        """Raise a ConfigError that begins with `what` if a share or correlation falls by more."""
        if fault := self.fault(limit):
            advice = " filbert convert --to int8 chooses layers that stay float32."
            raise ConfigError(f"{what}: {fault}.{advice if precision == 'int8' else ''}")


def precision_loss(
    exact: Mapping[str, Any],
    other: Mapping[str, Any],
    names: Sequence[str],
    *,
    whole: float = 1.0,
) -> PrecisionLoss:
    """Compare metrics of the same model on the same rows.

    Those that count are a task's `metric_names`, and `whole` is its `metric_scale`.
    """
    both = [name for name in names if None not in (exact.get(name), other.get(name))]
    changes = tuple(MetricChange(name, exact[name], other[name], whole) for name in both)
    defined = [name for name in names if name not in _NOT_SHARES and _is_defined(exact.get(name))]
    lost = tuple(name for name in defined if not _is_defined(other.get(name)))
    # NaN is neither above nor below a limit, and the result of max depends on its position.
    shares = [one for one in changes if one.name in defined and one.name not in lost]
    worst = max(shares, key=lambda change: change.share, default=None)
    largest = max((abs(change.share) for change in shares), default=0.0)
    return PrecisionLoss(changes, worst, lost, largest)


def _is_defined(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
