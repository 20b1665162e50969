"""What the data check asks of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from filbert.data.columns import ColumnNames
from filbert.data.findings import Finding
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import Text
from filbert.tasks.base import Task
from filbert.tasks.rows import read_task_rows, row_labels, row_texts
from filbert.text.tokenizer import Tokenizer


class RowCheck:
    """A `filbert.data.findings.CheckableTask` for the rows of a task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.head_kind = task.spec.head_kind
        self.labels_are_classes = task.spec.labels_are_classes
        self.windows = task.spec.windows
        self.clean = task.spec.clean
        self.id_column = task.spec.row_format.id_column

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """The rows of a file."""
        return read_task_rows(self.task, path, names, labelled=labelled, on_error=on_error)

    def sequences(self, row: Row) -> list[Text]:
        """The texts or pairs of a row that are tokenised, at least one."""
        return row_texts(self.task, row)

    def labels_of(self, row: Row) -> list[str]:
        """The label names in a row. An InputError makes the row a bad one."""
        return row_labels(self.task, row)

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """What else is wrong with some good rows."""
        return self.task.spec.row_format.findings(self.task, rows, tokenizer, max_length)
