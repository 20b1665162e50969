"""Renders a report to one HTML file with Jinja2.

Templates escape every value and compute nothing. A page is a list of sections, a section a list of
blocks, and a block a plain dict. The page holds its plots and its script and loads nothing from
outside.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from filbert.files import THEME, portable, write_atomically
from filbert.report import numbers, plots

MOST_ITEMS = 12
_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell: the main text, perhaps bold, and smaller text after it and below it."""

    value: object
    strong: bool = False
    detail: str = ""
    below: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first `num_text_columns` columns are left aligned, the others right aligned.

    Attributes:
        head: Column headings; empty for a table of names and values.
        rows: Cells: strings, numbers or `Cell`.
        passages: (name, text) pairs below each row; empty for none.
        folded: Whether only the title is visible until it is clicked.
    """

    head: Sequence[object]
    rows: Sequence[Sequence[object]]
    num_text_columns: int = 1
    title: str = ""
    passages: Sequence[Sequence[tuple[str, str]]] = ()
    folded: bool = False


Block = dict[str, Any]
Section = dict[str, Any]
# Name of the file -> the plot and its caption.
Charts = Mapping[str, tuple[plots.Plot | plots.Matrix, str]]


def section(title: str, *blocks: Block | Table | str | list[str]) -> Section:
    """Return a section of the page: blocks, tables, remarks and lists; empty ones are left out."""
    words = "".join(c if c.isalnum() else " " for c in title.lower()).split()
    shown = [block for block in blocks if (block.rows if isinstance(block, Table) else block)]
    return {"title": title, "id": "-".join(words), "blocks": shown}


def note(text: str) -> Block:
    """Return a highlighted paragraph; nothing if it has no words."""
    return {"kind": "note", "text": text} if text else {}


def side_by_side(tables: Iterable[Table]) -> Block:
    """Return tables with titles in two columns."""
    return {"kind": "columns", "tables": [table for table in tables if table.rows]}


def gallery(folder: Path, charts: Charts, *tables: Table) -> Block:
    """Return plots with captions, then tables next to them; plots go to `folder`/plots/NAME.png."""
    images = []
    for name, (plot, caption) in charts.items():
        path = folder / "plots" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        plots.write_png(plot, path)
        images.append({
            "file": f"plots/{name}.png",
            "alt": f"Plot: {name.replace('_', ' ')}",
            "plot": plot.facts(),
            "caption": caption,
        })  # fmt: skip
    shown = [table for table in tables if table.rows]
    return {"kind": "gallery", "images": images, "tables": shown} if images or shown else {}


def facts_table(values: Mapping[str, Any], title: str = "", *, folded: bool = False) -> Table:
    """Return a table of names and values; nested values are flattened, missing ones left out."""
    return Table((), list(_flat(values)), 2, title, folded=folded)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Yield nested facts as (name, text) pairs, for example ("splits: train", "4,000")."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}: ")
        elif value is not None:
            yield f"{prefix}{key}", _plain(value)


def _plain(value: Any) -> object:
    if isinstance(value, list | tuple):
        more = f" and {len(value) - MOST_ITEMS:,} more" if len(value) > MOST_ITEMS else ""
        return (", ".join(map(str, value[:MOST_ITEMS])) or numbers.MISSING) + more
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if abs(value) >= 10_000 else f"{value:g}"
    return portable(value)


def hashes_table(files: Iterable[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return the sha256 of data files, given as (name, facts with `path` and `sha256`)."""
    rows = [
        [name, Cell(portable(facts.get("path", "")), below=facts.get("sha256", numbers.MISSING))]
        for name, facts in files
    ]
    return Table((), rows, 2, "Data files and the sha256 of their bytes")


@cache
def environment() -> Environment:
    """Return the Jinja2 environment: every value is escaped, and an undefined name is an error."""
    found = Environment(
        loader=FileSystemLoader([_TEMPLATES, THEME]),
        autoescape=lambda name: not str(name).endswith(".txt"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["numbers"] = numbers
    return found


def texts(name: str, **values: Any) -> list[str]:
    """Return the texts of a macro of words.txt, which blank lines separate."""
    found = str(getattr(environment().get_template("words.txt").module, name)(**values))
    parts = (re.sub(r"[ \n]+", " ", text).strip() for text in re.split(r"\n\s*\n", found))
    return [part for part in parts if part]


def write_page(path: Path, **values: Any) -> Path:
    """Render report.html to the file `path`; an error leaves the old file.

    Values are `title`; `about` (line above it); `headline`; `notes`; `facts` (name, value);
    `sections`, of which None and those without blocks are left out.
    """
    values["sections"] = [one for one in values["sections"] if one and one["blocks"]]
    values["script"] = script = Markup((_TEMPLATES / "report.js").read_text(encoding="utf-8"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src "
    values["policy"] = Markup(f"{policy}'sha256-{digest}'")
    html = environment().get_template("report.html").render(**values)
    # A lone surrogate, as in a damaged name, cannot be written as UTF-8.
    write_atomically(path, html.encode("utf-8", "replace"))
    return path
