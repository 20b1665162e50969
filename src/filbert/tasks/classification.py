"""Classification: one label per text or pair (two classes or more), or any number (multi-label).

S rows in the batch, C labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, lengths_of, rows_of
from filbert.data.findings import Finding
from filbert.data.labels import (
    answer,
    check_names,
    class_weights,
    complete_answer,
    has_list,
    label_order,
    labels_in,
    listed,
    loss_weights,
)
from filbert.data.overflow import check_rule, row_examples
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import Text, has_lists_of_labels, read_texts, text_of, text_row
from filbert.errors import ConfigError, InputError
from filbert.metrics import calibration
from filbert.metrics.classification import prediction_metrics
from filbert.model.config import EncoderConfig
from filbert.model.heads import Head, new_head
from filbert.model.pooling import mean_of_groups
from filbert.tasks.base import Column, Prediction, Targets, TaskOptions
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Tokenizer

COLUMNS = (
    Column("text", True, "the text"),
    Column("text_pair", False, "a second text, for pairs"),
    Column("label", False, "the label"),
    Column("labels", False, "the labels of a multi-label row: a list, or names between commas"),
)


@dataclass(frozen=True)
class Classification:
    """One label, or several, for a text or a pair of texts.

    Attributes:
        labels: by id; None until `fit_labels`.
        multilabel: sigmoid per label instead of one softmax.
        positive: the class whose score is judged, for two labels.
        label_columns: read 0/1 columns instead of `labels`.
        class_weights: as the user asked: None, "balanced" or a number per label.
        loss_weights: the numbers in force, one per label: of a row's class (softmax) or of a row
            that has the label (sigmoid).
        thresholds: a label is given when its probability reaches this; one number for the positive
            class of two labels, one per label for multi-label, none for more (the likeliest wins).
        temperature: logits are divided by it before they become probabilities (Guo et al. 2017).
        declared: whether the labels were given by the user rather than found in the rows.
        on_overflow: what happens to texts that are too long; a key of data.overflow.RULES.
        stride: tokens from window to window.
        clean: what the texts go through before they become tokens.
    """

    labels: tuple[str, ...] | None = None
    multilabel: bool = False
    positive: str | None = None
    label_columns: tuple[str, ...] | None = None
    class_weights: str | tuple[float, ...] | None = None
    loss_weights: tuple[float, ...] | None = None
    thresholds: tuple[float, ...] | None = None
    temperature: float = 1.0
    declared: bool = False
    on_overflow: str = "truncate"
    stride: int = 128
    clean: Cleaning | None = None

    def __post_init__(self) -> None:
        texts = (*(self.labels or ()), *(self.label_columns or ()))
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("labels must be texts")
        if self.positive is not None and self.labels and self.positive not in self.labels:
            raise ConfigError(
                f"--positive {self.positive!r}: the labels are {listed(self.labels)}."
            )
        if not 0.0 < self.temperature < float("inf"):
            raise ValueError(f"temperature {self.temperature} is not above zero")
        count = len(self.labels or ()) if self.multilabel else 1
        if self.thresholds is not None and (
            len(self.thresholds) != count or not all(0 <= t <= 1 for t in self.thresholds)
        ):
            raise ValueError(f"thresholds {self.thresholds} are not {count} numbers from 0 to 1")

    name = "classification"
    columns = COLUMNS
    head_kind = "sequence"
    loss_names = ("loss",)
    whole_batch = False
    labels_are_classes = True

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Classification:
        """A task that knows what the user said and no row yet."""
        labels = names.declared_labels(options.labels, multilabel=options.multilabel)
        check_rule(options.on_overflow, options.stride)
        return cls(
            labels=labels,
            multilabel=options.multilabel or bool(names.label_columns),
            positive=options.positive,
            label_columns=names.label_columns,
            class_weights=class_weights(options.class_weights),
            declared=bool(labels),
            on_overflow=options.on_overflow,
            stride=options.stride,
            clean=Cleaning.parse(options.clean),
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Classification:
        """The task that filbert.json describes.

        Raises:
            ValueError, TypeError: it cannot be one.
        """
        known: dict[str, Any] = {f: content[f] for f in cls.__dataclass_fields__ if f in content}
        known = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
        return cls(**known | {"clean": Cleaning.parse(content.get("clean"))})

    def to_dict(self) -> dict[str, Any]:
        """For filbert.json."""
        return {"name": self.name, **asdict(self), "clean": self.clean and self.clean.names}

    @property
    def num_labels(self) -> int | None:
        """C; None until `fit_labels`."""
        return len(self.labels) if self.labels else None

    @property
    def windows(self) -> bool:
        """Whether long texts are read whole."""
        return self.on_overflow == "window"

    @property
    def problem_type(self) -> str:
        """As Hugging Face's config.json names it."""
        return "multi_label_classification" if self.multilabel else "single_label_classification"

    @property
    def is_binary(self) -> bool:
        """One label of two."""
        return not self.multilabel and self.num_labels == 2

    @property
    def positive_id(self) -> int:
        """Id of the positive class of two: the named one, else the second."""
        assert self.labels is not None
        return self.labels.index(self.positive) if self.positive else 1

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The figures that a best step can be chosen by."""
        if self.multilabel:
            return ("micro_f1", "macro_f1", "roc_auc", "pr_auc", "loss")
        if self.is_binary:
            return ("accuracy", "f1", "precision", "recall", "mcc", "roc_auc", "pr_auc", "loss")
        return ("accuracy", "macro_f1", "weighted_f1", "loss")

    @property
    def selection_metric(self) -> str:
        """What the best step is chosen by: free of a threshold where there is one."""
        if self.multilabel:
            return "pr_auc"
        return "roc_auc" if self.is_binary else "accuracy"

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """Rows with `text`, maybe `text_pair`, and a label, a list of them, or 0/1 columns."""
        if not labelled:
            return read_texts(path, names, on_error=on_error)
        if self.label_columns and not has_lists_of_labels(path, names, self.label_columns):
            return read_texts(path, names, extra=self.label_columns, on_error=on_error)
        several = self.multilabel or (self.labels is None and has_lists_of_labels(path, names))
        wanted = "labels" if several else "label"
        return read_texts(path, names, wanted, on_error=on_error)

    def row(self, item: Any, index: int) -> Row:
        """A text or a pair."""
        return text_row(item, index)

    def sequences(self, row: Row) -> list[Text]:
        """The text or the pair."""
        return [text_of(row, self.clean)]

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Nothing beyond what all tasks share."""
        return iter(())

    def fit_labels(self, rows: Iterable[Row]) -> Classification:
        """Find the labels (unless declared), whether there are several, and the class weights."""
        counts: dict[str, int] = {}
        num_rows, multilabel = 0, self.multilabel
        for row in rows:
            num_rows += 1
            multilabel = multilabel or has_list(row)
            for label in self.labels_of(row):
                counts[label] = counts.get(label, 0) + 1
        labels = (
            self.labels if self.declared and self.labels else tuple(sorted(counts, key=label_order))
        )
        found = np.array([counts.get(label, 0) for label in labels], dtype=float)
        check_names(labels, found, num_rows, multilabel=multilabel)
        if self.positive is not None and (self.positive not in labels or len(labels) != 2):
            raise ConfigError(f"--positive {self.positive!r}: the labels are {list(labels)}.")
        weights = loss_weights(self.class_weights, labels, found, num_rows, multilabel=multilabel)
        return replace(self, labels=labels, multilabel=multilabel, loss_weights=weights)

    def labels_of(self, row: Row) -> list[str]:
        """The label names of a row: exactly one, or any number for multi-label.

        Raises:
            InputError: no label, or one that was not declared; with file and line.
        """
        several = self.multilabel or has_list(row)
        columns = self.label_columns
        if columns and columns[0] not in row.values and has_list(row):
            columns = None
        found = labels_in(row, columns, multilabel=several)
        if self.labels is not None:
            for label in found:
                if label not in self.labels:
                    raise InputError(
                        f"{row.where}: label {label!r} is not one of {listed(self.labels)}. "
                        "Fix the row; when training, --labels declares one that no row has."
                    )
        return found

    def gold(self, row: Row) -> int | np.ndarray:
        """Id of the row's label; for multi-label a bool array (C,)."""
        assert self.labels is not None
        found = self.labels_of(row)
        if self.multilabel:
            return np.array([label in found for label in self.labels])
        return self.labels.index(found[0])

    def gold_json(self, gold: Any) -> str | list[str]:
        """The name of a label, or those of several."""
        assert self.labels is not None
        if isinstance(gold, np.ndarray):
            return [label for label, yes in zip(self.labels, gold, strict=True) if yes]
        name: str = self.labels[gold]
        return name

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
        """int64 (R,) ids, or float32 (R, C) for multi-label; groups: the windows of each row."""
        groups = rows_of(examples)
        firsts = np.cumsum([0, *groups[:-1]])
        values = np.stack([np.asarray(examples[first].target) for first in firsts])
        kind = np.float32 if self.multilabel else np.int64
        return Targets(torch.from_numpy(values.astype(kind)), groups=groups)

    def count(self, targets: Targets) -> float:
        """S, or S * C for multi-label: every label is a loss of its own."""
        return float(targets.values.numel())

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Sum of the cross-entropies of logits (S, C), weighted when class weights are in force."""
        logits = mean_of_groups(output.float(), targets.groups or ())
        weights = None if self.loss_weights is None else logits.new_tensor(self.loss_weights)
        if self.multilabel:
            return F.binary_cross_entropy_with_logits(
                logits, targets.values, pos_weight=weights, reduction="sum"
            )
        return F.cross_entropy(logits, targets.values, weight=weights, reduction="sum")

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """Labels by the stored thresholds, with all probabilities."""
        assert self.labels is not None
        groups = rows_of(examples)
        logits = mean_of_groups(torch.stack(list(outputs)), groups).numpy()
        table = calibration.probabilities(logits, self.temperature, multilabel=self.multilabel)
        positive = self.positive_id if self.is_binary else None
        return [
            answer(row, self.labels, self.thresholds, multilabel=self.multilabel, positive=positive)
            | length
            for row, length in zip(table, lengths_of(examples, groups), strict=True)
        ]

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> Classification:
        """Fit the temperature, then the thresholds that maximise F1 at that temperature."""
        merged = mean_of_groups(torch.stack(list(outputs)), rows_of(examples))
        temperature, thresholds = calibration.fit(
            merged.double().numpy(),
            np.stack([np.asarray(g) for g in gold]),
            multilabel=self.multilabel,
            positive=self.positive_id if self.is_binary else None,
        )
        return replace(self, temperature=temperature, thresholds=thresholds)

    def files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """None."""
        return {}

    def reading(self, names: ColumnNames) -> Classification:
        """Multi-label rows may come as 0/1 columns or as lists, whatever training read."""
        if names.merge:
            names.merge.require_labels(None if self.multilabel else self.labels)
        if not self.multilabel:
            if names.label_columns:
                raise ConfigError(
                    "--label-columns is for multi-label models; this one gives one label."
                )
            return self
        columns = names.label_columns or (None if names.label_column else self.label_columns)
        if columns is not None and set(columns) != set(self.labels or ()):
            raise ConfigError(
                f"--label-columns names {listed(columns)}; "
                f"the labels are {listed(self.labels or ())}."
            )
        return replace(self, label_columns=columns)

    def with_labels_of(
        self, rows: Iterable[Row], predictions: Iterable[Mapping[str, Any]]
    ) -> Classification:
        """The labels in either, unless they were declared."""
        if self.declared:
            return self
        rows = list(rows)
        multilabel = self.multilabel or any(map(has_list, rows))
        found = {label for row in rows for label in self.labels_of(row)}
        for prediction in predictions:
            scores = prediction.get("scores")
            found |= {str(label) for label in scores} if isinstance(scores, dict) else set()
        if len(found) < 2 and not multilabel:
            raise InputError(
                f"Rows and predictions name {len(found)} label; name all of them with --labels."
            )
        labels = tuple(sorted(found, key=label_order))
        return replace(self, labels=labels, multilabel=multilabel)

    def check_prediction(self, prediction: Mapping[str, Any], where: str) -> Prediction:
        """A prediction with all `scores`; one that names only its label is taken as sure of it."""
        assert self.labels is not None
        return complete_answer(prediction, where, self.labels, multilabel=self.multilabel)

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The figures of INTERFACE, from predictions with their `scores`."""
        assert self.labels is not None
        return prediction_metrics(
            self.labels,
            gold,
            predictions,
            multilabel=self.multilabel,
            positive=self.positive_id if self.is_binary else None,
            thresholds=self.thresholds,
        )


TASK = Classification
