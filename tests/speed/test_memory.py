"""What training frees stays with the process and is returned at its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from filbert.model import memory

# glibc's own counts: blocks that it maps one by one, and bytes of its heap (mallinfo(3)).
SCRIPT = """
import ctypes
import numpy as np
from filbert.model.memory import all_memory_kept

class Counts(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Counts

def heap():
    return mallinfo2().arena

def maps():
    before = mallinfo2().hblks
    block = np.ones(10_000_000)
    return mallinfo2().hblks - before

outside, least = maps(), heap()
with all_memory_kept():
    inside, most = maps(), heap()
print(outside, inside, most - least, heap() - least)
"""


@pytest.mark.skipif(
    not hasattr(memory.c_library(), "mallinfo2"), reason="no glibc of 2.33 or later here"
)
def test_freed_blocks_stay_in_the_heap_and_are_returned_at_the_end():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "OMP_NUM_THREADS": "1"},
    )
    outside, inside, kept, left = map(int, done.stdout.split())
    assert (outside, inside) == (1, 0)
    # A block has 80 MB, of which other allocations may take some.
    assert kept >= 72e6 > 8e6 > left


class Library:
    """Stands for the C library, and counts what it is asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def mallopt(self, name: int, value: int) -> None:
        self.calls.append((name, value))

    def malloc_trim(self, pad: int) -> None:
        pass


@pytest.mark.parametrize("name", [None, "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"])
def test_settings_of_the_user_in_the_environment_stay(name, monkeypatch):
    for other in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(other, raising=False)
    if name is not None:
        monkeypatch.setenv(name, "65536")
    library = Library()
    monkeypatch.setattr(memory, "c_library", lambda: library)
    with memory.all_memory_kept():
        inside = len(library.calls)
    assert inside == (2 if name is None else 0)
    assert len(library.calls) == 2 * inside


def test_another_c_library_loses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "c_library", lambda: None)
    with memory.all_memory_kept():
        pass
