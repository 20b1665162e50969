"""One contestant of a comparison as its report shows it: colour, line, figures and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from filbert.report import canvas

COLORS = (*canvas.SERIES, canvas.INK, "#8A939C")
MARKERS = "os^DvPX*"
# Points of stroke and gap: of the first cleaning, and how much longer each next one's strokes are;
# of models without, once the colours are used up; and a dot.
DASH, LONGER = (3.5, 1.6), 1.5
STROKE, DOT = (9.0, 1.6), (1.0, 1.6)


@dataclass(frozen=True, slots=True)
class Contestant:
    """One contestant's entry in results.json, and how it is drawn.

    A contestant with cleaning has the colour and the marker of the one without (`base`), but hollow
    and dashed.

    Attributes:
        name, entry: as in results.json.
        base: its name without cleaning.
        place: of the base among the bases, from 0. There are eight colours; those who have one for
            the second time have another marker with it, and a dot in their line.
        variant: which of the base's cleanings it is, from 0.
    """

    name: str
    entry: dict[str, Any]
    base: str
    place: int = 0
    variant: int = 0

    @property
    def color(self) -> str:
        """Of its line and marker."""
        return COLORS[self.place % len(COLORS)]

    @property
    def marker(self) -> str:
        """Matplotlib's letter for it."""
        return MARKERS[(self.place + self.place // len(COLORS)) % len(MARKERS)]

    @property
    def is_cleaned(self) -> bool:
        """Whether its texts were cleaned."""
        return bool(self.entry.get("cleaning"))

    @property
    def is_measured(self) -> bool:
        """Whether results.json holds test figures of it."""
        return bool(self.entry.get("test"))

    @property
    def line(self) -> Any:
        """Matplotlib's line style: whole, or dashed for a cleaned one; a dot for each round."""
        dots = DOT * (self.place // len(COLORS))
        if self.is_cleaned and self.base != self.name:
            stroke, gap = DASH
            return (0, (stroke + LONGER * self.variant, gap, *dots))
        return (0, STROKE + dots) if dots else "-"

    @property
    def fill(self) -> str:
        """What its marker is filled with."""
        return "white" if self.is_cleaned and self.base != self.name else self.color

    def figure(self, metric: str) -> dict[str, Any]:
        """value, low, high, interval_of, deviation, seeds of a metric; empty when not measured."""
        return (self.entry.get("test") or {}).get(metric) or {}

    def interval(self, metric: str) -> tuple[float | None, float | None]:
        """The ends that go with its mean: over rows and seeds; of one seed over rows."""
        found = self.figure(metric)
        found = found.get("over_seeds") or found
        return found.get("low"), found.get("high")

    def value(self, metric: str) -> float | None:
        """Mean over the seeds."""
        found = self.figure(metric).get("value")
        return None if found is None else float(found)

    def cost(self, name: str) -> float | None:
        """A cost, median over the seeds."""
        found = (self.entry.get("costs") or {}).get(name)
        return None if found is None else float(found)

    @property
    def seeds(self) -> list[dict[str, Any]]:
        """Its runs."""
        return list(self.entry.get("seeds") or ())
