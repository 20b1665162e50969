"""How numbers are written in tables and reports."""

from __future__ import annotations

import math
from typing import Any

MISSING = "–"


def metric(value: Any, digits: int = 4) -> str:
    """Return a metric with `digits` decimals, two from 10 on; 4,000 for counts; – for None."""
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    # Shares end at 100: a whole number above it is a count.
    is_count = isinstance(value, int) or (value > 100 and value.is_integer())
    return f"{value:,.0f}" if is_count else fixed(value, digits if abs(value) < 10 else 2)


def count(value: int | None) -> str:
    """Return a count such as 4,000."""
    return MISSING if value is None else f"{value:,}"


def scaled(value: float | None, unit: str = "") -> str:
    """Return a number such as 22.7 M, 12.3 k or 950, with a unit 90.9 MB or 640 B; – for None."""
    if value is None:
        return MISSING
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:,.1f} {prefix}{unit}"
    return f"{value:.0f} {unit}".rstrip()


def seconds(value: float | None) -> str:
    """Return a time such as 0.4 s, 95 s, 12 min 5 s or 3 h 20 min."""
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
    """Return a share such as 9.7 %, with a no-break space."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def fixed(value: object, digits: int) -> str:
    """Return a number with `digits` decimals; – for None and values that are not finite."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return MISSING
    return f"{value:.{digits}f}"


def interval(low: object, high: object, digits: int, *, sign: bool = False) -> str:
    """Return an interval such as [0.812, 0.845]; "" if an end is missing; `sign` is for "+0.1"."""
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return ""
    plus = "+" if sign else ""
    return f"[{low:{plus}.{digits}f}, {high:{plus}.{digits}f}]"


def probability(p: object) -> str:
    """Return a probability such as 0.034 or < 0.001; – for None."""
    if not isinstance(p, (int, float)):
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
