"""Plots of one figure per contestant: intervals, cleaning, quality and cost; and the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.report import canvas
from filbert.report.comparison_contestant import Contestant
from filbert.report.comparison_study import Study
from filbert.report.comparison_words import NOT_TOLD, TOLD, figure, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = 0.27  # inches a row of a dot plot takes
STEPS = (-9, 0, 9)


def whiskers(study: Study, metric: str, heading: str) -> Figure:
    """A row for each contestant, the best on top, with its interval, its seeds and its mean.

    The sign and its bar belong to the seed that is best on dev; small dots are all seeds, the tall
    stroke is their mean, also written at the right, with a thin line for its own interval.
    """
    shown = [one for one in study.measured if one.value(metric) is not None]
    drawn, axes = canvas.new_figure(heading, "", height=0.75 + LINE * len(shown), grid="x")
    for place, one in enumerate(reversed(shown)):
        found = one.figure(metric)
        dot = found["value"] if found.get("interval_of") is None else found["interval_of"]
        if found.get("low") is not None and found.get("high") is not None:
            axes.plot([found["low"], found["high"]], [place] * 2, color=one.color,
                      linewidth=3.4, alpha=0.55, solid_capstyle="round", zorder=2)  # fmt: skip
        seeds = [value for value in found.get("seeds") or () if value is not None]
        if len(seeds) > 1:
            over = found.get("over_seeds") or {}
            if over.get("low") is not None and over.get("high") is not None:
                axes.plot([over["low"], over["high"]], [place] * 2, color=canvas.INK, linewidth=0.8,
                          marker="|", markersize=4, zorder=2.5)  # fmt: skip
            axes.plot(
                seeds, [place] * len(seeds), "o", color=canvas.QUIET, markersize=2.4, zorder=4
            )
            axes.plot([found["value"]] * 2, [place - 0.3, place + 0.3], color=canvas.INK,
                      linewidth=1.3, zorder=3)  # fmt: skip
        axes.plot([dot], [place], one.marker, color=one.color, markerfacecolor=one.fill,
                  markeredgewidth=1.3, markersize=6.5, zorder=3)  # fmt: skip
        axes.annotate(
            figure(found["value"], study.digits), (1, place), xycoords=("axes fraction", "data"),
            xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5, color=canvas.INK,
            annotation_clip=False,
        )  # fmt: skip
    _names(axes, [one.name for one in reversed(shown)])
    axes.margins(x=0.04)
    axes.locator_params(axis="x", nbins=5)
    return drawn


def _names(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [canvas.plain(name, 22) for name in names])
    axes.tick_params(axis="y", labelcolor=canvas.INK)
    axes.set_ylim(-0.6, len(names) - 0.4)


def cleaning(study: Study, metric: str, heading: str) -> Figure:
    """A row for each model: without cleaning, joined with cleaning; the difference and its sign."""
    pairs = study.cleaned_pairs
    drawn, axes = canvas.new_figure(heading, "", height=0.95 + 0.36 * len(pairs), grid="x")
    for place, (plain, cleaned) in enumerate(reversed(pairs)):
        before, after = plain.value(metric), cleaned.value(metric)
        if before is None or after is None:
            continue
        axes.annotate(
            "", (after, place), (before, place), zorder=2,
            arrowprops={"arrowstyle": "-", "color": plain.color, "linewidth": 2.2, "alpha": 0.7,
                        "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
        for x, fill in ((before, plain.color), (after, "white")):
            axes.plot([x], [place], plain.marker, color=plain.color, markerfacecolor=fill,
                      markeredgewidth=1.5, markersize=7.5, zorder=3)  # fmt: skip
        pair = study.pair(cleaned.name, plain.name, metric)
        text = signed(after - before, study.digits)
        if pair is not None:
            text += f" {TOLD if pair.is_told else NOT_TOLD}"
        axes.annotate(
            text, (1, place), xycoords=("axes fraction", "data"), xytext=(5, 0), va="center",
            textcoords="offset points", fontsize=8.5, color=canvas.INK, annotation_clip=False,
        )  # fmt: skip
    _names(axes, [study.cleaned_name(cleaned) for _, cleaned in reversed(pairs)])
    axes.margins(x=0.06)
    axes.locator_params(axis="x", nbins=5)
    for fill, label in ((canvas.QUIET, "without cleaning"), ("white", "with cleaning")):
        axes.plot([], [], "o", color=canvas.QUIET, markerfacecolor=fill, label=label)
    canvas.add_legend(axes, "above")
    return drawn


# Quality against cost


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost on the x axis.

    Attributes:
        key: its name in results.json.
        heading: below the axis.
        more_is_better: of a speed.
    """

    key: str
    heading: str
    more_is_better: bool = False


FRONTIERS = (
    Cost("training_seconds", "training, seconds (logarithmic)"),
    Cost("rows_per_second", "inference, rows a second (logarithmic)", more_is_better=True),
    Cost("latency_seconds", "one text alone, milliseconds (logarithmic)"),
    Cost("bytes_on_disk", "size on disk, MB (logarithmic)"),
    Cost("weight_bytes", "weights in memory, MB (logarithmic)"),
    Cost("peak_bytes", "peak memory while training, MB (logarithmic)"),
)


def pareto(points: Sequence[tuple[float, float]], *, more_is_better: bool) -> list[bool]:
    """Whether no other point is as good in both and better in one.

    Args:
        points: (cost, quality); more quality is better.
        more_is_better: so is more cost, as of a speed.
    """
    sign = 1 if more_is_better else -1
    return [
        not any(
            sign * x2 >= sign * x and y2 >= y and (sign * x2 > sign * x or y2 > y)
            for x2, y2 in points
        )
        for x, y in points
    ]


def frontier(study: Study, cost: Cost) -> Figure:
    """The decisive metric over a cost; those that nobody beats in both are bold and joined."""
    key, heading = study.decisive
    scale = 1e6 if "bytes" in cost.key else 1e-3 if cost.key == "latency_seconds" else 1
    shown = [
        (one, amount / scale, quality)
        for one in study.measured
        if (amount := one.cost(cost.key)) and (quality := one.value(key)) is not None
    ]
    best = pareto([(x, y) for _, x, y in shown], more_is_better=cost.more_is_better)
    drawn, axes = canvas.new_figure(cost.heading, heading, height=4.9)
    axes.set_xscale("log")
    steps = sorted((x, y) for (_, x, y), is_best in zip(shown, best, strict=True) if is_best)
    axes.plot(
        [x for x, _ in steps], [y for _, y in steps], color=canvas.QUIET, linewidth=1,
        drawstyle="steps-pre" if cost.more_is_better else "steps-post", linestyle=(0, (2, 2)),
        zorder=1,
    )  # fmt: skip
    for (one, x, y), is_best in zip(shown, best, strict=True):
        axes.plot([x], [y], one.marker, color=canvas.INK if is_best else one.color,
                  markerfacecolor=one.fill if one.fill == "white" else one.color,
                  markeredgewidth=1.8 if is_best else 1, markersize=8.5 if is_best else 6.5,
                  zorder=3)  # fmt: skip
        if is_best:
            axes.plot([x], [y], one.marker, color=one.color, markerfacecolor=one.fill,
                      markersize=5.5, markeredgewidth=1, zorder=4)  # fmt: skip
    axes.margins(x=0.16, y=0.1)
    _plain_logarithm(axes)
    _label_points(drawn, axes, [(one, x, y, is_best) for (one, x, y), is_best
                                in zip(shown, best, strict=True)])  # fmt: skip
    return drawn


def _plain_logarithm(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_xlim()
    subs = (1.0,) if high / low > 300 else (1.0, 3.0) if high / low > 12 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(10, subs=subs))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _label_points(
    drawn: Figure, axes: Axes, points: Sequence[tuple[Contestant, float, float, bool]]
) -> None:
    """A name beside each point, where it covers the least; a thin line to those pushed away."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patheffects import withStroke

    renderer = FigureCanvasAgg(drawn).get_renderer()  # type: ignore[no-untyped-call]
    drawn.draw_without_rendering()
    # From here on the places of the points must not move.
    drawn.set_layout_engine("none")
    places = [axes.transData.transform((x, y)) for _, x, y, _ in points]
    dots = [np.array([px - 8, py - 8, px + 8, py + 8]) for px, py in places]
    frame = axes.get_window_extent(renderer)
    taken: list[np.ndarray] = []
    # The best first: they get the places nearest to their points.
    for number in sorted(range(len(points)), key=lambda n: (not points[n][3], -points[n][2])):
        one, x, y, is_best = points[number]
        options = [_Label(dx, dy) for dx, dy in _OFFSETS]
        text = axes.annotate(
            canvas.plain(one.name, 24), (x, y), textcoords="offset points", xytext=(0, 0),
            fontsize=8, color=canvas.INK if is_best else canvas.QUIET, va="center",
            fontweight="bold" if is_best else "normal", zorder=5,
            path_effects=[withStroke(linewidth=2.4, foreground="white")],
        )  # fmt: skip
        scored = []
        for rank, option in enumerate(options):
            option.apply(text)
            box = np.array(text.get_window_extent(renderer).extents)
            # Two names side by side are one word without a blank between them.
            cost = sum(_overlap(box + _BLANK, other) for other in taken) * 3
            cost += sum(_overlap(box, dot) for n, dot in enumerate(dots) if n != number)
            cost += 5 * _outside(box, np.array(frame.extents)) + 6 * rank
            scored.append((cost, rank, box))
        _, rank, box = min(scored, key=lambda item: item[:2])
        options[rank].apply(text)
        taken.append(box)
        if rank >= 8:
            dx, dy = _OFFSETS[rank]
            axes.annotate(
                "", (x, y), (dx * 0.94, dy * 0.94), textcoords="offset points", zorder=2,
                arrowprops={"arrowstyle": "-", "color": "#B8C1CA", "linewidth": 0.7,
                            "shrinkA": 0, "shrinkB": 3},
            )  # fmt: skip


_OFFSETS = [
    (8, 0), (-8, 0), (0, 10), (0, -10), (7, 8), (7, -8), (-7, 8), (-7, -8),
    (12, 18), (12, -18), (-12, 18), (-12, -18), (14, 28), (14, -28), (-14, 28), (-14, -28),
    (16, 40), (16, -40), (-16, 40), (-16, -40),
]  # fmt: skip


# Pixels to the left, below, to the right and above.
_BLANK = np.array([-6.0, 0.0, 6.0, 0.0])


@dataclass(frozen=True, slots=True)
class _Label:
    dx: float
    dy: float

    def apply(self, text: Any) -> None:
        text.set_position((self.dx, self.dy))
        text.set_horizontalalignment(
            "center" if self.dx == 0 else "left" if self.dx > 0 else "right"
        )


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Pixels that two boxes (left, bottom, right, top) share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return float(width * height) if width > 0 and height > 0 else 0.0


def _outside(box: np.ndarray, frame: np.ndarray) -> float:
    """Pixels of a box that lie outside the frame."""
    return float((box[2] - box[0]) * (box[3] - box[1])) - _overlap(box, frame)


def class_balance(labels: Sequence[str], counts: Mapping[str, Sequence[int]]) -> Figure:
    """A bar for each split, cut into the labels' shares.

    Args:
        labels: C names; with more than `MOST_BALANCED` the last ones share a bar.
        counts: rows of each label, C numbers, by split.
    """
    if len(labels) > MOST_BALANCED:
        kept = MOST_BALANCED - 1
        labels = [*labels[:kept], f"{len(labels) - kept} other labels"]
        counts = {s: [*found[:kept], sum(found[kept:])] for s, found in counts.items()}
    drawn, axes = canvas.new_figure("share of the rows", "", height=0.95 + 0.42 * len(counts),
                                    grid="none")  # fmt: skip
    colors = (canvas.SKY, canvas.BLUE, canvas.ORANGE, canvas.VERMILLION, canvas.GREEN,
              canvas.PURPLE, "#B8C1CA")  # fmt: skip
    names = list(counts)
    left = np.zeros(len(names))
    for number, label in enumerate(labels):
        shares = np.array([counts[s][number] / max(sum(counts[s]), 1) for s in names])
        color = colors[number % len(colors)]
        axes.barh(
            range(len(names)), shares, 0.62, left=left, color=color, edgecolor="white",
            linewidth=1, label=canvas.plain(label),
        )  # fmt: skip
        for place, share in enumerate(shares):
            if share >= 0.07:
                axes.text(
                    left[place] + share / 2, place, f"{100 * share:.1f} %", ha="center",
                    va="center", fontsize=8,
                    color="white" if color in (canvas.BLUE, canvas.VERMILLION) else canvas.INK,
                )  # fmt: skip
        left += shares
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelcolor=canvas.INK)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    canvas.add_legend(axes, "above")
    return drawn


MOST_BALANCED = 7
