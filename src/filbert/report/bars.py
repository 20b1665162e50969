"""Bars from zero, drawn with style sheets alone: sharp in light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filbert.report.page import Html, element

# Blue, vermilion and green as in `coloured`, brighter in the dark.
BAR_CSS = """
:root { --one: #0072b2; --other: #c25400; --unsigned: #009e73; }
@media (prefers-color-scheme: dark) {
  :root { --one: #62b3e8; --other: #f0935a; --unsigned: #4fd0a6; }
}
.bar { display: inline-block; position: relative; width: min(9rem, 30vw); height: .65rem;
  background: linear-gradient(var(--quiet), var(--quiet)) var(--zero) 0 / 1px 100% no-repeat; }
.bar i { position: absolute; top: 0; bottom: 0; background: var(--one); border-radius: 1px; }
.bar .over { background: var(--other); }
.bar .unsigned { background: var(--unsigned); }
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """The stretch of numbers that all drawings of a table share."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float | None]) -> Scale:
        """From the least to the largest, zero among them, with a margin."""
        there = [0.0, *(value for value in values if value is not None)]
        margin = 0.04 * ((max(there) - min(there)) or 1.0)
        return cls(min(there) - margin, max(there) + margin)

    def at(self, value: float) -> float:
        """The place of a value, in per cent of the width."""
        return 100 * (value - self.low) / (self.high - self.low)


def bar_of(value: float, scale: Scale, *, unsigned: bool = False) -> Html:
    """A bar from zero to a value.

    Args:
        value: on the scale.
        scale: of all bars of a table.
        unsigned: whether being above zero means nothing by itself.
    """
    start, end = sorted((scale.at(0.0), scale.at(value)))
    style = f"left:{start:.1f}%;width:{end - start:.1f}%"
    kind = "unsigned" if unsigned else "over" if value < 0 else ""
    return drawn("bar", scale, element("i", class_=kind, style=style))


def drawn(kind: str, scale: Scale, *parts: Html) -> Html:
    """A drawing with a thin line at zero."""
    zero = f"--zero:{scale.at(0.0):.1f}%"
    return element("span", *parts, class_=kind, style=zero)
