"""Memory that stays with the process between one layer's activations and the next."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# Numbers of mallopt(3), and what it begins with.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_USUAL_MAPS = 65_536
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")

# The most that glibc's malloc learns from, and what is left of it for its own header.
_LARGEST = 2**25 - 2**14


@cache
def keep_freed_memory() -> None:
    """Have the C library keep up to 64 MB of what is freed, for what comes next.

    glibc gives freed memory back to the system beyond twice the largest block that it has seen
    freed, up to a block of 32 MB. Activations of 12 MB then come back page by page in every layer,
    which costs more than the int8 products that they hold (docs/log.md). So a block of that size,
    never touched, is shown to it once.

    Source: mallopt(3), "dynamic mmap threshold". Other C libraries lose nothing by it.
    """
    # Not above: a server reads this module before its command line is judged.
    import torch

    torch.empty(_LARGEST, dtype=torch.uint8)


@contextmanager
def all_memory_kept() -> Iterator[None]:
    """Have the C library keep all that is freed meanwhile, and give it back at the end; glibc only.

    A training step frees its activations, gigabytes, and wants them again in the next one. From the
    system they come page by page, and blocks above 32 MB, such as the gradient of the word table,
    would in every step: an eighth of the time on two cores (docs/log.md). What the user has set in
    the environment stays.

    Source: mallopt(3).
    """
    library = None if any(name in os.environ for name in _OF_THE_USER) else c_library()
    if library is None:
        keep_freed_memory()
        yield
        return
    library.mallopt(_M_TRIM_THRESHOLD, -1)
    library.mallopt(_M_MMAP_MAX, 0)
    try:
        yield
    finally:
        library.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST)
        library.mallopt(_M_MMAP_MAX, _USUAL_MAPS)
        library.malloc_trim(0)


@cache
def c_library() -> Any:
    """The functions of the C library that this process runs with; None where it has not these."""
    try:
        library = ctypes.CDLL(None)
        return library if library.mallopt and library.malloc_trim else None
    except (OSError, AttributeError, TypeError):
        return None
