"""Regression: one number for a text or a pair of texts, such as how alike two sentences are.

S sequences (windows), R rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, lengths_of, rows_of
from filbert.data.findings import Finding
from filbert.data.overflow import RULES, check_rule, row_examples
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import Text, read_texts, text_of, text_row
from filbert.errors import InputError, printable
from filbert.metrics.similarity import regression_metrics
from filbert.model.config import EncoderConfig
from filbert.model.heads import Head, new_head
from filbert.model.pooling import mean_of_groups
from filbert.tasks.base import Column, Prediction, Targets, TaskOptions
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Tokenizer

_LARGEST = float(np.finfo(np.float32).max)


def score_in(value: Any) -> float | None:
    """A score as a float; None for what is no finite number of float32, such as "abc" or True."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, str | Real | Decimal):
        return None
    # Python reads "1_5" as 15; in a file that is a slip.
    if isinstance(value, str) and "_" in value:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= _LARGEST else None


@dataclass(frozen=True)
class Regression:
    """A number for a text or a pair of texts, learnt as it stands in the file (mean squared error).

    Attributes:
        on_overflow: what happens to texts that are too long; one of data.overflow.RULES. The number
            of a row that became windows is the mean of theirs, in training too.
        stride: tokens from window to window.
        clean: what the texts go through before they become tokens.
    """

    on_overflow: str = "truncate"
    stride: int = 128
    clean: Cleaning | None = None

    def __post_init__(self) -> None:
        if self.on_overflow not in RULES or not isinstance(self.stride, int):
            raise ValueError(f"on_overflow {self.on_overflow!r}, stride {self.stride!r}")

    name = "regression"
    columns = (
        Column("text", True, "the text"),
        Column("text_pair", False, "a second text, for pairs"),
        Column("label", False, "the score: a number"),
    )
    head_kind = "sequence"
    num_labels = 1
    problem_type = "regression"
    # As the BERT paper reports STS-B. Ranks forgive a scale that is still moving early in training,
    # and a few extreme scores do not decide which step is best.
    selection_metric = "spearman"
    metric_names = ("pearson", "spearman", "mse")
    loss_names = ("loss",)
    whole_batch = False
    labels_are_classes = False

    @property
    def labels(self) -> None:
        """None: a number has no name."""
        return None

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Regression:
        """A task that knows what the user said."""
        check_rule(options.on_overflow, options.stride)
        clean = Cleaning.parse(options.clean)
        return cls(options.on_overflow, options.stride, clean).reading(names)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Regression:
        """The task that filbert.json describes.

        Raises:
            ValueError, TypeError: it cannot be one.
        """
        known = {f: content[f] for f in cls.__dataclass_fields__ if f in content}
        return cls(**known | {"clean": Cleaning.parse(content.get("clean"))})

    @property
    def windows(self) -> bool:
        """Whether long texts are read whole."""
        return self.on_overflow == "window"

    def to_dict(self) -> dict[str, Any]:
        """For filbert.json."""
        return {"name": self.name, **asdict(self), "clean": self.clean and self.clean.names}

    # Rows

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """Rows with `text`, maybe `text_pair`, and a `label`."""
        wanted = ("label",) if labelled else ()
        return read_texts(path, names, *wanted, on_error=on_error)

    def row(self, item: Any, index: int) -> Row:
        """A text or a pair."""
        return text_row(item, index)

    def sequences(self, row: Row) -> list[Text]:
        """The text or the pair."""
        return [text_of(row, self.clean)]

    def fit_labels(self, rows: Iterable[Row]) -> Regression:
        """Make sure that there is something to learn.

        Raises:
            InputError: a score is no number (with file and line), or all are equal.
        """
        lowest, highest = math.inf, -math.inf
        for row in rows:
            score = self.gold(row)
            lowest, highest = min(lowest, score), max(highest, score)
        if not lowest < highest:
            raise InputError(
                f"All training rows have the score {lowest:g}; there is nothing to learn from them."
                if lowest == highest
                else "There is no training row."
            )
        return self

    def labels_of(self, row: Row) -> list[str]:
        """[], once the score is seen to be a number."""
        self.gold(row)
        return []

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Nothing beyond what all tasks share."""
        return iter(())

    def gold(self, row: Row) -> float:
        """The row's score.

        Raises:
            InputError: there is none, or it is no number; with file and line.
        """
        value = row.values.get("label")
        if value is None or (isinstance(value, str) and not value.strip()):
            raise InputError(f"{row.where}: no label. Fill the column, or drop the row.")
        score = score_in(value)
        if score is None:
            raise InputError(
                f"{row.where}: label {printable(repr(value), 40)} is not a number. "
                "Write scores as in 3.5, or drop the row."
            )
        return score

    def gold_json(self, gold: Any) -> float:
        """The score."""
        return float(gold)

    # Training

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """One sequence a row, or one a window."""
        return row_examples(
            rows,
            [self.gold(row) if with_targets else None for row in rows],
            tokenizer,
            max_length=max_length,
            rule=self.on_overflow,
            stride=self.stride,
            clean=self.clean,
        )

    def head(self, config: EncoderConfig) -> Head:
        """A fresh linear layer on the pooled vector."""
        return new_head(self.head_kind, config, self.num_labels)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """float32 (R,) scores; groups: the windows of each row."""
        groups = rows_of(examples)
        firsts = np.cumsum([0, *groups[:-1]])
        scores = [float(examples[first].target) for first in firsts]
        return Targets(torch.tensor(scores, dtype=torch.float32), groups=groups)

    def count(self, targets: Targets) -> float:
        """R."""
        return float(len(targets.values))

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Sum of the squared errors of outputs (S, 1)."""
        scores = mean_of_groups(output.float().squeeze(-1), targets.groups or ())
        return F.mse_loss(scores, targets.values, reduction="sum")

    # Prediction

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """The score of each row as `value`."""
        groups = rows_of(examples)
        scores = mean_of_groups(torch.stack(list(outputs)).squeeze(-1), groups).tolist()
        lengths = lengths_of(examples, groups)
        return [{"value": s} | length for s, length in zip(scores, lengths, strict=True)]

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> Regression:
        """Nothing to fit."""
        return self

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The figures of INTERFACE: correlations and the mean squared error."""
        return dict(regression_metrics(gold, [prediction["value"] for prediction in predictions]))

    def files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """None."""
        return {}

    # Evaluation of rows and predictions from elsewhere

    def reading(self, names: ColumnNames) -> Regression:
        """Itself.

        Raises:
            ConfigError: 0/1 columns were named, and there are no labels here.
        """
        names.refuse_label_columns(
            "a regression reads one score a row. Name its column with --label-column"
        )
        return self

    def with_labels_of(
        self, rows: Iterable[Row], predictions: Iterable[Mapping[str, Any]]
    ) -> Regression:
        """Itself: there are no labels."""
        return self

    def check_prediction(self, prediction: Mapping[str, Any], where: str) -> Prediction:
        """Its `value` as a float.

        Raises:
            InputError: it is missing or no number, with file and line.
        """
        if "value" not in prediction:
            raise InputError(f"{where}: a prediction needs 'value', a number.")
        score = score_in(prediction["value"])
        if score is None:
            raise InputError(
                f"{where}: the value {printable(repr(prediction['value']), 40)} is not a number."
            )
        return {"value": score}


TASK = Regression
