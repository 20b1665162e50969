"""Curves of many contestants at once: ROC and PR laid over each other, and one panel for each.

Areas in legends are those of results.json: the figures of the seed whose curve is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from filbert.metrics import ranking
from filbert.metrics.calibration import reliability_bins
from filbert.report import canvas
from filbert.report.comparison_contestant import Contestant
from filbert.report.comparison_study import Answers, Study
from filbert.report.prediction_plots import MOST_POINTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#B8C1CA"
DASHES = (0, (4, 3))
COLUMNS = 3
NUM_BINS = 10

Points = tuple[np.ndarray, np.ndarray]


def roc_points(study: Study, answers: Answers) -> Points:
    """False and true positive rates."""
    at = study.positive
    assert at is not None
    x, y = ranking.roc_curve(answers.gold == at, answers.probabilities[:, at])
    return _thinned(x, y)


def pr_points(study: Study, answers: Answers) -> Points:
    """Recall and precision, from recall 0 on."""
    at = study.positive
    assert at is not None
    x, y = ranking.pr_curve(answers.gold == at, answers.probabilities[:, at])
    return _thinned(np.append(0, x), np.append(y[0], y))


def _thinned(x: np.ndarray, y: np.ndarray) -> Points:
    chosen = np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).round().astype(int)
    return x[chosen], y[chosen]


def overlay(study: Study, kind: str) -> Figure:
    """All curves of a kind, "roc" or "pr", with the names in the order of their areas below."""
    from matplotlib.figure import Figure

    metric, xlabel, ylabel = {
        "roc": ("roc_auc", "false positive rate", "true positive rate"),
        "pr": ("pr_auc", "recall", "precision"),
    }[kind]
    shown = study.answered
    lines = (len(shown) + 1) // 2
    below = 0.19 * lines + 0.15
    figure = Figure(figsize=(canvas.WIDTH, 3.75 + below), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    canvas.quieten(axes, xlabel, ylabel)
    _reference(study, axes, kind)
    points = {"roc": roc_points, "pr": pr_points}[kind]
    areas = {one.name: one.figure(metric).get("interval_of") or 0.0 for one in shown}
    order = sorted(shown, key=lambda one: -areas[one.name])
    for place, one in enumerate(order):
        x, y = points(study, study.answers[one.name])
        axes.plot(
            x, y, color=one.color, linestyle=one.line, linewidth=1.9 if place == 0 else 1.3,
            zorder=3 - 0.01 * place, label=f"{areas[one.name]:.3f}  {canvas.plain(one.name, 24)}",
        )  # fmt: skip
    unit_square(axes)
    figure.legend(
        loc="outside lower left", ncols=2, frameon=False, fontsize=8, labelcolor=canvas.INK,
        handlelength=2.6, columnspacing=1.2, labelspacing=0.35, borderaxespad=0.1,
    )  # fmt: skip
    return figure


def _reference(study: Study, axes: Axes, kind: str) -> None:
    if kind == "roc":
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHES)
        return
    first = study.answers[study.answered[0].name]
    axes.axhline(
        float((first.gold == study.positive).mean()), color=GREY, linewidth=1, linestyle=DASHES
    )


def pr_panels(study: Study) -> Figure:
    """A panel for each model, with and without cleaning; the curves of all others in grey."""
    curves = {one.name: pr_points(study, study.answers[one.name]) for one in study.answered}

    def draw(axes: Axes, ones: Sequence[Contestant]) -> None:
        for x, y in curves.values():
            axes.plot(x, y, color=canvas.FAINT, linewidth=0.8, zorder=1)
        for one in ones:
            axes.plot(
                *curves[one.name], color=one.color, linestyle=one.line, linewidth=1.7, zorder=3
            )
        unit_square(axes)

    return panels(study.answered, draw, "recall", "precision")


def reliability_panels(study: Study) -> Figure:
    """A panel for each model: observed frequency over predicted probability, in ten bins.

    Of two labels the positive one; of more, the chosen one. Bins with fewer than five rows are left
    out: their frequency says nothing.
    """

    def draw(axes: Axes, ones: Sequence[Contestant]) -> None:
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHES, zorder=1)
        for one in ones:
            answers, at = study.answers[one.name], study.positive
            if at is None:
                is_true, confidence = answers.gold == answers.called, answers.probabilities.max(1)
            else:
                is_true, confidence = answers.gold == at, answers.probabilities[:, at]
            bins = reliability_bins(is_true, confidence, NUM_BINS)
            points = [(b.confidence, b.frequency) for b in bins if b.num_rows >= 5]
            axes.plot(
                [x or 0 for x, _ in points], [y or 0 for _, y in points], color=one.color,
                linestyle=one.line, linewidth=1.5, zorder=3, marker=one.marker, markersize=4,
                markerfacecolor=one.fill, markeredgewidth=1,
            )  # fmt: skip
        unit_square(axes)

    is_binary = study.positive is not None
    xlabel = "predicted probability" if is_binary else "probability of the chosen label"
    return panels(study.answered, draw, xlabel, "came true")


def panels(
    contestants: Sequence[Contestant],
    draw: Callable[[Axes, Sequence[Contestant]], None],
    xlabel: str,
    ylabel: str,
) -> Figure:
    """Small squares, three a row, one for each model; `draw` gets those with the same base."""
    from matplotlib.figure import Figure

    groups: dict[str, list[Contestant]] = {}
    for one in contestants:
        groups.setdefault(one.base, []).append(one)
    rows = -(-len(groups) // COLUMNS)
    figure = Figure(
        figsize=(canvas.WIDTH, 1.62 * rows + 0.45), layout="constrained", facecolor="white"
    )
    grid = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True)
    places = list(grid.flat)
    for axes, (base, ones) in zip(places, groups.items(), strict=False):
        canvas.quieten(axes, "", "")
        draw(axes, ones)
        axes.set_title(
            canvas.plain(base, 18), fontsize=8.5, color=canvas.INK, loc="left", pad=3,
        )  # fmt: skip
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.tick_params(labelsize=7.5)
    for axes in places[len(groups) :]:
        axes.remove()
    # The last panel of every column carries the numbers, also where the last row is not full.
    for column in range(min(COLUMNS, len(groups))):
        last = (len(groups) - 1 - column) // COLUMNS
        grid[last, column].tick_params(labelbottom=True)
    figure.supxlabel(xlabel, fontsize=9, color=canvas.QUIET)
    figure.supylabel(ylabel, fontsize=9, color=canvas.QUIET)
    return figure


def unit_square(axes: Axes) -> None:
    """Both axes from 0 to 1."""
    axes.set_xlim(-0.015, 1.015)
    axes.set_ylim(-0.015, 1.015)
