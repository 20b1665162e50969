"""All figures of one run on one split, once and for thousands of resamples.

N rows, C labels, F figures, B resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from filbert.metrics import calibration, operating
from filbert.metrics.classification import (
    SMALLEST_PROBABILITY,
    binary_metrics,
    multiclass_metrics,
)
from filbert.metrics.ranking import best_f1_threshold
from filbert.metrics.weighted import CalledRows, Figure, RankedRows, Weighting, figure_of

_AT_RECALL = {f"precision_at_recall_{round(100 * r)}": r for r in operating.RECALLS}
_CALLS: tuple[Figure, ...] = ("f1", "precision", "recall", "accuracy", "mcc")
_CHOICES: tuple[Figure, ...] = ("accuracy", "macro_f1", "weighted_f1")

# Those with an interval, in the order of the rows of `form`. Not the calibration error: resampled
# bins are noisier than the rows' own, so its resamples lie too high.
BINARY = ("roc_auc", "pr_auc", *_CALLS, "f1_at_half", *_AT_RECALL, "brier", "loss")
MULTICLASS = (*_CHOICES, "loss")
# Those that pairs are tested by, in the order of the rows of `tested_form`.
TESTED_BINARY = ("roc_auc", "pr_auc", "f1")
TESTED_MULTICLASS = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class Judged:
    """One run's answers for one split.

    Attributes:
        gold: label numbers, int64 (N,).
        probabilities: float64 (N, C).
        positive: number of the positive label of two; None for more labels.
        threshold: of the positive label's probability; None for more labels.
    """

    gold: np.ndarray
    probabilities: np.ndarray
    positive: int | None
    threshold: float | None

    @classmethod
    def tuned(cls, gold: np.ndarray, probabilities: np.ndarray, positive: int | None) -> Judged:
        """With the threshold of the best F1 on these rows, which should be the dev rows."""
        threshold = None
        if positive is not None:
            threshold = best_f1_threshold(gold == positive, probabilities[:, positive])
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
        """The label given: 0 or 1 (positive) of two, else label numbers; int64 (N,)."""
        if self.positive is None:
            return np.asarray(self.probabilities.argmax(1))
        return np.asarray(self.scores >= self.threshold, dtype=np.int64)

    @property
    def wanted(self) -> np.ndarray:
        """Gold in the terms of `called`, int64 (N,)."""
        return self.gold if self.positive is None else self.is_positive.astype(np.int64)

    def of(self, rows: np.ndarray) -> Judged:
        """The same for some of the rows; int or bool index."""
        return Judged(self.gold[rows], self.probabilities[rows], self.positive, self.threshold)

    def metrics(self) -> dict[str, Any]:
        """Every figure of the rows as they are; floats, None where undefined."""
        if self.positive is None:
            found = multiclass_metrics(self.gold, self.probabilities)
            del found["per_label"]
            right = self.called == self.gold
            sure = self.probabilities.max(1).clip(0, 1)
            return found | {"ece": calibration.expected_calibration_error(right, sure)}
        assert self.threshold is not None
        gold, scores = self.is_positive, self.scores
        found = binary_metrics(gold, scores, self.threshold)
        found["f1_at_half"] = binary_metrics(gold, scores, 0.5)["f1"]
        at_recalls = operating.precision_at_recalls(gold, scores)
        found |= {name: at_recalls[recall] for name, recall in _AT_RECALL.items()}
        found["ece"] = calibration.expected_calibration_error(gold, scores)
        found["brier"] = operating.brier_score(gold, scores)
        return found

    def form(self) -> tuple[tuple[str, ...], Weighting]:
        """The figures that get intervals: F names, and weights (N, B) -> float64 (F, B)."""
        if self.positive is None:
            calls = CalledRows(self.gold, self.called, self.probabilities.shape[1])
            likelihood = self.probabilities[np.arange(len(self.gold)), self.gold]
            losses = _losses(likelihood)[None]

            def choices(weights: np.ndarray) -> np.ndarray:
                confusion = calls.confusion(weights)
                rows = [figure_of(confusion, figure) for figure in _CHOICES]
                return np.vstack([*rows, _means(losses, weights)])

            return MULTICLASS, choices

        gold, scores = self.is_positive, self.scores
        ranked = RankedRows(gold, scores)
        tuned = CalledRows(gold, self.called, 2)
        half = CalledRows(gold, scores >= 0.5, 2)
        errors = (scores - gold) ** 2
        means = np.stack([errors, _losses(np.where(gold, scores, 1 - scores))])

        def decisions(weights: np.ndarray) -> np.ndarray:
            cuts = ranked.cuts(weights)
            confusion = tuned.confusion(weights)
            return np.vstack(
                [
                    cuts.roc_auc(),
                    cuts.pr_auc(),
                    *(figure_of(confusion, figure) for figure in _CALLS),
                    figure_of(half.confusion(weights), "f1"),
                    cuts.precision_at_recalls(list(_AT_RECALL.values())),
                    _means(means, weights),
                ]
            )

        return BINARY, decisions

    def tested_form(self) -> tuple[tuple[str, ...], Weighting]:
        """The few figures that pairs are tested by, at a fraction of the time of `form`."""
        calls = CalledRows(self.wanted, self.called, self.probabilities.shape[1])
        if self.positive is None:

            def choices(weights: np.ndarray) -> np.ndarray:
                confusion = calls.confusion(weights)
                return np.stack(
                    [figure_of(confusion, "accuracy"), figure_of(confusion, "macro_f1")]
                )

            return TESTED_MULTICLASS, choices
        ranked = RankedRows(self.is_positive, self.scores)

        def decisions(weights: np.ndarray) -> np.ndarray:
            cuts = ranked.cuts(weights)
            f1 = figure_of(calls.confusion(weights), "f1")
            return np.stack([cuts.roc_auc(), cuts.pr_auc(), f1])

        return TESTED_BINARY, decisions


def _losses(likelihood: np.ndarray) -> np.ndarray:
    return np.asarray(-np.log(np.maximum(likelihood, SMALLEST_PROBABILITY)))


def _means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted means: values (F, N), weights (N, B) -> (F, B)."""
    return np.asarray(values @ weights.astype(np.float64) / weights.sum(0))
