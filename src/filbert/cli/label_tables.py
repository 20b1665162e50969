"""Tables of one row per label: precision, recall and F1, and which labels are confused."""

from __future__ import annotations

from collections import Counter
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
_RATES = ("precision", "recall", "f1")


def print_labels(
    metrics: dict[str, Any],
    task: Task,
    gold: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    with_means: bool,
) -> None:
    """Print precision, recall and F1 of every label, perhaps their means, and the confusions."""
    spec = task.spec
    by_label: dict[str, dict[str, Any]] = metrics.get("per_label") or {}
    is_single = spec.labels_are_classes and not spec.multilabel
    pairs: list[tuple[str, str]] = []
    if is_single:
        names = list(spec.labels or ())
        answers = (str(answer["label"]) for answer in predictions)
        pairs = list(zip((names[number] for number in gold), answers, strict=True))
        wanted, given = (np.array(side, object) for side in zip(*pairs, strict=True))
        occurring = [name for name in names if name in wanted or name in given]
        by_label = {name: label_metrics(wanted == name, given == name) for name in occurring}
    if not by_label:
        return
    table = np.array([[label[rate] for rate in _RATES] for label in by_label.values()])
    support = np.array([label["support"] for label in by_label.values()])
    rows: list[list[str | Text]] = [
        [label, *(f"{value:.4f}" for value in values), f"{count:,}"]
        for label, values, count in zip(by_label, table, support, strict=True)
    ]
    for name, weights in {"macro mean": None, "weighted mean": support}.items():
        if with_means and (weights is None or support.sum()):
            mean = np.average(table, axis=0, weights=weights)
            cells = [*(f"{value:.4f}" for value in mean), f"{support.sum():,}"]
            rows.append([Text(name, style="bold"), *cells])
    print()
    unit = "rows" if spec.labels_are_classes else "entities"
    print_table(["label", *_RATES, unit], rows, texts=[0])
    if len(by_label) > 1 and pairs:
        print()
        _print_confusions(list(by_label), pairs)


def _print_confusions(labels: list[str], pairs: Sequence[tuple[str, str]]) -> None:
    """Print the confusion matrix, or for many labels the most frequent confusions."""
    counts = Counter(pairs)
    if len(labels) > _MATRIX_LABELS:
        wrong = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]]
        rows = [[*pair, f"{count:,}"] for pair, count in wrong[:_CONFUSIONS]]
        print_table(["most confused: label", "predicted", "rows"], rows, texts=[0, 1])
        return
    is_wide = sum(map(len, labels)) + len(labels) > _WIDTH
    heads = [str(number) for number in range(1, len(labels) + 1)] if is_wide else labels
    matrix: list[list[str | Text]] = [
        [
            f"{head} {label}" if is_wide else label,
            *(Text(f"{counts[label, o]:,}", style="bold" if o == label else "") for o in labels),
        ]
        for head, label in zip(heads, labels, strict=True)
    ]
    print_table(["label \\ predicted", *heads], matrix, texts=[0])
