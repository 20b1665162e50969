"""Which column of a file is which, under the names that all tasks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from filbert.data.labels import Merge, listed, merge_labels
from filbert.data.records import Row, read_rows
from filbert.data.streams import OnError
from filbert.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """The user's names for the columns that a task reads.

    Attributes:
        text_column: name of the column with the text.
        text_pair_column: name of the column with the second text; a column `text_pair` is read
            when there is one.
        label_column: name of the column with the label, the list of labels or the score.
        label_columns: one 0/1 column per label: multi-label.
        merge_labels: 0/1 columns that become one label: whether any of them is 1.
        merge_as: the name of that label, also written --as; other rows get "not" and the name.
        tokens_column: name of the column with the words of a tagged sentence.
        tags_column: name of the column with the tags of those words.
        spans_column: name of the column with labelled character spans.
        id_column: name of the column with a question's id.
        question_column: name of the column with the question.
        context_column: name of the column with the text that a question or a choice is about.
        answers_column: name of the column with the answers.
        choices_column: name of the column with the list of choices.
        choice_columns: one column per choice, instead of a list.
        separator: character between the fields of CSV and TSV files, such as ";".
    """

    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str | None = None
    label_columns: tuple[str, ...] | None = None
    merge_labels: tuple[str, ...] | None = None
    merge_as: str | None = None
    tokens_column: str | None = None
    tags_column: str | None = None
    spans_column: str | None = None
    id_column: str | None = None
    question_column: str | None = None
    context_column: str | None = None
    answers_column: str | None = None
    choices_column: str | None = None
    choice_columns: tuple[str, ...] | None = None
    separator: str | None = None

    @staticmethod
    def recorded(options: Mapping[str, Any]) -> ColumnNames:
        """The names among recorded options, where tuples have become lists."""
        named: dict[str, Any] = {}
        for field in fields(ColumnNames):
            value = options.get(field.name, field.default)
            named[field.name] = tuple(value) if isinstance(value, list) else value
        return ColumnNames(**named)

    def own(self, name: str) -> str:
        """The file's own name of a standard column."""
        return self.given(name) or name

    def given(self, name: str) -> str | None:
        """The same if the user has named it, else None."""
        flag = "label" if name == "labels" else name
        given: str | None = getattr(self, f"{flag}_column")
        return given

    @property
    def merge(self) -> Merge | None:
        """The columns that are merged into one label, if any.

        Raises:
            ConfigError: columns without a name, a name without columns, or either is malformed.
        """
        if self.merge_labels is None and self.merge_as is None:
            return None
        if self.merge_labels is None:
            raise ConfigError(
                "--as names the label that columns are merged into; name them with --merge-labels."
            )
        if self.merge_as is None:
            raise ConfigError(
                "--merge-labels needs a name for the label; pass one with --as, such as "
                "--as malicious."
            )
        if self.label_column is not None:
            raise ConfigError(
                "--merge-labels and --label-column both say where the label is; give one of them."
            )
        return Merge(tuple(self.merge_labels), self.merge_as)

    def refuse_label_columns(self, instead: str) -> None:
        """For tasks whose labels are no names.

        Args:
            instead: a sentence on what their rows hold.

        Raises:
            ConfigError: labels are to be made of 0/1 columns.
        """
        if self.label_columns or self.merge:
            given = "--merge-labels is for" if self.merge else "--label-columns is for multi-label"
            raise ConfigError(f"{given} classification; {instead}.")

    def declared_labels(
        self, labels: Sequence[str] | None, *, multilabel: bool
    ) -> tuple[str, ...] | None:
        """The labels in order, as far as options say them: `labels` itself, the 0/1 columns, or the
        two that merged columns make.

        Raises:
            ConfigError: one of them is given twice, or both are.
        """
        merge = self.merge
        if merge and (labels or self.label_columns or multilabel):
            raise ConfigError(
                f"--merge-labels makes the labels {listed(merge.labels)}, one a row; leave out "
                "--labels, --label-columns and --multilabel."
            )
        if labels and self.label_columns:
            raise ConfigError(
                "--labels and --label-columns name the labels twice; give one of them."
            )
        found = tuple(merge.labels if merge else labels or self.label_columns or ())
        if len(set(found)) < len(found):
            raise ConfigError(f"the labels {list(found)} name one label twice.")
        return found or None

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

        A required `label` comes from the columns of `merge_labels` where these are given.

        Args:
            path: CSV, TSV, JSON Lines, Parquet or one text a line; "-" for standard input.
            required: standard names that must be there.
            optional: standard names that are read where they are there; required once the user
                has named their column.
            extra: the file's own names of further columns that must be there.
            on_error: as for `read_rows`.
        """
        named = [name for name in optional if self.given(name) is not None]
        merge = self.merge if "label" in required else None
        wanted = [name for name in (*required, *named) if merge is None or name != "label"]
        rows = read_rows(
            path,
            columns={name: self.own(name) for name in wanted},
            required=wanted,
            optional=[name for name in optional if name not in named],
            extra=extra if merge is None else (*extra, *merge.columns),
            separator=self.separator,
            on_error=on_error,
        )
        if merge is None:
            return rows
        return merge_labels(rows, merge, keep=extra, on_error=on_error)
