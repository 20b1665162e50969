"""What the data check asks of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from filbert.data.columns import ColumnNames
from filbert.data.findings import Finding
from filbert.data.pairs import pair_findings
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import Text, label_is_ambiguous
from filbert.tasks.base import Task
from filbert.tasks.embedding import SentenceEmbedding
from filbert.tasks.rows import read_task_rows, row_labels, row_texts
from filbert.tasks.span_qa import SpanQA, question_findings
from filbert.tasks.tagging import Tagging, tagging_findings
from filbert.text.tokenizer import Tokenizer


class RowCheck:
    """A `filbert.data.findings.CheckableTask` for the rows of a task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.head_kind = task.spec.head_kind
        self.labels_are_classes = task.spec.labels_are_classes
        self.windows = task.spec.windows
        self.clean = task.spec.clean
        self.id_column = "id" if task.spec.row_format == "questions" else None

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
        task = self.task
        if isinstance(task, SpanQA):
            return question_findings(task, rows, tokenizer, max_length)
        if isinstance(task, Tagging):
            return tagging_findings(task, rows, tokenizer, max_length)
        if isinstance(task, SentenceEmbedding):
            positives = task.spec.whole_batch
            return pair_findings(rows, positives=positives, score_max=task.score_max)
        return _choice_findings(rows) if task.spec.row_format == "choices" else iter(())


def _choice_findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """Choices that are empty or repeated, and labels that can be read in two ways."""
    for row in rows:
        choices = row.values["choices"]
        if not all(choice.strip() for choice in choices):
            yield Finding("warning", "empty_choice", "Rows with an empty choice.", row.where)
        if len(set(choices)) < len(choices):
            message = "Rows that offer one choice twice."
            yield Finding("warning", "repeated_choice", message, row.where)
        if label_is_ambiguous(row, choices):
            message = (
                "Rows whose label is the number of one choice and the text of another; the "
                "number counts."
            )
            yield Finding("warning", "ambiguous_label", message, row.where)
