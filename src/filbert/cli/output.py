"""What verbs print and write: JSON, tables, files, pages, progress lines and warnings."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from filbert.cli.arguments import STDIO
from filbert.errors import ConfigError, printable
from filbert.files import check_writable, staged
from filbert.report.numbers import MISSING

if TYPE_CHECKING:
    from rich.text import Text

    from filbert.inference.predictor import Predictor

# Seconds between two progress lines.
INTERVAL = 30.0
# The most characters of a cell of a table.
_LONG = 64


def print_json(content: Any) -> None:
    """Print one JSON document on stdout."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=str))


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    texts: Sequence[int] = (),
) -> None:
    """Print a table on stdout.

    Args:
        headings: One for each column; without any text there is no heading line.
        rows: Cells, which are never read as markup.
        texts: Numbers of the columns with texts, which may wrap; the others are numbers.
    """
    from rich.table import Table
    from rich.text import Text

    from filbert.train.log import console

    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
        show_header=any(headings),
    )
    for number, heading in enumerate(headings):
        is_text = number in texts
        table.add_column(
            Text(heading),
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    console().print(table)


def print_run(run: dict[str, Any]) -> None:
    """Print the results of a run and the differences from its baselines."""
    from rich.text import Text

    from filbert.report.folder import headline_split
    from filbert.report.render import Cell
    from filbert.report.table import difference_table, result_table

    if headline_split(run) is None:
        print("Nothing was measured: there are no dev or test rows. Give them with --dev FILE.")
        return
    for table in (result_table(run), difference_table(run)):
        rows = [
            [
                Text(str(c.value), "bold green" * c.strong) if isinstance(c, Cell) else str(c)
                for c in row
            ]
            for row in table.rows
        ]
        if rows:
            print(table.title)
            print_table([str(h) for h in table.head], rows, texts=range(table.num_text_columns))


def print_places(folder: Path) -> None:
    """Print where the model and the report of a run are."""
    print(f"model:  {folder / 'model'}")
    print(f"report: {folder / 'report.html'}")


def metric_lines(exact: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return a line for every metric that both have: before and after."""
    return [
        f"  {name}  {value:.4f} -> {other[name]:.4f}"
        for name, value in exact.items()
        if isinstance(value, float) and isinstance(other.get(name), float)
    ]


def progress_printer(*, terminal: bool = False) -> Callable[[str], None]:
    """Return a function that prints a line on stderr at most every INTERVAL seconds.

    It prints nothing before that, and nothing on a terminal, which has progress bars, unless
    `terminal`.
    """
    last = time.monotonic()

    def show(line: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= INTERVAL and (terminal or not sys.stderr.isatty()):
            last = now
            print(line, file=sys.stderr, flush=True)

    return show


def warn_of_int8(predictor: Predictor) -> None:
    """Print a warning if the model computes in int8 and the loss was not measured."""
    from filbert.inference.precision import int8_warning
    from filbert.train.log import STYLES, print_line

    warning = int8_warning(predictor.precision, predictor.checkpoint, predictor.task)
    if warning is not None:
        print_line(warning, STYLES["warning"])


def refuse_own_source(source: str, out: str | None) -> None:
    """Raise a ConfigError if the output would replace the file that is read."""
    if source == STDIO or out is None or is_stream(out):
        return
    try:
        is_same = os.path.samefile(source, out)
    except OSError:  # one of them does not exist
        return
    if is_same:
        raise ConfigError(
            f"--out {out} is the file that is read. Name another, or it would be lost."
        )


def check_lines_file(out: str | None, also: Sequence[str] = ()) -> None:
    """Raise a ConfigError if the name of a JSON Lines file has another or an unknown ending."""
    kind = Path(out or "").suffix.lower()
    if kind not in ("", ".jsonl", ".json", *also):
        formats = " or ".join([".jsonl", *also])
        raise ConfigError(
            f"--out {out}: {kind} is no ending of JSON Lines. Name a file that ends in {formats}."
        )


def is_stream(out: str | None) -> bool:
    """Return whether an output is standard output, a device or a pipe."""
    if out is None or out == STDIO:
        return True
    path = Path(out)
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def output(out: str | None) -> Iterator[IO[str]]:
    """Open stdout, or a file that appears under its name only when it is complete."""
    if out is None or out == STDIO:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(out)
    if is_stream(out):
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        return
    check_writable(path)
    with staged(path, folder=False) as part:
        # Half a surrogate pair, of a text that was cut, is written as JSON writes it.
        with part.open("w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        part.replace(path)


def cell(value: Any, limit: int = _LONG) -> str:
    """Return a value as one cell of a table, with at most `limit` characters."""
    if value is None or value in ([], ()):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) >= 1000 and value.is_integer():
        value = int(value)
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        value = [f"{k} {cell(v, limit)}" for k, v in value.items() if v not in (None, (), [], {})]
    if isinstance(value, list | tuple):
        value = ", ".join(item if isinstance(item, str) else cell(item, limit) for item in value)
    text = printable(str(value), 10 * limit)
    is_digest = len(text) == 64 and not text.strip("0123456789abcdef")
    if is_digest:
        return text[:12]
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
