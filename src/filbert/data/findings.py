"""What a check of a data set can find, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import Text
from filbert.text.tokenizer import Tokenizer

Level = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """One place where something is wrong with the data, as a task sees it.

    `kind` is one word for programs, `message` a sentence that is the same for all places of its
    kind, `where` file and line (and more, such as a question's id); never any text of the data.
    """

    level: Level
    kind: str
    message: str
    where: str


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

    `label_counts` counts labels, of which a row may have several. `lengths` is of each row's
    longest sequence; `tokens` and `unknown_tokens` count all of them. `truncated` counts rows
    longer than max_length; None where the task reads these in windows. It and the token counts are
    None without tokenizer.
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
class NearFile:
    """Near-duplicates of one file: rows that are near to an earlier one of it, and by the name of
    each earlier file the rows that are near to one there.
    """

    name: str
    repeats: int
    near: dict[str, int]


@dataclass(frozen=True)
class NearPair:
    """Two rows that are almost the same, by file and line; never their texts.

    `labels_differ` is None where a row has no label in that sense.
    """

    one: str
    other: str
    similarity: float
    labels_differ: bool | None


@dataclass(frozen=True)
class NearReport:
    """All near-duplicates: counts per file, and the pairs, of which only the first are listed."""

    threshold: float
    files: tuple[NearFile, ...]
    num_pairs: int
    pairs: tuple[NearPair, ...]


@dataclass(frozen=True)
class Report:
    """What the doctor found; `near_duplicates` only when it was asked to look for them."""

    splits: tuple[Split, ...]
    problems: tuple[Problem, ...]
    max_length: int
    near_duplicates: NearReport | None = None

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
        self.known: dict[tuple[Level, str, str], _Places] = {}

    def add(
        self,
        level: Level,
        kind: str,
        message: str,
        where: str | Callable[[], str] | None = None,
        count: int = 1,
        variant: str = "",
    ) -> None:
        """Count a finding; `where` is asked for only while places are still collected.

        A place of a new `variant` takes the seat of one whose variant is seated twice.
        """
        places = self.known.get((level, kind, message))
        if places is None:
            places = self.known[level, kind, message] = _Places()
        places.count += count
        if where is None:
            return
        if len(places.shown) >= self.shown_at_most and not places.make_room(variant):
            return
        places.shown.append(where if isinstance(where, str) else where())
        places.variants.append(variant)

    def problems(self) -> tuple[Problem, ...]:
        """All findings, the most serious first."""
        every = [
            Problem(level, kind, message.rstrip(".") + ".", places.count, tuple(places.shown))
            for (level, kind, message), places in self.known.items()
        ]
        return tuple(sorted(every, key=lambda problem: _LEVELS.index(problem.level)))


@dataclass
class _Places:
    """How often a problem was seen, and where first: as many `variants` as `shown`."""

    count: int = 0
    shown: list[str] = field(default_factory=list)
    variants: list[str] = field(default_factory=list)

    def make_room(self, variant: str) -> bool:
        if variant in self.variants:
            return False
        for index in reversed(range(len(self.variants))):
            if self.variants[index] in self.variants[:index]:
                del self.shown[index], self.variants[index]
                return True
        return False


class Judge(Protocol):
    """The part of a task that looks at data; a `filbert.tasks.base.Task` has all of it."""

    @property
    def head_kind(self) -> str | None:
        """Of the kinds "sequence" and "tokens" the outputs are the labels, where there are any."""
        ...

    @property
    def labels_are_classes(self) -> bool:
        """A label is what a row is, so that shares and contradictions of labels mean something."""
        ...

    @property
    def windows(self) -> bool:
        """Long rows are read in windows, so that being long costs them nothing."""
        ...

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """The rows of a file."""
        ...

    def sequences(self, row: Row) -> list[Text]:
        """The texts or pairs of a row that are tokenised, at least one."""
        ...

    def labels_of(self, row: Row) -> list[str]:
        """The label names in a row. An InputError makes the row a bad one."""
        ...

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """What else is wrong with some good rows."""
        ...
