"""Plots of a pre-training run: loss over steps and over time, perplexity, rows of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.report import canvas
from filbert.report.training_plots import running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Sequence[Mapping[str, Any]]

_DASHES = (0, (4, 3))
_LABELS = {"mlm_loss": "loss (nats a masked word)", "loss": "loss, weighted sum"}
# Loss begins at the logarithm of the vocabulary and falls at once; what counts is the rest.
_SHOWN_SHARE = 0.98
# A logarithmic axis needs room for at least two of 1, 2, 5, 10 ...
_FAR = 5


def loss_by_step(
    steps: Lines, dev: Lines, borders: Sequence[tuple[int, str]], key: str = "mlm_loss"
) -> Figure:
    """Loss of the masked words in training and on dev, and below it the learning rate.

    Args:
        steps: lines with `step`, `loss` and maybe `mlm_loss`, `lr`.
        dev: lines with `step` and `metrics`.
        borders: the first step of every phase but the first, and what it is called.
        key: which loss; "loss" for all kinds together.
    """
    figure, axes, lower = canvas.stacked_figure("step", _LABELS[key], "learning rate")
    _draw_loss(axes, _values(steps, "step"), steps, _values(dev, "step"), dev, key)
    lower.plot(_values(steps, "step"), _values(steps, "lr"), color=canvas.QUIET, linewidth=1.6)
    lower.set_ylim(bottom=0)
    lower.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    lower.yaxis.get_offset_text().set(color=canvas.QUIET, fontsize=8)
    for place, name in borders:
        _mark(axes, lower, place, name)
    return figure


def loss_by_time(
    steps: Lines, dev: Lines, borders: Sequence[tuple[int, str]], key: str = "mlm_loss"
) -> Figure:
    """The same over the time that training took, and below it the speed.

    Args:
        steps: as for `loss_by_step`, with `seconds` and `tokens_per_second`.
        dev: as for `loss_by_step`.
        borders: as for `loss_by_step`.
        key: as for `loss_by_step`.
    """
    seconds = _values(steps, "seconds")
    size, unit = _unit(float(np.nanmax(seconds)))
    figure, axes, lower = canvas.stacked_figure(
        f"{unit} of training", _LABELS[key], "1,000 tokens/s"
    )
    at, made = seconds / size, _values(steps, "step")
    _draw_loss(axes, at, steps, np.interp(_values(dev, "step"), made, at), dev, key)
    speed = _values(steps, "tokens_per_second") / 1000
    smooth = running_mean(speed, max(5, len(speed) // 25)) if len(speed) >= 20 else speed
    lower.plot(at, smooth, color=canvas.QUIET, linewidth=1.6)
    lower.set_ylim(bottom=0)
    for place, name in borders:
        _mark(axes, lower, float(np.interp(place, made, at)), name)
    return figure


def perplexity_by_step(dev: Lines, borders: Sequence[tuple[int, str]]) -> Figure:
    """Perplexity of the masked words of dev; where it falls far, on a logarithmic scale."""
    values = np.array([_metric(line, "perplexity") for line in dev])
    known = values[np.isfinite(values) & (values > 0)]
    is_far = len(known) > 0 and bool(known.max() > _FAR * known.min())
    ylabel = "dev perplexity" + (" (logarithmic)" if is_far else "")
    figure, axes = canvas.new_figure("step", ylabel, height=canvas.TALL)
    axes.plot(
        _values(dev, "step"), values,
        color=canvas.VERMILLION, marker="o", markersize=4.5, linewidth=1.6,
    )  # fmt: skip
    if is_far:
        _plain_logarithm(axes)
    for place, name in borders:
        _mark(axes, None, place, name)
    return figure


def rows_by_step(steps: Lines, borders: Sequence[tuple[int, str]]) -> Figure:
    """Rows of every step, where their number changes.

    Args:
        steps: lines with `step` and `sequences`.
        borders: as for `loss_by_step`.
    """
    figure, axes = canvas.new_figure("step", "sequences per step", height=canvas.TALL)
    rows = _values(steps, "sequences")
    axes.plot(_values(steps, "step"), rows, color=canvas.BLUE, linewidth=1.6)
    axes.set_ylim(0, 1.08 * float(np.nanmax(rows)))
    for place, name in borders:
        _mark(axes, None, place, name)
    return figure


def _draw_loss(
    axes: Axes, at: np.ndarray, steps: Lines, at_dev: np.ndarray, dev: Lines, key: str
) -> None:
    has_key = any(line.get(key) is not None for line in steps)
    loss = _values(steps, key if has_key else "loss")
    is_long = len(loss) >= 20
    smooth = running_mean(loss, max(5, len(loss) // 50)) if is_long else loss
    if is_long:
        axes.plot(at, loss, color=canvas.BLUE, alpha=0.25, linewidth=0.8, label="train")
    axes.plot(
        at, smooth, color=canvas.BLUE, linewidth=1.8,
        label="train, running mean" if is_long else "train",
        marker="o" if len(loss) < 3 else None, markersize=4,
    )  # fmt: skip
    found = np.array([_metric(line, key) for line in dev])
    if np.isfinite(found).any():
        axes.plot(
            at_dev, found, color=canvas.VERMILLION, marker="o", markersize=4.5, linewidth=1.6,
            label="dev",
        )  # fmt: skip
    known = loss[np.isfinite(loss)]
    if len(known):
        values = np.concatenate([known, found[np.isfinite(found)]])
        low, high = float(values.min()), float(np.quantile(known, _SHOWN_SHARE))
        high = max(high, float(np.nanmax(found)) if np.isfinite(found).any() else high)
        gap = 0.08 * max(high - low, 0.1)
        axes.set_ylim(low - gap, high + 2 * gap)
    canvas.add_legend(axes, "upper right")


def _mark(axes: Axes, lower: Axes | None, place: float, name: str) -> None:
    """A line where a phase begins, with its name."""
    for panel in (axes, lower):
        if panel is not None:
            panel.axvline(place, color=canvas.INK, linewidth=1, linestyle=_DASHES)
    axes.annotate(
        canvas.plain(name), (place, 0.42), xycoords=("data", "axes fraction"),
        xytext=(-4, 0), textcoords="offset points", rotation=90, ha="right", va="bottom",
        fontsize=8.5, color=canvas.QUIET,
    )  # fmt: skip


def _plain_logarithm(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _unit(seconds: float) -> tuple[float, str]:
    if seconds >= 2 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds >= 120 else (1.0, "seconds")


def _values(lines: Lines, key: str) -> np.ndarray:
    return np.array([_number(line.get(key)) for line in lines])


def _metric(line: Mapping[str, Any], key: str) -> float:
    return _number(line["metrics"].get(key))


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
