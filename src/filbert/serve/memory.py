"""Memory that a server has freed and the C library keeps.

Batches of every size, and code that oneDNN makes for each and throws away later, leave holes
between what stays. glibc fills them badly and gives none of them back by itself: a server of four
small models had 2.2 GB after 10,000 requests, of which 0.5 GB were holes (docs/log.md).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from filbert.speed.memory import c_library

# Threads share so many pools; with one each, what one has freed is of no use to the others.
_POOLS = 2
# mallopt(3)'s number for it.
_M_ARENA_MAX = -8

# Sizes of products for which oneDNN keeps its code, 0.3 MB each; by itself 1,024. A layer has four
# products and batches some hundred sizes, but few of them often.
_KEPT_PRODUCTS = "512"

# Giving back takes some tens of milliseconds, in which nobody gets any.
_SECONDS = 10.0
_WORTH_IT = 32 * 2**20


def keep_less() -> None:
    """Have threads share pools of memory, where it is glibc's, and oneDNN keep less code.

    To be called before threads start and before torch computes. What the environment says stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _KEPT_PRODUCTS)
    if (library := c_library()) and "MALLOC_ARENA_MAX" not in os.environ:
        library.mallopt(_M_ARENA_MAX, _POOLS)


def give_back() -> None:
    """Give what is freed to the system: page by page, wherever it lies. glibc only."""
    if library := c_library():
        library.malloc_trim(0)


def resident_bytes() -> int:
    """Memory of this process that is really there; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


async def give_back_often() -> None:
    """Give back whenever much has been added since the last time, for as long as it is awaited."""
    loop = asyncio.get_running_loop()
    least = resident_bytes()
    while True:
        await asyncio.sleep(_SECONDS)
        if resident_bytes() > least + _WORTH_IT:
            await loop.run_in_executor(None, give_back)
            least = resident_bytes()
