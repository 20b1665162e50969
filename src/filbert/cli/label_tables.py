"""Tables of one row per label: precision, recall and F1, and which labels are confused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.text import Text

from filbert.cli.output import print_table
from filbert.metrics.classification import label_metrics
from filbert.tasks.base import Prediction, Task

# Labels of the largest confusion matrix, its width without the names of rows, and the confusions
# that are listed for more labels.
_MATRIX_LABELS, _WIDTH, _CONFUSIONS = 12, 56, 10


def print_labels(
    metrics: dict[str, Any], task: Task, gold: Sequence[Any], predictions: Sequence[Prediction]
) -> None:
    """Print precision, recall and F1 of every label, their means, and which labels are confused."""
    spec = task.spec
    by_label: dict[str, dict[str, Any]] = metrics.get("per_label") or {}
    names = list(spec.labels or ())
    is_single = spec.labels_are_classes and not spec.multilabel
    wanted, given = np.zeros(0, int), np.zeros(0, int)
    if is_single:
        wanted = np.asarray(gold, int)
        given = np.array([names.index(answer["label"]) for answer in predictions])
        occurring = np.union1d(wanted, given)
        by_label = {names[n]: label_metrics(wanted == n, given == n) for n in occurring}
    if not by_label:
        return
    rates = ("precision", "recall", "f1")
    table = np.array([[found[rate] for rate in rates] for found in by_label.values()])
    support = np.array([found["support"] for found in by_label.values()])
    rows: list[list[str | Text]] = [
        [label, *(f"{value:.3f}" for value in values), f"{count:,}"]
        for label, values, count in zip(by_label, table, support, strict=True)
    ]
    means = (
        {"macro mean": None, "weighted mean": support} if support.sum() else {"macro mean": None}
    )
    for name, weights in means.items():
        mean = np.average(table, axis=0, weights=weights)
        rows.append([Text(name, style="bold"), *(f"{v:.3f}" for v in mean), f"{support.sum():,}"])
    unit = "rows" if spec.labels_are_classes else "entities"
    print()
    print_table(["label", *rates, unit], rows, texts=[0])
    if is_single and len(by_label) > 1:
        print()
        _print_confusions([names.index(label) for label in by_label], names, wanted, given)


def _print_confusions(
    numbers: Sequence[int], names: Sequence[str], wanted: np.ndarray, given: np.ndarray
) -> None:
    """Print the confusion matrix, or for many labels the most frequent confusions."""
    counts = [[int(np.sum((wanted == n) & (given == m))) for m in numbers] for n in numbers]
    labels = [names[n] for n in numbers]
    if len(labels) > _MATRIX_LABELS:
        pairs = [
            (count, labels[n], labels[m])
            for n, row in enumerate(counts)
            for m, count in enumerate(row)
            if count and n != m
        ]
        pairs.sort(key=lambda pair: -pair[0])
        shown = [[gold, answer, f"{count:,}"] for count, gold, answer in pairs[:_CONFUSIONS]]
        if shown:
            print_table(["most confused: label", "predicted", "rows"], shown, texts=[0, 1])
        return
    heads = labels
    if sum(map(len, labels)) + len(labels) > _WIDTH:
        heads = [str(number) for number in range(1, len(labels) + 1)]
        labels = [f"{number} {label}" for number, label in zip(heads, labels, strict=True)]
    rows: list[list[str | Text]] = [
        [label, *(Text(f"{c:,}", style="bold" if n == m else "") for m, c in enumerate(row))]
        for n, (label, row) in enumerate(zip(labels, counts, strict=True))
    ]
    print_table(["label \\ predicted", *heads], rows, texts=[0])
