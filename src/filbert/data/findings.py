"""The result of checking a data set, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import Text
from filbert.text.tokenizer import Tokenizer

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


class Finding(NamedTuple):
    """One problem in one place.

    `kind` is one word for programs, `message` a sentence that is the same for all places of its
    kind, `where` file and line (and more, such as a question's id); never any text of the data.
    """

    level: Level
    kind: str
    message: str
    where: str = ""
    times: int = 1


@dataclass(frozen=True)
class Problem:
    """All findings with one level, kind and message: how many, and the first places."""

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
class SplitReport:
    """One file: its good and bad rows, labels (most frequent first) and lengths.

    `lengths` is of each row's longest sequence; `tokens` and `unknown_tokens` count all sequences.
    `truncated` counts rows longer than max_length; None if the task reads these in windows. It and
    the token counts are None without a tokenizer.
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
    """Counts the rows of a file that are near to an earlier row of it, and to each earlier file."""

    name: str
    repeats: int
    near: dict[str, int]


@dataclass(frozen=True)
class NearPair:
    """File and line of two rows that are almost the same; never their texts.

    `labels_differ` is None if labels are not classes.
    """

    one: str
    other: str
    similarity: float
    labels_differ: bool | None


@dataclass(frozen=True)
class NearReport:
    """Near-duplicates: counts per file, and the first pairs."""

    threshold: float
    files: tuple[NearFile, ...]
    num_pairs: int
    pairs: tuple[NearPair, ...]


@dataclass(frozen=True)
class Report:
    """The result of a check, the most serious problems first."""

    splits: tuple[SplitReport, ...]
    problems: tuple[Problem, ...]
    max_length: int
    near_duplicates: NearReport | None = None

    def __repr__(self) -> str:
        rows = ", ".join(f"{split.rows:,} {split.name}" for split in self.splits)
        lines = [
            f"{one.level}: {one.message.rstrip('.')} ({one.count:,}): {'; '.join(one.where[:3])}"
            for one in self.problems
        ]
        return "\n".join([f"<filbert check: rows: {rows}; problems: {len(lines)}>", *lines])

    def to_dict(self) -> dict[str, Any]:
        """The whole report as plain values for JSON."""
        return asdict(self)

    @property
    def worst(self) -> Level | None:
        """The most serious level among the problems, or None."""
        return self.problems[0].level if self.problems else None


class CheckableTask(Protocol):
    """The part of `filbert.tasks.base.Task` that looks at data."""

    @property
    def head_kind(self) -> str | None:
        """With "sequence" or "tokens" the model predicts the labels."""
        ...

    @property
    def labels_are_classes(self) -> bool:
        """A label classifies the whole row, so that shares and contradictions have a meaning."""
        ...

    @property
    def windows(self) -> bool:
        """Long rows are read in windows, so nothing is cut."""
        ...

    @property
    def clean(self) -> object | None:
        """The cleaning of texts before they become tokens."""
        ...

    @property
    def id_column(self) -> str | None:
        """The column whose values must differ from row to row."""
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
