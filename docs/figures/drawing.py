"""What all figures have in common: the model, the sentence, the look."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import filbert
from filbert.batch import PackedBatch, pack
from filbert.report.plots import INK, QUIET

WIDTH = 7.2  # inches, as wide as a page of GitHub shows an image

SENTENCE = "The cat sat by the fire because it was cold."

# From white to filbert's blue, and from its vermillion over white to its blue.
# Okabe and Ito 2008: distinguishable by colour-blind readers, and in grey by lightness.
BLUE, VERMILLION, GREEN, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9"
AMOUNT = LinearSegmentedColormap.from_list("amount", ["#FFFFFF", "#9CC9E6", BLUE, "#00334F"])
SIGNED = LinearSegmentedColormap.from_list(
    "signed", ["#7A3300", VERMILLION, "#FFFFFF", BLUE, "#00334F"]
)

# A figure, and the numbers of it that the page quotes, as they stand there.
Drawn = tuple[Figure, dict[str, str]]


@cache
def mini() -> Any:
    """filbert-mini, loaded once; in float32, so that every machine draws the same."""
    return filbert.load("filbert-mini", precision="float32")


def read(text: str | tuple[str, str]) -> tuple[PackedBatch, list[str]]:
    """A text or a pair as a batch of one sequence, and its tokens."""
    tokenizer = mini().tokenizer
    (encoding,) = tokenizer.encode([text])
    batch = pack([encoding.input_ids], [encoding.token_type_ids])
    return batch, tokenizer.tokens(encoding.input_ids)


def new(height: float, width: float = WIDTH) -> Figure:
    """An empty figure."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def title(axes: Axes, text: str) -> None:
    """A panel's heading, on the left."""
    axes.set_title(text, loc="left", fontsize=9.5, color=INK, pad=7)


def heat(
    axes: Axes,
    values: np.ndarray,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    most: float | None = None,
    signed: bool = False,
) -> Any:
    """A matrix as coloured squares; `most` is the value of the darkest colour."""
    most = float(np.abs(values).max()) if most is None else most
    image = axes.imshow(
        values,
        cmap=SIGNED if signed else AMOUNT,
        vmin=-most if signed else 0.0,
        vmax=most,
        aspect="auto",
        interpolation="nearest",
    )
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_xticks(range(len(columns)), list(columns), rotation=90)
    axes.tick_params(length=0, labelsize=8, colors=INK)
    for spine in axes.spines.values():
        spine.set_color("#B8C1CA")
    return image


def plain(axes: Axes) -> None:
    """Axes without ticks and frame, for drawings."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def frame(x: float, y: float, width: float, height: float) -> Rectangle:
    """A frame around cells of a heat map."""
    return Rectangle((x, y), width, height, fill=False, edgecolor=VERMILLION, linewidth=1.4)


def scale(figure: Figure, image: Any, axes: Any, label: str) -> None:
    """The key of a heat map's colours."""
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=22, pad=0.02)
    bar.set_label(label, fontsize=8, color=QUIET)
    bar.ax.tick_params(labelsize=8, colors=QUIET, length=0)
    bar.outline.set_visible(False)


def recorded(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def percent(share: float) -> str:
    """0.316 as "32 %"."""
    return f"{100 * share:.0f} %"


def one_thread() -> None:
    """Sums in one order, so that a figure is the same twice."""
    torch.set_num_threads(1)
