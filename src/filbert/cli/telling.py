"""Lines on stderr beside the work: how far it is, where no terminal shows a bar, and a warning."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor

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


def warn_of_int8(predictor: Predictor) -> None:
    """Say where answers are in int8 and nobody has seen what that costs them."""
    from filbert.inference.stored_task import int8_warning

    warning = int8_warning(predictor.precision, predictor.checkpoint, predictor.task)
    if warning is not None:
        print(warning, file=sys.stderr)
