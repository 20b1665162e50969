"""Plots of a run or a study: training, ranking, decisions, calibration, scores, lengths, costs.

N rows, C labels. `Lines` are lines of metrics.jsonl. All plots have one palette, quiet axes and
twice the screen's resolution. pyplot is not used, as it keeps global state.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.metrics import ranking

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
MOST_POINTS = 2000  # more points than a screen can show
MOST_LABELS_WITH_NUMBERS = 12
# Bins of a reliability diagram, and the least rows in each.
BINS, ROWS_PER_BIN = 10, 20

Lines = Sequence[Mapping[str, Any]]


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


# Training


def loss_curve(
    steps: Lines, evaluations: Lines, *, key: str = "loss", dev_key: str = "loss",
    ylabel: str = "loss (nats)",
) -> Figure:  # fmt: skip
    """Training loss with its running mean and dev loss; below, the learning rate.

    Args:
        steps: Lines with `step`, `lr` and `key`; at least one.
        evaluations: Lines with `step` and `metrics`.
        key: The loss of `steps`; "loss" where no line has it.
        dev_key: The dev metric that is comparable with the loss.
        ylabel: Name and unit of the loss.
    """
    at = values_of(steps, "step")
    figure, upper, lower = stacked_figure("step", ylabel, "learning rate")
    loss = values_of(steps, key if any(line.get(key) is not None for line in steps) else "loss")
    _smoothed(upper, at, loss, "train")
    dev = values_of([line["metrics"] for line in evaluations], dev_key)
    if np.isfinite(dev).any():
        _dots(upper, values_of(evaluations, "step"), dev, VERMILLION, "dev")
    # The loss of the first steps would squeeze the others: a pre-training loss starts at the
    # logarithm of the vocabulary size and falls within few steps.
    known = loss[np.isfinite(loss)]
    if len(known):
        upper.set_ylim(0, 1.1 * max(np.quantile(known, 0.98), np.nanmax(np.append(dev, 0))))
    add_legend(upper)
    lower.plot(at, values_of(steps, "lr"), color=QUIET, linewidth=1.6)
    lower.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    lower.yaxis.get_offset_text().set(color=QUIET, fontsize=8)
    lower.set_ylim(bottom=0)
    return figure


def gradient_curve(steps: Lines, clip: float | None) -> Figure:
    """Norm of the gradient before clipping at every step; `clip` is None or 0 for no clipping."""
    figure, axes = new_figure("step", "gradient norm (logarithmic)")
    _smoothed(axes, values_of(steps, "step"), values_of(steps, "grad_norm"), "norm")
    if clip:
        axes.axhline(clip, color=INK, linewidth=1, linestyle=DASHES, label=f"clipped to {clip:g}")
    axes.set_yscale("log")
    add_legend(axes)
    return figure


def metric_curves(
    evaluations: Lines, columns: Sequence[tuple[str, str]], *, kept_step: int | None = None,
    ylabel: str = "dev metric",
) -> Figure:  # fmt: skip
    """Metrics on dev at every evaluation; a single metric that falls far is drawn logarithmically.

    Args:
        evaluations: Lines with `step` and `metrics`.
        columns: (metric key, name in the legend).
        kept_step: The step whose weights were kept.
        ylabel: Name of the y axis.
    """
    figure, axes = new_figure("step", ylabel, height=4.5)
    values = np.empty(0)
    for (key, name), color in zip(columns, SERIES, strict=False):
        values = values_of([line["metrics"] for line in evaluations], key)
        if np.isfinite(values).any():
            _dots(axes, values_of(evaluations, "step"), values, color, name)
    known = values[np.isfinite(values) & (values > 0)]
    if len(columns) == 1 and len(known) and known.max() > 5 * known.min():
        axes.set_yscale("log")
        plain_logarithm(axes.yaxis, known.min(), known.max())
        axes.set_ylabel(f"{ylabel} (logarithmic)")
    if kept_step is not None:
        _threshold(axes, kept_step, "kept")
    add_legend(axes)
    return figure


def _dots(axes: Axes, at: np.ndarray, values: np.ndarray, color: str, name: str) -> None:
    axes.plot(at, values, color=color, marker="o", markersize=4.5, linewidth=1.6, label=name)


def _smoothed(axes: Axes, at: np.ndarray, values: np.ndarray, name: str) -> None:
    """Draw values, with their running mean if there are at least 20."""
    if len(values) < 20:
        _dots(axes, at, values, BLUE, name)
        return
    axes.plot(at, values, color=BLUE, alpha=0.3, linewidth=0.9, label=name)
    smooth = running_mean(values, max(5, len(values) // 25))
    axes.plot(at, smooth, color=BLUE, linewidth=1.8, label=f"{name}, running mean")


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean over `width` neighbours, fewer at both ends, without NaN; float64 (N,) in and out."""
    known = np.isfinite(values)
    total = np.convolve(np.where(known, values, 0.0), np.ones(width), mode="same")
    num = np.convolve(known.astype(float), np.ones(width), mode="same")
    return np.where(num > 0.5, total / np.maximum(num, 1), np.nan)


def _threshold(axes: Axes, value: float, label: str) -> None:
    axes.axvline(value, color=INK, linewidth=1, linestyle=DASHES, label=label)


def values_of(lines: Lines, key: str) -> np.ndarray:
    """The values of a key, NaN where a line lacks it, float64 (lines,)."""
    return np.array([line.get(key) for line in lines], dtype=float)


# Ranking and decisions


@dataclass(frozen=True, slots=True)
class Ranking:
    """A line of a ROC or precision-recall plot: bool (N,) and float (N,), with both classes."""

    name: str
    is_positive: np.ndarray
    scores: np.ndarray
    color: str = ""
    line: Any = "-"

    def curve(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """X and y of the curve "roc" or "pr", with at most MOST_POINTS points."""
        if kind == "roc":
            x, y = ranking.roc_curve(self.is_positive, self.scores)
        else:
            x, y = ranking.pr_curve(self.is_positive, self.scores)
            x, y = np.append(0, x), np.append(y[0], y)
        chosen = _thinned(len(x))
        return x[chosen], y[chosen]

    def area(self, kind: str) -> float:
        """ROC AUC or average precision."""
        area = ranking.roc_auc if kind == "roc" else ranking.pr_auc
        return area(self.is_positive, self.scores) or 0.0


def _thinned(num: int) -> np.ndarray:
    return np.asarray(np.linspace(0, num - 1, min(num, MOST_POINTS)).round(), dtype=np.int64)


def ranking_plot(curves: Sequence[Ranking], kind: str, *, show_random: bool = True) -> Figure:
    """ROC curves ("roc") or precision-recall curves ("pr"), the first one on top, with areas.

    The dashed line is a random ranking.
    """
    labels = (
        ("false positive rate", "true positive rate") if kind == "roc" else ("recall", "precision")
    )
    figure, axes = new_figure(*labels, height=3.9 + 0.095 * len(curves))
    if show_random:
        start = 0 if kind == "roc" else float(curves[0].is_positive.mean())
        end = 1 if kind == "roc" else start
        axes.plot([0, 1], [start, end], color=GREY, linewidth=1, linestyle=DASHES)
    for number, one in enumerate(curves):
        axes.plot(
            *one.curve(kind), color=one.color or SERIES[number % len(SERIES)],
            linestyle=one.line, linewidth=2 if number == 0 else 1.4, zorder=3 - number * 0.01,
            label=f"{plain(one.name, 24)}  {one.area(kind):.3f}",
        )  # fmt: skip
    unit_square(axes)
    legend_below(figure)
    return figure


def threshold_plot(is_positive: np.ndarray, scores: np.ndarray, threshold: float | None) -> Figure:
    """Precision, recall and F1 at every threshold.

    Args:
        is_positive: bool (N,), at least one True.
        scores: float (N,), in [0, 1].
        threshold: The threshold in use, if there is one.
    """
    figure, axes = new_figure("threshold", "")
    table = ranking.cuts(is_positive, scores)
    at = _thinned(len(table.scores))
    hits, flagged = table.hits[at], table.flagged[at]
    for values, color, name in (
        (hits / flagged, GREEN, "precision"),
        (hits / table.num_positives, ORANGE, "recall"),
        (2 * hits / (flagged + table.num_positives), BLUE, "F1"),
    ):
        # The values of a score hold for every threshold down to the next lower score.
        axes.step(table.scores[at], values, where="post", color=color, label=name)
    if threshold is not None:
        _threshold(axes, threshold, f"in use: {threshold:.3f}")
    unit_square(axes)
    add_legend(axes)
    return figure


def confusion_plot(counts: np.ndarray, labels: Sequence[str]) -> Figure:
    """Confusion matrix, int (C, C): rows are gold, columns predicted."""
    num = len(labels)
    figure, axes = new_figure("predicted", "gold", height=min(3.0 + 0.16 * num, 7.0))
    size = 11 if num <= 4 else 8.5 if num <= 12 else 6.5 if num <= 28 else 5
    draw_confusion(axes, counts, size=size)
    names = [plain(label, 18) for label in labels]
    turn = 0 if num <= 4 and max(map(len, names)) < 12 else 90
    axes.set_xticks(range(num), names, fontsize=min(size, 8.5), rotation=turn)
    axes.set_yticks(range(num), names, fontsize=min(size, 8.5))
    return figure


def draw_confusion(axes: Axes, counts: np.ndarray, *, size: float) -> None:
    """Draw the cells of a confusion matrix; colours are shares of the gold label."""
    from matplotlib.colors import LinearSegmentedColormap

    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    colors, num = LinearSegmentedColormap.from_list("filbert", BLUES), len(counts)
    axes.imshow(shares, cmap=colors, vmin=0, vmax=1, aspect="auto")
    for (row, column), share in np.ndenumerate(shares if num <= MOST_LABELS_WITH_NUMBERS else []):
        text = f"{counts[row, column]:,}" + (f"\n{100 * share:.1f} %" if num <= 4 else "")
        axes.text(
            column, row, text, ha="center", va="center", fontsize=size, linespacing=1.15,
            color="white" if share > 0.6 else INK,
        )  # fmt: skip
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(False)
    axes.set_xticks(np.arange(num + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(num + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=2 if num <= 12 else 0.5)
    axes.tick_params(which="minor", length=0)


def reliability_plot(is_true: np.ndarray, scores: np.ndarray, *, ylabel: str) -> Figure:
    """Observed frequency over score, with 95 % intervals; below, the rows by score.

    Args:
        is_true: bool (N,).
        scores: float (N,), in [0, 1].
        ylabel: What is observed.
    """
    from scipy.stats import binomtest

    figure, upper, lower = stacked_figure("score", ylabel, "rows")
    _reliability(upper, is_true, scores, BLUE)
    for score, outcomes in by_quantile(is_true, scores):
        found = binomtest(int(outcomes.sum()), len(outcomes)).proportion_ci(method="wilson")
        upper.vlines(score, found.low, found.high, color=BLUE, alpha=0.35, linewidth=2)
    upper.set_ylim(-0.02, 1.02)
    lower.hist(scores, bins=20, range=(0, 1), color=SKY, rwidth=0.9)
    lower.set_yscale("symlog", linthresh=10)
    lower.set_xlim(0, 1)
    return figure


def by_quantile(is_true: np.ndarray, scores: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Return bins of equally many rows, by rising score: the mean score, and the outcomes, bool."""
    count = min(BINS, max(1, len(scores) // ROWS_PER_BIN))
    parts = np.array_split(np.argsort(scores, kind="stable"), count)
    return [(float(scores[rows].mean()), is_true[rows]) for rows in parts]


def _reliability(
    axes: Axes, is_true: np.ndarray, scores: np.ndarray, color: str, marker: str = "o"
) -> None:
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHES)
    points = [(score, outcomes.mean()) for score, outcomes in by_quantile(is_true, scores)]
    axes.plot(*zip(*points, strict=True), color=color, marker=marker, markersize=4.5, linewidth=1.6)


def scatter(
    gold: np.ndarray, values: np.ndarray, *, xlabel: str, ylabel: str, identity: bool
) -> Figure:
    """Values over gold scores, float (N,) each, with the line gold = value or a linear fit."""
    figure, axes = new_figure(xlabel, ylabel)
    at = _thinned(len(gold))
    alpha = 0.8 if len(at) < 100 else 0.5 if len(at) < 500 else 0.25
    axes.scatter(gold[at], values[at], s=14, color=BLUE, linewidths=0, alpha=alpha)
    ends = np.array([gold.min(), gold.max()])
    fitted = ends
    if not identity and ends[0] < ends[1]:
        fitted = np.polyval(np.polyfit(gold, values, 1), ends)
    name = "exact" if identity else "linear fit"
    axes.plot(ends, fitted, label=name, color=INK, linewidth=1, linestyle=DASHES)
    add_legend(axes, "upper left")
    return figure


# Several models


@dataclass(frozen=True, slots=True)
class Style:
    """Colour, marker and line of one of several models."""

    color: str
    marker: str
    line: Any

    @classmethod
    def of(cls, place: int) -> Style:
        """The style of the model with number `place`; no two of the first 64 are the same."""
        colors, markers = (*SERIES, INK, "#8A939C"), "os^DvPX*"
        reuse, at = divmod(place, len(colors))
        line = (0, (9.0, 1.6, *(1.0, 1.6) * reuse)) if reuse else "-"
        return cls(colors[at], markers[(at + reuse) % len(markers)], line)


def interval_plot(
    models: Sequence[tuple[str, Style, float, Sequence[float | None], Sequence[float]]],
    heading: str,
) -> Figure:
    """A row for each model, the first on top: name, style, value, interval, and seeds (dots)."""
    figure, axes = new_figure(heading, "", height=0.75 + 0.27 * len(models), grid="x")
    for place, (_, style, value, interval, seeds) in enumerate(reversed(models)):
        if None not in interval:
            ends: Any = interval
            axes.plot(ends, [place] * 2, color=style.color, linewidth=3.4, alpha=0.55)
        axes.plot(seeds, [place] * len(seeds), "o", color=QUIET, markersize=2.4)
        axes.plot([value], [place], style.marker, color=style.color, markersize=6.5)
    names = [plain(name, 22) for name, *_ in reversed(models)]
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.margins(x=0.04)
    axes.locator_params(axis="x", nbins=5)
    return figure


def cost_plot(
    models: Sequence[tuple[str, Style, float, float]], *, xlabel: str, ylabel: str
) -> Figure:
    """Quality over cost of models, each given as (name, style, cost, quality)."""
    height = 3.9 + 0.1 * len(models)
    figure, axes = new_figure(f"{xlabel} (logarithmic)", ylabel, height=height)
    axes.set_xscale("log")
    for name, style, cost, quality in models:
        axes.plot([cost], [quality], style.marker, color=style.color, markersize=8,
                  linestyle="none", label=plain(name, 24))  # fmt: skip
    axes.margins(x=0.08, y=0.08)
    plain_logarithm(axes.xaxis, *axes.get_xlim())
    legend_below(figure)
    return figure


def reliability_panels(
    models: Sequence[tuple[str, Style, np.ndarray, np.ndarray]], *, xlabel: str
) -> Figure:
    """A small reliability diagram for each model: (name, style, is true (N,), confidence (N,))."""
    names = [name for name, *_ in models]
    figure, grid = panel_grid(names, xlabel, "observed frequency", row_height=1.62)
    for axes, (_, style, is_true, confidence) in zip(grid, models, strict=True):
        _reliability(axes, is_true, confidence, style.color, style.marker)
        unit_square(axes, few_ticks=True)
    return figure


def confusion_panels(models: Sequence[tuple[str, np.ndarray]], labels: Sequence[str]) -> Figure:
    """A small confusion matrix (C, C) for each model: rows are gold, columns predicted."""
    num = len(labels)
    names = [name for name, _ in models]
    figure, grid = panel_grid(names, "predicted", "gold", row_height=1.5)
    for axes, (_, counts) in zip(grid, models, strict=True):
        draw_confusion(axes, counts, size=8 if num == 2 else 7 if num == 3 else 5.5)
        shown = [plain(label, 11) for label in labels] if num <= 6 else []
        axes.set_xticks(range(len(shown)), shown, rotation=0 if num == 2 else 90)
        axes.set_yticks(range(len(shown)), shown)
        axes.tick_params(labelsize=6.8, pad=1)
    return figure
