"""What training frees stays with the process, and goes back at its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from filbert.speed import memory

# A block beyond what glibc keeps by itself, written to again and again: pages that are new each
# time, and what stays resident after.
SCRIPT = """
import resource
import numpy as np
from pathlib import Path
from filbert.speed.memory import all_memory_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

np.ones(10_000_000)
outside, least = faults(), resident()
with all_memory_kept():
    np.ones(10_000_000)
    inside, most = faults(), resident()
print(outside, inside, most - least, resident() - least)
"""


def figures(**environment: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "OMP_NUM_THREADS": "1"} | environment,
    )
    return [int(number) for number in done.stdout.split()]


needs_glibc = pytest.mark.skipif(memory.c_library() is None, reason="no glibc here")


@needs_glibc
def test_freed_blocks_are_used_again_and_given_back_at_the_end():
    outside, inside, kept, left = figures()
    # The blocks are the same, so it is new pages or none.
    assert inside < outside / 20
    assert kept > 60e6 and left < 20e6


@needs_glibc
def test_what_the_user_has_set_stays():
    outside, inside, *_ = figures(MALLOC_MMAP_MAX_="65536")
    assert inside > outside / 2


def test_another_c_library_loses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "c_library", lambda: None)
    with memory.all_memory_kept():
        pass
