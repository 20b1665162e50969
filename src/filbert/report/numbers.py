"""How numbers are written for people: the same in the console table, the report and the tests."""

from __future__ import annotations

import math
from typing import Any

MISSING = "–"


def metric(value: Any) -> str:
    """A metric with four decimals; a whole number with thousands separators; – for None."""
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if math.isfinite(value) else str(value)


def count(value: int | None) -> str:
    """4,000."""
    return MISSING if value is None else f"{value:,}"


def parameters(value: int | None) -> str:
    """22.7 M, 12.3 k, 950."""
    if value is None:
        return MISSING
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return str(value)


def seconds(value: float | None) -> str:
    """0.4 s, 95 s, 12 min 5 s, 3 h 20 min."""
    if value is None:
        return MISSING
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent(share: float) -> str:
    """9.7 %, with a space that no line breaks at."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"
