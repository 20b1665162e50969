"""Plots of a run or a comparison as plain values: the page draws them, and so does matplotlib.

N rows, C labels. `Lines` are lines of metrics.jsonl. `Plot.facts` is what the script of the page
draws with hover and zoom, `write_png` the same plot as a file. pyplot is not used, as it keeps
global state.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.metrics import ranking

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, GREY, FAINT = "#25221d", "#6a6459", "#B8C1CA", "#e3ded4"
# Colours of the series by number; theme.css has the same for both colour schemes.
SERIES = ("#1d7562", "#c2570c", "#2f6fb0", "#a4508b", "#8a6d00", "#4f9bd0", "#25221d", "#8d8678")
DASHES = (0, (4, 3))
PIXELS_PER_INCH = 200
MOST_POINTS = 1000  # of a series, and 20 times as many of a plot
MOST_LABELS_WITH_NUMBERS = 12
# Bins of a reliability diagram, and the least rows in each.
BINS, ROWS_PER_BIN = 10, 20

Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour.

    Attributes:
        name: For the legend; empty for none.
        x, y: float (points,); NaN leaves a gap.
        color: A number of SERIES; -1 for grey.
        mark: line, faint, dashes, steps (a value holds down to the next lower x), dots, both (a
            line and dots) or bars.
        ends: Intervals of y, or of x where the rows have names: low and high, (points,) each.
    """

    name: str
    x: Any
    y: Any
    color: int = 0
    mark: str = "line"
    ends: Any = None

    def facts(self, most: int) -> dict[str, Any]:
        """Return the points in JSON, at most `most` of them, with five significant digits."""
        at = np.linspace(0, len(self.x) - 1, min(len(self.x), most)).round().astype(int)
        columns = {"x": self.x, "y": self.y}
        if self.ends is not None:
            columns |= {"low": self.ends[0], "high": self.ends[1]}
        points = {key: _short(np.asarray(values, float)[at]) for key, values in columns.items()}
        return {"name": self.name, "color": self.color, "mark": self.mark, **points}


def _short(values: Iterable[float]) -> list[float | None]:
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]


@dataclass(frozen=True, slots=True)
class Plot:
    """One set of axes, perhaps with a low one `below` it that has the same x.

    Attributes:
        log: The logarithmic axes: x, y or xy.
        xlim, ylim: Where an axis begins and ends; None for the range of the points.
        borders: (axis, value, name) of dashed lines.
        rows: Names of the y positions 0, 1, 2 ..., from the top.
    """

    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log: str = ""
    xlim: tuple[float | None, float | None] = (None, None)
    ylim: tuple[float | None, float | None] = (None, None)
    borders: Sequence[tuple[str, float, str]] = ()
    rows: Sequence[str] = ()
    below: Plot | None = None

    def facts(self) -> dict[str, Any]:
        """Return the plot in JSON."""
        most = min(MOST_POINTS, 20 * MOST_POINTS // max(len(self.series), 1))
        own = {name: getattr(self, name) for name in ("xlabel", "ylabel", "log", "xlim", "ylim")}
        return own | {
            "series": [one.facts(most) for one in self.series if len(one.x)],
            "borders": [(axis, float(value), name) for axis, value, name in self.borders],
            "rows": list(self.rows),
            "below": self.below and self.below.facts(),
        }

    def figure(self) -> Figure:
        """Return the same in matplotlib."""
        height = 0.75 + 0.27 * len(self.rows) if self.rows else 4.1
        figure = _figure(height)
        parts = [self, *([self.below] if self.below else ())]
        heights = {"height_ratios": [3.2, 1][: len(parts)]}
        grid = figure.subplots(len(parts), 1, sharex=True, squeeze=False, gridspec_kw=heights)
        for plot, axes in zip(parts, grid.flat, strict=True):
            plot.draw(axes, is_last=plot is parts[-1])
        names = [one for one in self.series if one.name] + [one for one in self.borders if one[2]]
        if len(names) > 1 and not self.rows:
            figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=8)
        return figure

    def draw(self, axes: Axes, *, is_last: bool) -> None:
        """Draw the series on axes of matplotlib."""
        quieten(axes, plain(self.xlabel, 60) if is_last else "", plain(self.ylabel, 60))
        for one in self.series:
            _draw(axes, one, flat=bool(self.rows))
        for axis, value, name in self.borders:
            line = axes.axvline if axis == "x" else axes.axhline
            line(value, color=INK, linewidth=1, linestyle=DASHES, label=plain(name))
        for axis, scale in (("x", axes.set_xscale), ("y", axes.set_yscale)):
            if axis in self.log:
                scale("log")
        axes.set_xlim(*self.xlim)
        axes.set_ylim(*self.ylim)
        if self.rows:
            axes.set_yticks(range(len(self.rows)), [plain(name, 22) for name in self.rows])
            axes.set_ylim(len(self.rows) - 0.4, -0.6)


def _draw(axes: Axes, one: Series, *, flat: bool) -> None:
    x, y = np.asarray(one.x, float), np.asarray(one.y, float)
    color = GREY if one.color < 0 else SERIES[one.color % len(SERIES)]
    if one.ends is not None:
        low, high = np.asarray(one.ends, float)
        lines = axes.hlines if flat else axes.vlines
        lines(y if flat else x, low, high, color=color, alpha=0.45, linewidth=2.5)
    if one.mark == "bars":
        axes.bar(x, y, width=0.9 * float(np.diff(x).min()) if len(x) > 1 else 1, color=color)
        return
    styles: dict[str, dict[str, Any]] = {
        "faint": {"alpha": 0.35, "linewidth": 0.9}, "dashes": {"linestyle": DASHES, "linewidth": 1},
        "steps": {"drawstyle": "steps-post"}, "both": {"marker": "o", "markersize": 4.5},
        "dots": {"linestyle": "none", "marker": "o", "markersize": 4 if len(x) < 200 else 2.5},
    }  # fmt: skip
    dashes = ("-", "--", ":", "-.")[max(one.color, 0) // len(SERIES) % 4]
    style: dict[str, Any] = {"linewidth": 1.6, "linestyle": dashes} | styles.get(one.mark, {})
    axes.plot(x, y, color=color, label=plain(one.name), **style)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A confusion matrix, int (C, C): rows are gold, columns predicted."""

    labels: Sequence[str]
    counts: np.ndarray

    def facts(self) -> dict[str, Any]:
        """Return the matrix in JSON."""
        return {"labels": list(self.labels), "counts": self.counts.tolist()}

    def figure(self) -> Figure:
        """Return the same in matplotlib."""
        num = len(self.labels)
        figure = _figure(min(3.0 + 0.16 * num, 7.0))
        axes = figure.subplots()
        quieten(axes, "predicted", "gold", grid="none")
        from matplotlib.colors import LinearSegmentedColormap

        shares = self.counts / np.maximum(self.counts.sum(1, keepdims=True), 1)
        colors = LinearSegmentedColormap.from_list("filbert", ("#f1eee7", SERIES[0]))
        axes.imshow(shares, cmap=colors, vmin=0, vmax=1, aspect="auto")
        shown = shares if num <= MOST_LABELS_WITH_NUMBERS else np.empty((0, 0))
        for (row, column), share in np.ndenumerate(shown):
            axes.text(
                column, row, f"{self.counts[row, column]:,}", ha="center", va="center", fontsize=8,
                color="white" if share > 0.6 else INK,
            )  # fmt: skip
        size = 8 if num <= 12 else 5
        names = [plain(label, 18) for label in self.labels]
        axes.set_xticks(range(num), names, fontsize=size, rotation=0 if num <= 4 else 90)
        axes.set_yticks(range(num), names, fontsize=size)
        return figure


def _figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(4.8, height), layout="constrained", facecolor="white")


def quieten(axes: Axes, xlabel: str, ylabel: str, *, grid: str = "both") -> None:
    """Give axes of matplotlib the style of the report; `grid` is both, x, y or none."""
    axes.set_xlabel(xlabel, color=QUIET, fontsize=9.5)
    axes.set_ylabel(ylabel, color=QUIET, fontsize=9.5)
    axes.tick_params(which="both", colors=QUIET, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)
    axes.set_axisbelow(True)
    if grid != "none":
        axes.grid(True, axis=grid, color=FAINT, linewidth=0.8)  # type: ignore[arg-type]


def plain(name: object, longest: int = 28) -> str:
    """Return a name for matplotlib: on one line, without formulas, and shortened in the middle.

    Names of models often differ at their end.
    """
    text = " ".join(str(name).split())
    if len(text) > longest:
        end = (longest - 1) // 2
        text = f"{text[: longest - 1 - end]}…{text[-end:]}"
    return text.replace("$", r"\$")


def save(figure: Figure, path: Path) -> None:
    """Write a PNG; equal charts give equal bytes."""
    with warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes; the tables have the real names.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*missing")
        figure.savefig(path, dpi=PIXELS_PER_INCH, format="png", metadata={"Software": None})


def write_png(plot: Plot | Matrix, path: Path) -> None:
    """Draw a plot into a file."""
    save(plot.figure(), path)


# Training


def loss_curve(
    steps: Lines, evaluations: Lines, *, key: str = "loss", dev_key: str = "loss",
    ylabel: str = "loss (nats)",
) -> Plot:  # fmt: skip
    """Return the training loss with its running mean, and dev loss; below, the learning rate.

    `key` is the loss of the steps ("loss" where no line has it), `dev_key` the dev metric that is
    comparable with it.
    """
    at = values_of(steps, "step")
    loss = values_of(steps, key if any(line.get(key) is not None for line in steps) else "loss")
    series = _smoothed(at, loss, "train")
    dev = values_of([line["metrics"] for line in evaluations], dev_key)
    if np.isfinite(dev).any():
        series.append(Series("dev", values_of(evaluations, "step"), dev, 1, "both"))
    # The loss of the first steps would squeeze the others: a pre-training loss starts at the
    # logarithm of the vocabulary size and falls within few steps.
    known, top = loss[np.isfinite(loss)], None
    if len(known):
        top = 1.1 * float(max(np.quantile(known, 0.98), np.nanmax(np.append(dev, 0))))
    rate = Series("learning rate", at, values_of(steps, "lr"), -1)
    below = Plot("step", "learning rate", [rate], ylim=(0, None))
    return Plot("step", ylabel, series, ylim=(0, top), below=below)


def gradient_curve(steps: Lines, clip: float | None) -> Plot:
    """Return the norm of the gradient before clipping at every step, and its limit."""
    series = _smoothed(values_of(steps, "step"), values_of(steps, "grad_norm"), "norm")
    borders = [("y", clip, f"clipped to {clip:g}")] if clip else []
    return Plot("step", "gradient norm (logarithmic)", series, log="y", borders=borders)


def metric_curves(
    evaluations: Lines, columns: Sequence[tuple[str, str]], *, kept_step: int | None = None,
    ylabel: str = "dev metric",
) -> Plot:  # fmt: skip
    """Return metrics on dev, given as (key, name); a single one that falls far has a log scale.

    The border is at the step whose weights were kept.
    """
    at, lines = values_of(evaluations, "step"), [line["metrics"] for line in evaluations]
    series = [
        Series(name, at, values_of(lines, key), color, "both")
        for color, (key, name) in enumerate(columns)
    ]
    known = [v for v in series[0].y if math.isfinite(v) and v > 0] if len(series) == 1 else []
    is_log = bool(known and max(known) > 5 * min(known))
    borders = [] if kept_step is None else [("x", kept_step, "kept")]
    return Plot("step", ylabel + " (logarithmic)" * is_log, series, "y" * is_log, borders=borders)


def _smoothed(at: np.ndarray, values: np.ndarray, name: str) -> list[Series]:
    """Return values, with their running mean if there are at least 20."""
    if len(values) < 20:
        return [Series(name, at, values, 0, "both")]
    smooth = running_mean(values, max(5, len(values) // 25))
    return [Series(name, at, values, 0, "faint"), Series(f"{name}, running mean", at, smooth)]


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Return the mean over `width` neighbours, fewer at both ends, without NaN; float64 (N,)."""
    known = np.isfinite(values)
    total = np.convolve(np.where(known, values, 0.0), np.ones(width), mode="same")
    num = np.convolve(known.astype(float), np.ones(width), mode="same")
    return np.where(num > 0.5, total / np.maximum(num, 1), np.nan)


def values_of(lines: Lines, key: str) -> np.ndarray:
    """Return the values of a key, NaN where a line lacks it, float64 (lines,)."""
    return np.array([line.get(key) for line in lines], dtype=float)


# Ranking and decisions


@dataclass(frozen=True, slots=True)
class Ranking:
    """A line of a plot: bool (N,), of both classes for ROC or precision-recall, and float (N,)."""

    name: str
    is_positive: np.ndarray
    scores: np.ndarray
    color: int = 0

    def curve(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y of the curve "roc" or "pr"."""
        table = ranking.cuts(self.is_positive, self.scores)
        recall, misses = table.hits / table.num_positives, table.flagged - table.hits
        if kind == "roc":
            false_rate = misses / (table.num_rows - table.num_positives)
            return np.append(0.0, false_rate), np.append(0.0, recall)
        precision = table.hits / table.flagged
        return np.append(0.0, recall), np.append(precision[0], precision)

    def area(self, kind: str) -> float:
        """Return ROC AUC or average precision."""
        area = ranking.roc_auc if kind == "roc" else ranking.pr_auc
        return area(self.is_positive, self.scores) or 0.0


def ranking_plot(curves: Sequence[Ranking], kind: str, *, show_random: bool = True) -> Plot:
    """Return ROC curves ("roc") or precision-recall curves ("pr"), with their areas in the legend.

    The dashed line is a random ranking.
    """
    labels = (
        ("false positive rate", "true positive rate") if kind == "roc" else ("recall", "precision")
    )
    series = [
        Series(f"{one.name}  {one.area(kind):.3f}", *one.curve(kind), one.color) for one in curves
    ]
    if show_random:
        start = 0 if kind == "roc" else float(curves[0].is_positive.mean())
        ends = [start, 1 if kind == "roc" else start]
        series.append(Series("", [0, 1], ends, -1, "dashes"))
    return Plot(*labels, series, xlim=(0, 1), ylim=(0, 1.01))


def threshold_plot(is_positive: np.ndarray, scores: np.ndarray, threshold: float | None) -> Plot:
    """Return precision, recall and F1 at every threshold in [0, 1] of scores (N,)."""
    table = ranking.cuts(is_positive, scores)
    values = {
        "precision": table.hits / table.flagged,
        "recall": table.hits / table.num_positives,
        "F1": 2 * table.hits / (table.flagged + table.num_positives),
    }
    series = [
        Series(name, table.scores, y, color, "steps")
        for color, (name, y) in enumerate(values.items())
    ]
    borders = [] if threshold is None else [("x", threshold, f"in use: {threshold:.3f}")]
    return Plot("threshold", "", series, xlim=(0, 1), ylim=(0, 1.01), borders=borders)


def reliability_plot(models: Sequence[Ranking], *, xlabel: str, ylabel: str) -> Plot:
    """Return the observed frequency over the score; of one model with 95 % intervals and its rows.

    Scores are in [0, 1].
    """
    series, below = [Series("", [0, 1], [0, 1], -1, "dashes")], None
    for model in models:
        bins = by_quantile(model.is_positive, model.scores)
        x, y = [score for score, _ in bins], [outcomes.mean() for _, outcomes in bins]
        ends = None
        if len(models) == 1:
            ends = np.transpose([share_interval(outcomes) for _, outcomes in bins])
            counts, edges = np.histogram(model.scores, bins=20, range=(0, 1))
            rows = Series("rows", (edges[1:] + edges[:-1]) / 2, counts, model.color, "bars")
            below = Plot(xlabel, "rows", [rows], xlim=(0, 1), ylim=(0, None))
        series.append(Series(model.name, x, y, model.color, "both", ends))
    return Plot(xlabel, ylabel, series, xlim=(0, 1), ylim=(0, 1.02), below=below)


def share_interval(outcomes: np.ndarray) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the share of True in bool (N,)."""
    from scipy.stats import binomtest

    found = binomtest(int(outcomes.sum()), len(outcomes)).proportion_ci(method="wilson")
    return found.low, found.high


def by_quantile(is_true: np.ndarray, scores: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Return bins of equally many rows, by rising score: the mean score, and the outcomes, bool."""
    count = min(BINS, max(1, len(scores) // ROWS_PER_BIN))
    parts = np.array_split(np.argsort(scores, kind="stable"), count)
    return [(float(scores[rows].mean()), is_true[rows]) for rows in parts]


def scatter(
    gold: np.ndarray, values: np.ndarray, *, xlabel: str, ylabel: str, identity: bool
) -> Plot:
    """Return values over gold scores, float (N,) each, with the line gold = value or a fit."""
    ends = np.array([gold.min(), gold.max()])
    fitted = ends
    if not identity and ends[0] < ends[1]:
        fitted = np.polyval(np.polyfit(gold, values, 1), ends)
    line = Series("exact" if identity else "linear fit", ends, fitted, -1, "dashes")
    return Plot(xlabel, ylabel, [Series("rows", gold, values, 0, "dots"), line])
