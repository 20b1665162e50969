"""The style of every plot: one palette, quiet axes and PNG at twice the screen's resolution.

pyplot is not used, as it keeps global state.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito 2008: distinguishable by colour-blind readers, and in grey by lightness.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
INK, QUIET, GREY, FAINT = "#1F2933", "#66727F", "#B8C1CA", "#E3E8ED"
BLUES = ("#F1F5F8", "#9CC3E0", BLUE)
DASHES = (0, (4, 3))
WIDTH, HEIGHT = 4.8, 4.1  # inches of 100 page pixels
PIXELS_PER_INCH = 200


def new_figure(
    xlabel: str, ylabel: str, *, height: float = HEIGHT, grid: str = "both"
) -> tuple[Figure, Axes]:
    """A figure with one set of axes."""
    figure = _figure(height)
    axes = figure.add_subplot()
    quieten(axes, xlabel, ylabel, grid=grid)
    return figure, axes


def stacked_figure(xlabel: str, upper: str, lower: str) -> tuple[Figure, Axes, Axes]:
    """A figure with a tall panel over a low one and a common x axis."""
    figure = _figure(4.5)
    top, bottom = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3.2, 1]})
    quieten(top, "", upper)
    quieten(bottom, xlabel, lower)
    figure.align_ylabels()
    return figure, top, bottom


def panel_grid(
    names: Sequence[str], xlabel: str, ylabel: str, *, row_height: float
) -> tuple[Figure, list[Axes]]:
    """A figure with a small panel for each name, three per row, with common axes."""
    rows = -(-len(names) // 3)
    figure = _figure(row_height * rows + 0.5)
    grid = list(figure.subplots(rows, 3, squeeze=False, sharex=True, sharey=True).flat)
    for axes in grid[len(names) :]:
        axes.remove()
    for axes, name in zip(grid, names, strict=False):
        quieten(axes, "", "")
        axes.set_title(plain(name, 20), fontsize=8, color=INK, loc="left", pad=3)
        axes.tick_params(labelsize=7.5)
    # The last panel of every column has the tick labels, also if the last row is not full.
    for axes in grid[max(len(names) - 3, 0) : len(names)]:
        axes.tick_params(labelbottom=True)
    figure.supxlabel(xlabel, fontsize=9, color=QUIET)
    figure.supylabel(ylabel, fontsize=9, color=QUIET)
    return figure, grid[: len(names)]


def _figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")


def quieten(axes: Axes, xlabel: str, ylabel: str, *, grid: str = "both") -> None:
    """Give axes the style of the report; `grid` is both, x, y or none."""
    axes.set_xlabel(xlabel, color=QUIET, fontsize=9.5)
    axes.set_ylabel(ylabel, color=QUIET, fontsize=9.5)
    axes.tick_params(which="both", colors=QUIET, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)
    axes.set_axisbelow(True)
    if grid != "none":
        axes.grid(True, axis=grid, color=FAINT, linewidth=0.8)  # type: ignore[arg-type]


def add_legend(axes: Axes, place: Any = "above") -> None:
    """A legend, if anything is labelled; "above" is outside the axes, in two or three columns."""
    names = axes.get_legend_handles_labels()[1]
    if not names:
        return
    where: dict[str, Any] = {"loc": place}
    if place == "above":
        columns = 3 if len("".join(names)) <= 45 else 2
        where = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "ncols": columns}
    axes.legend(
        frameon=True, framealpha=0.85, edgecolor="none", fontsize=8.5, labelcolor=INK, **where
    )


def legend_below(figure: Figure) -> None:
    """A legend in two columns below the axes, for many names."""
    figure.legend(
        loc="outside lower left", ncols=2, frameon=False, fontsize=8, labelcolor=INK,
        handlelength=2.6, columnspacing=1.2, labelspacing=0.35, borderaxespad=0.1,
    )  # fmt: skip


def unit_square(axes: Axes, *, few_ticks: bool = False) -> None:
    """Both axes from 0 to 1."""
    axes.set_xlim(-0.015, 1.015)
    axes.set_ylim(-0.015, 1.015)
    if few_ticks:
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])


def plain_logarithm(axis: Axis, low: float, high: float) -> None:
    """Ticks in decimal numbers for a logarithmic axis; `low` and `high` bound the data."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    subs = (1.0,) if high / low > 300 else (1.0, 3.0) if high / low > 30 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(10, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def plain(name: object, longest: int = 28) -> str:
    """A name for a plot: on one line, without formulas, and shortened in the middle.

    Names of models often differ at their end.
    """
    text = " ".join(str(name).split())
    if len(text) > longest:
        end = (longest - 1) // 2
        text = f"{text[: longest - 1 - end]}…{text[-end:]}"
    return text.replace("$", r"\$")


def save(figure: Figure, path: Path) -> None:
    """Write a PNG; equal figures give equal bytes."""
    with warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes; the tables have the real names.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        figure.savefig(path, dpi=PIXELS_PER_INCH, format="png", metadata={"Software": None})
