"""Intervals as lines, drawn with style sheets alone: sharp in light and dark."""

from __future__ import annotations

from filbert.report.bars import BAR_CSS, Scale, drawn
from filbert.report.numbers import MISSING
from filbert.report.page import Html, element

CSS = (
    BAR_CSS
    + """
.range { display: inline-block; position: relative; width: min(15rem, 40vw); height: .9rem;
  vertical-align: -1px; background:
  linear-gradient(var(--quiet), var(--quiet)) var(--zero) 0 / 1px 100% no-repeat; }
.range i { position: absolute; top: calc(50% - 1.5px); height: 3px; background: var(--one);
  border-radius: 2px; opacity: .55; }
.range b { position: absolute; top: calc(50% - .28rem); width: .56rem; height: .56rem;
  margin-left: -.28rem; border-radius: 50%; background: var(--one); }
.range .over { background: var(--other); }
.plain td { vertical-align: middle; }
.plain td.text:first-child { min-width: 11rem; }
.plain .control td { color: var(--quiet); }
.question b { font-weight: 600; }
.question small { color: var(--quiet); font-size: .8125rem; display: block; }
.limits li { max-width: 46rem; margin: .45rem 0; }
.findings { padding-left: 1.1rem; }
.findings li { max-width: 50rem; margin: .4rem 0; font-size: 1.0625rem; overflow-wrap: anywhere; }
details { margin: .35rem 0; }
summary { cursor: pointer; color: var(--accent); font-size: .9375rem; padding: .15rem 0; }
summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.words { overflow-wrap: anywhere; font-size: .9375rem; max-width: 50rem; }
.head { display: none; }
@media (max-width: 40rem) {
  .plain td.text:first-child { min-width: 0; }
  .range, .bar { width: 22vw; }
  .plain th { white-space: normal; }
  .dense td:nth-child(2) { font-size: .75rem; line-height: 1.3; }
  .answers thead { display: none; }
  .answers tr { display: flex; flex-wrap: wrap; gap: .35rem .8rem; padding: .7rem 0;
    border-bottom: 1px solid var(--line); }
  .answers td, .answers td:first-child { border: 0; padding: 0; }
  .answers td.text { flex: 0 0 100%; }
  .answers td.number { text-align: left; font-size: .875rem; }
  .answers .range { width: 100%; }
  .head { display: block; color: var(--quiet); font-size: .75rem; }
}
"""
)


def range_of(value: float | None, low: float | None, high: float | None, scale: Scale) -> Html:
    """A dot for a value and a line for its interval; a thin line stands at zero."""
    if value is None:
        return Html("")
    kind = "over" if value < 0 else ""
    parts = []
    if low is not None and high is not None:
        left, right = scale.at(low), scale.at(high)
        style = f"left:{left:.1f}%;width:{right - left:.1f}%"
        parts.append(element("i", class_=kind, style=style))
    parts.append(element("b", class_=kind, style=f"left:{scale.at(value):.1f}%"))
    return drawn("range", scale, *parts)


def signed(value: float | None, digits: int = 2) -> str:
    """+0.42 or −0.42."""
    if value is None:
        return MISSING
    return f"{value:+.{digits}f}".replace("-", "−")


def between(low: float | None, high: float | None, digits: int = 2) -> str:
    """The ends of an interval."""
    if low is None or high is None:
        return MISSING
    return f"{signed(low, digits)} to {signed(high, digits)}"


def chance(p: float | None) -> str:
    """A p-value; what is too small to say so is said to be."""
    if p is None:
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
