"""Predictions of the runs: read, checked for the same rows, measured on all rows and on slices.

N rows, C labels, F metrics, B resamples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from filbert.errors import InputError, printable
from filbert.metrics import calibration, ranking
from filbert.metrics.bootstrap import (
    CalledRows,
    RankedRows,
    Rate,
    Weighting,
    choice_form,
    decision_form,
    ends,
    mcnemar,
    rate_of,
    resampled,
    two_sided_p,
)
from filbert.metrics.classification import binary_metrics, losses, multiclass_metrics
from filbert.report.folder import read_scores
from filbert.tasks.base import Prediction

RECALLS = {f"precision_at_recall_{round(100 * r)}": r for r in (0.5, 0.8, 0.9, 0.95)}
_RATES: tuple[Rate, ...] = ("f1", "precision", "recall", "accuracy", "mcc")
_CHOICES: tuple[Rate, ...] = ("accuracy", "macro_f1", "weighted_f1")
# Metrics with an interval, in the order of the rows of `form`. The calibration error has none:
# resampled bins are noisier than those of the rows, so its resamples are too high.
BINARY = ("roc_auc", "pr_auc", *_RATES, "f1_at_half", *RECALLS, "brier", "loss")
MULTICLASS = (*_CHOICES, "loss")
# Metrics that pairs are tested by, in the order of the rows of `tested_form`.
TESTED_BINARY = ("roc_auc", "pr_auc", "f1")
TESTED_MULTICLASS = ("accuracy", "macro_f1")

# Slices of one column; rarer values share one.
MOST_VALUES = 20
NOT_STATED = "not stated"
# What tables write for a missing value, in any case.
_MISSING = {"", "nan", "na", "null", "none"}


@dataclass(frozen=True)
class SplitPredictions:
    """The predictions of all runs for one split.

    Attributes:
        gold: Label numbers, int64 (N,), the same for all runs.
        probabilities: float64 (N, C) by contestant and seed.
    """

    gold: np.ndarray
    probabilities: dict[str, dict[int, np.ndarray]]


def read_predictions(
    split: str, seeds_of: Mapping[str, Mapping[int, Path]], labels: Sequence[str]
) -> SplitPredictions:
    """Read predictions/SPLIT.jsonl of every run.

    Args:
        split: "dev" or "test".
        seeds_of: Run folder by contestant and seed.
        labels: C names, in the order of their numbers.

    Raises:
        InputError: A file is missing or empty, two runs have different rows or gold labels, or
            there are no runs.
        FormatError: A line is damaged, or lacks a field or a label's probability.
    """
    found = {
        name: {
            seed: read_scores(folder / "predictions" / f"{split}.jsonl", labels)
            for seed, folder in seeds.items()
        }
        for name, seeds in seeds_of.items()
    }
    first = next((one for seeds in found.values() for one in seeds.values()), None)
    if first is None:
        raise InputError("The study has no finished contestant to measure.")
    for name, seeds in found.items():
        for seed, one in seeds.items():
            if not np.array_equal(one.rows, first.rows) or not np.array_equal(one.gold, first.gold):
                raise InputError(
                    f"{printable(name)}, seed {seed}: its {split} predictions are of other rows "
                    "than those of the first contestant. Run it again."
                )
    tables = {
        name: {seed: one.probabilities for seed, one in seeds.items()}
        for name, seeds in found.items()
    }
    return SplitPredictions(first.gold, tables)


@dataclass(frozen=True)
class Predicted:
    """The predictions of one run for one split.

    Attributes:
        gold: Label numbers, int64 (N,).
        probabilities: float64 (N, C).
        positive: Number of the positive label of two; None for more labels.
        threshold: Of the positive label's probability; None for more labels.
    """

    gold: np.ndarray
    probabilities: np.ndarray
    positive: int | None
    threshold: float | None

    @classmethod
    def tuned(cls, gold: np.ndarray, probabilities: np.ndarray, positive: int | None) -> Predicted:
        """Choose the threshold with the best F1 on these rows, which should be the dev rows."""
        threshold = None
        if positive is not None:
            threshold = ranking.best_f1_threshold(gold == positive, probabilities[:, positive])
        return cls(gold, probabilities, positive, threshold)

    @property
    def is_positive(self) -> np.ndarray:
        """Gold, bool (N,)."""
        return np.asarray(self.gold == self.positive)

    @property
    def scores(self) -> np.ndarray:
        """Probability of the positive label, float64 (N,)."""
        assert self.positive is not None
        return np.asarray(self.probabilities[:, self.positive])

    @property
    def called(self) -> np.ndarray:
        """Predicted classes: 0 or 1 (positive) of two, else label numbers; int64 (N,)."""
        if self.positive is None:
            return np.asarray(self.probabilities.argmax(1))
        return np.asarray(self.scores >= self.threshold, dtype=np.int64)

    @property
    def wanted(self) -> np.ndarray:
        """Gold in the terms of `called`, int64 (N,)."""
        return self.gold if self.positive is None else self.is_positive.astype(np.int64)

    def of(self, rows: np.ndarray) -> Predicted:
        """Select rows by an int or bool index."""
        return Predicted(self.gold[rows], self.probabilities[rows], self.positive, self.threshold)

    def metrics(self) -> dict[str, Any]:
        """Compute every metric; floats, None where undefined."""
        if self.positive is None:
            found = multiclass_metrics(self.gold, self.probabilities)
            del found["per_label"]
            right = self.called == self.gold
            confidence = self.probabilities.max(1).clip(0, 1)
            return found | {"ece": calibration.expected_calibration_error(right, confidence)}
        assert self.threshold is not None
        gold, scores = self.is_positive, self.scores
        found = binary_metrics(gold, scores, self.threshold)
        found["f1_at_half"] = binary_metrics(gold, scores, 0.5)["f1"]
        once = np.ones((len(gold), 1), dtype=np.int64)
        at_recalls = (
            RankedRows(gold, scores).cuts(once).precision_at_recalls(list(RECALLS.values()))
        )
        for name, value in zip(RECALLS, at_recalls[:, 0], strict=True):
            found[name] = None if np.isnan(value) else float(value)
        found["ece"] = calibration.expected_calibration_error(gold, scores)
        found["brier"] = float(np.mean((scores - gold) ** 2))
        return found

    def form(self) -> tuple[tuple[str, ...], Weighting]:
        """Return the names of the metrics with intervals, and weights (N, B) -> float64 (F, B)."""
        if self.positive is None:
            calls = CalledRows(self.gold, self.called, self.probabilities.shape[1])
            likelihood = self.probabilities[np.arange(len(self.gold)), self.gold]

            def choices(weights: np.ndarray) -> np.ndarray:
                confusion = calls.confusion(weights)
                rows = [rate_of(confusion, rate) for rate in _CHOICES]
                return np.vstack([*rows, _means(losses(likelihood)[None], weights)])

            return MULTICLASS, choices

        gold, scores = self.is_positive, self.scores
        ranked = RankedRows(gold, scores)
        tuned = CalledRows(gold, self.called, 2)
        half = CalledRows(gold, scores >= 0.5, 2)
        errors = (scores - gold) ** 2
        means = np.stack([errors, losses(np.where(gold, scores, 1 - scores))])

        def decisions(weights: np.ndarray) -> np.ndarray:
            cuts = ranked.cuts(weights)
            confusion = tuned.confusion(weights)
            return np.vstack(
                [
                    cuts.roc_auc(),
                    cuts.pr_auc(),
                    *(rate_of(confusion, rate) for rate in _RATES),
                    rate_of(half.confusion(weights), "f1"),
                    cuts.precision_at_recalls(list(RECALLS.values())),
                    _means(means, weights),
                ]
            )

        return BINARY, decisions

    def tested_form(self) -> tuple[tuple[str, ...], Weighting]:
        """Return the metrics that pairs are tested by, at a fraction of the time of `form`."""
        calls = CalledRows(self.wanted, self.called, self.probabilities.shape[1])
        if self.positive is None:
            return TESTED_MULTICLASS, choice_form(calls)
        ranked = RankedRows(self.is_positive, self.scores)
        return TESTED_BINARY, decision_form(ranked, calls)


def _means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weighted means: values (F, N), weights (N, B) -> (F, B)."""
    return np.asarray(values @ weights.astype(np.float64) / weights.sum(0))


def side_by_side(
    gold: Sequence[str],
    answers: Mapping[str, Sequence[Prediction]],
    thresholds: Mapping[str, float],
    *,
    positive: str,
    resamples: int = 2000,
) -> dict[str, Any]:
    """Compare two models for two labels by roc_auc, pr_auc, f1 and McNemar's test.

    Args:
        gold: Labels of the N rows.
        answers: Predictions of exactly two models, by name, with their `scores`.
        thresholds: Of the positive label, by the same names.
        positive: The positive label.
        resamples: Of the bootstrap.

    Returns:
        {"intervals": {name: {metric: {value, low, high}}}, "pair": {"one", "other", metric:
        {value, low, high, p}, "mcnemar": {...}}}.
    """
    wanted = np.array([label == positive for label in gold])
    runs = {}
    for name, rows in answers.items():
        scores = np.array([row["scores"][positive] for row in rows])
        table = np.stack([1 - scores, scores], axis=1)
        runs[name] = Predicted(wanted.astype(np.int64), table, 1, thresholds[name])
    forms = [run.tested_form()[1] for run in runs.values()]
    drawn = dict(zip(runs, resampled(forms, wanted, resamples=resamples, seed=0), strict=True))
    one, other = runs
    pair: dict[str, Any] = {"one": one, "other": other}
    intervals: dict[str, dict[str, Any]] = {name: {} for name in runs}
    values = {name: run.metrics() for name, run in runs.items()}
    for row, metric in enumerate(TESTED_BINARY):
        for name in runs:
            intervals[name][metric] = _interval(values[name][metric], drawn[name][row])
        mine, theirs = values[one][metric], values[other][metric]
        difference = None if mine is None or theirs is None else mine - theirs
        differences = drawn[one][row] - drawn[other][row]
        pair[metric] = _interval(difference, differences) | {"p": two_sided_p(differences)}
    pair["mcnemar"] = asdict(mcnemar(wanted, runs[one].called, runs[other].called))
    return {"intervals": intervals, "pair": pair}


def _interval(value: float | None, drawn: np.ndarray) -> dict[str, float | None]:
    low, high = ends(drawn, 0.95)
    return {"value": value, "low": low, "high": high}


def by_column(rows: Sequence[Mapping[str, Any]], column: str) -> list[tuple[str, np.ndarray]]:
    """Return the slices of one column.

    Numbers from 0 to 1 (0/1, or a share of annotators) become "yes" from 0.5 on and "no". Other
    values are names: the 20 most frequent, the rest together. Rows without a value (see
    `is_missing`) are "not stated".
    """
    values = [row.get(column) for row in rows]
    missing = [is_missing(value) for value in values]
    shares = [None if gone else _share(v) for v, gone in zip(values, missing, strict=True)]
    if all(gone or share is not None for share, gone in zip(shares, missing, strict=True)):
        named = [NOT_STATED if s is None else "yes" if s >= 0.5 else "no" for s in shares]
        order = ["yes", "no"]
    else:
        pairs = zip(values, missing, strict=True)
        named = [NOT_STATED if gone else printable(str(value).strip()) for value, gone in pairs]
        counts = Counter(name for name in named if name != NOT_STATED)
        order = sorted(counts, key=lambda name: (-counts[name], name))
        if len(order) > MOST_VALUES:
            rest = f"{len(order) - MOST_VALUES + 1:,} other values"
            kept = set(order[: MOST_VALUES - 1]) | {NOT_STATED}
            named = [name if name in kept else rest for name in named]
            order = [*order[: MOST_VALUES - 1], rest]
    table = np.array(named, dtype=object)
    parts = [(name, np.flatnonzero(table == name)) for name in [*order, NOT_STATED]]
    return [(name, at) for name, at in parts if len(at)]


def is_missing(value: Any) -> bool:
    """Return whether a value is empty, NaN, or one of the words nan, NA, null and none."""
    return value is None or str(value).strip().lower() in _MISSING


def _share(value: Any) -> float | None:
    """Return the value as a number from 0 to 1; None if it is no such number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return {"true": 1.0, "false": 0.0}.get(str(value).strip().lower())
    return number if 0 <= number <= 1 else None


def slice_entry(runs: Mapping[str, Predicted], name: str, at: np.ndarray) -> dict[str, Any]:
    """Return the entry of a slice in results.json, with the metrics of every contestant.

    Two labels: roc_auc, pr_auc, f1, precision, recall, accuracy and false_positive_rate; None
    means an empty denominator. More labels: accuracy, macro_f1.

    Args:
        runs: Predictions for all rows, by contestant.
        name: Of the slice.
        at: Its row indices.
    """
    parts = {who: one.of(at) for who, one in runs.items()}
    first = next(iter(parts.values()))
    return {
        "slice": name,
        "rows": len(at),
        "positives": None if first.positive is None else int(first.is_positive.sum()),
        "contestants": {who: _slice_metrics(one) for who, one in parts.items()},
    }


def _slice_metrics(predicted: Predicted) -> dict[str, float | None]:
    metrics = predicted.metrics()
    if predicted.positive is None:
        return {key: metrics[key] for key in ("accuracy", "macro_f1")}
    if not predicted.is_positive.any():
        metrics |= {"f1": None, "precision": None, "recall": None}
    negatives = predicted.called[~predicted.is_positive]
    rate = float(negatives.mean()) if len(negatives) else None
    keys = ("roc_auc", "pr_auc", "f1", "precision", "recall", "accuracy")
    return {key: metrics[key] for key in keys} | {"false_positive_rate": rate}
