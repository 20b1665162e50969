"""The page that --out names, beside what else a verb prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from filbert.cli.flags import STDIO, check_file, output
from filbert.errors import ConfigError


def check_page(out: str | None, *, printed: str | None = None) -> None:
    """Refuse two documents on one stdout, and a page that cannot be, before anything is computed.

    Args:
        out: what `write_page` will get.
        printed: the flag whose document goes to stdout, if it was given.

    Raises:
        ConfigError: that, and the page on stdout too; a name that no browser opens as a page.
        InputError: the file cannot be written.
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
