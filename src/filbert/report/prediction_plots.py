"""Plots of what the model answered: ranking, decisions, calibration.

N rows, C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from filbert.metrics import ranking
from filbert.metrics.calibration import ReliabilityBin
from filbert.report import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More points than that no screen can show.
MOST_POINTS = 2000
MOST_LABELS = 40
MOST_LABELS_WITH_NUMBERS = 12


@dataclass(frozen=True, slots=True)
class Ranking:
    """One line of a ROC or PR plot: bool (N,) and float (N,), both classes present."""

    name: str
    is_positive: np.ndarray
    scores: np.ndarray


def roc_plot(rankings: Sequence[Ranking]) -> Figure:
    """ROC curves; the first one is the model and drawn on top."""
    figure, axes = canvas.new_figure("false positive rate", "true positive rate", height=4.1)
    axes.plot([0, 1], [0, 1], color="#B8C1CA", linewidth=1, linestyle=(0, (4, 3)))
    for number, one in enumerate(rankings):
        false_rate, true_rate = ranking.roc_curve(one.is_positive, one.scores)
        area = ranking.roc_auc(one.is_positive, one.scores)
        _curve(axes, false_rate, true_rate, number, f"{canvas.plain(one.name)}  {area:.3f}")
    _unit_square(axes)
    canvas.add_legend(axes, "lower right")
    return figure


def pr_plot(rankings: Sequence[Ranking], *, show_prevalence: bool = True) -> Figure:
    """Precision over recall; the first one is the model and drawn on top.

    The dashed line is the share of positives: what guessing reaches.
    """
    figure, axes = canvas.new_figure("recall", "precision", height=4.1)
    if show_prevalence:
        share = float(rankings[0].is_positive.mean())
        axes.axhline(share, color="#B8C1CA", linewidth=1, linestyle=(0, (4, 3)))
    for number, one in enumerate(rankings):
        recall, precision = ranking.pr_curve(one.is_positive, one.scores)
        area = ranking.pr_auc(one.is_positive, one.scores)
        label = f"{canvas.plain(one.name)}  {area:.3f}"
        _curve(axes, np.append(0, recall), np.append(precision[0], precision), number, label)
    _unit_square(axes)
    canvas.add_legend(axes, "lower left")
    return figure


def score_histogram(
    is_positive: np.ndarray, scores: np.ndarray, *, names: tuple[str, str], threshold: float | None
) -> Figure:
    """Rows by score, one colour a class, with the decision threshold.

    Args:
        is_positive: bool (N,).
        scores: float (N,), from 0 to 1.
        names: of the negative and of the positive side.
        threshold: where the answer changes, if there is one.
    """
    figure, axes = canvas.new_figure("score", "rows (logarithmic)", grid="y")
    edges = np.linspace(0, 1, 31)
    for side, color in ((False, canvas.BLUE), (True, canvas.VERMILLION)):
        counts, _ = np.histogram(scores[is_positive == side], edges)
        axes.stairs(counts, edges, fill=True, color=color, alpha=0.2)
        axes.stairs(counts, edges, color=color, linewidth=1.5, label=canvas.plain(names[side]))
    if threshold is not None:
        axes.axvline(
            threshold, color=canvas.INK, linewidth=1, linestyle=(0, (4, 3)),
            label=f"threshold {threshold:.3f}",
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.8)
    axes.set_xlim(0, 1)
    canvas.add_legend(axes, "upper center")
    return figure


def threshold_plot(is_positive: np.ndarray, scores: np.ndarray, threshold: float | None) -> Figure:
    """Precision, recall and F1 at every threshold, with the one in use.

    Args:
        is_positive: bool (N,), at least one True.
        scores: float (N,), from 0 to 1.
        threshold: the one in use, if there is one.
    """
    figure, axes = canvas.new_figure("threshold", "")
    table = ranking.cuts(is_positive, scores)
    kept = np.linspace(0, len(table.scores) - 1, min(len(table.scores), MOST_POINTS))
    at = kept.round().astype(int)
    hits, flagged = table.hits[at], table.flagged[at]
    for values, color, name in (
        (hits / flagged, canvas.SKY, "precision"),
        (hits / table.num_positives, canvas.ORANGE, "recall"),
        (2 * hits / (flagged + table.num_positives), canvas.BLUE, "F1"),
    ):
        axes.step(
            table.scores[at], values, where="post", color=color, label=name,
            linewidth=2 if name == "F1" else 1.4,
        )  # fmt: skip
    if threshold is not None:
        axes.axvline(
            threshold, color=canvas.INK, linewidth=1, linestyle=(0, (4, 3)),
            label=f"threshold {threshold:.3f}",
        )  # fmt: skip
    _unit_square(axes)
    canvas.add_legend(axes, "lower center")
    return figure


def confusion_plot(counts: np.ndarray, labels: Sequence[str]) -> Figure:
    """Confusion matrix: rows are gold, columns predicted; colour is the share of the gold row.

    Args:
        counts: int (C, C).
        labels: C names.
    """
    from matplotlib.colors import LinearSegmentedColormap

    num = len(labels)
    side = min(3.0 + 0.16 * num, 7.0)
    figure, axes = canvas.new_figure("predicted", "gold", height=side, grid="none")
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    colors = LinearSegmentedColormap.from_list("filbert", ["#F4F7FA", "#9CC3E0", canvas.BLUE])
    axes.imshow(shares, cmap=colors, vmin=0, vmax=1, aspect="auto")
    size = 8.5 if num <= 12 else 6.5 if num <= 28 else 5
    names = [canvas.plain(label, 18) for label in labels]
    turn = 0 if num <= 4 and max(map(len, names)) < 12 else 90
    axes.set_xticks(range(num), names, fontsize=size, rotation=turn)
    axes.set_yticks(range(num), names, fontsize=size)
    for spine in axes.spines.values():
        spine.set_visible(False)
    # White lines between the cells.
    axes.set_xticks(np.arange(num + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(num + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=2 if num <= 12 else 0.5)
    axes.tick_params(which="minor", length=0)
    if num <= MOST_LABELS_WITH_NUMBERS:
        for (row, column), n in np.ndenumerate(counts):
            text = f"{n:,}\n{100 * shares[row, column]:.1f} %" if num <= 4 else f"{n:,}"
            axes.text(
                column, row, text, ha="center", va="center", fontsize=11 if num <= 4 else size,
                color="white" if shares[row, column] > 0.6 else canvas.INK,
            )  # fmt: skip
    return figure


def reliability_plot(bins: Sequence[ReliabilityBin], *, xlabel: str, ylabel: str) -> Figure:
    """Observed frequency against confidence, and below it how many rows each bin holds."""
    figure, upper, lower = canvas.stacked_figure(xlabel, ylabel, "rows")
    points = [
        (b.confidence, b.frequency)
        for b in bins
        if b.confidence is not None and b.frequency is not None
    ]
    upper.plot([0, 1], [0, 1], color="#B8C1CA", linewidth=1, linestyle=(0, (4, 3)), label="honest")
    upper.plot(
        [x for x, _ in points], [y for _, y in points],
        color=canvas.BLUE, marker="o", markersize=5, linewidth=1.6, label="measured",
    )  # fmt: skip
    for b in bins:
        if b.confidence is not None and b.frequency is not None:
            span = wilson_interval(b.frequency, b.num_rows)
            upper.vlines(b.confidence, *span, color=canvas.BLUE, alpha=0.35, linewidth=2)
    upper.set_ylim(-0.02, 1.02)
    canvas.add_legend(upper, "upper left")
    width = bins[0].upper - bins[0].lower
    lower.bar(
        [b.lower for b in bins], [b.num_rows for b in bins], width * 0.9, align="edge",
        color=canvas.SKY,
    )  # fmt: skip
    lower.set_yscale("symlog", linthresh=10)
    lower.set_xlim(0, 1)
    return figure


def wilson_interval(share: float, num_rows: int) -> tuple[float, float]:
    """Where the true share lies at 95 %, when `share` of `num_rows` rows was seen (Wilson 1927)."""
    z = 1.96
    shrink = 1 + z * z / num_rows
    middle = (share + z * z / (2 * num_rows)) / shrink
    half = z * (share * (1 - share) / num_rows + z * z / (4 * num_rows**2)) ** 0.5 / shrink
    return max(middle - half, 0.0), min(middle + half, 1.0)


def label_bars(labels: Sequence[str], f1: Sequence[float], support: Sequence[int]) -> Figure:
    """F1 of every label, the best on top, with the number of gold rows."""
    order = sorted(range(len(labels)), key=lambda c: f1[c])
    height = 0.7 + 0.24 * len(labels)
    figure, axes = canvas.new_figure("F1", "", height=max(height, 1.6), grid="x")
    axes.barh(range(len(order)), [f1[c] for c in order], 0.62, color=canvas.BLUE)
    axes.set_yticks(range(len(order)), [canvas.plain(labels[c], 22) for c in order])
    axes.tick_params(axis="y", labelcolor=canvas.INK)
    for place, c in enumerate(order):
        axes.text(
            f1[c] + 0.012, place, f"{f1[c]:.2f}  (n = {support[c]:,})", va="center", fontsize=8,
            color=canvas.QUIET,
        )  # fmt: skip
    axes.set_xlim(0, 1.25)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_ylim(-0.6, len(order) - 0.4)
    return figure


def _curve(axes: Axes, x: np.ndarray, y: np.ndarray, number: int, label: str) -> None:
    chosen = np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).round().astype(int)
    axes.plot(
        x[chosen], y[chosen], color=canvas.SERIES[number % len(canvas.SERIES)],
        linewidth=2 if number == 0 else 1.4, zorder=3 - number * 0.01, label=label,
    )  # fmt: skip


def _unit_square(axes: Axes) -> None:
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.01)
