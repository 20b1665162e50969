"""Plots of numbers rather than classes: scores, ranks, shares by group, one dot per seed.

N rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from filbert.report import canvas
from filbert.report.prediction_plots import MOST_POINTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = (0, (4, 3))


def scatter(
    gold: np.ndarray, values: np.ndarray, *, xlabel: str, ylabel: str, identity: bool
) -> Figure:
    """Values over gold scores, with the line on which they agree.

    Args:
        gold: wanted scores, float (N,).
        values: predicted ones, float (N,); of many rows, MOST_POINTS spread evenly are drawn.
        xlabel: meaning of `gold`.
        ylabel: meaning of `values`.
        identity: both are on one scale, and the line is gold = value; else it is a linear fit.
    """
    figure, axes = canvas.new_figure(xlabel, ylabel, height=4.1)
    at = np.linspace(0, len(gold) - 1, min(len(gold), MOST_POINTS)).round().astype(int)
    axes.scatter(
        gold[at], values[at], s=14, color=canvas.BLUE, linewidths=0,
        alpha=0.8 if len(at) < 100 else 0.5 if len(at) < 500 else 0.25,
    )  # fmt: skip
    ends = np.array([gold.min(), gold.max()])
    if identity:
        ends = np.array([min(ends[0], values.min()), max(ends[1], values.max())])
        axes.plot(ends, ends, color=canvas.INK, linewidth=1, linestyle=DASHES, label="exact")
    elif ends[0] < ends[1]:
        slope, height = np.polyfit(gold, values, 1)
        axes.plot(
            ends, slope * ends + height, color=canvas.INK, linewidth=1, linestyle=DASHES,
            label="linear fit",
        )  # fmt: skip
    canvas.add_legend(axes, "upper left")
    return figure


def difference_histogram(differences: np.ndarray) -> Figure:
    """Rows by how far the prediction is above (right) or below (left) the gold score.

    Args:
        differences: predicted minus gold, float (N,).
    """
    figure, axes = canvas.new_figure("predicted minus gold", "rows", grid="y", height=4.1)
    farthest = float(np.abs(differences).max()) or 1.0
    counts, edges = np.histogram(differences, np.linspace(-farthest, farthest, 42))
    axes.stairs(counts, edges, fill=True, color=canvas.SKY)
    axes.locator_params(axis="y", integer=True)
    axes.axvline(0, color=canvas.INK, linewidth=1)
    mean = float(differences.mean())
    axes.axvline(
        mean, color=canvas.VERMILLION, linewidth=1.4, linestyle=DASHES, label=f"mean {mean:+.3f}"
    )
    canvas.add_legend(axes, "upper left")
    return figure


def count_bars(names: Sequence[str], counts: Sequence[int], *, xlabel: str) -> Figure:
    """Rows by group, with their share above each bar."""
    figure, axes = canvas.new_figure(xlabel, "rows", grid="y")
    axes.bar(range(len(names)), counts, 0.8, color=canvas.BLUE)
    axes.set_xticks(range(len(names)), [canvas.plain(name, 14) for name in names])
    total = max(sum(counts), 1)
    for place, count in enumerate(counts):
        _above(axes, place, count, f"{100 * count / total:.0f} %" if count else "")
    axes.set_ylim(top=max(counts, default=1) * 1.1 or 1)
    return figure


def share_bars(
    names: Sequence[str], shares: Mapping[str, Sequence[float]], sizes: Sequence[int], *,
    xlabel: str, ylabel: str,
) -> Figure:  # fmt: skip
    """One or two shares in [0, 1] of every group, with the number of rows below each group.

    Args:
        names: of the groups.
        shares: name in the legend -> one share per group.
        sizes: rows per group.
        xlabel: what makes the groups.
        ylabel: of the shares.
    """
    figure, axes = canvas.new_figure(xlabel, ylabel, grid="y", height=4.1)
    width = 0.8 / len(shares)
    colors = (canvas.BLUE, canvas.SKY)
    for number, ((name, values), color) in enumerate(zip(shares.items(), colors, strict=False)):
        at = np.arange(len(names)) - 0.4 + width * (number + 0.5)
        label = name if len(shares) > 1 else None
        axes.bar(at, values, width * 0.94, color=color, label=label)
        for place, value in zip(at, values, strict=True):
            _above(axes, place, value, f"{100 * value:.0f}")
    ticks = [f"{canvas.plain(n, 14)}\nn = {size:,}" for n, size in zip(names, sizes, strict=True)]
    axes.set_xticks(range(len(names)), ticks, fontsize=8 if len(names) <= 7 else 6.5)
    axes.set_ylim(0, 1.08)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    canvas.add_legend(axes, "above")
    return figure


def null_histogram(
    null_scores: np.ndarray, has_answer: np.ndarray, threshold: float | None
) -> Figure:
    """Questions by the score of "no answer", one colour for those that have one.

    Args:
        null_scores: by how much "no answer" beats the best span, float (N,).
        has_answer: bool (N,).
        threshold: above it the answer is empty.
    """
    figure, axes = canvas.new_figure('score of "no answer"', "questions", grid="y", height=4.1)
    edges = np.histogram_bin_edges(null_scores, 40)
    for side, name, color in (
        (True, "answerable", canvas.BLUE),
        (False, "unanswerable", canvas.VERMILLION),
    ):
        counts, _ = np.histogram(null_scores[has_answer == side], edges)
        axes.stairs(counts, edges, fill=True, color=color, alpha=0.2)
        axes.stairs(counts, edges, color=color, linewidth=1.5, label=name)
    if threshold is not None:
        axes.axvline(
            threshold, color=canvas.INK, linewidth=1, linestyle=DASHES,
            label=f"threshold {threshold:.2f}",
        )  # fmt: skip
    axes.locator_params(axis="y", integer=True)
    canvas.add_legend(axes, "above")
    return figure


def seed_dots(
    figures: Sequence[tuple[str, Sequence[tuple[str, float]]]], best: str, xlabel: str
) -> Figure:
    """Every seed's value as a dot, one panel for each metric; the seed that was kept in red.

    The grey bar is the mean and one deviation to both sides.

    Args:
        figures: (name of the metric, (seed, value) of every run); at least one.
        best: the seed that was kept.
        xlabel: below the last panel.
    """
    from matplotlib.figure import Figure

    size = (canvas.WIDTH, 0.5 + 0.78 * len(figures))
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    panels = figure.subplots(len(figures), 1, squeeze=False)[:, 0]
    for number, (axes, (name, runs)) in enumerate(zip(panels, figures, strict=True)):
        canvas.quieten(axes, xlabel if number == len(figures) - 1 else "", "", grid="x")
        values = np.array([value for _, value in runs])
        mean, deviation = values.mean(), values.std(ddof=1) if len(values) > 1 else 0.0
        axes.barh(0, 2 * deviation, 0.5, left=mean - deviation, color=canvas.FAINT, zorder=1)
        axes.vlines(mean, -0.25, 0.25, color=canvas.QUIET, linewidth=1.4, zorder=2)
        is_kept = np.array([seed == best for seed, _ in runs])
        for chosen, color in ((~is_kept, canvas.BLUE), (is_kept, canvas.VERMILLION)):
            axes.scatter(
                values[chosen], np.zeros(chosen.sum()), s=34, color=color, alpha=0.85,
                linewidths=0, zorder=3,
            )  # fmt: skip
        axes.set_ylim(-0.6, 0.6)
        axes.set_yticks([0], [canvas.plain(name, 16)])
        axes.tick_params(axis="y", labelcolor=canvas.INK)
        axes.margins(x=0.08)
        axes.locator_params(axis="x", nbins=5)
    return figure


def _above(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(
        text, (x, y), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=7.5,
        color=canvas.QUIET,
    )  # fmt: skip
