"""What a check of a data set can find, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Problem:
    """One kind of finding: how often it was seen, and where first.

    `message` ends in one full stop.
    """

    level: Level
    kind: str
    message: str
    count: int = 0
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lengths:
    """Quantiles of the rows' lengths, in `unit` ("tokens", specials included, or "words")."""

    unit: str
    p50: int
    p90: int
    p95: int
    p99: int
    max: int


@dataclass(frozen=True)
class Split:
    """One file: its good and bad rows, labels (most frequent first) and lengths.

    `truncated` counts rows longer than max_length; it and the token counts are None without
    tokenizer.
    """

    name: str
    path: str
    rows: int
    bad_rows: int
    empty_texts: int
    label_counts: dict[str, int]
    lengths: Lengths | None
    truncated: int | None
    unknown_tokens: int | None
    tokens: int | None


@dataclass(frozen=True)
class Report:
    """What the doctor found."""

    splits: tuple[Split, ...]
    problems: tuple[Problem, ...]
    max_length: int

    def to_dict(self) -> dict[str, Any]:
        """The whole tree as plain values for JSON."""
        return asdict(self)

    @property
    def worst(self) -> Level | None:
        """The most serious level among the problems, or None."""
        levels = {problem.level for problem in self.problems}
        return next((level for level in _LEVELS if level in levels), None)


_LEVELS: tuple[Level, ...] = ("error", "warning", "note")


class Findings:
    """Problems by level, kind and message, with the first few places each."""

    def __init__(self, shown_at_most: int) -> None:
        self.shown_at_most = shown_at_most
        self.known: dict[tuple[Level, str, str], tuple[list[str], list[int]]] = {}

    def add(
        self,
        level: Level,
        kind: str,
        message: str,
        where: str | Callable[[], str] | None = None,
        count: int = 1,
    ) -> None:
        """Count a finding; `where` is asked for only while places are still collected."""
        places, total = self.known.setdefault((level, kind, message), ([], [0]))
        total[0] += count
        if where is not None and len(places) < self.shown_at_most:
            places.append(where if isinstance(where, str) else where())

    def problems(self) -> tuple[Problem, ...]:
        """All findings, the most serious first."""
        every = [
            Problem(level, kind, message.rstrip(".") + ".", total[0], tuple(places))
            for (level, kind, message), (places, total) in self.known.items()
        ]
        return tuple(sorted(every, key=lambda problem: _LEVELS.index(problem.level)))
