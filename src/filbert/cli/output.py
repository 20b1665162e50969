"""What verbs print next to their results: tables, HTML pages, progress lines and warnings."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.cli.flags import STDIO, check_file, output
from filbert.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from filbert.inference.predictor import Predictor

# Seconds between two progress lines.
INTERVAL = 10.0


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    texts: Sequence[int] = (),
    console: Console | None = None,
) -> None:
    """Print a table on stdout or `console`; columns numbered in `texts` are texts, the others
    numbers.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for number, heading in enumerate(headings):
        is_text = number in texts
        justify: Any = "left" if is_text else "right"
        table.add_column(heading, justify=justify, no_wrap=not is_text, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    (console or Console(emoji=False)).print(table, highlight=False)


def progress_printer(*, terminal: bool = False) -> Callable[[str], None]:
    """Return a function that prints a line on stderr at most every ten seconds.

    It prints nothing in the first ten seconds, and nothing on a terminal, which has progress bars,
    unless `terminal`.
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
    from filbert.inference.stored_task import int8_warning

    warning = int8_warning(predictor.precision, predictor.checkpoint, predictor.task)
    if warning is not None:
        print(warning, file=sys.stderr)


def check_page(out: str | None, *, printed: str | None = None) -> None:
    """Check before any work that the page can be written.

    Args:
        out: The argument of `write_page`.
        printed: The flag whose document goes to stdout, if it was given.

    Raises:
        ConfigError: Both documents go to stdout, or the name is not that of an HTML file.
        InputError: The file cannot be written.
    """
    if out is None:
        return
    if out != STDIO:
        if Path(out).suffix.lower() not in ("", ".html", ".htm"):
            raise ConfigError(f"--out {out}: a page is one HTML file. Name it such as page.html.")
        check_file(Path(out))
    elif printed is not None:
        raise ConfigError(
            f"{printed} and --out - both go to stdout. Give --out a file name, or leave one out."
        )


def write_page(out: str | None, make: Callable[[], str]) -> bool:
    """Write the page that `make` returns, and report its size on stderr.

    Args:
        out: File name, - for stdout, or None for no page.
        make: Returns the page.

    Returns:
        Whether stdout is free for tables.

    Raises:
        InputError: The file cannot be written.
    """
    if out is None:
        return True
    page = make()
    with output(out) as stream:
        stream.write(page)
    if out == STDIO:
        return False
    print(f"Wrote {out} ({len(page.encode()) / 1e6:.1f} MB).", file=sys.stderr)
    return True
