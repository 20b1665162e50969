"""Plots of a study: metrics with intervals, costs, curves, confusions and agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from filbert.metrics.calibration import reliability_bins
from filbert.report import canvas
from filbert.report.canvas import DASHES, GREY
from filbert.report.comparison_study import ContestantEntry, StudyFiles
from filbert.report.numbers import fixed
from filbert.report.plots import Ranking, draw_confusion, ranking_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NUMBERED = 6
NUM_BINS = 10


def metric_dots(study: StudyFiles, metric: str, heading: str) -> Figure:
    """A row for each contestant, the best on top.

    The marker and its bar are the seed that is best on dev and its interval. Small dots are all
    seeds, the tall stroke is their mean, with a thin line for its interval.
    """
    shown = [one for one in reversed(study.measured) if one.value(metric) is not None]
    figure, axes = canvas.new_figure(heading, "", height=0.75 + 0.27 * len(shown), grid="x")
    for place, one in enumerate(shown):
        found = one.figure(metric)
        best = found["value"] if found.get("interval_of") is None else found["interval_of"]
        if found.get("low") is not None and found.get("high") is not None:
            axes.plot([found["low"], found["high"]], [place] * 2, color=one.color, linewidth=3.4,
                      alpha=0.55, solid_capstyle="round", zorder=2)  # fmt: skip
        seeds = [value for value in found.get("seeds") or () if value is not None]
        if len(seeds) > 1:
            over = found.get("over_seeds") or {}
            if over.get("low") is not None and over.get("high") is not None:
                axes.plot([over["low"], over["high"]], [place] * 2, color=canvas.INK, linewidth=0.8,
                          marker="|", markersize=4, zorder=2.5)  # fmt: skip
            axes.plot(seeds, [place] * len(seeds), "o", color=canvas.QUIET, markersize=2.4,
                      zorder=4)  # fmt: skip
            axes.plot([found["value"]] * 2, [place - 0.3, place + 0.3], color=canvas.INK,
                      linewidth=1.3, zorder=3)  # fmt: skip
        axes.plot([best], [place], one.marker, color=one.color, markerfacecolor=one.fill,
                  markeredgewidth=1.3, markersize=6.5, zorder=3)  # fmt: skip
        _beside(axes, place, fixed(found["value"], study.digits))
    canvas.name_rows(axes, [one.name for one in shown])
    axes.margins(x=0.04)
    axes.locator_params(axis="x", nbins=5)
    return figure


def _beside(axes: Axes, place: int, text: str) -> None:
    """Write a number to the right of a row."""
    axes.annotate(
        text, (1, place), xycoords=("axes fraction", "data"), xytext=(5, 0), va="center",
        textcoords="offset points", fontsize=8.5, color=canvas.INK, annotation_clip=False,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost of results.json.

    Attributes:
        key: Its key.
        heading: Of its column in tables.
        axis: Name of the x axis; empty for no plot.
        divisor: What to divide the value by on this axis.
        more_is_better: As for a speed.
    """

    key: str
    heading: str
    axis: str = ""
    divisor: float = 1.0
    more_is_better: bool = False


COSTS = (
    Cost("training_seconds", "training", "training, seconds"),
    Cost("cpu_seconds", "CPU time"),
    Cost("rows_per_second", "rows/s", "inference, rows per second", more_is_better=True),
    Cost("latency_seconds", "one text", "latency of one text, milliseconds", 1e-3),
    Cost("flops_per_row", "compute"),
    Cost("parameters", "parameters"),
    Cost("bytes_on_disk", "on disk", "size on disk, MB", 1e6),
    Cost("weight_bytes", "weights", "weights in memory, MB", 1e6),
    Cost("peak_bytes", "peak memory", "peak memory of training, MB", 1e6),
)


def pareto(points: Sequence[tuple[float, float]], *, more_is_better: bool) -> list[bool]:
    """Whether no other point is as good in both coordinates and better in one.

    Args:
        points: (cost, quality); more quality is better.
        more_is_better: Whether a higher cost is better, as for a speed.
    """
    sign = 1 if more_is_better else -1
    return [
        not any(
            sign * x2 >= sign * x and y2 >= y and (sign * x2 > sign * x or y2 > y)
            for x2, y2 in points
        )
        for x, y in points
    ]


def cost_plot(study: StudyFiles, cost: Cost) -> Figure:
    """The decisive metric over a cost; points of the Pareto front are joined and bold."""
    key, heading = study.decisive
    shown = [
        (one, amount / cost.divisor, quality)
        for one in study.measured
        if (amount := one.cost(cost.key)) and (quality := one.value(key)) is not None
    ]
    points = [(x, y) for _, x, y in shown]
    best = pareto(points, more_is_better=cost.more_is_better)
    height = 3.9 + 0.1 * len(shown)
    figure, axes = canvas.new_figure(f"{cost.axis} (logarithmic)", heading, height=height)
    axes.set_xscale("log")
    front = sorted(point for point, is_best in zip(points, best, strict=True) if is_best)
    axes.plot(
        [x for x, _ in front], [y for _, y in front], color=canvas.QUIET, linewidth=1, zorder=1,
        drawstyle="steps-pre" if cost.more_is_better else "steps-post", linestyle=(0, (2, 2)),
    )  # fmt: skip
    for (one, x, y), is_best in zip(shown, best, strict=True):
        axes.plot(
            [x], [y], one.marker, color=one.color, markerfacecolor=one.fill,
            markeredgewidth=1.3, markersize=9.5 if is_best else 6, zorder=3, linestyle="none",
            label=f"{canvas.plain(one.name, 24)}{' (front)' if is_best else ''}",
        )  # fmt: skip
    axes.margins(x=0.08, y=0.08)
    canvas.plain_logarithm(axes.xaxis, *axes.get_xlim())
    canvas.legend_below(figure)
    return figure


# Curves


def ranking_curves(study: StudyFiles, kind: str) -> Figure:
    """ROC ("roc") or precision-recall curves ("pr") of all contestants, the largest area first."""
    curves = [
        Ranking(one.name, study.answers[one.name].gold == study.positive,
                study.answers[one.name].probabilities[:, study.positive or 0], one.color, one.line)
        for one in study.answered
    ]  # fmt: skip
    return ranking_plot(sorted(curves, key=lambda one: -one.area(kind)), kind)


def reliability_panels(study: StudyFiles) -> Figure:
    """Observed frequency over predicted probability, a panel for each model.

    For two labels the probability is that of the positive label, otherwise of the predicted label.
    Bins with fewer than five rows are left out.
    """
    groups: dict[str, list[ContestantEntry]] = {}
    for one in study.answered:
        groups.setdefault(one.base, []).append(one)
    figure, grid = canvas.panel_grid(len(groups), row_height=1.62)
    for axes, (base, ones) in zip(grid, groups.items(), strict=True):
        canvas.quieten(axes, "", "")
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHES, zorder=1)
        for one in ones:
            answers, at = study.answers[one.name], study.positive
            is_true, confidence = answers.gold == answers.predicted, answers.probabilities.max(1)
            if at is not None:
                is_true, confidence = answers.gold == at, answers.probabilities[:, at]
            bins = [b for b in reliability_bins(is_true, confidence, NUM_BINS) if b.num_rows >= 5]
            axes.plot(
                [b.confidence or 0 for b in bins], [b.frequency or 0 for b in bins],
                color=one.color, linestyle=one.line, linewidth=1.5, marker=one.marker,
                markersize=4, markerfacecolor=one.fill, markeredgewidth=1,
            )  # fmt: skip
        canvas.unit_square(axes)
        canvas.panel_title(axes, canvas.plain(base, 18))
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.tick_params(labelsize=7.5)
    of_label = "" if study.positive is not None else " of the predicted label"
    canvas.outer_labels(figure, f"probability{of_label}", "observed frequency")
    return figure


def confusions(study: StudyFiles) -> Figure:
    """A confusion matrix for each contestant: rows are gold, columns predicted."""
    shown, num = study.answered, len(study.labels)
    figure, grid = canvas.panel_grid(len(shown), row_height=1.5)
    names = [canvas.plain(label, 11) for label in study.labels] if num <= MOST_NUMBERED else []
    for axes, one in zip(grid, shown, strict=True):
        answers = study.answers[one.name]
        counts = np.zeros((num, num), dtype=np.int64)
        np.add.at(counts, (answers.gold, answers.predicted), 1)
        canvas.quieten(axes, "", "", grid="none")
        draw_confusion(axes, counts, size=8 if num == 2 else 7 if num == 3 else 5.5)
        canvas.panel_title(axes, canvas.plain(one.name, 23))
        ticks = range(num) if names else []
        axes.set_xticks(ticks, names, rotation=0 if num == 2 else 90)
        axes.set_yticks(ticks, names)
        axes.tick_params(labelsize=6.8, pad=1)
    canvas.outer_labels(figure, "predicted", "gold")
    return figure


def agreement(names: Sequence[str], matrix: np.ndarray) -> Figure:
    """Percentage of the rows for which two contestants predict the same label, float (R, R)."""
    values = np.where(np.tri(len(names), k=-1, dtype=bool), 100 * matrix, np.nan)
    known = values[np.isfinite(values)]
    texts = np.array([["" if np.isnan(v) else f"{v:.1f}" for v in row] for row in values.tolist()])
    shown = [canvas.plain(name, 22) for name in names]
    height = 0.35 + 0.27 * len(names) + min(0.068 * max(map(len, shown)), 1.7)
    figure, axes = canvas.new_figure("", "", height=height, grid="none")
    low, high = known.min(), max(known.max(), known.min() + 1e-3)
    size = 8.5 if len(names) <= 10 else 7 if len(names) <= 14 else 6
    canvas.draw_cells(axes, values, texts, low=low, high=high, size=size)
    axes.set_xticks(range(len(shown)), shown, rotation=90, fontsize=8)
    axes.set_yticks(range(len(shown)), shown, fontsize=8)
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False,
                     labelcolor=canvas.INK)  # fmt: skip
    return figure
