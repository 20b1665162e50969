"""Regression: one number for a text or a pair of texts, such as the similarity of two sentences.

S sequences (windows), R rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, check_overflow, lengths_of
from filbert.data.records import Row
from filbert.data.texts import as_number, read_texts
from filbert.errors import InputError, printable
from filbert.metrics.similarity import regression_metrics
from filbert.model.pooling import ACTIVATIONS, mean_of_groups
from filbert.tasks.base import Prediction, RowSource, Targets, TaskOptions, TaskSpec, uncalibrated
from filbert.tasks.rows import TextRows, row_outputs, row_targets, score_of, text_examples
from filbert.text.clean import Cleaning


class ScoredTexts(TextRows):
    """Texts with a number."""

    name = "scored"
    recognises = "number"
    no_label_columns = "a regression reads one score a row. Name its column with --label-column"

    def read(self, spec: TaskSpec, source: RowSource) -> Iterator[Row]:
        """Yield rows with `label` if they are labelled."""
        wanted = ("label",) if source.labelled else ()
        return read_texts(source.path, source.names, *wanted, on_error=source.on_error)

    def complete(self, spec: TaskSpec, row: Row, answer: Row) -> Prediction:
        """Return `value` as a float."""
        if "value" not in answer.values:
            raise InputError(f"{answer.where}: a prediction needs 'value', a number.")
        score = as_number(answer.values["value"])
        if not abs(score) <= float(np.finfo(np.float32).max):
            value = printable(repr(answer.values["value"]), 40)
            raise InputError(f"{answer.where}: the value {value} is not a number.")
        return {"value": score}


SCORED = ScoredTexts()


@dataclass(frozen=True)
class Regression:
    """Predict a number for a text or a pair of texts, unscaled (mean squared error).

    Attributes:
        on_overflow: one of data.examples.OVERFLOW_RULES. The number of a row with several windows
            is the mean of theirs, in training too.
        activation: of the numbers that are predicted, a key of model.pooling.ACTIVATIONS. Models
            that filbert trains have none ("Identity"), and cross-encoders mostly "Sigmoid".
    """

    on_overflow: str = "truncate"
    stride: int = 128
    clean: Cleaning | None = None
    activation: str = "Identity"

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation {self.activation!r}")
        check_overflow(self.on_overflow, self.stride)

    @cached_property
    def spec(self) -> TaskSpec:
        """The best step is chosen by the rank correlation, as the BERT paper reports STS-B.

        Ranks ignore a scale that still moves early in training and a few extreme scores.
        """
        return TaskSpec(
            name="regression",
            row_format=SCORED,
            head_kind="sequence",
            metric_names=("pearson", "spearman", "mse"),
            selection_metric="spearman",
            num_labels=1,
            problem_type="regression",
            on_overflow=self.on_overflow,
            stride=self.stride,
            clean=self.clean,
            cleans=True,
        )

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Regression:
        """Create a task from options, before any row is read."""
        return cls(options.on_overflow, options.stride, Cleaning.parse(options.clean))

    def fit(self, rows: Iterable[Row]) -> Regression:
        """Make sure that there is something to learn."""
        scores = {self.gold(row) for row in rows}
        if len(scores) == 1:
            raise InputError(
                f"All training rows have the score {scores.pop():g}; there is nothing to learn "
                "from them."
            )
        return self

    def gold(self, row: Row) -> float:
        """Return the row's score."""
        advice = "Write scores as in 3.5. For labels that are words: --task classification."
        score = score_of(row, advice)
        if score is None:
            raise InputError(f"{row.where}: no label. Fill the column, or drop the row.")
        return score

    examples = text_examples

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return float32 (R,) scores; groups: the windows of each row."""
        return row_targets(examples, np.float32)

    def count(self, targets: Targets) -> float:
        """Return R."""
        return float(len(targets.values))

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Return the sum of the squared errors of outputs (S, 1)."""
        scores = mean_of_groups(output.float().squeeze(-1), targets.groups or ())
        return F.mse_loss(scores, targets.values, reduction="sum")

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """Return the score of each row as `value`."""
        scores = ACTIVATIONS[self.activation](row_outputs(outputs, examples)).squeeze(-1).tolist()
        lengths = lengths_of(examples)
        return [{"value": s} | length for s, length in zip(scores, lengths, strict=True)]

    calibrate = uncalibrated

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return the correlations and the mean squared error."""
        return dict(regression_metrics(gold, [prediction["value"] for prediction in predictions]))


TASK = Regression
