"""Plots of contestant against contestant or slice: differences, agreement, confusions, slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.report import canvas
from filbert.report.comparison_study import Study
from filbert.report.comparison_words import signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
MOST_NUMBERED = 6


def _colors(*stops: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("filbert", stops)


def _grid(
    rows: Sequence[str], columns: Sequence[str], *, bottom: bool = False
) -> tuple[Figure, Axes]:
    """Empty cells with names at the left and above, both whole."""
    longest = max((len(name) for name in columns), default=0)
    height = 0.35 + 0.27 * len(rows) + min(0.068 * longest, 1.7)
    drawn, axes = canvas.new_figure("", "", height=height, grid="none")
    axes.set_xticks(range(len(columns)), list(columns), rotation=90, fontsize=8)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axes.tick_params(top=not bottom, bottom=bottom, labeltop=not bottom, labelbottom=bottom,
                     labelcolor=canvas.INK)  # fmt: skip
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    return drawn, axes


def _borders(axes: Axes, rows: int, columns: int) -> None:
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)


def differences(study: Study, metric: str) -> Figure:
    """Row minus column in a metric, in thousandths, for each pair once.

    The rows are in the order of the ranking, so that most figures are leads of the row. A cell is
    coloured and bold where the pair is told apart.
    """
    names = [one.name for one in study.measured]
    plain = [canvas.plain(name, 22) for name in names]
    drawn, axes = _grid(plain, plain)
    ahead, behind = "#CFE6F3", "#F9DFCB"
    size = 8.5 if len(names) <= 10 else 7.5 if len(names) <= 14 else 6.5
    for row, one in enumerate(names):
        for column, other in enumerate(names):
            pair = study.pair(one, other, metric) if row < column else None
            color = "#EEF1F4" if one == other else "white"
            if pair is not None and pair.is_told:
                color = ahead if pair.difference > 0 else behind
            axes.fill_between([column - 0.5, column + 0.5], row - 0.5, row + 0.5, color=color,
                              linewidth=0)  # fmt: skip
            if pair is None:
                continue
            text = signed(1000 * pair.difference, 0).removeprefix("+")
            axes.text(
                column, row, text, ha="center", va="center", fontsize=size,
                color=canvas.INK if pair.is_told else canvas.QUIET,
                fontweight="bold" if pair.is_told else "normal",
            )  # fmt: skip
    _borders(axes, len(names), len(names))
    return drawn


def agreement(names: Sequence[str], matrix: Sequence[Sequence[float]]) -> Figure:
    """Share of the rows on which two contestants give the same answer, in percent."""
    plain = [canvas.plain(name, 22) for name in names]
    drawn, axes = _grid(plain, plain)
    shares = np.array(matrix, dtype=float)
    shown = np.where(np.tri(len(names), k=-1, dtype=bool), 100 * shares, np.nan)
    others = shown[np.isfinite(shown)]
    low, high = (others.min(), others.max()) if len(others) else (0.0, 100.0)
    span = max(high - low, 0.5)
    axes.imshow(shown, cmap=_colors("#F1F5F8", "#9CC3E0", canvas.BLUE), vmin=low, vmax=low + span,
                aspect="auto")  # fmt: skip
    size = 8 if len(names) <= 8 else 6.5 if len(names) <= 12 else 5.6
    for (row, column), value in np.ndenumerate(shown):
        if np.isfinite(value):
            axes.text(
                column, row, f"{value:.1f}", ha="center", va="center", fontsize=size,
                color="white" if value > low + 0.62 * span else canvas.INK,
            )  # fmt: skip
    _borders(axes, len(names), len(names))
    return drawn


def confusions(study: Study) -> Figure:
    """A small table for each contestant: rows are gold, columns its answers; shares of the row."""
    from matplotlib.figure import Figure

    shown, num = study.answered, len(study.labels)
    rows = -(-len(shown) // COLUMNS)
    figure = Figure(
        figsize=(canvas.WIDTH, 1.5 * rows + 0.5), layout="constrained", facecolor="white"
    )
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    colors = _colors("#F4F7FA", "#9CC3E0", canvas.BLUE)
    names = [canvas.plain(label, 11) for label in study.labels]
    for axes, one in zip(grid.flat, shown, strict=False):
        answers = study.answers[one.name]
        counts = np.zeros((num, num), dtype=np.int64)
        np.add.at(counts, (answers.gold, answers.called), 1)
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        canvas.quieten(axes, "", "", grid="none")
        axes.imshow(shares, cmap=colors, vmin=0, vmax=1, aspect="auto")
        axes.set_title(
            canvas.plain(one.name, 23), fontsize=7.8, color=canvas.INK, loc="left", pad=3
        )
        size = 7 if num <= 3 else 5.5
        if num <= MOST_NUMBERED:
            for (row, column), count in np.ndenumerate(counts):
                text = f"{count:,}"
                if num == 2:
                    text += f"\n{100 * shares[row, column]:.1f} %"
                axes.text(
                    column, row, text, ha="center", va="center", fontsize=size + (num == 2),
                    color="white" if shares[row, column] > 0.6 else canvas.INK, linespacing=1.15,
                )  # fmt: skip
        is_last = axes in [ax for ax in grid[-1]] or len(shown) <= COLUMNS
        axes.set_xticks(range(num), names if num <= MOST_NUMBERED else [])
        axes.set_yticks(range(num), names if num <= MOST_NUMBERED else [])
        axes.tick_params(labelsize=6.8, labelrotation=0)
        axes.tick_params(axis="x", labelbottom=is_last or num > 2, pad=1,
                         labelrotation=0 if num <= 2 else 90)  # fmt: skip
        axes.tick_params(axis="y", labelleft=axes in list(grid[:, 0]), pad=1)
        for spine in axes.spines.values():
            spine.set_visible(False)
        _borders(axes, num, num)
    for axes in list(grid.flat)[len(shown) :]:
        axes.remove()
    figure.supxlabel("predicted", fontsize=9, color=canvas.QUIET)
    figure.supylabel("gold", fontsize=9, color=canvas.QUIET)
    return figure


def slices(
    names: Sequence[str], columns: Sequence[str], values: np.ndarray, *, falling: bool
) -> Figure:
    """A metric of every contestant on every slice of the rows.

    Args:
        names: R contestants.
        columns: S slices, with their numbers of rows.
        values: float (R, S), NaN where the metric is not defined.
        falling: less is better; then a high value is orange, not blue.
    """
    drawn, axes = _grid([canvas.plain(name, 22) for name in names], list(columns))
    axes.tick_params(axis="x", labelrotation=0, labelsize=7.2)
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    span = max(high - low, 1e-3)
    stops = ("#F1F5F8", "#9CC3E0", canvas.BLUE)
    if falling:
        stops = ("#FBF4EE", "#F2C29A", canvas.VERMILLION)
    axes.imshow(values, cmap=_colors(*stops), vmin=low, vmax=low + span, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            axes.text(column, row, "–", ha="center", va="center", fontsize=8, color=canvas.QUIET)
            continue
        is_dark = (value - low) / span > 0.62
        axes.text(
            column, row, f"{value:.3f}", ha="center", va="center", fontsize=7.5,
            color="white" if is_dark else canvas.INK,
        )  # fmt: skip
    _borders(axes, len(names), len(columns))
    return drawn
