"""Classification: one label per text or pair (two classes or more), or any number (multi-label).

S rows in the batch, C labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data.answers import complete_answer
from filbert.data.columns import ColumnNames, text_of
from filbert.data.examples import Example
from filbert.data.labels import (
    is_set,
    label_name,
    label_order,
    listed,
    loss_weights,
    name_in,
    split_labels,
)
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError
from filbert.metrics import calibration, ranking
from filbert.metrics import classification as scores_of
from filbert.model.config import EncoderConfig
from filbert.model.heads import Head, new_head
from filbert.tasks.base import Column, Prediction, Targets, TaskOptions
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

    @classmethod
    def from_options(cls, options: TaskOptions) -> Classification:
        """A task that knows what the user said and no row yet."""
        labels = options.labels or options.label_columns
        if options.labels and options.label_columns:
            raise ConfigError(
                "--labels and --label-columns name the labels twice; give one of them."
            )
        if labels and len(set(labels)) < len(labels):
            raise ConfigError(f"the labels {list(labels)} name one label twice.")
        return cls(
            labels=tuple(labels) if labels else None,
            multilabel=options.multilabel or bool(options.label_columns),
            positive=options.positive,
            label_columns=options.label_columns,
            class_weights=options.class_weights,
            declared=bool(labels),
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Classification:
        """The task that filbert.json describes.

        Raises:
            ValueError, TypeError: it cannot be one.
        """
        known: dict[str, Any] = {f: content[f] for f in cls.__dataclass_fields__ if f in content}
        known = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        """For filbert.json."""
        return {"name": self.name, **asdict(self)}

    @property
    def num_labels(self) -> int | None:
        """C; None until `fit_labels`."""
        return len(self.labels) if self.labels else None

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

    # Labels

    def fit_labels(self, rows: Iterable[Row]) -> Classification:
        """Find the labels (unless declared) and the class weights in force."""
        counts: dict[str, int] = {}
        num_rows = 0
        for row in rows:
            num_rows += 1
            for label in self.labels_of(row):
                counts[label] = counts.get(label, 0) + 1
        labels = (
            self.labels if self.declared and self.labels else tuple(sorted(counts, key=label_order))
        )
        if len(labels) < 2 and not self.multilabel:
            raise InputError(
                f"The training rows hold {len(labels)} label ({', '.join(labels) or 'none'}); "
                f"a classifier needs at least two."
            )
        if not labels:
            raise InputError("The training rows hold no label at all.")
        if self.positive is not None and (self.positive not in labels or len(labels) != 2):
            raise ConfigError(f"--positive {self.positive!r}: the labels are {list(labels)}.")
        found = np.array([counts.get(label, 0) for label in labels], dtype=float)
        weights = loss_weights(
            self.class_weights, labels, found, num_rows, multilabel=self.multilabel
        )
        return replace(self, labels=labels, loss_weights=weights)

    def labels_of(self, row: Row) -> list[str]:
        """The label names of a row: exactly one, or any number for multi-label.

        Raises:
            InputError: no label, or one that was not declared; with file and line.
        """
        if self.label_columns:
            found = [name for name in self.label_columns if is_set(row, name)]
        elif self.multilabel:
            found = split_labels(row)
        else:
            value = row.values.get("label")
            if value is None or value == "":
                raise InputError(f"{row.where}: no label. Fill the column, or drop the row.")
            found = [name_in(row, value)]
        if self.labels is not None:
            for label in found:
                if label not in self.labels:
                    raise InputError(
                        f"{row.where}: label {label!r} is not one of {listed(self.labels)}. "
                        f"Fix the row, or declare the label with --labels."
                    )
        return found

    def gold(self, row: Row) -> int | np.ndarray:
        """Id of the row's label; for multi-label a bool array (C,)."""
        assert self.labels is not None
        found = self.labels_of(row)
        if self.multilabel:
            return np.array([label in found for label in self.labels])
        return self.labels.index(found[0])

    # Training

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """One sequence a row."""
        texts = [text_of(row) for row in rows]
        encodings = tokenizer.encode(texts, max_length=max_length)
        return [
            Example(
                i,
                e.input_ids,
                e.token_type_ids,
                e.num_tokens,
                self.gold(row) if with_targets else None,
            )
            for i, (row, e) in enumerate(zip(rows, encodings, strict=True))
        ]

    def head(self, config: EncoderConfig) -> Head:
        """A fresh linear layer on the pooled vector."""
        return new_head(self.head_kind, config, self.num_labels)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """int64 (S,) ids, or float32 (S, C) for multi-label."""
        values = np.stack([np.asarray(e.target) for e in examples])
        if self.multilabel:
            return Targets(torch.from_numpy(values.astype(np.float32)))
        return Targets(torch.from_numpy(values.astype(np.int64)))

    def count(self, targets: Targets) -> float:
        """S, or S * C for multi-label: every label is a loss of its own."""
        return float(targets.values.numel())

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Sum of the cross-entropies of logits (S, C), weighted when class weights are in force."""
        logits = output.float()
        weights = None if self.loss_weights is None else logits.new_tensor(self.loss_weights)
        if self.multilabel:
            return F.binary_cross_entropy_with_logits(
                logits, targets.values, pos_weight=weights, reduction="sum"
            )
        return F.cross_entropy(logits, targets.values, weight=weights, reduction="sum")

    # Prediction

    def probabilities(self, output: Tensor) -> np.ndarray:
        """float64 (S, C), after temperature."""
        logits = output.double() / self.temperature
        return (
            (torch.sigmoid(logits) if self.multilabel else torch.softmax(logits, -1)).cpu().numpy()
        )

    def decode(self, output: Tensor, examples: Sequence[Example]) -> list[Prediction]:
        """Labels by the stored thresholds, with all probabilities."""
        assert self.labels is not None
        probabilities = self.probabilities(output)
        if self.multilabel:
            chosen = probabilities >= np.asarray(self.thresholds or [0.5] * len(self.labels))
        else:
            chosen = self._likeliest(probabilities)
        predictions = []
        for i, example in enumerate(examples):
            answer: Prediction
            if self.multilabel:
                answer = {
                    "labels": [
                        label for label, yes in zip(self.labels, chosen[i], strict=True) if yes
                    ]
                }
            else:
                best = int(chosen[i])
                answer = {"label": self.labels[best], "score": float(probabilities[i, best])}
            answer["scores"] = {
                label: float(p) for label, p in zip(self.labels, probabilities[i], strict=True)
            }
            predictions.append(
                answer | {"truncated": example.truncated, "num_tokens": example.num_tokens}
            )
        return predictions

    def _likeliest(self, probabilities: np.ndarray) -> np.ndarray:
        if not (self.is_binary and self.thresholds):
            return np.asarray(probabilities.argmax(-1))
        positive = self.positive_id
        return np.where(probabilities[:, positive] >= self.thresholds[0], positive, 1 - positive)

    def calibrate(self, gold: Sequence[Any], outputs: Tensor) -> Classification:
        """Fit the temperature, then the thresholds that maximise F1 at that temperature."""
        wanted = np.stack([np.asarray(g) for g in gold])
        logits = outputs.double().cpu().numpy()
        temperature = calibration.fit_temperature(logits, wanted, multilabel=self.multilabel)
        fitted = replace(self, temperature=temperature)
        probabilities = fitted.probabilities(outputs)
        if self.multilabel:
            thresholds = tuple(
                ranking.best_f1_threshold(wanted[:, c], probabilities[:, c])
                for c in range(probabilities.shape[1])
            )
            return replace(fitted, thresholds=thresholds)
        if self.is_binary:
            positive = self.positive_id
            threshold = ranking.best_f1_threshold(wanted == positive, probabilities[:, positive])
            return replace(fitted, thresholds=(threshold,))
        return fitted

    def reading(self, names: ColumnNames) -> tuple[Classification, ColumnNames]:
        """Multi-label rows may come as 0/1 columns or as lists, whatever training read."""
        if not self.multilabel:
            if names.label_columns:
                raise ConfigError(
                    "--label-columns is for multi-label models; this one gives one label."
                )
            return self, names
        columns = names.label_columns or (None if names.label else self.label_columns)
        if columns is not None and set(columns) != set(self.labels or ()):
            raise ConfigError(
                f"--label-columns names {listed(columns)}; "
                f"the labels are {listed(self.labels or ())}."
            )
        settled = replace(names, label_columns=columns, multilabel=True)
        return replace(self, label_columns=columns), settled

    def with_labels_of(
        self, rows: Iterable[Row], predictions: Iterable[Mapping[str, Any]]
    ) -> Classification:
        """The labels in either, unless they were declared."""
        if self.declared:
            return self
        found = {label for row in rows for label in self.labels_of(row)}
        for prediction in predictions:
            scores = prediction.get("scores")
            found |= {str(label) for label in scores} if isinstance(scores, dict) else set()
        if len(found) < 2 and not self.multilabel:
            raise InputError(
                f"Rows and predictions name {len(found)} label; name all of them with --labels."
            )
        labels = tuple(sorted(found, key=label_order))
        return replace(self, labels=labels)

    def check_prediction(self, prediction: Mapping[str, Any], where: str) -> Prediction:
        """A prediction with all `scores`; one that names only its label is taken as sure of it."""
        assert self.labels is not None
        return complete_answer(prediction, where, self.labels, multilabel=self.multilabel)

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The figures of INTERFACE, from predictions with their `scores`."""
        assert self.labels is not None
        wanted = np.stack([np.asarray(g) for g in gold])
        table = np.array([[p["scores"][label] for label in self.labels] for p in predictions])
        if self.multilabel:
            chosen = np.array(
                [[label in p["labels"] for label in self.labels] for p in predictions]
            )
            thresholds = self.thresholds or [0.5] * len(self.labels)
            return scores_of.multilabel_metrics(
                wanted, table, thresholds, predicted=chosen, labels=self.labels
            )
        given = np.array([self.labels.index(label_name(p["label"])) for p in predictions])
        if self.is_binary:
            positive = self.positive_id
            threshold = self.thresholds[0] if self.thresholds else 0.5
            return scores_of.binary_metrics(
                wanted == positive, table[:, positive], threshold, predicted=given == positive
            )
        return scores_of.multiclass_metrics(wanted, table, predicted=given, labels=self.labels)


TASK = Classification
