"""Costs of a contestant, measured in the run's own process on the test rows."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from filbert.data.records import Row
from filbert.model.flops import forward_flops
from filbert.model.int8 import QuantizedLinear

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor


# Rows of a pass, and number of passes: half a minute for a base model on two cores in all.
TIMED_ROWS = 1_024
WARM_UP_ROWS = 64
PASSES = 5
PASS_SECONDS = 10.0
MOST_SECONDS = 30.0
# Single texts that are timed one by one.
LATENCY_ROWS = 200
LATENCY_WARM_UP = 5


@dataclass(frozen=True)
class Effort:
    """Seconds of wall time, and of CPU time (user and system, all threads; NaN if unknown)."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)


class Watch:
    """Measures time from the moment it is created."""

    def __init__(self) -> None:
        self._clock, self._cpu = time.perf_counter(), time.process_time()

    def so_far(self) -> Effort:
        """Return the effort since then."""
        return Effort(time.perf_counter() - self._clock, time.process_time() - self._cpu)


def measure(
    predict: Callable[[Sequence[Row]], Any], rows: Sequence[Row], model: Path
) -> dict[str, Any]:
    """Measure rows a second, from text to prediction, and the size of the model's files.

    Args:
        predict: Cleans, tokenises and predicts.
        rows: Of test; at most `TIMED_ROWS`, evenly spread, are timed, fewer for a slow model.
        model: Folder of the model.

    Returns:
        rows_per_second (median of up to `PASSES` passes), rows_per_second_low and _high (slowest
        and fastest pass), timed_rows, timed_passes, bytes_on_disk.
    """
    few = _spread(rows, WARM_UP_ROWS)
    pace = len(few) / _seconds(predict, few)
    timed = _spread(rows, max(WARM_UP_ROWS, min(TIMED_ROWS, int(pace * PASS_SECONDS))))
    paces: list[float] = []
    spent = 0.0
    while len(paces) < PASSES and (not paces or spent + spent / len(paces) <= MOST_SECONDS):
        seconds = _seconds(predict, timed)
        spent += seconds
        paces.append(len(timed) / seconds)
    return {
        "rows_per_second": median(paces),
        "rows_per_second_low": min(paces),
        "rows_per_second_high": max(paces),
        "timed_rows": len(timed),
        "timed_passes": len(paces),
        "bytes_on_disk": sum(p.stat().st_size for p in model.rglob("*") if p.is_file()),
    }


def latency(predict: Callable[[Sequence[Row]], Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Measure the seconds of single texts, from text to prediction.

    Args:
        predict: Cleans, tokenises and predicts.
        rows: Of test; at most `LATENCY_ROWS`, evenly spread, fewer for a slow model.

    Returns:
        latency_seconds (median), latency_seconds_p95 and latency_rows.
    """
    alone = [[row] for row in _spread(rows, LATENCY_ROWS)]
    for one in alone[:LATENCY_WARM_UP]:
        predict(one)
    found: list[float] = []
    # Every second row first, so that the rows are spread if the time runs out.
    for one in alone[::2] + alone[1::2]:
        found.append(_seconds(predict, one))
        if sum(found) > PASS_SECONDS:
            break
    return {
        "latency_seconds": median(found),
        "latency_seconds_p95": float(np.quantile(found, 0.95)),
        "latency_rows": len(found),
    }


def flops_per_row(predictor: Predictor, rows: Sequence[Row]) -> float:
    """Return the mean FLOP of the encoder's matrix products for a row; a multiply-add counts 2.

    Truncated rows count by their truncated length, rows in windows by all of their windows.
    """
    lengths = [len(example.input_ids) for example in predictor.row_examples(rows)]
    config = predictor.model.config
    return forward_flops(config, lengths, num_masked=0, num_pooled=len(lengths)) / len(rows)


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of the weights of a loaded model.

    An int8 layer counts by its codes and scales, without oneDNN's own copy.
    """
    found = [*model.parameters(), *model.buffers()]
    for module in model.modules():
        if isinstance(module, QuantizedLinear):
            found += [module.codes_NK, module.scale_N, module.sums_N, module.bias_N]
    return sum(tensor.nbytes for tensor in found)


def _spread(rows: Sequence[Row], most: int) -> list[Row]:
    """Return rows at equal distances, from the first to the last."""
    at = np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)
    return [rows[i] for i in at.tolist()]


def _seconds(predict: Callable[[Sequence[Row]], Any], rows: Sequence[Row]) -> float:
    started = time.perf_counter()
    predict(rows)
    return max(time.perf_counter() - started, 1e-9)


def load_average(name: str) -> dict[str, float]:
    """Return the load average of the last minute under this name; {} if unknown."""
    try:
        return {name: os.getloadavg()[0]}
    except OSError:
        return {}


def peak_memory() -> dict[str, int]:
    """Return the peak memory of this process: peak_bytes, and on a GPU peak_device_bytes."""
    found = {"peak_bytes": _most_resident()}
    if torch.cuda.is_available():
        found["peak_device_bytes"] = torch.cuda.max_memory_allocated()
    return found


def _most_resident() -> int:
    """Return bytes. Linux's getrusage includes the parent's memory at the fork; VmHWM does not."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
