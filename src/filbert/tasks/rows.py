"""What tasks do with rows: read them, take their texts, and make sequences of texts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.data.columns import ColumnNames, recognised, recognition_line
from filbert.data.examples import Example, by_row, encode_rows, rows_of
from filbert.data.records import Row
from filbert.data.streams import OnError, raised
from filbert.data.texts import as_number, text_of, text_row
from filbert.errors import InputError, printable
from filbert.model.pooling import mean_of_groups
from filbert.tasks.base import Prediction, RowFormat, RowSource, Targets, Task
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Text, Tokenizer

log = logging.getLogger(__name__)

_LARGEST = float(np.finfo(np.float32).max)


def read_task_rows(
    task: Task,
    path: str | Path,
    names: ColumnNames,
    *,
    labelled: bool = True,
    on_error: OnError = raised,
) -> Iterator[Row]:
    """Yield the rows of a file under standard names.

    Raises:
        ConfigError: the names of the columns do not go with the task.
        InputError: file and line of what is wrong, unless `on_error` takes it.
    """
    form = task.spec.row_format
    if labelled and form.no_label_columns is not None:
        names.refuse_label_columns(form.no_label_columns)
    found = named_columns(task, path, names, labelled=labelled)
    if found != names:
        log.info(recognition_line(names, found))
    return form.read(task.spec, RowSource(path, found, labelled, on_error))


def named_columns(
    task: Task,
    path: str | Path,
    names: ColumnNames,
    *,
    labelled: bool = True,
    apart: Sequence[str] = (),
) -> ColumnNames:
    """Return the names with the columns that `recognised` finds, for formats of texts."""
    spec = task.spec
    form = spec.row_format
    if form.recognises is None:
        return names
    has_label = labelled and not spec.label_columns and not (spec.whole_batch or spec.multilabel)
    label = form.recognises if has_label else None
    return recognised(path, names, num_texts=form.num_texts, label=label, apart=apart)


def row_of_value(task: Task, value: Any, index: int) -> Row:
    """Return the row of a Python value that came without a file, such as a text or a mapping."""
    return task.spec.row_format.from_value(value, index)


def row_texts(task: Task, row: Row, *, clean: bool = True) -> list[Text]:
    """Return what is tokenised: a text or pair per sequence, before any cutting or windows."""
    return task.spec.row_format.texts(row, task.spec.clean if clean else None)


def row_labels(task: Task, row: Row) -> list[str]:
    """Return the label names in a row, for counting; [] where a task has none."""
    return task.spec.row_format.labels(task, row)


def complete_predictions(
    task: Task, rows: Sequence[Row], answers: Sequence[Row]
) -> tuple[Task, list[Prediction]]:
    """Make predictions of other programs complete enough for `metrics`.

    `task` has no labels unless the user declared them; the one that is returned has those of rows
    and predictions. Wrong predictions are InputErrors with file and line.
    """
    form = task.spec.row_format
    task = form.with_labels(task, rows, answers)
    pairs = zip(rows, answers, strict=True)
    return task, [form.complete(task.spec, row, answer) for row, answer in pairs]


def score_of(row: Row, advice: str) -> float | None:
    """Return the number in the column `label`, None if it is empty.

    Raises:
        InputError: It is not a finite number of float32; `advice` says what to do.
    """
    value = row.values.get("label")
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    score = as_number(value)
    if not abs(score) <= _LARGEST:
        given = printable(repr(value), 40)
        raise InputError(f"{row.where}: label {given} is not a number. {advice}")
    return score


class TextRows(RowFormat):
    """Rows of a text or a pair of texts."""

    def from_value(self, value: Any, index: int) -> Row:
        """Return the row of a text, of a pair or of a mapping."""
        return text_row(value, index)

    def texts(self, row: Row, clean: Cleaning | None) -> list[Text]:
        """Return the text or the pair, as one sequence."""
        return [text_of(row, clean)]


# Sequences of rows that hold texts or pairs


def text_examples(
    task: Task,
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    with_targets: bool,
    total: Callable[[list[int]], int] = max,
) -> list[Example]:
    """Return a sequence for each text of a row, or its windows; their target is the row's `gold`.

    It is the method `examples` of most tasks. `total` makes the number of tokens of a row from
    those of its texts.
    """
    spec = task.spec
    texts = [spec.row_format.texts(row, spec.clean) for row in rows]
    pieces = iter(
        encode_rows(
            [row for row, own in zip(rows, texts, strict=True) for _ in own],
            [text for own in texts for text in own],
            tokenizer,
            max_length=max_length,
            rule=spec.on_overflow,
            stride=spec.stride,
        )
    )
    examples = []
    for i, (row, own) in enumerate(zip(rows, texts, strict=True)):
        target = task.gold(row) if with_targets else None
        windows = [next(pieces) for _ in own]
        tokens = total([some[-1].start + some[-1].num_tokens for some in windows])
        examples += [
            Example.of(i, encoding, target=target, row_tokens=tokens)
            for some in windows
            for encoding in some
        ]
    return examples


def packed_rows(examples: Sequence[Example], places: Iterable[np.ndarray]) -> Tensor:
    """Return the rows of the packed batch, int64 (K,), of places within each of its sequences."""
    starts = accumulate((len(example.input_ids) for example in examples), initial=0)
    rows = [start + at for start, at in zip(starts, places, strict=False)]
    return torch.from_numpy(np.concatenate(rows))


def row_targets(examples: Sequence[Example], dtype: type[np.generic]) -> Targets:
    """Return each row's target, (R,) or (R, C); groups: the number of sequences of each row."""
    rows = by_row(examples)
    values = np.stack([np.asarray(row[0].target) for row in rows])
    return Targets(torch.from_numpy(values.astype(dtype)), groups=tuple(map(len, rows)))


def row_outputs(outputs: Sequence[Tensor], examples: Sequence[Example]) -> Tensor:
    """Return a head's outputs by row, (R, C): the mean over the windows of a row."""
    return mean_of_groups(torch.stack(list(outputs)), rows_of(examples))
