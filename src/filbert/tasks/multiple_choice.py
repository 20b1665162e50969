"""Multiple choice: which of several continuations or answers goes with a context.

S sequences (one per choice), R rows, C the choices of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, lengths_of, rows_of
from filbert.data.findings import Finding
from filbert.data.overflow import check_rule, encode_rows
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import (
    Text,
    check_choice_columns,
    checked_choices,
    choices_of,
    chosen_index,
    counted,
    label_is_ambiguous,
    read_choices,
    whole_number,
)
from filbert.errors import ConfigError, InputError
from filbert.metrics.classification import multiclass_metrics
from filbert.model.config import EncoderConfig
from filbert.model.heads import Head, new_head
from filbert.model.pooling import table_of_groups
from filbert.tasks.base import Column, Prediction, Targets, TaskOptions, refuse_cleaning
from filbert.text.tokenizer import Tokenizer

_RULES = ("error", "truncate")


@dataclass(frozen=True)
class MultipleChoice:
    """One choice of several: a score for each pair of context and choice, a softmax over a row.

    Source: Devlin et al. 2019, section 4.4.

    Attributes:
        num_choices: of every labelled row; None until `fit_labels`. A row to predict may have any
            number.
        on_overflow: what happens to pairs that are too long: error or truncate.
    """

    num_choices: int | None = None
    on_overflow: str = "truncate"

    def __post_init__(self) -> None:
        count = self.num_choices
        if count is not None and (not isinstance(count, int) or count < 2):
            raise ValueError(f"num_choices is {count!r}; it must be 2 or more")
        if self.on_overflow not in _RULES:
            raise ValueError(f"on_overflow is {self.on_overflow!r}")

    name = "multiple_choice"
    columns = (
        Column("context", True, "what the choices go with"),
        Column("choices", True, "a list of texts, or one column per choice"),
        Column("label", False, "the right choice: its number from 0, or its text"),
    )
    head_kind = "choices"
    selection_metric = "accuracy"
    metric_names = ("accuracy", "loss")
    loss_names = ("loss",)
    whole_batch = False
    labels_are_classes = False
    windows = False

    @property
    def num_labels(self) -> None:
        """None: the head gives one score a sequence."""
        return None

    @property
    def labels(self) -> None:
        """None: a choice's number means nothing beyond its row."""
        return None

    @property
    def problem_type(self) -> None:
        """None: Hugging Face has no name for it."""
        return None

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> MultipleChoice:
        """A task that has not seen how many choices there are."""
        refuse_cleaning(options, "choices are read as they stand")
        check_rule(options.on_overflow)
        if options.on_overflow not in _RULES:
            raise ConfigError(
                f"on_overflow is {options.on_overflow!r}; multiple_choice scores pairs of texts "
                f"and takes {' or '.join(_RULES)}."
            )
        return cls(on_overflow=options.on_overflow).reading(names)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> MultipleChoice:
        """The task that filbert.json describes.

        Raises:
            ValueError, TypeError: it cannot be one.
        """
        return cls(**{f: content[f] for f in cls.__dataclass_fields__ if f in content})

    def to_dict(self) -> dict[str, Any]:
        """For filbert.json."""
        return {"name": self.name, **asdict(self)}

    # Rows

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """Rows with `context`, `choices` and `label`; labelled rows have equally many choices.

        Before `fit_labels` that is the number of the file's first row.
        """
        expected = self.num_choices

        def check(row: Row) -> None:
            nonlocal expected
            found = len(choices_of(row))
            expected = expected or found
            if labelled:
                _check_count(row, found, expected, is_models=bool(self.num_choices))

        return read_choices(path, names, labelled=labelled, check=check, on_error=on_error)

    def row(self, item: Any, index: int) -> Row:
        """A mapping with `context` and `choices`."""
        if not isinstance(item, Mapping):
            raise InputError(
                f"Item {index} is a {type(item).__name__}; a mapping with 'context' and 'choices' "
                "is wanted."
            )
        choices = checked_choices(item.get("context"), item.get("choices"), f"Item {index}")
        return Row({"context": item["context"], "choices": choices}, "items", index + 1)

    def sequences(self, row: Row) -> list[Text]:
        """The context with each choice, C pairs."""
        return [(row.values["context"], choice) for choice in row.values["choices"]]

    def fit_labels(self, rows: Iterable[Row]) -> MultipleChoice:
        """Learn how many choices each row has.

        Raises:
            InputError: a row has another number than the first, or a wrong label; with file and
                line.
        """
        fitted = replace(self, num_choices=None)
        for row in rows:
            if fitted.num_choices is None:
                fitted = replace(fitted, num_choices=len(choices_of(row)))
            fitted.labels_of(row)
        if fitted.num_choices is None:
            raise InputError("There is no training row.")
        return fitted

    def labels_of(self, row: Row) -> list[str]:
        """[], once the label is seen to be one of the row's choices."""
        self.gold(row)
        return []

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
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

    def gold(self, row: Row) -> int:
        """The number of the right choice, from 0.

        Raises:
            InputError: there is none, or the row has another number of choices; with file and line.
        """
        choices = choices_of(row)
        _check_count(row, len(choices), self.num_choices or len(choices), is_models=True)
        return chosen_index(row, choices)

    def gold_json(self, gold: Any) -> int:
        """The number of the choice."""
        return int(gold)

    # Training

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """One sequence a choice: the context, then the choice."""
        pairs = [self.sequences(row) for row in rows]
        pieces = encode_rows(
            [row for row, choices in zip(rows, pairs, strict=True) for _ in choices],
            list(chain.from_iterable(pairs)),
            tokenizer,
            max_length=max_length,
            rule=self.on_overflow,
            stride=1,
        )
        encodings = chain.from_iterable(pieces)
        made = []
        for i, (row, choices) in enumerate(zip(rows, pairs, strict=True)):
            target = self.gold(row) if with_targets else None
            mine = [next(encodings) for _ in choices]
            longest = max(e.num_tokens for e in mine)
            made += [
                Example(i, e.input_ids, e.token_type_ids, e.num_tokens, target, row_tokens=longest)
                for e in mine
            ]
        return made

    def head(self, config: EncoderConfig) -> Head:
        """A fresh vector that gives each pooled sequence its score."""
        return new_head(self.head_kind, config)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """int64 (R,) numbers of the right choices; groups: the choices of each row."""
        groups = rows_of(examples)
        firsts = accumulate(groups[:-1], initial=0)
        values = torch.tensor([examples[first].target for first in firsts], dtype=torch.int64)
        return Targets(values, groups=groups)

    def count(self, targets: Targets) -> float:
        """R."""
        return float(len(targets.values))

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Sum over the rows of the cross-entropy among each row's scores (S,)."""
        assert targets.groups is not None
        table = table_of_groups(output.float(), targets.groups)
        return F.cross_entropy(table, targets.values, reduction="sum")

    # Prediction

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """The likeliest `choice` of each row, and the probabilities of all as `scores`."""
        groups = rows_of(examples)
        table = table_of_groups(torch.stack(list(outputs)).double(), groups).softmax(-1)
        lengths = lengths_of(examples, groups)
        return [
            {"choice": int(row.argmax()), "scores": row[:size].tolist()} | length
            for row, size, length in zip(table, groups, lengths, strict=True)
        ]

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> MultipleChoice:
        """Nothing is fitted."""
        return self

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """`accuracy`, and `loss` where every prediction has its scores."""
        chosen = np.array([prediction["choice"] for prediction in predictions])
        scores = [prediction.get("scores") for prediction in predictions]
        if not scores:
            raise InputError("There is no row to measure.")
        if any(row is None for row in scores):
            return {"accuracy": float(np.mean(chosen == np.asarray(gold))), "loss": None}
        found = multiclass_metrics(gold, np.array(scores), predicted=chosen)
        return {"accuracy": found["accuracy"], "loss": found["loss"]}

    def files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """None."""
        return {}

    # Evaluation of rows and predictions from elsewhere

    def reading(self, names: ColumnNames) -> MultipleChoice:
        """Itself.

        Raises:
            ConfigError: the columns of the choices contradict each other or the model.
        """
        names.refuse_label_columns("a row names one of its choices, see --label-column")
        check_choice_columns(names)
        columns = names.choice_columns
        if columns and self.num_choices and len(columns) != self.num_choices:
            raise ConfigError(
                f"--choice-columns names {len(columns)} columns; the model was trained with "
                f"{counted(self.num_choices)}."
            )
        return self

    def with_labels_of(
        self, rows: Iterable[Row], predictions: Iterable[Mapping[str, Any]]
    ) -> MultipleChoice:
        """The task with the number of choices of the rows."""
        return self.fit_labels(rows)

    def check_prediction(self, prediction: Mapping[str, Any], where: str) -> Prediction:
        """Its `choice` and its `scores`; a missing choice is the one with the highest score.

        Raises:
            InputError: both are missing, or one is malformed; with file and line.
        """
        assert self.num_choices is not None
        given, scores = prediction.get("choice"), prediction.get("scores")
        if given is None and scores is None:
            raise InputError(f"{where}: a prediction needs 'choice', 'scores', or both.")
        if scores is not None:
            scores = _probabilities(scores, self.num_choices, where)
        choice = whole_number(given) if scores is None or given is not None else _best(scores)
        if choice is None or not 0 <= choice < self.num_choices:
            raise InputError(
                f"{where}: the choice is not a number from 0 to {self.num_choices - 1}."
            )
        return {"choice": choice, "scores": scores}


def _check_count(row: Row, found: int, expected: int, *, is_models: bool) -> None:
    if found != expected:
        other = "the training rows have" if is_models else "the first row has"
        raise InputError(
            f"{row.where}: {counted(found)}; {other} {expected}, and all must have equally many. "
            "Fix the row, or drop it."
        )


def _best(scores: list[float]) -> int:
    return scores.index(max(scores))


def _probabilities(scores: Any, count: int, where: str) -> list[float]:
    try:
        values = [float(score) for score in scores]
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: the scores are not a list of numbers.") from error
    if len(values) != count:
        raise InputError(f"{where}: {len(values)} scores for {counted(count)}.")
    if not all(0.0 <= value <= 1.0 for value in values):
        raise InputError(f"{where}: a score is not a probability from 0 to 1.")
    return values


TASK = MultipleChoice
