"""Multiple choice: which of several continuations or answers goes with a context.

S sequences (one per choice), R rows, C the choices of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, lengths_of, rows_of
from filbert.data.records import Finding, Row
from filbert.data.streams import check_each, name_of, suffix_of
from filbert.data.texts import as_number
from filbert.errors import ConfigError, InputError, printable
from filbert.metrics.classification import multiclass_metrics
from filbert.model.pooling import table_of_groups
from filbert.tasks.base import (
    Prediction,
    RowFormat,
    RowSource,
    Targets,
    Task,
    TaskOptions,
    TaskSpec,
    refuse_cleaning,
    uncalibrated,
)
from filbert.tasks.rows import row_targets, text_examples
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Text, Tokenizer

_RULES = ("error", "truncate")


class ContextsWithChoices(RowFormat):
    """A context, its choices, and the number or text of the right one."""

    name = "choices"
    no_label_columns = "a row names one of its choices, see --label-column"

    def read(self, spec: TaskSpec, source: RowSource) -> Iterator[Row]:
        """Yield rows with `context`, `choices` (a list of texts) and, if labelled, `label`.

        Labelled rows have as many choices as the first row of the file.
        """
        path, names, labelled, on_error = source
        columns, expected = names.choice_columns, None
        if columns is not None and (
            names.choices_column is not None or len(columns) < 2 or len(set(columns)) < len(columns)
        ):
            raise ConfigError(
                f"--choice-columns names {', '.join(columns) or 'nothing'}; it takes two or more "
                "different columns and excludes --choices-column."
            )
        if columns is None and suffix_of(path) in (".csv", ".tsv"):
            raise InputError(
                f"{name_of(path)}: a table has one column per choice, and none are named. "
                "Pass --choice-columns, as in --choice-columns ending0,ending1."
            )
        required = ["context", *["label"] * labelled, *([] if columns else ["choices"])]
        rows = names.read(path, required=required, extra=columns or (), on_error=on_error)

        def checked(row: Row) -> Row:
            nonlocal expected
            values = {key: row.values[key] for key in required}
            if columns:
                values["choices"] = [row.values[own] for own in columns]
            choices = _checked_choices(values["context"], values["choices"], row.where)
            expected = expected or len(choices)
            if labelled and len(choices) != expected:
                raise InputError(
                    f"{row.where}: {len(choices)} choices; the first row has {expected}, and all "
                    "must have equally many. Fix the row, or drop it."
                )
            return Row(values | {"choices": choices}, row.path, row.line)

        return check_each(rows, checked, on_error)

    def from_value(self, value: Any, index: int) -> Row:
        """Return the row of a mapping with `context` and `choices`."""
        if not isinstance(value, Mapping):
            raise InputError(
                f"Item {index} is a {type(value).__name__}; a mapping with 'context' and 'choices' "
                "is expected."
            )
        choices = _checked_choices(value.get("context"), value.get("choices"), f"Item {index}")
        return Row({"context": value["context"], "choices": choices}, "items", index + 1)

    def texts(self, row: Row, clean: Cleaning | None) -> list[Text]:
        """Return the context with each choice."""
        return [(row.values["context"], choice) for choice in row.values["choices"]]

    def with_labels(self, task: Task, rows: Sequence[Row], answers: Sequence[Row]) -> Task:
        """Return the task with the number of choices."""
        return task.fit(rows)

    def complete(self, spec: TaskSpec, row: Row, answer: Row) -> Prediction:
        """Return `choice` and `scores`; a missing choice is the one with the highest score."""
        count, where = len(row.values["choices"]), answer.where
        choice, scores = answer.values.get("choice"), answer.values.get("scores")
        if choice is None and scores is None:
            raise InputError(f"{where}: a prediction needs 'choice', 'scores', or both.")
        if scores is not None:
            scores = _probabilities(scores, count, where)
            choice = scores.index(max(scores)) if choice is None else choice
        number = _whole_number(choice)
        if number is None or not 0 <= number < count:
            raise InputError(f"{where}: the choice is not a number from 0 to {count - 1}.")
        return {"choice": number, "scores": scores}

    def findings(
        self, task: Task, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Yield choices that are empty or repeated."""
        for row in rows:
            choices = row.values["choices"]
            if not all(choice.strip() for choice in choices):
                yield Finding("warning", "empty_choice", "Rows with an empty choice.", row.where)
            if len(set(choices)) < len(choices):
                message = "Rows that offer one choice twice."
                yield Finding("warning", "repeated_choice", message, row.where)


def _checked_choices(context: Any, choices: Any, where: str) -> list[str]:
    """Return the choices; check that context and choices are texts."""
    is_list = isinstance(choices, list | tuple | np.ndarray) and len(choices) >= 2
    if not isinstance(context, str) or not is_list or not all(isinstance(c, str) for c in choices):
        raise InputError(f"{where}: expected a context, a text, and a list of two or more choices.")
    return list(choices)


def _whole_number(value: Any) -> int | None:
    """Return a whole number, also of 2.0 or the text "2"; None for anything else."""
    number = as_number(value)
    return int(number) if number.is_integer() else None


def _probabilities(scores: Any, count: int, where: str) -> list[float]:
    try:
        values = [float(score) for score in scores]
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: the scores are not a list of numbers.") from error
    if len(values) != count:
        raise InputError(f"{where}: {len(values)} scores for {count} choices.")
    if not all(0.0 <= value <= 1.0 for value in values):
        raise InputError(f"{where}: a score is not a probability from 0 to 1.")
    return values


CHOICES = ContextsWithChoices()


@dataclass(frozen=True)
class MultipleChoice:
    """One choice of several: a score for each pair of context and choice, a softmax over a row.

    Source: Devlin et al. 2019, section 4.4.

    Attributes:
        num_choices: of every labelled row; None until `fit`. A row to predict may have any number.
    """

    num_choices: int | None = None
    on_overflow: str = "truncate"

    def __post_init__(self) -> None:
        count = self.num_choices
        if count is not None and (not isinstance(count, int) or count < 2):
            raise ValueError(f"num_choices is {count!r}; it must be 2 or more")
        if self.on_overflow not in _RULES:
            raise ConfigError(
                f"on_overflow is {self.on_overflow!r}; multiple_choice scores pairs of texts and "
                f"takes {' or '.join(_RULES)}."
            )

    @cached_property
    def spec(self) -> TaskSpec:
        """A choice has no name beyond its row, so there are no labels."""
        return TaskSpec(
            name="multiple_choice",
            row_format=CHOICES,
            head_kind="choices",
            metric_names=("accuracy", "loss"),
            selection_metric="accuracy",
            on_overflow=self.on_overflow,
        )

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> MultipleChoice:
        """Create a task from options, before any row is read."""
        refuse_cleaning(options, "choices are read as written")
        return cls(on_overflow=options.on_overflow)

    def fit(self, rows: Iterable[Row]) -> MultipleChoice:
        """Learn how many choices each row has."""
        rows = list(rows)
        fitted = replace(self, num_choices=len(rows[0].values["choices"]))
        for row in rows:
            fitted.gold(row)
        return fitted

    def gold(self, row: Row) -> int:
        """Return the number of the right choice, from 0.

        A label is a number in range, or the text of exactly one choice.
        """
        choices: list[str] = row.values["choices"]
        if self.num_choices not in (None, len(choices)):
            raise InputError(
                f"{row.where}: {len(choices)} choices; the training rows have "
                f"{self.num_choices}, and all must have equally many. Fix the row, or drop it."
            )
        value: Any = row.values.get("label")
        number = _whole_number(value)
        if number is not None and 0 <= number < len(choices):
            return number
        if choices.count(value) != 1:
            raise InputError(
                f"{row.where}: label {printable(repr(value), 40)} is neither a number from 0 to "
                f"{len(choices) - 1} nor the text of exactly one choice."
            )
        return choices.index(value)

    examples = text_examples

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return int64 (R,) numbers of the right choices; groups: the choices of each row."""
        return row_targets(examples, np.int64)

    def count(self, targets: Targets) -> float:
        """Return R."""
        return float(len(targets.values))

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Return the sum over the rows of the cross-entropy among each row's scores (S,)."""
        assert targets.groups is not None
        table = table_of_groups(output.float(), targets.groups)
        return F.cross_entropy(table, targets.values, reduction="sum")

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """Return the likeliest `choice` of each row, and the probabilities of all as `scores`."""
        groups = rows_of(examples)
        table = table_of_groups(torch.stack(list(outputs)).double(), groups).softmax(-1)
        lengths = lengths_of(examples)
        return [
            {"choice": int(row.argmax()), "scores": row[:size].tolist()} | length
            for row, size, length in zip(table, groups, lengths, strict=True)
        ]

    calibrate = uncalibrated

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return `accuracy`, and `loss` where every prediction has its scores."""
        chosen = np.array([prediction["choice"] for prediction in predictions])
        scores = [prediction.get("scores") for prediction in predictions]
        if any(row is None for row in scores):
            return {"accuracy": float(np.mean(chosen == np.asarray(gold))), "loss": None}
        metrics = multiclass_metrics(gold, np.array(scores), predicted=chosen)
        return {"accuracy": metrics["accuracy"], "loss": metrics["loss"]}


TASK = MultipleChoice
