"""Scores of a classifier against the gold labels: binary, one of many classes, any of many labels.

N rows, C classes. Rates with an empty denominator are 0, as in scikit-learn with zero_division=0;
areas that are not defined are None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from filbert.errors import InputError
from filbert.metrics import ranking

# Keeps one sure and wrong row from making the mean infinite: its loss is at most 16.1.
SMALLEST_PROBABILITY = 1e-7


def binary_metrics(
    is_positive: ArrayLike,
    scores: ArrayLike,
    threshold: float,
    *,
    predicted: ArrayLike | None = None,
) -> dict[str, Any]:
    """Metrics of one yes/no question.

    Args:
        is_positive: bool (N,).
        scores: probability of "positive", float (N,).
        threshold: a row is called positive if its score >= threshold.
        predicted: bool (N,), the calls themselves, when somebody else made them.

    Returns:
        accuracy, f1, precision, recall, mcc, roc_auc, pr_auc, loss, threshold: floats; both areas
        are None when only one class is present. `loss` is the mean negative log-likelihood in nats,
        with probabilities clipped to [1e-7, 1 - 1e-7]; it does not depend on the threshold.

    Raises InputError when there is no row or a score is not a probability.
    """
    gold = np.asarray(is_positive, dtype=bool)
    values = ranking.probabilities(scores)
    _check_shapes(gold.shape, values.shape)
    called = values >= threshold if predicted is None else np.asarray(predicted, dtype=bool)
    counts = _counts(gold, called)
    return {
        "accuracy": _rate(counts["tp"] + counts["tn"], len(gold)),
        "f1": _f1(counts),
        "precision": _rate(counts["tp"], counts["tp"] + counts["fp"]),
        "recall": _rate(counts["tp"], counts["tp"] + counts["fn"]),
        "mcc": _mcc(counts),
        "roc_auc": ranking.roc_auc(gold, values),
        "pr_auc": ranking.pr_auc(gold, values),
        "loss": _binary_loss(gold, values),
        "threshold": float(threshold),
    }


def multiclass_metrics(
    label_ids: ArrayLike,
    probabilities: ArrayLike,
    *,
    predicted: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Metrics of a choice between C classes; the most probable one (the first if equal) is chosen.

    Args:
        label_ids: gold classes, int (N,), each in [0, C).
        probabilities: float (N, C).
        predicted: int (N,), the choices themselves, when somebody else made them.
        labels: C names for `per_label`; "0", "1", ... when not given.

    Returns:
        accuracy, macro_f1, weighted_f1, loss (mean negative log-likelihood in nats, clipped at
        1e-7), and per_label {label: {precision, recall, f1, support}}. macro_f1 is the plain mean
        over the classes that occur in gold or predictions; weighted_f1 weighs by gold count.

    Raises InputError when there is no row or a score is not a probability.
    """
    gold = np.asarray(label_ids, dtype=np.int64)
    values = ranking.probabilities(probabilities)
    _check_shapes(gold.shape, values.shape[:1])
    names = _names(labels, values.shape[1])
    if gold.min() < 0 or gold.max() >= len(names):
        raise ValueError(f"a gold class lies outside 0 to {len(names) - 1}")
    chosen = values.argmax(1) if predicted is None else np.asarray(predicted, dtype=np.int64)
    per_class = [label_metrics(gold == c, chosen == c) for c in range(len(names))]
    f1 = np.array([scores["f1"] for scores in per_class])
    support = np.bincount(gold, minlength=len(names))
    occurs = support + np.bincount(chosen, minlength=len(names)) > 0
    likelihood = values[np.arange(len(gold)), gold]
    return {
        "accuracy": float(np.mean(chosen == gold)),
        "macro_f1": float(f1[occurs].mean()),
        "weighted_f1": float(np.average(f1, weights=support)),
        "loss": float(-np.log(np.maximum(likelihood, SMALLEST_PROBABILITY)).mean()),
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
    """Metrics of C independent yes/no questions.

    Args:
        is_set: bool (N, C).
        probabilities: float (N, C).
        thresholds: float (C,); label c is predicted if its probability >= thresholds[c].
        predicted: bool (N, C), the predictions themselves, when somebody else made them.
        labels: C names for `per_label`; "0", "1", ... when not given.

    Returns:
        micro_f1 and macro_f1 (over all labels; a label neither set nor predicted counts 0, as in
        scikit-learn); roc_auc and pr_auc, the mean over the labels that have set and unset rows,
        None if there is no such label; left_out, the names of the other labels; loss, the mean over
        all N x C cells of the negative log-likelihood in nats, clipped at 1e-7; per_label {label:
        {precision, recall, f1, support, roc_auc, pr_auc, threshold}}.

    Raises InputError when there is no row or a score is not a probability.
    """
    gold = np.asarray(is_set, dtype=bool)
    values = ranking.probabilities(probabilities)
    cut = np.asarray(thresholds, dtype=np.float64)
    _check_shapes(gold.shape, values.shape)
    _check_shapes(gold.shape[1:], cut.shape)
    names = _names(labels, gold.shape[1])
    chosen = values >= cut if predicted is None else np.asarray(predicted, dtype=bool)
    per_label = {}
    for c, name in enumerate(names):
        per_label[name] = label_metrics(gold[:, c], chosen[:, c]) | {
            "roc_auc": ranking.roc_auc(gold[:, c], values[:, c]),
            "pr_auc": ranking.pr_auc(gold[:, c], values[:, c]),
            "threshold": float(cut[c]),
        }
    judged = [scores for scores in per_label.values() if scores["roc_auc"] is not None]
    return {
        "micro_f1": _f1(_counts(gold, chosen)),
        "macro_f1": float(np.mean([scores["f1"] for scores in per_label.values()])),
        "roc_auc": float(np.mean([s["roc_auc"] for s in judged])) if judged else None,
        "pr_auc": float(np.mean([s["pr_auc"] for s in judged])) if judged else None,
        "loss": _binary_loss(gold, values),
        "left_out": [name for name, scores in per_label.items() if scores["roc_auc"] is None],
        "per_label": per_label,
    }


def label_metrics(is_gold: np.ndarray, is_predicted: np.ndarray) -> dict[str, Any]:
    """precision, recall, f1 (floats) and support (gold rows, int) of one label; bool (N,) each."""
    counts = _counts(is_gold, is_predicted)
    return {
        "precision": _rate(counts["tp"], counts["tp"] + counts["fp"]),
        "recall": _rate(counts["tp"], counts["tp"] + counts["fn"]),
        "f1": _f1(counts),
        "support": counts["tp"] + counts["fn"],
    }


def _check_shapes(gold: tuple[int, ...], scores: tuple[int, ...]) -> None:
    if gold != scores:
        raise ValueError(f"gold values of shape {gold} for scores of shape {scores}")
    if 0 in gold:
        raise InputError("there is no row to score. Give a file with at least one labelled row.")


def _names(labels: Sequence[str] | None, num_labels: int) -> list[str]:
    names = [str(c) for c in range(num_labels)] if labels is None else list(labels)
    if len(names) != num_labels or len(set(names)) != num_labels:
        raise ValueError(f"{len(set(names))} different label names for {num_labels} labels")
    return names


def _counts(gold: np.ndarray, predicted: np.ndarray) -> dict[str, int]:
    """True and false positives and negatives over all cells of two bool arrays of one shape."""
    hits = int(np.sum(gold & predicted))
    num_gold, num_predicted = int(gold.sum()), int(predicted.sum())
    return {
        "tp": hits,
        "fp": num_predicted - hits,
        "fn": num_gold - hits,
        "tn": gold.size - num_gold - num_predicted + hits,
    }


def _rate(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _f1(counts: dict[str, int]) -> float:
    return _rate(2 * counts["tp"], 2 * counts["tp"] + counts["fp"] + counts["fn"])


def _mcc(counts: dict[str, int]) -> float:
    """Matthews correlation; 0 when gold or predictions hold one class only."""
    tp, fp, fn, tn = counts["tp"], counts["fp"], counts["fn"], counts["tn"]
    # Python integers: the product of four counts overflows 64 bits from about 55,000 rows on.
    square = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return float((tp * tn - fp * fn) / square**0.5) if square else 0.0


def _binary_loss(gold: np.ndarray, values: np.ndarray) -> float:
    likelihood = np.where(gold, values, 1 - values)
    return float(-np.log(np.maximum(likelihood, SMALLEST_PROBABILITY)).mean())


def prediction_metrics(
    labels: Sequence[str],
    gold: Sequence[Any],
    predictions: Sequence[Mapping[str, Any]],
    *,
    multilabel: bool,
    positive: int | None,
    thresholds: Sequence[float] | None,
) -> dict[str, Any]:
    """The figures of INTERFACE, from predictions with their `scores`.

    Args:
        labels: C names.
        gold: R label ids, or bool arrays (C,) when multi-label.
        predictions: R, with `scores` and `label` (`labels`).
        multilabel: any number of labels per row.
        positive: the positive class of two; None for more classes.
        thresholds: in force, for the report; 0.5 when None.
    """
    wanted = np.stack([np.asarray(g) for g in gold])
    table = np.array([[p["scores"][label] for label in labels] for p in predictions])
    if multilabel:
        chosen = np.array([[label in p["labels"] for label in labels] for p in predictions])
        return multilabel_metrics(
            wanted, table, thresholds or [0.5] * len(labels), predicted=chosen, labels=labels
        )
    given = np.array([labels.index(p["label"]) for p in predictions])
    if positive is not None:
        threshold = thresholds[0] if thresholds else 0.5
        return binary_metrics(
            wanted == positive, table[:, positive], threshold, predicted=given == positive
        )
    return multiclass_metrics(wanted, table, predicted=given, labels=labels)
