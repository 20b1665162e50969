"""Plots of a study: metrics with intervals, costs, curves and confusions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from filbert.metrics.calibration import reliability_bins
from filbert.report import canvas
from filbert.report.canvas import DASHES, GREY
from filbert.report.comparison_study import StudyFiles
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
        axes.plot([best], [place], one.marker, color=one.color, markersize=6.5)
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
        axis: Name of the x axis.
        divisor: What to divide the value by on this axis.
    """

    key: str
    heading: str
    axis: str
    divisor: float = 1.0


COSTS = (
    Cost("training_seconds", "training", "training, seconds"),
    Cost("rows_per_second", "rows/s", "inference, rows per second"),
    Cost("latency_seconds", "one text", "latency of one text, milliseconds", 1e-3),
    Cost("parameters", "parameters", "parameters, millions", 1e6),
    Cost("bytes_on_disk", "on disk", "size on disk, MB", 1e6),
    Cost("peak_bytes", "peak memory", "peak memory of training, MB", 1e6),
)


def cost_plot(study: StudyFiles, cost: Cost) -> Figure:
    """The decisive metric over a cost."""
    key, heading = study.decisive
    shown = [
        (one, amount / cost.divisor, quality)
        for one in study.measured
        if (amount := one.cost(cost.key)) and (quality := one.value(key)) is not None
    ]
    height = 3.9 + 0.1 * len(shown)
    figure, axes = canvas.new_figure(f"{cost.axis} (logarithmic)", heading, height=height)
    axes.set_xscale("log")
    for one, x, y in shown:
        axes.plot([x], [y], one.marker, color=one.color, markersize=8, linestyle="none",
                  label=canvas.plain(one.name, 24))  # fmt: skip
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
    figure, grid = canvas.panel_grid(len(study.answered), row_height=1.62)
    for axes, one in zip(grid, study.answered, strict=True):
        canvas.quieten(axes, "", "")
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHES, zorder=1)
        answers, at = study.answers[one.name], study.positive
        is_true, confidence = answers.gold == answers.predicted, answers.probabilities.max(1)
        if at is not None:
            is_true, confidence = answers.gold == at, answers.probabilities[:, at]
        bins = [b for b in reliability_bins(is_true, confidence, NUM_BINS) if b.num_rows >= 5]
        axes.plot(
            [b.confidence or 0 for b in bins], [b.frequency or 0 for b in bins], color=one.color,
            linewidth=1.5, marker=one.marker, markersize=4,
        )  # fmt: skip
        canvas.unit_square(axes)
        canvas.panel_title(axes, canvas.plain(one.name, 18))
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
