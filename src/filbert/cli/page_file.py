"""The page that --out names, beside what else a verb prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from filbert.cli.flags import STDIO, output
from filbert.errors import ConfigError


def check_page(out: str | None, *, json: bool) -> None:
    """Refuse two documents on one stdout, and no page, before anything is computed.

    Raises:
        ConfigError: --json, and the page on stdout too; a name that no browser opens as a page.
    """
    if out not in (None, STDIO) and Path(out).suffix.lower() not in ("", ".html", ".htm"):
        raise ConfigError(f"--out {out}: a page is one HTML file. Name it such as page.html.")
    if json and out == STDIO:
        raise ConfigError(
            "--json and --out - both go to stdout. Give --out a file name, or leave one out."
        )


def write_page(out: str | None, make: Callable[[], str]) -> bool:
    """Write the page, and say so on stderr.

    Args:
        out: file name, - for stdout, or None for no page.
        make: gives the page.

    Returns:
        Whether stdout is free for tables; where the page is there, it is alone.

    Raises:
        InputError: the file cannot be written.
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
