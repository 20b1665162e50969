"""Memory that is freed goes back to the system; see serve/memory.py."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from filbert.serve import memory
from filbert.speed.memory import c_library

pytestmark = pytest.mark.skipif(
    c_library() is None, reason="the C library is not glibc: nothing is done there"
)

_HOLES = """
from filbert.serve.memory import give_back, resident_bytes
blocks = [b"x" * 40_000 for _ in range(4_000)]  # below the size that has pages of its own
full = resident_bytes()
del blocks[::2]
kept = resident_bytes()
give_back()
print(full, kept, resident_bytes())
"""

# Every thread frees and asks again while all of them live, so each would have a pool of its own.
_THREADS = """
import ctypes, sys, threading
from filbert.serve.memory import keep_less
if sys.argv[1] == "shared":
    keep_less()
together = threading.Barrier(8)
def work():
    together.wait(); blocks = [b"x" * 5_000 for _ in range(100)]; together.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
file = library.fopen(sys.argv[2].encode(), b"w")
library.malloc_info(0, ctypes.c_void_p(file))
library.fclose(ctypes.c_void_p(file))
"""


def _python(code: str, *arguments: str) -> str:
    plain = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=plain).stdout


def test_what_lies_between_blocks_in_use_is_given_back() -> None:
    full, kept, left = map(int, _python(_HOLES).split())
    held = 80_000_000
    assert full - kept < held / 4, "the C library does it by itself; the module is not needed"
    assert kept - left > 0.8 * held


@pytest.mark.parametrize(("how", "pools"), [("shared", {1, 2}), ("own", {3, 4, 5, 6, 7, 8, 9})])
def test_threads_share_two_pools(how: str, pools: set[int], tmp_path: Path) -> None:
    _python(_THREADS, how, str(tmp_path / "pools.xml"))
    assert (tmp_path / "pools.xml").read_text().count("<heap nr=") in pools


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ([100, 120, 130], 0),
        ([100, 120, 140, 110, 140], 1),
        ([100, 140, 110, 150, 110, 50], 2),
    ],
    ids=["little", "much", "again"],
)
def test_what_has_grown_is_given_back(sizes, times, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at the start, at every look, and after each time, in millions of bytes."""
    left = iter(sizes)
    given: list[int] = []

    def resident() -> int:
        for size in left:
            return size * 10**6
        raise asyncio.CancelledError

    monkeypatch.setattr(memory, "_SECONDS", 0.0)
    monkeypatch.setattr(memory, "resident_bytes", resident)
    monkeypatch.setattr(memory, "give_back", lambda: given.append(1))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(memory.give_back_often())
    assert len(given) == times
