"""Which column of a file is which, under the names that all tasks share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filbert.data.records import Row, read_rows
from filbert.data.streams import OnError


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """The user's names for the columns that a task reads.

    Attributes:
        text_column: name of the column with the text.
        text_pair_column: name of the column with the second text; a column `text_pair` is read
            when there is one.
        label_column: name of the column with the label, the list of labels or the score.
        label_columns: one 0/1 column per label: multi-label.
        tokens_column: name of the column with the words of a tagged sentence.
        tags_column: name of the column with the tags of those words.
        spans_column: name of the column with labelled character spans.
        id_column: name of the column with a question's id.
        question_column: name of the column with the question.
        context_column: name of the column with the text that a question or a choice is about.
        answers_column: name of the column with the answers.
        choices_column: name of the column with the list of choices.
        choice_columns: one column per choice, instead of a list.
    """

    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str | None = None
    label_columns: tuple[str, ...] | None = None
    tokens_column: str | None = None
    tags_column: str | None = None
    spans_column: str | None = None
    id_column: str | None = None
    question_column: str | None = None
    context_column: str | None = None
    answers_column: str | None = None
    choices_column: str | None = None
    choice_columns: tuple[str, ...] | None = None

    def own(self, name: str) -> str:
        """The file's own name of a standard column."""
        return self.given(name) or name

    def given(self, name: str) -> str | None:
        """The same if the user has named it, else None."""
        flag = "label" if name == "labels" else name
        given: str | None = getattr(self, f"{flag}_column")
        return given

    def read(
        self,
        path: str | Path,
        *,
        required: Sequence[str],
        optional: Sequence[str] = (),
        extra: Sequence[str] = (),
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """The rows of a file under the standard names; see `read_rows`.

        Args:
            path: CSV, TSV, JSON Lines, Parquet or one text a line; "-" for standard input.
            required: standard names that must be there.
            optional: standard names that are read where they are there; required once the user
                has named their column.
            extra: the file's own names of further columns that must be there.
            on_error: as for `read_rows`.
        """
        named = [name for name in optional if self.given(name) is not None]
        wanted = [*required, *named]
        return read_rows(
            path,
            columns={name: self.own(name) for name in wanted},
            required=wanted,
            optional=[name for name in optional if name not in named],
            extra=extra,
            on_error=on_error,
        )
