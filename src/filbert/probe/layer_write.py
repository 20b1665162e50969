"""The comparison of layers as files: JSON, Markdown and a plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filbert.errors import InputError
from filbert.files import write_atomically, write_json
from filbert.probe.layer_table import markdown
from filbert.report import canvas


def check_folder(folder: Path) -> None:
    """Make the folder, before hours are spent on what is to lie in it.

    Raises:
        InputError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--out {folder} cannot be made: {error.strerror}. Name another."
        ) from error


def write_comparison(folder: Path, found: Mapping[str, Any]) -> None:
    """layers.json, table.md and layers.png."""
    write_json(folder / "layers.json", dict(found))
    write_atomically(folder / "table.md", markdown(found))
    plot_layers(found, folder / "layers.png")


def plot_layers(found: Mapping[str, Any], path: Path) -> None:
    """A dot for every seed and a mark for the mean, choice by choice."""
    entries = [*found["choices"], *([found["finetuned"]] if found["finetuned"] else [])]
    split = "test" if "test" in found["rows"] else "dev"
    height = 1.1 + 0.36 * len(entries)
    figure, axes = canvas.new_figure(f"{split} {found['metric']}", "", height=height, grid="x")
    for place, entry in enumerate(entries):
        color = canvas.BLUE if "layers" in entry else canvas.VERMILLION
        values = [value for value in entry[split]["values"] if value is not None]
        axes.scatter(values, [place] * len(values), s=18, color=color, alpha=0.45, linewidths=0)
        mean = entry[split]["mean"]
        if mean is not None:
            axes.scatter([mean], [place], s=160, color=color, marker="|", linewidths=2.2)
    names = [canvas.plain(entry["title"], 34) for entry in entries]
    axes.set_yticks(range(len(entries)), names)
    axes.tick_params(axis="y", labelcolor=canvas.INK)
    axes.invert_yaxis()
    canvas.save(figure, path)
