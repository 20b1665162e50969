"""What a contestant costs: measured in the run's own process, on the rows it is judged by."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from filbert.data.records import Row

# Rows that are timed: enough for half a minute of a base model on two cores.
TIMED_ROWS = 1_024
WARM_UP_ROWS = 64


def measure(
    predict: Callable[[Sequence[Row]], Any], rows: Sequence[Row], model: Path
) -> dict[str, Any]:
    """Rows a second, from text to answer, and the size of the model's files.

    Args:
        predict: cleans, tokenises and answers.
        rows: of test; every n-th of them is timed when there are more than `TIMED_ROWS`.
        model: the folder of the model.

    Returns:
        rows_per_second, timed_rows, bytes_on_disk.
    """
    every = max(1, len(rows) // TIMED_ROWS)
    timed = list(rows[::every][:TIMED_ROWS])
    predict(timed[:WARM_UP_ROWS])
    started = time.perf_counter()
    predict(timed)
    seconds = time.perf_counter() - started
    return {
        "rows_per_second": len(timed) / max(seconds, 1e-9),
        "timed_rows": len(timed),
        "bytes_on_disk": sum(p.stat().st_size for p in model.rglob("*") if p.is_file()),
    }


def peak_memory() -> dict[str, int]:
    """The most memory this process has held so far: peak_bytes, and on a GPU peak_device_bytes."""
    found = {"peak_bytes": _most_resident()}
    if torch.cuda.is_available():
        found["peak_device_bytes"] = torch.cuda.max_memory_allocated()
    return found


def _most_resident() -> int:
    """Bytes. Linux's getrusage starts from what the parent held when it forked; VmHWM does not."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
