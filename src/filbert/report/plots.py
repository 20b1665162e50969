"""Plots of a run: training, ranking, decisions, calibration, scores and lengths.

N rows, C labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.metrics import ranking
from filbert.metrics.calibration import ReliabilityBin
from filbert.report import canvas
from filbert.report.canvas import DASHES, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 2000  # more points than a screen can show
MOST_LABELS = 40
MOST_LABELS_WITH_NUMBERS = 12
# A pre-training loss starts at the logarithm of the vocabulary size and falls within few steps.
# The axis shows this share of the steps, so that the rest can be seen.
SHOWN_SHARE = 0.98

Lines = Sequence[Mapping[str, Any]]
Phases = Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """A line of a ROC or precision-recall plot: bool (N,) and float (N,), with both classes."""

    name: str
    is_positive: np.ndarray
    scores: np.ndarray
    color: str = ""
    line: Any = "-"

    def curve(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """X and y of the curve "roc" or "pr", with at most MOST_POINTS points."""
        if kind == "roc":
            x, y = ranking.roc_curve(self.is_positive, self.scores)
        else:
            x, y = ranking.pr_curve(self.is_positive, self.scores)
            x, y = np.append(0, x), np.append(y[0], y)
        chosen = _thinned(len(x))
        return x[chosen], y[chosen]

    def area(self, kind: str) -> float:
        """ROC AUC or average precision."""
        area = ranking.roc_auc if kind == "roc" else ranking.pr_auc
        return area(self.is_positive, self.scores) or 0.0


def _thinned(num: int) -> np.ndarray:
    return np.asarray(np.linspace(0, num - 1, min(num, MOST_POINTS)).round(), dtype=np.int64)


# Training


def loss_curve(
    steps: Lines, evaluations: Lines, *, key: str = "loss", dev_key: str = "loss",
    ylabel: str = "loss (nats)", phases: Phases = (), zoom: bool = False,
) -> Figure:  # fmt: skip
    """Training loss with its running mean and dev loss; below, the learning rate.

    Args:
        steps: Lines with `step`, `loss` or `key`, and `lr`; at least one.
        evaluations: Lines with `step` and `metrics`.
        key: The loss of `steps`; "loss" where no line has it.
        dev_key: The dev metric that is comparable with the loss.
        ylabel: Name and unit of the loss.
        phases: First step and name of every phase except the first.
        zoom: Leave out the high losses of the first steps; otherwise the axis starts at 0.
    """
    at = values_of(steps, "step")
    figure, upper, lower = canvas.stacked_figure("step", ylabel, "learning rate")
    loss = values_of(steps, key if any(line.get(key) is not None for line in steps) else "loss")
    _smoothed(upper, at, loss, "train")
    dev = values_of([line["metrics"] for line in evaluations], dev_key)
    if np.isfinite(dev).any():
        upper.plot(
            values_of(evaluations, "step"), dev, color=canvas.VERMILLION, marker="o",
            markersize=4.5, linewidth=1.6, label="dev",
        )  # fmt: skip
    known = loss[np.isfinite(loss)]
    if not zoom:
        upper.set_ylim(bottom=0)
    elif len(known):
        values = np.append(dev[np.isfinite(dev)], np.quantile(known, SHOWN_SHARE))
        low, high = min(float(values.min()), float(known.min())), float(values.max())
        gap = 0.08 * max(high - low, 0.1)
        upper.set_ylim(low - gap, high + 2 * gap)
    canvas.add_legend(upper, "above")
    lower.plot(at, values_of(steps, "lr"), color=canvas.QUIET, linewidth=1.6)
    lower.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    lower.yaxis.get_offset_text().set(color=canvas.QUIET, fontsize=8)
    lower.set_ylim(bottom=0)
    _mark_phases([upper, lower], phases)
    return figure


def gradient_norm(steps: Lines, clip: float | None) -> dict[str, tuple[Figure, str]]:
    """The plot of the gradient norm and its caption, if the norm was recorded."""
    if not any((line.get("grad_norm") or 0) > 0 for line in steps):
        return {}
    caption = "Norm of the gradient before clipping. A rising norm is a sign of unstable training."
    return {"grad_norm": (gradient_curve(steps, clip), caption)}


def gradient_curve(steps: Lines, clip: float | None) -> Figure:
    """Norm of the gradient before clipping at every step; `clip` is None or 0 for no clipping."""
    figure, axes = canvas.new_figure("step", "gradient norm (logarithmic)")
    _smoothed(axes, values_of(steps, "step"), values_of(steps, "grad_norm"), "norm")
    if clip:
        _threshold(axes, clip, f"clipped to {clip:g}", horizontal=True)
    axes.set_yscale("log")
    canvas.add_legend(axes, "above")
    return figure


def metric_curves(
    evaluations: Lines, columns: Sequence[tuple[str, str]], *, kept_step: int | None = None,
    ylabel: str = "dev metric", phases: Phases = (),
) -> Figure:  # fmt: skip
    """Metrics on dev at every evaluation.

    A single metric that falls far is drawn on a logarithmic axis.

    Args:
        evaluations: Lines with `step` and `metrics`.
        columns: (metric key, name in the legend).
        kept_step: The step whose weights were kept.
        ylabel: Name of the y axis.
        phases: First step and name of every phase except the first.
    """
    figure, axes = canvas.new_figure("step", ylabel, height=canvas.TALL)
    at = values_of(evaluations, "step")
    values = np.empty(0)
    for (key, name), color in zip(columns, canvas.SERIES, strict=False):
        values = values_of([line["metrics"] for line in evaluations], key)
        if np.isfinite(values).any():
            axes.plot(
                at, values, color=color, marker="o", markersize=4.5, linewidth=1.6, label=name
            )
    known = values[np.isfinite(values) & (values > 0)]
    if len(columns) == 1 and len(known) and known.max() > 5 * known.min():
        axes.set_yscale("log")
        canvas.plain_logarithm(axes.yaxis, known.min(), known.max())
        axes.set_ylabel(f"{ylabel} (logarithmic)")
    if kept_step is not None:
        _threshold(axes, kept_step, "kept")
    _mark_phases([axes], phases)
    canvas.add_legend(axes, "above")
    return figure


def _smoothed(axes: Axes, at: np.ndarray, values: np.ndarray, name: str) -> None:
    """Draw values, with their running mean if there are at least 20."""
    is_long = len(values) >= 20
    axes.plot(
        at, values, color=canvas.BLUE, alpha=0.3 if is_long else 1,
        linewidth=0.9 if is_long else 1.6, label=name,
        marker="o" if len(values) < 3 else None, markersize=4,
    )  # fmt: skip
    if is_long:
        smooth = running_mean(values, max(5, len(values) // 25))
        axes.plot(at, smooth, color=canvas.BLUE, linewidth=1.8, label=f"{name}, running mean")


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean over `width` neighbours, fewer at both ends, without NaN; float64 (N,) in and out."""
    known = np.isfinite(values)
    total = np.convolve(np.where(known, values, 0.0), np.ones(width), mode="same")
    num = np.convolve(known.astype(float), np.ones(width), mode="same")
    return np.where(num > 0.5, total / np.maximum(num, 1), np.nan)


def _mark_phases(panels: Sequence[Axes], borders: Phases) -> None:
    for place, name in borders:
        for axes in panels:
            axes.axvline(place, color=canvas.INK, linewidth=1, linestyle=DASHES)
        panels[0].annotate(
            canvas.plain(name), (place, 0.42), xycoords=("data", "axes fraction"),
            xytext=(-4, 0), textcoords="offset points", rotation=90, ha="right", va="bottom",
            fontsize=8.5, color=canvas.QUIET,
        )  # fmt: skip


def _threshold(axes: Axes, value: float, label: str, *, horizontal: bool = False) -> None:
    draw = axes.axhline if horizontal else axes.axvline
    draw(value, color=canvas.INK, linewidth=1, linestyle=DASHES, label=label)


def values_of(lines: Lines, key: str) -> np.ndarray:
    """The values of a key, NaN where a line lacks it, float64 (lines,)."""
    return np.array([line.get(key) for line in lines], dtype=float)


# Lengths


def length_histogram(
    lengths: Sequence[int], max_length: int | None, *, beyond: str = "cut",
    xlabel: str = "tokens per text, before cutting",
) -> Figure:  # fmt: skip
    """Texts by their length in tokens; those beyond `max_length` in another colour.

    Args:
        lengths: Tokens per text before cutting, special tokens included; at least one.
        max_length: Longest sequence that the model is given, or None.
        beyond: What happens to longer texts, for the legend.
        xlabel: What is counted.
    """
    figure, axes = canvas.new_figure(xlabel, "texts", grid="y")
    values = np.asarray(lengths, dtype=np.int64)
    border = max_length or int(values.max())
    # The last bar gathers the longest texts, so that a few of them do not squeeze the others.
    usual = max(int(2.2 * border), int(np.quantile(values, 0.97)), 16)
    last = max(min(int(values.max()), usual), border)
    width = max(1, round(last / 45))
    first = border + 0.5 - width * int(np.ceil(border / width))
    edges = np.arange(first, last + width + 0.5, width)
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
        _threshold(axes, max_length + 0.5, f"longest sequence: {max_length}")
        canvas.add_legend(axes, "above")
    axes.set_xlim(left=max(edges[0], 0))
    return figure


# Ranking and decisions


def ranking_plot(curves: Sequence[Ranking], kind: str, *, show_random: bool = True) -> Figure:
    """ROC curves ("roc") or precision-recall curves ("pr"); the first one is drawn on top.

    The dashed line is a random ranking. The legend has the areas; of many curves it is below.
    """
    labels = (
        ("false positive rate", "true positive rate") if kind == "roc" else ("recall", "precision")
    )
    is_below = len(curves) > 6
    height = 3.9 + 0.095 * len(curves) if is_below else 4.1
    figure, axes = canvas.new_figure(*labels, height=height)
    if kind == "roc":
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHES)
    elif show_random:
        share = float(curves[0].is_positive.mean())
        axes.axhline(share, color=GREY, linewidth=1, linestyle=DASHES)
    for number, one in enumerate(curves):
        axes.plot(
            *one.curve(kind), color=one.color or canvas.SERIES[number % len(canvas.SERIES)],
            linestyle=one.line, linewidth=2 if number == 0 else 1.4, zorder=3 - number * 0.01,
            label=f"{canvas.plain(one.name, 24 if is_below else 28)}  {one.area(kind):.3f}",
        )  # fmt: skip
    canvas.unit_square(axes)
    if is_below:
        canvas.legend_below(figure)
    else:
        canvas.add_legend(axes, "lower right" if kind == "roc" else "lower left")
    return figure


def class_histogram(
    values: np.ndarray, is_second: np.ndarray, names: Sequence[str], threshold: float | None, *,
    xlabel: str, edges: np.ndarray, log: bool = False,
) -> Figure:  # fmt: skip
    """Rows of two classes by a score, with the decision threshold.

    Args:
        values: float (N,).
        is_second: bool (N,), the rows of the second class.
        names: Of the two classes.
        threshold: The threshold in use, if there is one.
        xlabel: Of the score.
        edges: Of the bins.
        log: Whether the counts are drawn on a logarithmic axis.
    """
    ylabel = "rows (logarithmic)" if log else "rows"
    figure, axes = canvas.new_figure(xlabel, ylabel, grid="y", height=4.1)
    for side, color in ((False, canvas.BLUE), (True, canvas.VERMILLION)):
        counts, _ = np.histogram(values[is_second == side], edges)
        axes.stairs(counts, edges, fill=True, color=color, alpha=0.2)
        axes.stairs(counts, edges, color=color, linewidth=1.5, label=canvas.plain(names[side]))
    if threshold is not None:
        _threshold(axes, threshold, f"threshold {threshold:.3f}")
    if log:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.8)
    else:
        axes.locator_params(axis="y", integer=True)
    canvas.add_legend(axes, "above")
    return figure


def threshold_plot(is_positive: np.ndarray, scores: np.ndarray, threshold: float | None) -> Figure:
    """Precision, recall and F1 at every threshold.

    Args:
        is_positive: bool (N,), at least one True.
        scores: float (N,), in [0, 1].
        threshold: The threshold in use, if there is one.
    """
    figure, axes = canvas.new_figure("threshold", "")
    table = ranking.cuts(is_positive, scores)
    at = _thinned(len(table.scores))
    hits, flagged = table.hits[at], table.flagged[at]
    for values, color, name in (
        (hits / flagged, canvas.SKY, "precision"),
        (hits / table.num_positives, canvas.ORANGE, "recall"),
        (2 * hits / (flagged + table.num_positives), canvas.BLUE, "F1"),
    ):
        # The values of a score hold for every threshold down to the next lower score.
        axes.step(
            table.scores[at], values, where="post", color=color, label=name,
            linewidth=2 if name == "F1" else 1.4,
        )  # fmt: skip
    if threshold is not None:
        _threshold(axes, threshold, f"threshold {threshold:.3f}")
    canvas.unit_square(axes)
    canvas.add_legend(axes, "lower center")
    return figure


def confusion_plot(counts: np.ndarray, labels: Sequence[str]) -> Figure:
    """Confusion matrix, int (C, C): rows are gold, columns predicted."""
    num = len(labels)
    side = min(3.0 + 0.16 * num, 7.0)
    figure, axes = canvas.new_figure("predicted", "gold", height=side, grid="none")
    size = 11 if num <= 4 else 8.5 if num <= 12 else 6.5 if num <= 28 else 5
    draw_confusion(axes, counts, size=size)
    names = [canvas.plain(label, 18) for label in labels]
    turn = 0 if num <= 4 and max(map(len, names)) < 12 else 90
    axes.set_xticks(range(num), names, fontsize=min(size, 8.5), rotation=turn)
    axes.set_yticks(range(num), names, fontsize=min(size, 8.5))
    return figure


def draw_confusion(axes: Axes, counts: np.ndarray, *, size: float) -> None:
    """Draw the cells of a confusion matrix; colours are shares of the gold label."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    texts = None
    if len(counts) <= MOST_LABELS_WITH_NUMBERS:
        texts = np.array([[f"{n:,}" for n in row] for row in counts.tolist()], dtype=object)
        if len(counts) <= 4:
            texts += np.array(
                [[f"\n{100 * n:.1f} %" for n in row] for row in shares.tolist()], object
            )
    canvas.draw_cells(axes, shares, texts, low=0, high=1, size=size)


def reliability_plot(bins: Sequence[ReliabilityBin], *, xlabel: str, ylabel: str) -> Figure:
    """Observed frequency over confidence; below, the number of rows of every bin."""
    figure, upper, lower = canvas.stacked_figure(xlabel, ylabel, "rows")
    upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHES, label="calibrated")
    known = [b for b in bins if b.confidence is not None and b.frequency is not None]
    upper.plot(
        [b.confidence or 0 for b in known], [b.frequency or 0 for b in known],
        color=canvas.BLUE, marker="o", markersize=5, linewidth=1.6, label="measured",
    )  # fmt: skip
    for b in known:
        ends = wilson_interval(b.frequency or 0, b.num_rows)
        upper.vlines(b.confidence or 0, *ends, color=canvas.BLUE, alpha=0.35, linewidth=2)
    upper.set_ylim(-0.02, 1.02)
    canvas.add_legend(upper, "upper left")
    width = 0.9 * (bins[0].upper - bins[0].lower)
    sizes = [b.num_rows for b in bins]
    lower.bar([b.lower for b in bins], sizes, width, align="edge", color=canvas.SKY)
    lower.set_yscale("symlog", linthresh=10)
    lower.set_xlim(0, 1)
    return figure


def wilson_interval(share: float, num_rows: int) -> tuple[float, float]:
    """95 % interval of a share that was observed in `num_rows` rows (Wilson 1927)."""
    z = 1.96
    shrink = 1 + z * z / num_rows
    middle = (share + z * z / (2 * num_rows)) / shrink
    half = z * (share * (1 - share) / num_rows + z * z / (4 * num_rows**2)) ** 0.5 / shrink
    return max(middle - half, 0.0), min(middle + half, 1.0)


def label_bars(metrics: Mapping[str, Mapping[str, Any]]) -> Figure:
    """`f1` of every label, the best on top, with `support`, its number of gold rows."""
    height = max(0.7 + 0.24 * len(metrics), 1.6)
    figure, axes = canvas.new_figure("F1", "", height=height, grid="x")
    order = sorted(metrics, key=lambda label: float(metrics[label]["f1"]))
    values = [metrics[label]["f1"] for label in order]
    bars = axes.barh(range(len(order)), values, 0.62, color=canvas.BLUE)
    names = [f"{metrics[label]['f1']:.2f}  (n = {metrics[label]['support']:,})" for label in order]
    axes.bar_label(bars, names, padding=3, fontsize=8, color=canvas.QUIET)
    canvas.name_rows(axes, order)
    axes.set_xlim(0, 1.25)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    return figure


# Scores


def scatter(
    gold: np.ndarray, values: np.ndarray, *, xlabel: str, ylabel: str, identity: bool
) -> Figure:
    """Values over gold scores, float (N,) each, with the line of agreement.

    The line is gold = value with `identity`, otherwise a linear fit.
    """
    figure, axes = canvas.new_figure(xlabel, ylabel, height=4.1)
    at = _thinned(len(gold))
    alpha = 0.8 if len(at) < 100 else 0.5 if len(at) < 500 else 0.25
    axes.scatter(gold[at], values[at], s=14, color=canvas.BLUE, linewidths=0, alpha=alpha)
    ends = np.array([gold.min(), gold.max()])
    style: dict[str, Any] = {"color": canvas.INK, "linewidth": 1, "linestyle": DASHES}
    if identity:
        ends = np.array([min(ends[0], values.min()), max(ends[1], values.max())])
        axes.plot(ends, ends, label="exact", **style)
    elif ends[0] < ends[1]:
        slope, height = np.polyfit(gold, values, 1)
        axes.plot(ends, slope * ends + height, label="linear fit", **style)
    canvas.add_legend(axes, "upper left")
    return figure


def residual_histogram(residuals: np.ndarray) -> Figure:
    """Rows by predicted minus gold, float (N,), with the mean."""
    figure, axes = canvas.new_figure("predicted minus gold", "rows", grid="y", height=4.1)
    farthest = float(np.abs(residuals).max()) or 1.0
    counts, edges = np.histogram(residuals, np.linspace(-farthest, farthest, 42))
    axes.stairs(counts, edges, fill=True, color=canvas.SKY)
    axes.locator_params(axis="y", integer=True)
    axes.axvline(0, color=canvas.INK, linewidth=1)
    mean = float(residuals.mean())
    _threshold(axes, mean, f"mean {mean:+.3f}")
    canvas.add_legend(axes, "upper left")
    return figure


def share_bars(
    names: Sequence[str], shares: Mapping[str, Sequence[float] | np.ndarray],
    sizes: Sequence[int], *, xlabel: str, ylabel: str,
) -> Figure:  # fmt: skip
    """One or two shares in [0, 1] of every group, with the number of rows below each group.

    Args:
        names: Of the groups.
        shares: Name in the legend -> one share per group.
        sizes: Rows per group.
        xlabel: What distinguishes the groups.
        ylabel: Of the shares.
    """
    figure, axes = canvas.new_figure(xlabel, ylabel, grid="y", height=4.1)
    width = 0.8 / len(shares)
    colors = (canvas.BLUE, canvas.SKY)
    for number, ((name, values), color) in enumerate(zip(shares.items(), colors, strict=False)):
        at = np.arange(len(names)) - 0.4 + width * (number + 0.5)
        label = name if len(shares) > 1 else None
        bars = axes.bar(at, values, width * 0.94, color=color, label=label)
        percents = [f"{100 * value:.0f}" for value in values]
        axes.bar_label(bars, percents, padding=2, fontsize=7.5, color=canvas.QUIET)
    ticks = [f"{canvas.plain(n, 14)}\nn = {size:,}" for n, size in zip(names, sizes, strict=True)]
    axes.set_xticks(range(len(names)), ticks, fontsize=8 if len(names) <= 7 else 6.5)
    axes.set_ylim(0, 1.08)
    canvas.percent_axis(axes.yaxis)
    canvas.add_legend(axes, "above")
    return figure
