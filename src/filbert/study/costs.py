"""What a contestant costs: measured in the run's own process, on the rows it is judged by."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from filbert.data.records import Row
from filbert.files import write_json
from filbert.model.quantized import QuantizedLinear
from filbert.speed.flops import forward_flops

if TYPE_CHECKING:
    from filbert.predict import Predictor


# Rows of a pass, and how many passes: half a minute of a base model on two cores in all.
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
    """Seconds of the clock, and of the processor (user and system, all threads; NaN: not known)."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)


class Watch:
    """Going from the moment it is made."""

    def __init__(self) -> None:
        self._clock, self._cpu = time.perf_counter(), time.process_time()

    def so_far(self) -> Effort:
        """Since then."""
        return Effort(time.perf_counter() - self._clock, time.process_time() - self._cpu)


def measure(
    predict: Callable[[Sequence[Row]], Any], rows: Sequence[Row], model: Path
) -> dict[str, Any]:
    """Rows a second, from text to answer, and the size of the model's files.

    Args:
        predict: cleans, tokenises and answers.
        rows: of test; at most `TIMED_ROWS`, evenly spread, are timed, fewer of a slow model.
        model: the folder of the model.

    Returns:
        rows_per_second (the median of up to `PASSES` passes), rows_per_second_low and _high (the
        slowest and the fastest pass), timed_rows, timed_passes, bytes_on_disk.
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
    """Seconds that a single text takes, from text to answer, when one comes at a time.

    Args:
        predict: cleans, tokenises and answers.
        rows: of test; at most `LATENCY_ROWS`, evenly spread, fewer of a slow model.

    Returns:
        latency_seconds (the median of the texts), latency_seconds_p95 and latency_rows.
    """
    alone = [[row] for row in _spread(rows, LATENCY_ROWS)]
    for one in alone[:LATENCY_WARM_UP]:
        predict(one)
    found: list[float] = []
    # In an order that is spread too, should time be over before all are through.
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
    """FLOP of the encoder's matrix products for a row, the mean over `rows`.

    In whatever number format: a multiply-add is 2. Rows that are cut count what is left of them,
    those in windows all of their windows.
    """
    lengths = [len(example.input_ids) for example in predictor.row_examples(rows)]
    config = predictor.model.config
    return forward_flops(config, lengths, num_masked=0, num_pooled=len(lengths)) / len(rows)


def weight_bytes(model: nn.Module) -> int:
    """Bytes of the weights of a loaded model, in the formats that they are kept in.

    An int8 layer counts by its codes and scales; the copy that oneDNN may arrange for itself does
    not.
    """
    found = [*model.parameters(), *model.buffers()]
    for module in model.modules():
        if isinstance(module, QuantizedLinear):
            found += [module.codes_NK, module.scale_N, module.sums_N, module.bias_N]
    return sum(tensor.nbytes for tensor in found)


def _spread(rows: Sequence[Row], most: int) -> list[Row]:
    """So many rows at equal distances, from the first to the last."""
    at = np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)
    return [rows[i] for i in at.tolist()]


def _seconds(predict: Callable[[Sequence[Row]], Any], rows: Sequence[Row]) -> float:
    started = time.perf_counter()
    predict(rows)
    return max(time.perf_counter() - started, 1e-9)


def load_average(name: str) -> dict[str, float]:
    """Programs that wanted the processor in the last minute, under this name; {} where untold."""
    try:
        return {name: os.getloadavg()[0]}
    except OSError:
        return {}


@dataclass
class Parts:
    """The processes that a run took: one, or one more for each time that it was interrupted.

    Attributes:
        path: of the file that remembers them, beside the run folder.
        peaks: the most memory of each part that is over, {} for one that was killed.
    """

    path: Path
    peaks: list[dict[str, int]] = field(default_factory=list)

    def whole(self, cpu_seconds: float) -> dict[str, float]:
        """The most memory of all parts; the processor's seconds of a run in one part.

        A figure that is not known of every part is left out.
        """
        names = set.intersection(*(set(one) for one in self.peaks)) if self.peaks else set()
        found: dict[str, float] = {
            name: max(one[name] for one in self.peaks) for name in sorted(names)
        }
        if len(self.peaks) == 1 and not math.isnan(cpu_seconds):
            found["cpu_seconds"] = cpu_seconds
        return found


@contextmanager
def parts_of(out: Path, fingerprint: str) -> Iterator[Parts]:
    """Remember this process as a part of a run, and its memory when the block ends.

    Args:
        out: the run folder.
        fingerprint: parts of another run are forgotten.
    """
    parts = Parts(out.with_name(f"{out.name}.parts.json"))
    if out.exists():
        # Without a word about it, what is there was made by a part of which nothing is known.
        parts.peaks = _remembered(parts.path, fingerprint) or [{}]
    parts.peaks.append({})

    def remember() -> None:
        write_json(parts.path, {"fingerprint": fingerprint, "peaks": parts.peaks})

    parts.path.parent.mkdir(parents=True, exist_ok=True)
    remember()
    try:
        yield parts
    finally:
        parts.peaks[-1] = peak_memory()
        remember()


def _remembered(path: Path, fingerprint: str) -> list[dict[str, int]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return list(content["peaks"]) if content["fingerprint"] == fingerprint else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


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
