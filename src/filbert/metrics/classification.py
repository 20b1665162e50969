"""Metrics of classifiers: binary, one of many classes, any of many labels.

N rows, C classes. Rates with an empty denominator are 0; undefined areas are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from filbert.metrics import ranking

# Bounds the loss of one confident wrong row: at most 16.1 nats.
SMALLEST_PROBABILITY = 1e-7


def binary_metrics(
    is_positive: ArrayLike,
    scores: ArrayLike,
    threshold: float,
    *,
    predicted: ArrayLike | None = None,
) -> dict[str, Any]:
    """Compute the metrics of a binary classifier.

    Args:
        is_positive: bool (N,).
        scores: Probability of the positive class, float (N,).
        threshold: A row is predicted positive if its score >= threshold.
        predicted: Decisions made elsewhere, bool (N,); they replace the threshold's.

    Returns:
        accuracy, f1, precision, recall, mcc, roc_auc, pr_auc, loss, threshold. `loss` is the mean
        negative log-likelihood in nats, with probabilities clipped to [1e-7, 1 - 1e-7].

    Raises:
        InputError: A score is not a probability.
    """
    from sklearn.metrics import matthews_corrcoef

    gold = np.asarray(is_positive, dtype=bool)
    values = ranking.probabilities(scores)
    called = values >= threshold if predicted is None else np.asarray(predicted, dtype=bool)
    rates = label_metrics(gold, called)
    # scikit-learn warns of a single class.
    has_both = gold.any() and not gold.all()
    return {
        "accuracy": float(np.mean(gold == called)),
        "f1": rates["f1"],
        "precision": rates["precision"],
        "recall": rates["recall"],
        "mcc": float(matthews_corrcoef(gold, called)) if has_both else 0.0,
        "roc_auc": ranking.roc_auc(gold, values),
        "pr_auc": ranking.pr_auc(gold, values),
        "loss": float(losses(np.where(gold, values, 1 - values)).mean()),
        "threshold": float(threshold),
    }


def multiclass_metrics(
    label_ids: ArrayLike,
    probabilities: ArrayLike,
    *,
    predicted: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Compute the metrics of a choice between C classes; the first of equal scores is predicted.

    Args:
        label_ids: Gold classes, int (N,), each in [0, C).
        probabilities: float (N, C).
        predicted: Classes predicted elsewhere, int (N,).
        labels: C names for `per_label`; "0", "1", ... by default.

    Returns:
        accuracy, macro_f1 (mean over the classes in gold or predictions), weighted_f1 (weighted by
        gold count), loss (see `binary_metrics`) and per_label {label: see `label_metrics`}.
    """
    gold = np.asarray(label_ids, dtype=np.int64)
    values = ranking.probabilities(probabilities)
    names = labels or [str(c) for c in range(values.shape[1])]
    chosen = values.argmax(1) if predicted is None else np.asarray(predicted, dtype=np.int64)
    per_class = _rates(gold, chosen, range(len(names)))
    f1 = np.array([rates["f1"] for rates in per_class])
    support = np.array([rates["support"] for rates in per_class])
    occurs = support + np.bincount(chosen, minlength=len(names)) > 0
    return {
        "accuracy": float(np.mean(chosen == gold)),
        "macro_f1": float(f1[occurs].mean()),
        "weighted_f1": float(np.average(f1, weights=support)),
        "loss": float(losses(values[np.arange(len(gold)), gold]).mean()),
        "per_label": dict(zip(names, per_class, strict=True)),
    }


def multilabel_metrics(
    is_set: ArrayLike,
    probabilities: ArrayLike,
    thresholds: ArrayLike,
    *,
    predicted: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Compute the metrics of C independent binary labels.

    Args:
        is_set: bool (N, C).
        probabilities: float (N, C).
        thresholds: float (C,); label c is predicted if its probability >= thresholds[c].
        predicted: Decisions made elsewhere, bool (N, C).
        labels: C names for `per_label`; "0", "1", ... by default.

    Returns:
        micro_f1 and macro_f1 over all labels; roc_auc and pr_auc, the means over the labels with
        both classes (None without such a label); left_out, the names of the other labels; loss, the
        mean over all cells; per_label {label: rates, roc_auc, pr_auc, threshold}.
    """
    gold = np.asarray(is_set, dtype=bool)
    values = ranking.probabilities(probabilities)
    cut = np.asarray(thresholds, dtype=np.float64)
    names = labels or [str(c) for c in range(gold.shape[1])]
    chosen = values >= cut if predicted is None else np.asarray(predicted, dtype=bool)
    per_label = {
        name: label_metrics(gold[:, c], chosen[:, c])
        | {
            "roc_auc": ranking.roc_auc(gold[:, c], values[:, c]),
            "pr_auc": ranking.pr_auc(gold[:, c], values[:, c]),
            "threshold": float(cut[c]),
        }
        for c, name in enumerate(names)
    }
    defined = [scores for scores in per_label.values() if scores["roc_auc"] is not None]
    return {
        "micro_f1": label_metrics(gold.ravel(), chosen.ravel())["f1"],
        "macro_f1": float(np.mean([scores["f1"] for scores in per_label.values()])),
        "roc_auc": float(np.mean([s["roc_auc"] for s in defined])) if defined else None,
        "pr_auc": float(np.mean([s["pr_auc"] for s in defined])) if defined else None,
        "loss": float(losses(np.where(gold, values, 1 - values)).mean()),
        "left_out": [name for name, scores in per_label.items() if scores["roc_auc"] is None],
        "per_label": per_label,
    }


def label_metrics(is_gold: np.ndarray, is_predicted: np.ndarray) -> dict[str, Any]:
    """Return precision, recall, f1 and support (gold rows) of one label; bool (N,) each."""
    return _rates(is_gold.astype(np.int64), is_predicted.astype(np.int64), [1])[0]


def losses(likelihood: ArrayLike) -> np.ndarray:
    """Return the negative log-likelihood in nats of each probability of the gold class."""
    return np.asarray(-np.log(np.maximum(likelihood, SMALLEST_PROBABILITY)))


def _rates(gold: np.ndarray, predicted: np.ndarray, classes: Sequence[int]) -> list[dict[str, Any]]:
    from sklearn.metrics import precision_recall_fscore_support

    found = precision_recall_fscore_support(gold, predicted, labels=classes, zero_division=0)
    return [
        {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
        for p, r, f, n in zip(*found, strict=True)
    ]
