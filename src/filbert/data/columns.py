"""The user's names for the columns of a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from filbert.data.records import Row, read_rows


def text_of(row: Row) -> str | tuple[str, str]:
    """The text of a row, or its pair of texts."""
    pair = row.values.get("text_pair")
    text: str = row.values["text"]
    return text if pair is None else (text, pair)


class ReadArguments(TypedDict):
    """Keywords of `read_rows` that depend on the task."""

    columns: dict[str, str]
    required: list[str]
    optional: list[str]
    extra: list[str]


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """Which column of the file is which.

    Attributes:
        text: the column with the text.
        text_pair: the column with the second text; None reads a column `text_pair` when there is
            one.
        label: the column with the label (or the list of labels); None for the standard name.
        label_columns: one 0/1 column per label, instead of `label`.
        multilabel: the label column holds a list, and its standard name is `labels`.
    """

    text: str = "text"
    text_pair: str | None = None
    label: str | None = None
    label_columns: tuple[str, ...] | None = None
    multilabel: bool = False

    def arguments(self, *, labelled: bool = True) -> ReadArguments:
        """What `read_rows` needs to be told."""
        names = {"text": self.text}
        required = ["text"]
        optional = []
        if self.text_pair:
            names["text_pair"] = self.text_pair
            required.append("text_pair")
        else:
            optional.append("text_pair")
        extra = list(self.label_columns or ()) if labelled else []
        if labelled and not extra:
            wanted = "labels" if self.multilabel else "label"
            names[wanted] = self.label or wanted
            required.append(wanted)
        return {"columns": names, "required": required, "optional": optional, "extra": extra}

    def read(self, path: str | Path, *, labelled: bool = True) -> Iterator[Row]:
        """The rows of a file under the standard names; see `read_rows`."""
        return read_rows(path, **self.arguments(labelled=labelled))
