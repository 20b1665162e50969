"""A checkpoint's model in a number format, and what the format costs in metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.errors import ConfigError
from filbert.inference.int8 import quantized, recorded
from filbert.inference.onnx_session import SessionModel
from filbert.model.cpu import PackedLinear, fuses, mkl_is_faster
from filbert.model.encoder import DENSE
from filbert.model.heads import Model
from filbert.model.precision import Precision

# Metrics without a fixed range, of which less is better: reported, but held to no limit.
_NOT_SHARES = ("loss", "mse", "perplexity")


def built(
    checkpoint: Checkpoint, precision: Precision, device: torch.device, *, packed: bool = False
) -> Model:
    """Return the encoder and head of a checkpoint; int8 follows what filbert.json notes on it.

    If `packed`, weights are laid out for inference, and no gradient goes through them; see
    `pack_layers`. Int8 on a GPU is a ConfigError.
    """
    is_int8 = precision.name == "int8"
    # An int8 model shares nothing with the one that it is made from.
    model = checkpoint.build(dtype=precision.dtype, copy=not is_int8).to(device)
    if is_int8:
        keep, ranges = recorded(checkpoint, model)
        model = quantized(model, keep=keep, ranges=ranges)
    if packed:
        pack_layers(model)
    return model


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
