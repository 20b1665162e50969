"""How far long work is, where no terminal shows a bar: now and then a line on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

# Seconds between two lines.
BETWEEN = 10.0


def teller() -> Callable[[str], None]:
    """A function that prints the line it is given if ten seconds have passed since the last one.

    Nothing is printed in the first ten seconds, nor on a terminal.
    """
    told = time.monotonic()

    def tell(line: str) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= BETWEEN and not sys.stderr.isatty():
            told = now
            print(line, file=sys.stderr, flush=True)

    return tell
