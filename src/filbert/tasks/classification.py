"""Classification: one label per text or pair (two classes or more), or any number (multi-label).

S sequences, R rows, C labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, check_overflow, lengths_of
from filbert.data.labels import (
    check_names,
    class_weights,
    has_list,
    label_name,
    label_order,
    labels_in,
    listed,
    loss_weights,
)
from filbert.data.records import Row
from filbert.data.texts import has_lists_of_labels, read_texts
from filbert.errors import ConfigError, InputError, did_you_mean
from filbert.losses.contrastive import label_contrast
from filbert.metrics import calibration
from filbert.metrics.classification import binary_metrics, multiclass_metrics, multilabel_metrics
from filbert.metrics.ranking import best_f1_threshold
from filbert.model.pooling import mean_of_groups
from filbert.tasks.base import (
    LossSpec,
    Objective,
    Prediction,
    RowSource,
    Targets,
    Task,
    TaskOptions,
    TaskSpec,
    changed,
)
from filbert.tasks.rows import TextRows, row_outputs, row_targets, text_examples
from filbert.text.clean import Cleaning

_BINARY_METRICS = ("accuracy", "f1", "precision", "recall", "mcc", "roc_auc", "pr_auc", "loss")


def class_labels(spec: TaskSpec, row: Row) -> list[str]:
    """Return the classes of a row: exactly one, or any number for multi-label."""
    columns = spec.label_columns
    if spec.multilabel and not row.values.keys() & {"label", "labels"}:
        columns = columns or spec.labels
    labels = labels_in(row, columns, multilabel=spec.multilabel)
    for label in labels if spec.labels is not None else ():
        if label not in (spec.labels or ()):
            raise InputError(
                f"{row.where}: label {label!r} is not one of {listed(spec.labels or ())}."
                f"{did_you_mean(label, spec.labels or ())} Fix the row, or train a model with it: "
                "finetune --labels declares labels."
            )
    return labels


class LabelledTexts(TextRows):
    """Texts with a label, a list of labels, or a 0/1 column for each label."""

    name = "labelled"
    recognises = "class"

    def read(self, spec: TaskSpec, source: RowSource) -> Iterator[Row]:
        """Yield rows with `label` or `labels`, or with the columns of `spec.label_columns`."""
        path, names, labelled, on_error = source
        if not labelled:
            return read_texts(path, names, on_error=on_error)
        labels = None if spec.multilabel else spec.labels
        if names.merged and set(labels or ()) != set(names.merged):
            given = "any number of labels" if labels is None else f"one of {listed(labels)}"
            raise ConfigError(
                f"--merge-labels makes one label of {listed(names.merged)}; this model gives "
                f"{given}. Name the merged label with --as as it was in training."
            )
        if names.label_columns and not spec.multilabel:
            raise ConfigError(
                "--label-columns is for multi-label models; this one gives one label."
            )
        # Multi-label rows may come as 0/1 columns or as lists, whatever training read.
        columns = names.label_columns or (None if names.label_column else spec.label_columns)
        if columns is not None and set(columns) != set(spec.labels or ()):
            known = listed(spec.labels or ())
            raise ConfigError(f"--label-columns names {listed(columns)}; the labels are {known}.")
        if columns and not has_lists_of_labels(path, names, columns):
            return read_texts(path, names, extra=columns, on_error=on_error)
        several = spec.multilabel or (spec.labels is None and has_lists_of_labels(path, names))
        return read_texts(path, names, "labels" if several else "label", on_error=on_error)

    def labels(self, task: Task, row: Row) -> list[str]:
        """Return the classes of a row."""
        return class_labels(task.spec, row)

    def gold_json(self, spec: TaskSpec, gold: Any) -> Any:
        """Return the names of labels: one, or a list."""
        labels = spec.labels or ()
        if isinstance(gold, np.ndarray):
            return [label for label, has in zip(labels, gold, strict=True) if has]
        return labels[gold]

    def with_labels(self, task: Task, rows: Sequence[Row], answers: Sequence[Row]) -> Task:
        """Return the task with the labels that the rows and the `scores` of predictions name."""
        spec = task.spec
        if spec.labels is not None:
            return task
        multilabel = spec.multilabel or any(map(has_list, rows))
        classes = {label for row in rows for label in class_labels(spec, row)}
        for given in answers:
            scores = given.values.get("scores")
            classes |= {str(label) for label in scores} if isinstance(scores, dict) else set()
        if len(classes) < 2 and not multilabel:
            raise InputError(
                f"Rows and predictions name {len(classes)} label; name all of them with --labels."
            )
        return changed(task, labels=sorted(classes, key=label_order), multilabel=multilabel)

    def complete(self, spec: TaskSpec, row: Row, answer: Row) -> Prediction:
        """Return `scores` for all labels, and `label` or `labels`.

        A prediction without scores has 1 for its labels and 0 for the others; one without labels
        has the label with the highest score, or when multi-label those from 0.5.
        """
        labels, multilabel, where = spec.labels or (), spec.multilabel, answer.where
        key = "labels" if multilabel else "label"
        scores, named = answer.values.get("scores"), answer.values.get(key)
        if named is None and scores is None:
            raise InputError(f"{where}: a prediction needs {key!r}, 'scores', or both.")
        try:
            given = named if multilabel and isinstance(named, list) else [named]
            chosen = [label_name(n) for n in given if n is not None]
            table = None if scores is None else {label_name(k): float(v) for k, v in scores.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(f"{where}: the prediction cannot be read: {error}.") from error
        if not set(chosen) <= set(labels):
            raise InputError(f"{where}: {chosen} is not one of the labels {listed(labels)}.")
        if table is None:
            table = {label: float(label in chosen) for label in labels}
        if set(table) != set(labels) or not all(0.0 <= score <= 1.0 for score in table.values()):
            raise InputError(
                f"{where}: the scores must be a probability from 0 to 1 for each label of "
                f"{listed(labels)}. Name all labels with --labels."
            )
        if named is None:
            chosen = [max(labels, key=table.__getitem__)]
            if multilabel:
                chosen = [label for label in labels if table[label] >= 0.5]
        return {key: chosen if multilabel else chosen[0], "scores": table}


LABELLED = LabelledTexts()


@dataclass(frozen=True)
class Classification:
    """One label, or several, for a text or a pair of texts.

    Attributes:
        labels: by id; None until `fit`.
        multilabel: sigmoid per label instead of one softmax.
        positive: the positive class of two labels; the second label when not given.
        label_columns: read 0/1 columns instead of `labels`.
        class_weights: as the user asked: None, "balanced" or a number per label.
        loss_weights: the weights in force, one per label: of a row's class (softmax) or of a row
            that has the label (sigmoid).
        thresholds: a label is predicted when its probability reaches its threshold; one for the
            positive class of two labels, one per label for multi-label, none for more classes.
        temperature: logits are divided by it before they become probabilities (Guo et al. 2017).
        declared: whether the labels were given by the user rather than read from the rows.
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
        labels, positive = self.labels or (), self.positive
        if labels and positive is not None and (positive not in labels or len(labels) != 2):
            raise ConfigError(f"--positive {positive!r}: the labels are {listed(labels)}.")
        if not 0.0 < self.temperature < float("inf"):
            raise ValueError(f"temperature {self.temperature} is not above zero")
        count = len(self.labels or ()) if self.multilabel else 1
        if self.thresholds is not None and (
            len(self.thresholds) != count or not all(0 <= t <= 1 for t in self.thresholds)
        ):
            raise ValueError(f"thresholds {self.thresholds} are not {count} numbers from 0 to 1")

    @cached_property
    def spec(self) -> TaskSpec:
        """Two classes are chosen by a metric without threshold, more by accuracy."""
        labels, problem = self.labels, "single_label_classification"
        metrics: tuple[str, ...] = ("accuracy", "macro_f1", "weighted_f1", "loss")
        selection, positive = "accuracy", None
        if self.multilabel:
            problem = "multi_label_classification"
            metrics, selection = ("micro_f1", "macro_f1", "roc_auc", "pr_auc", "loss"), "pr_auc"
        elif labels and len(labels) == 2:
            metrics, selection = _BINARY_METRICS, "roc_auc"
            positive = self.positive or labels[1]
        return TaskSpec(
            name="classification",
            row_format=LABELLED,
            head_kind="sequence",
            metric_names=metrics,
            selection_metric=selection,
            num_labels=len(labels) if labels else None,
            labels=labels,
            problem_type=problem,
            labels_are_classes=True,
            label_columns=self.label_columns,
            positive=positive,
            thresholds=self.thresholds,
            temperature=self.temperature,
            on_overflow=self.on_overflow,
            stride=self.stride,
            clean=self.clean,
            cleans=True,
        )

    @property
    def _positive_id(self) -> int | None:
        labels, positive = self.labels, self.spec.positive
        return None if labels is None or positive is None else labels.index(positive)

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Classification:
        """Create a task from options, before any row is read."""
        labels = names.declared_labels(options.labels, multilabel=options.multilabel)
        check_overflow(options.on_overflow, options.stride)
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

    def fit(self, rows: Iterable[Row]) -> Classification:
        """Find the labels (unless declared), whether there are several, and the class weights."""
        by_label: Counter[str] = Counter()
        num_rows, multilabel = 0, self.multilabel
        for row in rows:
            num_rows += 1
            multilabel = multilabel or has_list(row)
            by_label.update(class_labels(self.spec, row))
        labels = tuple(sorted(by_label, key=label_order))
        if self.declared and self.labels:
            labels = self.labels
        counts = np.array([by_label[label] for label in labels], dtype=float)
        check_names(labels, multilabel=multilabel)
        weights = loss_weights(self.class_weights, labels, counts, num_rows, multilabel=multilabel)
        return replace(self, labels=labels, multilabel=multilabel, loss_weights=weights)

    def gold(self, row: Row) -> int | np.ndarray:
        """Return the id of the row's label; for multi-label a bool array (C,)."""
        assert self.labels is not None
        names = class_labels(self.spec, row)
        if self.multilabel:
            return np.array([label in names for label in self.labels])
        return self.labels.index(names[0])

    examples = text_examples

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return ids, int64 (R,), or for multi-label float32 (R, C); groups: windows by row."""
        return row_targets(examples, np.float32 if self.multilabel else np.int64)

    def count(self, targets: Targets) -> float:
        """Return R, or R * C for multi-label: every label is a loss of its own."""
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
        """Return labels by the stored thresholds, with all probabilities."""
        logits = row_outputs(outputs, examples).numpy()
        table = calibration.probabilities(logits, self.temperature, multilabel=self.multilabel)
        lengths = lengths_of(examples)
        return [self._answer(row) | length for row, length in zip(table, lengths, strict=True)]

    def _answer(self, probabilities: np.ndarray) -> dict[str, Any]:
        """Return `scores` of float (C,), and `label` with its `score` or `labels`."""
        assert self.labels is not None
        labels, thresholds, positive = self.labels, self.thresholds, self._positive_id
        scores = {label: float(p) for label, p in zip(labels, probabilities, strict=True)}
        if self.multilabel:
            least = thresholds or [0.5] * len(labels)
            given = [k for k, p, t in zip(labels, probabilities, least, strict=True) if p >= t]
            return {"labels": given, "scores": scores}
        best = int(probabilities.argmax())
        if positive is not None and thresholds:
            best = positive if probabilities[positive] >= thresholds[0] else 1 - positive
        return {"label": labels[best], "score": scores[labels[best]], "scores": scores}

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> Classification:
        """Fit the temperature, then the thresholds that maximise F1 at that temperature."""
        logits = row_outputs(outputs, examples).double().numpy()
        wanted = np.stack([np.asarray(g) for g in gold])
        temperature = calibration.fit_temperature(logits, wanted, multilabel=self.multilabel)
        scores = calibration.probabilities(logits, temperature, multilabel=self.multilabel)
        thresholds: tuple[float, ...] | None = None
        if self.multilabel:
            columns = zip(wanted.T, scores.T, strict=True)
            thresholds = tuple(best_f1_threshold(is_set, column) for is_set, column in columns)
        elif (positive := self._positive_id) is not None:
            thresholds = (best_f1_threshold(wanted == positive, scores[:, positive]),)
        return replace(self, temperature=temperature, thresholds=thresholds)

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return the metrics of predictions with `scores` and `label` (or `labels`)."""
        assert self.labels is not None
        labels, wanted = self.labels, np.stack([np.asarray(g) for g in gold])
        scores = np.array([[p["scores"][label] for label in labels] for p in predictions])
        if self.multilabel:
            chosen = np.array([[label in p["labels"] for label in labels] for p in predictions])
            cuts = self.thresholds or (0.5,) * len(labels)
            return multilabel_metrics(wanted, scores, cuts, predicted=chosen, labels=labels)
        given = np.array([labels.index(p["label"]) for p in predictions])
        positive = self._positive_id
        if positive is None:
            return multiclass_metrics(wanted, scores, predicted=given, labels=labels)
        cut = self.thresholds[0] if self.thresholds else 0.5
        is_positive, is_given = wanted == positive, given == positive
        return binary_metrics(is_positive, scores[:, positive], cut, predicted=is_given)


TASK = Classification


@dataclass(frozen=True)
class WithContrast:
    """Classification whose loss also draws the vectors of texts with one label together.

    The texts of a micro-batch are compared with each other. Source: Gunel et al. 2021.

    Attributes:
        task: Its head gives its vectors, too (`SequenceHead.gives_vectors`).
        weight: Of the contrastive loss.
    """

    task: Objective
    weight: float

    @property
    def spec(self) -> LossSpec:
        """The loss of the labels, and the contrastive one."""
        return LossSpec(("label_loss", "contrast_loss"), self.task.spec.selection_metric)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return the targets of the task."""
        return self.task.targets(examples)

    def count(self, targets: Targets) -> tuple[float, float]:
        """Return the number of rows, for each loss."""
        rows = float(len(targets.values))
        return rows, rows

    def loss(self, output: tuple[Tensor, Tensor], targets: Targets) -> Tensor:
        """Return the sum of each loss, float32, from logits (S, C) and vectors (S, H)."""
        logits, vectors = output
        vectors = mean_of_groups(vectors.float(), targets.groups or ())
        contrast = self.weight * label_contrast(vectors, targets.values)
        return torch.stack([self.task.loss(logits, targets), contrast])
