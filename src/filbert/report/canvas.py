"""The look of every plot: one palette, quiet axes, PNG at twice the screen's size; no pyplot."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito 2008: told apart by colour-blind readers, and in grey by their order of lightness.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
INK, QUIET, FAINT = "#1F2933", "#66727F", "#E3E8ED"
WIDTH, HEIGHT, TALL = 4.8, 3.7, 4.5  # inches; 100 of the page's pixels each
PIXELS_PER_INCH = 200
LONGEST_NAME = 28


def new_figure(
    xlabel: str, ylabel: str, *, height: float = HEIGHT, grid: str = "both"
) -> tuple[Figure, Axes]:
    """A figure with one set of quiet axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    quieten(axes, xlabel, ylabel, grid=grid)
    return figure, axes


def stacked_figure(xlabel: str, upper: str, lower: str) -> tuple[Figure, Axes, Axes]:
    """A figure with a tall panel over a low one, with one x axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, TALL), layout="constrained", facecolor="white")
    top, bottom = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3.2, 1]})
    quieten(top, "", upper)
    quieten(bottom, xlabel, lower)
    figure.align_ylabels()
    return figure, top, bottom


def quieten(axes: Axes, xlabel: str, ylabel: str, *, grid: str = "both") -> None:
    """Give axes the style of the report; `grid` is both, x, y or none."""
    axes.set_xlabel(xlabel, color=QUIET, fontsize=9.5)
    axes.set_ylabel(ylabel, color=QUIET, fontsize=9.5)
    axes.tick_params(which="both", colors=QUIET, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#B8C1CA")
    axes.set_axisbelow(True)
    if grid != "none":
        axes.grid(True, axis=grid, color=FAINT, linewidth=0.8)  # type: ignore[arg-type]


def add_legend(axes: Axes, place: Any) -> None:
    """A legend, when anything is named; the place "above" is outside, in rows of two or three."""
    names = axes.get_legend_handles_labels()[1]
    if not names:
        return
    where: dict[str, Any] = {"loc": place}
    if place == "above":
        where = {
            "loc": "lower left",
            "bbox_to_anchor": (-0.02, 1.0),
            "ncols": 3 if len("".join(names)) <= 45 else 2,
        }
    axes.legend(
        frameon=True, framealpha=0.85, edgecolor="none", fontsize=8.5, labelcolor=INK, **where
    )


def plain(name: object, longest: int = LONGEST_NAME) -> str:
    """A user's name for a plot: shortened, on one line, and never read as a formula.

    Shortened in the middle, as names of models often differ at their end.
    """
    text = " ".join(str(name).split())
    if len(text) > longest:
        end = (longest - 1) // 2
        text = f"{text[: longest - 1 - end]}…{text[-end:]}"
    return text.replace("$", r"\$")


def save(figure: Figure, path: Path) -> None:
    """Write a PNG: equal figures give equal bytes."""
    with warnings.catch_warnings():
        # A label in a script that the font lacks is drawn as boxes; the tables hold its real name.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        figure.savefig(path, dpi=PIXELS_PER_INCH, format="png", metadata={"Software": None})
