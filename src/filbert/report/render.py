"""Renders a report to one HTML file with Jinja2.

Templates escape every value. The page holds its images and loads neither scripts nor anything from
outside. Python computes numbers, tables and plots; the wording is in templates/*.html.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from filbert.files import write_atomically
from filbert.report import canvas, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ITEMS = 12


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell that is more than plain text.

    Attributes:
        value: The main text.
        strong: Printed bold.
        mark: A sign after the value, on the same line.
        detail: Small text after the value.
        below: Small text on a line of its own.
        code: A hash on a line of its own.
    """

    value: object
    strong: bool = False
    mark: str = ""
    detail: str = ""
    below: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first `num_text_columns` columns are left aligned, the others right aligned.

    Attributes:
        head: Column headings; empty for a table of names and values.
        rows: Cells: strings, numbers or `Cell`.
        num_text_columns: Number of left-aligned columns.
        css_class: plain, results, pairs, counts, dense, ranking, pairwise or failures.
        passages: (name, text) pairs below each row; empty for none.
    """

    head: Sequence[object]
    rows: Sequence[Sequence[object]]
    num_text_columns: int = 1
    css_class: str = "plain"
    passages: Sequence[Sequence[tuple[str, str]]] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """A plot that was saved as a PNG, to be embedded in the page."""

    name: str
    base64: str
    width: int


Section = dict[str, Any]


def section(macro: str, title: str, **values: Any) -> Section:
    """A section of the page: its title and what its macro in the sections template shows."""
    words = "".join(c if c.isalnum() else " " for c in title.lower()).split()
    return {"macro": macro, "title": title, "id": "-".join(words), **values}


def draw(folder: Path, figures: dict[str, Figure]) -> dict[str, Image]:
    """Save figures as plots/NAME.png below `folder` and return them for the page."""
    images = {}
    for name, figure in figures.items():
        path = folder / "plots" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        canvas.save(figure, path)
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        images[name] = Image(name, data, round(100 * canvas.WIDTH))
    return images


def facts_table(values: dict[str, Any]) -> Table:
    """A table of names and values; nested values are flattened, long lists shortened."""
    return Table((), list(flatten(values)), 2, "pairs")


def flatten(values: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Nested facts as (name, text) pairs, for example ("splits: train", "4,000")."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from flatten(value, f"{name}: ")
        elif isinstance(value, list | tuple):
            yield name, _listed(value)
        elif isinstance(value, bool):
            yield name, "yes" if value else "no"
        elif isinstance(value, float):
            yield name, f"{value:g}"
        elif isinstance(value, int) and abs(value) >= 10_000:
            yield name, numbers.count(value)
        else:
            yield name, numbers.MISSING if value is None else value if value != "" else '""'


def _listed(values: Sequence[Any]) -> str:
    if any(isinstance(value, list | dict) for value in values):
        return f"{len(values):,} entries"
    text = ", ".join(map(str, values[:MOST_ITEMS])) or numbers.MISSING
    more = len(values) - MOST_ITEMS
    return f"{text} and {more:,} more" if more > 0 else text


@cache
def environment() -> Environment:
    """The Jinja2 environment: autoescape is on, and an undefined name is an error."""
    found = Environment(
        loader=PackageLoader("filbert", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["percent"] = numbers.percent
    found.filters["metric"] = numbers.metric
    return found


def write_page(path: Path, template: str, **values: Any) -> Path:
    """Render a template and replace the file `path` by it; an error leaves the old file."""
    html = environment().get_template(template).render(**values)
    # A lone surrogate, as in a damaged name, cannot be written as UTF-8.
    write_atomically(path, html.encode("utf-8", "replace"))
    return path
