"""The learning rate over a run, and the time a run may take.

A schedule is a curve over the steps of a run, or over its seconds if there is a time budget: t of T
with W of them for warm-up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from filbert.errors import ConfigError, printable

# (t, T, W, peak) -> rate; t in [0, T), W in [0, T). The peak is a parameter, because
# (peak * t) / W and peak * (t / W) differ in their last bits.
Curve = Callable[[float, float, float, float], float]

# Share of the run in which the rate of a trapezoid falls.
_COOLDOWN = 0.2
_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_TIME = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in _SECONDS), re.ASCII)


def rate_at(schedule: str, done: float, whole: float, *, warmup: float, peak: float) -> float:
    """Return the learning rate of a step, or after a time.

    Args:
        schedule: A key of `SCHEDULES`.
        done: The step, from 0, or the seconds so far; below `whole`. With warm-up the first step
            has rate 0; the last one has a rate above 0, except in a run of one step.
        warmup: Share of the run over which the rate rises, rounded down to whole steps or seconds.
    """
    return SCHEDULES[schedule](done, whole, int(warmup * whole), peak)


def parse_time(text: str) -> float:
    """Return the seconds of a time such as 90s, 20m, 1h30m or 1d, the larger units first.

    Raises:
        ConfigError: It is no such time, or zero.
    """
    parts = _TIME.fullmatch(text.strip().lower())
    numbers = [float(part or 0) for part in parts.groups()] if parts else []
    seconds = sum(n * unit for n, unit in zip(numbers, _SECONDS.values(), strict=False))
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"time is {printable(text)!r}; give numbers with units, such as 90s, 20m or 1h30m."
        )
    return seconds


def _linear(t: float, whole: float, warm: float, peak: float) -> float:
    return peak * t / warm if t < warm else peak * (whole - t) / (whole - warm)


def _bert(t: float, whole: float, warm: float, peak: float) -> float:
    # The fall is counted from the first step, so the rate drops suddenly after the warm-up.
    return peak * t / warm if t < warm else peak * (1.0 - t / whole)


def _product(t: float, whole: float, warm: float, peak: float) -> float:
    return peak * (1.0 - t / whole) * (t / warm if t < warm else 1.0)


def _cosine(t: float, whole: float, warm: float, peak: float) -> float:
    if t < warm:
        return peak * t / warm
    return peak * 0.5 * (1.0 + math.cos(math.pi * (t - warm) / (whole - warm)))


def _trapezoid(t: float, whole: float, warm: float, peak: float) -> float:
    if t < warm:
        return peak * t / warm
    begin = max(warm, (1.0 - _COOLDOWN) * whole)
    return peak if t < begin else peak * (1.0 - math.sqrt((t - begin) / (whole - begin)))


def _constant(t: float, whole: float, warm: float, peak: float) -> float:
    return peak * t / warm if t < warm else peak


# Sources. linear, cosine, constant: transformers, `get_scheduler` (constant_with_warmup). bert:
# google-research/bert, optimization.py. electra, the product of rise and fall:
# google-research/electra, model/optimization.py.
# trapezoid: Hägele et al. 2024 (arXiv 2405.18392), section 3: the fall 1 - sqrt does better than a
# straight one, and over 20 % of the run as well as a cosine that was fitted to its length.
SCHEDULES: dict[str, Curve] = {
    "linear": _linear,
    "bert": _bert,
    "electra": _product,
    "cosine": _cosine,
    "trapezoid": _trapezoid,
    "constant": _constant,
}
