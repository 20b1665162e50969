"""Plots of the training itself: loss, learning rate, dev metrics, and the lengths of the texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.report import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss_curve(
    steps: Sequence[Mapping[str, Any]],
    evaluations: Sequence[Mapping[str, Any]],
    *,
    dev_key: str = "loss",
    ylabel: str = "loss (nats)",
) -> Figure:
    """Training loss per step with its running mean, the dev loss, and below them the learning rate.

    Args:
        steps: lines with `step` and any of `loss` and `lr`; at least one.
        evaluations: lines with `step` and `metrics`, of which `dev_key` is drawn.
        dev_key: the dev metric that is the same as the loss.
        ylabel: what the loss is, with its unit.
    """
    figure, axes, lower = canvas.stacked_figure("step", ylabel, "learning rate")
    at = np.array([line["step"] for line in steps])
    loss = np.array([_number(line.get("loss")) for line in steps])
    is_long = len(loss) >= 20
    axes.plot(
        at, loss, color=canvas.BLUE, alpha=0.3 if is_long else 1, linewidth=0.9 if is_long else 1.6,
        label="train", marker="o" if len(loss) < 3 else None, markersize=4,
    )  # fmt: skip
    if is_long:
        smooth = running_mean(loss, max(5, len(loss) // 25))
        axes.plot(at, smooth, color=canvas.BLUE, linewidth=1.8, label="train, running mean")
    measured = [(line["step"], _number(line["metrics"].get(dev_key))) for line in evaluations]
    if any(np.isfinite(value) for _, value in measured):
        axes.plot(
            *zip(*measured, strict=True),
            color=canvas.VERMILLION, marker="o", markersize=4.5, linewidth=1.6, label="dev",
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    canvas.add_legend(axes, "upper right")
    rate = [_number(line.get("lr")) for line in steps]
    lower.plot(at, rate, color=canvas.QUIET, linewidth=1.6)
    lower.set_ylim(bottom=0)
    lower.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    lower.yaxis.get_offset_text().set(color=canvas.QUIET, fontsize=8)
    return figure


def gradient_curve(steps: Sequence[Mapping[str, Any]], clip: float | None) -> Figure:
    """Norm of the whole gradient before clipping, at every step, with the border of clipping.

    Args:
        steps: lines with `step` and `grad_norm`; at least one norm is above 0.
        clip: where longer gradients are cut; None or 0 for nowhere.
    """
    figure, axes = canvas.new_figure("step", "gradient norm (logarithmic)")
    at = [line["step"] for line in steps]
    norm = np.array([_number(line.get("grad_norm")) for line in steps])
    is_long = len(norm) >= 20
    axes.plot(
        at, norm, color=canvas.BLUE, alpha=0.3 if is_long else 1, linewidth=0.9 if is_long else 1.6,
        marker="o" if len(norm) < 3 else None, markersize=4,
    )  # fmt: skip
    if is_long:
        smooth = running_mean(norm, max(5, len(norm) // 25))
        axes.plot(at, smooth, color=canvas.BLUE, linewidth=1.8, label="running mean")
    if clip:
        axes.axhline(
            clip, color=canvas.INK, linewidth=1, linestyle=(0, (4, 3)), label=f"cut to {clip:g}"
        )
    axes.set_yscale("log")
    canvas.add_legend(axes, "upper right")
    return figure


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean over `width` neighbours, fewer at both ends, without NaN; float64 (N,) in and out."""
    kernel = np.ones(width)
    known = np.isfinite(values)
    total = np.convolve(np.where(known, values, 0.0), kernel, mode="same")
    num = np.convolve(known.astype(float), kernel, mode="same")
    return np.where(num > 0.5, total / np.maximum(num, 1), np.nan)


def dev_metric_curves(
    evaluations: Sequence[Mapping[str, Any]],
    columns: Sequence[tuple[str, str]],
    best_step: int | None,
) -> Figure:
    """Headline metrics on dev at every evaluation, the kept step marked.

    Args:
        evaluations: lines with `step` and `metrics`.
        columns: (metric key, name in the legend).
        best_step: the step whose weights were kept, if known.
    """
    figure, axes = canvas.new_figure("step", "dev metric", height=canvas.TALL)
    at = [line["step"] for line in evaluations]
    for (key, name), color in zip(columns, canvas.SERIES, strict=False):
        values = [_number(line["metrics"].get(key)) for line in evaluations]
        if any(np.isfinite(value) for value in values):
            axes.plot(
                at, values, color=color, marker="o", markersize=4.5, linewidth=1.6, label=name
            )
    if best_step is not None and at:
        axes.axvline(
            best_step, color=canvas.QUIET, linewidth=1, linestyle=(0, (4, 3)), label="kept"
        )
    canvas.add_legend(axes, "above")
    return figure


def length_histogram(
    lengths: Sequence[int],
    max_length: int | None,
    *,
    beyond: str = "cut",
    xlabel: str = "tokens per text, before cutting",
) -> Figure:
    """Texts by their length in tokens; those beyond `max_length` in another colour.

    Args:
        lengths: tokens per text before cutting, specials included; at least one.
        max_length: longest sequence the model is given, or None.
        beyond: what happens to the longer ones, in a word.
        xlabel: what is counted.
    """
    figure, axes = canvas.new_figure(xlabel, "texts", grid="y")
    values = np.asarray(lengths, dtype=np.int64)
    border = max_length or int(values.max())
    # A few very long texts must not squeeze all others into one bar: the last bar gathers them.
    usual = max(int(2.2 * border), int(np.quantile(values, 0.97)), 16)
    last = max(min(int(values.max()), usual), border)
    width = max(1, round(last / 45))
    edges = np.arange(
        border + 0.5 - width * int(np.ceil(border / width)), last + width + 0.5, width
    )
    counts, _ = np.histogram(np.minimum(values, edges[-1] - 0.25), edges)
    lower = edges[:-1]
    is_last = (lower == lower[-1]) & (values.max() > edges[-1])
    for chosen, color, name in (
        ((lower < border) & ~is_last, canvas.BLUE, "whole"),
        ((lower > border) & ~is_last, canvas.VERMILLION, beyond),
        (is_last, canvas.ORANGE, f"{beyond}, {int(lower[-1] + 1)} or more"),
    ):
        if counts[chosen].any():
            axes.bar(
                lower[chosen], counts[chosen], width * 0.92, align="edge", color=color, label=name
            )
    if max_length is not None:
        axes.axvline(
            max_length + 0.5, color=canvas.INK, linewidth=1, linestyle=(0, (4, 3)),
            label=f"longest sequence: {max_length}",
        )  # fmt: skip
        canvas.add_legend(axes, "above")
    axes.set_xlim(left=max(edges[0], 0))
    return figure


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
