"""Memory that stays with the process between one layer's activations and the next."""

from __future__ import annotations

from functools import cache

import torch

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
    torch.empty(_LARGEST, dtype=torch.uint8)
