"""One word in different sentences, on a terminal."""

from __future__ import annotations

import sys

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from filbert.errors import printable
from filbert.inspection.neighbours import WordInContext
from filbert.inspection.occurrences import Occurrence
from filbert.report.neighbours_page import around, colours_of, notes, verdict

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red", "white", "bright_black")
# Beyond so many places a matrix no longer fits beside itself.
MOST_IN_MATRIX = 12
MOST_LISTED = 30
LEAST_SHOWN = 24
LEAST_WIDTH = 80


def print_neighbours(found: WordInContext) -> None:
    """The verdict, the sentences, their similarities and the figures of every layer."""
    console = Console(emoji=False)
    # Figures are never cropped: on a narrow terminal its lines are broken.
    console.width = max(console.width, LEAST_WIDTH)
    console.print(verdict(found), highlight=False, markup=False)
    for note in notes(found):
        print(note, file=sys.stderr)
    console.print()
    console.print(_sentences(found, console.width))
    count = len(found.occurrences)
    if count > MOST_LISTED:
        console.print(f"  and {count - MOST_LISTED} more; --json or --out has them all.")
    if count <= MOST_IN_MATRIX:
        title = f"layer {found.layer} below the diagonal, word table above"
        console.print(f"\n{title}", style="dim", highlight=False)
        console.print(_matrix(found))
    console.print()
    console.print(_layers(found))


def _sentences(found: WordInContext, width: int) -> Table:
    colours, names = colours_of(found)
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("", justify="right")
    grid.add_column("sentence", overflow="fold")
    grid.add_column("nearest", justify="right", no_wrap=True)
    grid.add_column("sense" if found.senses else "group", no_wrap=True)
    # Beside the sentence: numbers, the nearest, the sense, and the blanks between them.
    room = max(LEAST_SHOWN, width - 20 - max(map(len, names)))
    order = sorted(range(len(colours)), key=lambda i: (colours[i], i))
    for i in order[:MOST_LISTED]:
        style = COLOURS[colours[i] % len(COLOURS)]
        before, form, after = _around(found.occurrences[i], room)
        line = Text(before)
        line.append(form, style=f"bold {style}")
        line.append(after)
        nearest = found.nearest(i)
        name = names[colours[i]].removeprefix("group ")
        grid.add_row(
            Text(str(i + 1), style=style),
            line,
            f"{nearest + 1} ({found.similarity[i, nearest]:.2f})",
            Text(printable(name, 20), style=style),
        )
    return grid


def _around(one: Occurrence, room: int) -> tuple[str, str, str]:
    """A place and what stands around it, on one line of `room` characters or a few more."""
    text = one.source.text
    room = max(LEAST_SHOWN, room - (one.end - one.start))
    behind = len(text) - one.end
    left = max(room // 2, room - behind)
    parts = around(one, left, room - min(left, one.start))
    before, form, after = (printable(" ".join(part.split("\n")), len(part)) for part in parts)
    return before, form, after


def _matrix(found: WordInContext) -> Table:
    """Cosines in context below the diagonal, of the word table above it."""
    count = len(found.occurrences)
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("", justify="right", style="dim")
    for number in range(count):
        grid.add_column(str(number + 1), justify="right", no_wrap=True)
    inside = found.similarity[~np.eye(count, dtype=bool)]
    low, high = float(inside.min()), float(inside.max())
    for i in range(count):
        cells = []
        for j in range(count):
            if i == j:
                cells.append(Text("·", style="dim"))
            elif j > i:
                cells.append(Text(f"{found.static_similarity[i, j]:.2f}", style="dim"))
            else:
                value = float(found.similarity[i, j])
                near = (value - low) / max(high - low, 1e-6)
                style = "bold green" if near > 2 / 3 else "" if near > 1 / 3 else "red"
                cells.append(Text(f"{value:.2f}", style=style))
        grid.add_row(str(i + 1), *cells)
    return grid


def _layers(found: WordInContext) -> Table:
    columns: list[tuple[str, list[float | None]]] = [
        ("self-sim.", [one.self_similarity for one in found.layers]),
        ("less random", [one.adjusted["self_similarity"] for one in found.layers]),
        ("explained", [one.explained for one in found.layers]),
        ("in sentence", [one.intra for one in found.layers]),
        ("random", [one.random for one in found.layers]),
        ("nearest same", [one.nearest_same for one in found.layers]),
    ]
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("layer", justify="right")
    known = [(head, row) for head, row in columns if any(value is not None for value in row)]
    for head, _ in known:
        grid.add_column(head, justify="right", no_wrap=True)
    for number in range(len(found.layers)):
        cells = ["–" if row[number] is None else f"{row[number]:.3f}" for _, row in known]
        grid.add_row(str(number), *cells, style="bold" if number == found.layer else "")
    return grid
