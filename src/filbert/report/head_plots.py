"""Plots of attention heads: their numbers in grids, how alike they are, what they find.

L layers, A heads, K heads in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.inspection.agreement import Agreement
from filbert.report import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
CELL = 2.9  # inches
MARKERS = "osD^vP*Xhd<>"
# At most so many heads carry their names.
MOST_NAMES = 150


def _sheet(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def number_grids(
    panels: Sequence[tuple[str, str, np.ndarray, str]], num_columns: int = COLUMNS
) -> Figure:
    """One grid of layers by heads for every number.

    Args:
        panels: heading, meaning, float (L, A) with NaN for nothing, and what kind of number: a
            "share", whose colours run from 0 to 1, a "size" from 0 to the largest, or a "change",
            red where something is lost (above 0) and blue where it is gained.
        num_columns: grids side by side.
    """
    lines = -(-len(panels) // num_columns)
    layers, heads = panels[0][2].shape
    tall = CELL * min(1.6, max(0.6, layers / heads)) + 0.6
    num_columns = min(num_columns, len(panels))
    figure = _sheet(CELL * 1.15 * num_columns, tall * lines)
    grids = figure.subplots(lines, num_columns, squeeze=False)
    for axes in grids.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (heading, meaning, values, kind) in zip(grids.flat, panels, strict=False):
        _grid(figure, axes, values, kind)
        axes.set_title(heading, fontsize=10.5, color=canvas.INK, loc="left", fontweight="bold")
        axes.set_xlabel(_lines(meaning), fontsize=8, color=canvas.QUIET)
    for axes in grids[:, 0]:
        axes.set_ylabel("layer", fontsize=9, color=canvas.QUIET)
    return figure


def _lines(text: str, width: int = 34) -> str:
    import textwrap

    return textwrap.fill(text, width)


def _grid(figure: Figure, axes: Axes, values: np.ndarray, kind: str) -> None:
    from matplotlib.colors import Normalize, PowerNorm

    known = values[~np.isnan(values)]
    most = float(np.abs(known).max()) or 1.0
    colours, scale = "Blues", Normalize(0.0, most)
    if kind == "share":
        # By the root, so that small shares are told apart too.
        scale = PowerNorm(0.5, 0.0, 1.0)
    elif kind == "change":
        colours, scale = "RdBu_r", Normalize(-most, most)
    image = axes.imshow(values, cmap=colours, norm=scale, aspect="auto")
    axes.tick_params(length=0, labelsize=7.5, colors=canvas.QUIET)
    for axis, count in ((axes.xaxis, values.shape[1]), (axes.yaxis, values.shape[0])):
        axis.set_ticks(range(0, count, 1 if count <= 12 else 4))
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7, colors=canvas.QUIET)
    if kind == "share":
        bar.set_ticks([0.0, 0.1, 0.3, 0.6, 1.0])
    axes.set_facecolor(canvas.FAINT)


def agreement_map(agreement: Agreement) -> Figure:
    """All heads on a plane, alike heads near, and the divergence of all pairs.

    Colours are layers, marks are clusters; the matrix stands in the order of the dendrogram.
    """
    figure = _sheet(11.5, 5.2)
    plane, matrix = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1.15, 1]})
    canvas.quieten(plane, "", "", grid="none")
    plane.set_xticks([])
    plane.set_yticks([])
    layers = np.array([layer for layer, _ in agreement.heads])
    for cluster in range(int(agreement.clusters.max()) + 1):
        at = agreement.clusters == cluster
        points = plane.scatter(
            agreement.places[at, 0],
            agreement.places[at, 1],
            c=layers[at],
            cmap="viridis",
            vmin=0,
            vmax=max(1, int(layers.max())),
            marker=MARKERS[cluster % len(MARKERS)],
            s=42,
            linewidths=0.5,
            edgecolors="white",
            label=f"cluster {cluster}",
        )
    if len(layers) <= MOST_NAMES:
        for (layer, head), (x, y) in zip(agreement.heads, agreement.places, strict=True):
            plane.annotate(
                f"{layer}-{head}",
                (x, y),
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=5.5,
                color=canvas.QUIET,
            )
    title = f"alike heads stand near (stress {agreement.stress:.2f})"
    plane.set_title(title, fontsize=10.5, color=canvas.INK, loc="left", fontweight="bold")
    bar = figure.colorbar(points, ax=plane, fraction=0.04, pad=0.02)
    bar.set_label("layer", fontsize=8.5, color=canvas.QUIET)
    bar.locator = _whole_numbers()
    bar.update_ticks()
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7.5, colors=canvas.QUIET)
    legend = plane.legend(
        fontsize=7.5, frameon=False, labelcolor=canvas.QUIET, loc="upper center",
        bbox_to_anchor=(0.5, 0.0), ncols=6, columnspacing=0.9, handletextpad=0.1,
    )  # fmt: skip
    for handle in legend.legend_handles:
        handle.set(facecolor=canvas.QUIET, edgecolor="white")  # type: ignore[union-attr]
        handle.set_array(None)  # type: ignore[union-attr]
    _matrix(figure, matrix, agreement)
    return figure


def _whole_numbers() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True)


def _matrix(figure: Figure, axes: Axes, agreement: Agreement) -> None:
    ordered = agreement.divergence[np.ix_(agreement.order, agreement.order)]
    image = axes.imshow(ordered, cmap="cividis_r", vmin=0, vmax=np.log(2), interpolation="nearest")
    names = ["{}-{}".format(*agreement.heads[i]) for i in agreement.order]
    size = 7 if len(names) <= 24 else 3.6 if len(names) <= 80 else 0
    axes.set_xticks(range(len(names)) if size else [], names if size else [], rotation=90)
    axes.set_yticks(range(len(names)) if size else [], names if size else [])
    axes.tick_params(length=0, labelsize=size or 1, colors=canvas.QUIET, pad=1)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(
        "Jensen-Shannon divergence, nats", fontsize=10.5, color=canvas.INK, loc="left",
        fontweight="bold",
    )  # fmt: skip
    bar = figure.colorbar(image, ax=axes, fraction=0.045, pad=0.02)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7.5, colors=canvas.QUIET)


def relation_bars(relations: Sequence[dict[str, Any]]) -> Figure:
    """The best head of each relation beside the best fixed offset.

    Args:
        relations: as `head_facts.relation_facts` gives them; the first stands at the top.
    """
    height = 1.2 + 0.34 * len(relations)
    figure, axes = canvas.new_figure("found, share of the words", "", height=height, grid="x")
    figure.set_size_inches(6.6, height)
    places = np.arange(len(relations))[::-1]
    for place, row in zip(places, relations, strict=True):
        ends = [row["offset"]["accuracy"], row["head"]["accuracy"]]
        axes.plot(ends, [place, place], color=canvas.FAINT, linewidth=4, zorder=1)
    series = (
        ("best head", "head", "accuracy", canvas.BLUE, "o", True),
        ("chosen on other sentences", "head", "held_out", canvas.BLUE, "o", False),
        ("best fixed offset", "offset", "accuracy", canvas.VERMILLION, "|", True),
    )
    for label, side, key, colour, marker, filled in series:
        values = [np.nan if row[side][key] is None else row[side][key] for row in relations]
        axes.scatter(
            values, places, color=colour, marker=marker, s=44 if marker == "o" else 90,
            facecolors=colour if filled else "white", linewidths=1.4, label=label,
            zorder=3 if filled else 2,
        )  # fmt: skip
    names = [
        f"{canvas.plain(row['relation'])} ({row['count']:,})  {row['head']['name']}"
        for row in relations
    ]
    axes.set_yticks(places, names)
    axes.set_xlim(-0.02, 1.02)
    canvas.add_legend(axes, "above")
    return figure
