"""What the data doctor asks of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from filbert.data.columns import ColumnNames
from filbert.data.findings import Finding
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import Text
from filbert.text.tokenizer import Tokenizer


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
