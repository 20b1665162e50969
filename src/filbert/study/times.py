"""How long the rest of a study will take, from what its runs have taken so far."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from filbert.study.recipe import TRAINED, Contestant

# Of a run's time, what is spent on training; the rest loads, predicts and measures.
_TRAINING_SHARE = 0.9
_TAIL = 4_096
# A guess, until one was measured.
_LINEAR_SECONDS = 20.0


class Times:
    """Seconds of finished runs, by contestant.

    Args:
        measured: the folder name of a contestant, and the seconds of its finished runs.
    """

    def __init__(self, measured: dict[str, list[float]]) -> None:
        self.measured = measured

    def add(self, contestant: Contestant, seconds: float) -> None:
        """One more finished run."""
        self.measured.setdefault(contestant.folder, []).append(seconds)

    def expected(self, contestant: Contestant, others: Iterable[Contestant]) -> float | None:
        """Seconds of a run: as its other seeds took, else as others of a like kind did."""
        own = self.measured.get(contestant.folder)
        if own:
            return fmean(own)
        alike = [
            fmean(self.measured[other.folder])
            for other in others
            if _is_trained(other) == _is_trained(contestant) and self.measured.get(other.folder)
        ]
        if alike:
            return fmean(alike)
        return None if _is_trained(contestant) else _LINEAR_SECONDS

    def left(
        self,
        waiting: Sequence[Contestant],
        everyone: Sequence[Contestant],
        *,
        current: Contestant | None = None,
        elapsed: float = 0.0,
        fraction: float | None = None,
        begun: float = 0.0,
    ) -> float | None:
        """Seconds until the end; None while nothing is known.

        Args:
            waiting: the contestant of every run that has not begun.
            everyone: all contestants.
            current: of the run in progress.
            elapsed: the seconds of its process so far.
            fraction: of its training that is done.
            begun: of that, what was done when its process began.
        """
        rest, projected = 0.0, None
        if current is not None:
            projected = self.expected(current, ()) or self.expected(current, everyone)
            if fraction and fraction > begun:
                projected = elapsed / ((fraction - begun) * _TRAINING_SHARE)
            if projected is None:
                return None
            rest = max(projected * (1.0 - begun * _TRAINING_SHARE) - elapsed, 0.0)
        for one in waiting:
            expected = self.expected(one, everyone)
            if expected is None and current is not None and _is_trained(current):
                expected = projected
            if expected is None:
                return None
            rest += expected
        return rest


def fraction_done(run: Path, steps: int | None) -> float | None:
    """How much of a run's training is done, by its metrics.jsonl; None where that is unknown."""
    if not steps:
        return None
    try:
        with (run / "metrics.jsonl").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            return min(1.0, float(json.loads(line)["step"]) / steps)
        except (ValueError, KeyError, TypeError):
            continue
    return None


def num_steps(training: dict[str, Any], rows: int) -> int | None:
    """Optimiser steps of a run; None when it goes by the clock, or by more rows than these."""
    if training.get("time"):
        return None
    # TinyBERT has two stages with logs of their own.
    if training.get("method") == "tinybert" or any(
        training.get(k) for k in ("extra", "augment_with")
    ):
        return None
    if training.get("steps"):
        return int(training["steps"])
    batches = math.ceil(rows / int(training.get("batch_size", 32)))
    return max(1, math.ceil(float(training.get("epochs", 3.0)) * batches))


def told(seconds: float | None) -> str:
    """For people: "about 24 min left"."""
    if seconds is None:
        return "time left not known yet"
    if seconds < 90:
        return f"about {max(1, round(seconds))} s left"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def _is_trained(contestant: Contestant) -> bool:
    return contestant.kind in TRAINED
