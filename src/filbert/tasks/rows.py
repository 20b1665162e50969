"""What tasks do with rows: read them, take their texts, and make sequences of texts.

A row format says how rows are read and which texts they hold. Several tasks may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from filbert.data.columns import ColumnNames
from filbert.data.conll import read_sentences, sentence_of
from filbert.data.examples import Example, rows_of
from filbert.data.labels import has_list, labels_in, listed
from filbert.data.overflow import row_examples
from filbert.data.records import Row
from filbert.data.squad import question_row, read_questions
from filbert.data.streams import OnError
from filbert.data.tags import split_tag
from filbert.data.texts import (
    Text,
    checked_choices,
    choices_of,
    counted,
    has_lists_of_labels,
    read_choices,
    read_texts,
    text_of,
    text_row,
)
from filbert.errors import ConfigError, InputError
from filbert.metrics.entities import entities_of
from filbert.model.pooling import mean_of_groups
from filbert.tasks.base import RowFormat, Targets, Task, TaskSpec
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Tokenizer


def read_task_rows(
    task: Task,
    path: str | Path,
    names: ColumnNames,
    *,
    labelled: bool = True,
    on_error: OnError | None = None,
) -> Iterator[Row]:
    """The rows of a file under standard names.

    Raises:
        ConfigError: the names of the columns do not go with the task.
        InputError: file and line of what is wrong, unless `on_error` takes it.
    """
    spec = task.spec
    form = FORMATS[spec.row_format]
    if labelled and form.no_label_columns is not None:
        names.refuse_label_columns(form.no_label_columns)
    return form.read(spec, path, names, labelled, on_error)


def row_of_value(task: Task, value: Any, index: int) -> Row:
    """The row of a Python value that came without a file, such as a text or a mapping.

    Raises:
        InputError: it cannot be one; with its index.
    """
    return FORMATS[task.spec.row_format].from_value(value, index)


def row_texts(task: Task, row: Row, *, clean: bool = True) -> list[Text]:
    """What is tokenised: a text or pair per sequence, before any cutting or windows."""
    spec = task.spec
    return FORMATS[spec.row_format].texts(row, spec.clean if clean else None)


def row_labels(task: Task, row: Row) -> list[str]:
    """The label names in a row, for counting; [] where a task has none.

    Raises:
        InputError: the answer is missing or malformed, with file and line.
    """
    spec = task.spec
    if spec.row_format == "labelled":
        return class_labels(spec, row)
    gold = task.gold(row)
    if spec.row_format == "sentences":
        return [kind for kind, _, _ in entities_of(gold.tags)]
    if spec.row_format == "questions":
        return ["answerable" if gold.answers else "unanswerable"]
    return []


def known_labels(spec: TaskSpec) -> list[str]:
    """The names that `row_labels` may return: classes, or entity types."""
    if spec.row_format != "sentences":
        return list(spec.labels or ())
    kinds = (split_tag(label)[1] for label in spec.labels or ())
    return [kind for kind in dict.fromkeys(kinds) if kind]


def class_labels(spec: TaskSpec, row: Row) -> list[str]:
    """The classes of a row: exactly one, or any number for multi-label.

    Raises:
        InputError: no label, or one that was not declared; with file and line.
    """
    columns = spec.label_columns
    if spec.multilabel and not row.values.keys() & {"label", "labels"}:
        columns = columns or spec.labels
    if columns and columns[0] not in row.values and has_list(row):
        columns = None
    labels = labels_in(row, columns, multilabel=spec.multilabel or has_list(row))
    for label in labels if spec.labels is not None else ():
        if label not in (spec.labels or ()):
            raise InputError(
                f"{row.where}: label {label!r} is not one of {listed(spec.labels or ())}. "
                "Fix the row; when training, --labels declares one that no row has."
            )
    return labels


# Sequences of rows that hold a text or a pair


def text_examples(
    task: Task,
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    with_targets: bool,
    stride: int,
) -> list[Example]:
    """One sequence a row, or one a window; the target of each is the row's `gold`."""
    return row_examples(
        rows,
        [task.gold(row) if with_targets else None for row in rows],
        tokenizer,
        max_length=max_length,
        rule=task.spec.on_overflow,
        stride=stride,
        clean=task.spec.clean,
    )


def row_targets(examples: Sequence[Example], dtype: type[np.generic]) -> Targets:
    """The target of each row, (R,) or (R, C); groups: the number of sequences of each row."""
    groups = rows_of(examples)
    firsts = np.cumsum([0, *groups[:-1]])
    values = np.stack([np.asarray(examples[first].target) for first in firsts])
    return Targets(torch.from_numpy(values.astype(dtype)), groups=groups)


def row_outputs(outputs: Sequence[Tensor], examples: Sequence[Example]) -> Tensor:
    """The outputs of a head over sequences by row, (R, C): the mean over the windows of a row."""
    return mean_of_groups(torch.stack(list(outputs)), rows_of(examples))


# Row formats


class Format(NamedTuple):
    """How the rows of one format are read.

    Attributes:
        read: the rows of a file, from a spec, the path, the user's names of the columns, whether
            the rows are labelled, and what takes errors.
        from_value: the row of a Python value and its index.
        texts: the texts of a row after cleaning; each becomes a sequence.
        no_label_columns: why 0/1 columns cannot hold the labels; None where they can.
    """

    read: Callable[[TaskSpec, str | Path, ColumnNames, bool, OnError | None], Iterator[Row]]
    from_value: Callable[[Any, int], Row]
    texts: Callable[[Row, Cleaning | None], list[Text]]
    no_label_columns: str | None = None


def _read_scored(
    spec: TaskSpec, path: str | Path, names: ColumnNames, labelled: bool, on_error: OnError | None
) -> Iterator[Row]:
    return read_texts(path, names, *(("label",) if labelled else ()), on_error=on_error)


def _read_labelled(
    spec: TaskSpec, path: str | Path, names: ColumnNames, labelled: bool, on_error: OnError | None
) -> Iterator[Row]:
    """Rows with a label, a list of them, or 0/1 columns."""
    if not labelled:
        return read_texts(path, names, on_error=on_error)
    if names.merge:
        names.merge.require_labels(None if spec.multilabel else spec.labels)
    if names.label_columns and not spec.multilabel:
        raise ConfigError("--label-columns is for multi-label models; this one gives one label.")
    # Multi-label rows may come as 0/1 columns or as lists, whatever training read.
    columns = names.label_columns or (None if names.label_column else spec.label_columns)
    if columns is not None and set(columns) != set(spec.labels or ()):
        raise ConfigError(
            f"--label-columns names {listed(columns)}; the labels are {listed(spec.labels or ())}."
        )
    if columns and not has_lists_of_labels(path, names, columns):
        return read_texts(path, names, extra=columns, on_error=on_error)
    several = spec.multilabel or (spec.labels is None and has_lists_of_labels(path, names))
    return read_texts(path, names, "labels" if several else "label", on_error=on_error)


def _read_pairs(
    spec: TaskSpec, path: str | Path, names: ColumnNames, labelled: bool, on_error: OnError | None
) -> Iterator[Row]:
    """Pairs with a score, which is optional for the contrastive loss."""
    if not labelled:
        return read_texts(path, names, on_error=on_error)
    scores = ((), ("label",)) if spec.whole_batch else (("label",), ())
    return names.read(
        path, required=("text", "text_pair", *scores[0]), optional=scores[1], on_error=on_error
    )


def _read_sentences(
    spec: TaskSpec, path: str | Path, names: ColumnNames, labelled: bool, on_error: OnError | None
) -> Iterator[Row]:
    return read_sentences(path, names, labelled=labelled, on_error=on_error)


def _read_questions(
    spec: TaskSpec, path: str | Path, names: ColumnNames, labelled: bool, on_error: OnError | None
) -> Iterator[Row]:
    return read_questions(path, names, labelled=labelled, on_error=on_error)


def _read_choices(
    spec: TaskSpec, path: str | Path, names: ColumnNames, labelled: bool, on_error: OnError | None
) -> Iterator[Row]:
    """Rows with choices; labelled rows have as many as the first row of the file."""
    expected: int | None = None

    def check(row: Row) -> None:
        nonlocal expected
        count = len(choices_of(row))
        expected = expected or count
        if labelled and count != expected:
            raise InputError(
                f"{row.where}: {counted(count)}; the first row has {expected}, and all must have "
                "equally many. Fix the row, or drop it."
            )

    return read_choices(path, names, labelled=labelled, check=check, on_error=on_error)


def _sentence_row(value: Any, index: int) -> Row:
    """The row of a text, of a list of words, or of a mapping with `text` or `tokens`."""
    if isinstance(value, str):
        value = {"text": value}
    elif isinstance(value, list | tuple):
        value = {"tokens": list(value)}
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise InputError(f"Item {index} is a {kind}; a text or a list of words is wanted.")
    columns = ("tokens", "tags", "text", "spans")
    row = Row({name: value[name] for name in columns if name in value}, "texts", index + 1)
    sentence_of(row)
    return row


def _choice_row(value: Any, index: int) -> Row:
    if not isinstance(value, Mapping):
        raise InputError(
            f"Item {index} is a {type(value).__name__}; a mapping with 'context' and 'choices' "
            "is wanted."
        )
    choices = checked_choices(value.get("context"), value.get("choices"), f"Item {index}")
    return Row({"context": value["context"], "choices": choices}, "items", index + 1)


def _text(row: Row, clean: Cleaning | None) -> list[Text]:
    return [text_of(row, clean)]


def _both_texts(row: Row, clean: Cleaning | None) -> list[Text]:
    """One text or two: the texts of a pair get a vector each."""
    text = text_of(row)
    return [text] if isinstance(text, str) else [*text]


def _sentence(row: Row, clean: Cleaning | None) -> list[Text]:
    """The text, or the words joined by spaces."""
    tokens, text = row.values.get("tokens"), row.values.get("text")
    # Without splitting into words, which takes ten times as long.
    if isinstance(tokens, list) and all(isinstance(word, str) for word in tokens):
        return [" ".join(tokens)]
    return [text if tokens is None and isinstance(text, str) else sentence_of(row).text]


def _question(row: Row, clean: Cleaning | None) -> list[Text]:
    return [(row.values["question"], row.values["context"])]


def _choices(row: Row, clean: Cleaning | None) -> list[Text]:
    """The context with each choice."""
    return [(row.values["context"], choice) for choice in row.values["choices"]]


FORMATS: dict[RowFormat, Format] = {
    "labelled": Format(_read_labelled, text_row, _text),
    "scored": Format(
        _read_scored,
        text_row,
        _text,
        "a regression reads one score a row. Name its column with --label-column",
    ),
    "pairs": Format(
        _read_pairs, text_row, _both_texts, "embeddings have one number, see --label-column"
    ),
    "sentences": Format(
        _read_sentences, _sentence_row, _sentence, "a sentence has a tag for every word"
    ),
    "questions": Format(
        _read_questions, question_row, _question, "a question is answered by a place in a text"
    ),
    "choices": Format(
        _read_choices, _choice_row, _choices, "a row names one of its choices, see --label-column"
    ),
}
