"""Metrics of rows that count more than once: what a bootstrap asks for thousands of times.

N rows, B resamples, C classes, K distinct scores of positive rows. A resample is a column of
weights: how often each row was drawn. Sorting happens once; a resample then costs a cumulative sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from filbert.metrics import ranking

# Weights, int (N, B), to values, float64 (B,); NaN where the metric is not defined.
Weighting = Callable[[np.ndarray], np.ndarray]
Metric = Callable[[np.ndarray, np.ndarray], "float | None"]

Figure = Literal["accuracy", "precision", "recall", "f1", "mcc", "macro_f1", "weighted_f1"]


@dataclass(frozen=True, slots=True)
class WeightedCuts:
    """What lies above each cut at the score of a positive row, the highest first.

    Cuts at the scores of negative rows alone are left out: they find nothing that the cut above
    them has not found, so no area and no best precision depends on them.

    Attributes:
        new_hits: positives with exactly this score, int64 (K, B).
        hits: positives with this score or a higher one, int64 (K, B).
        misses_above: negatives with a higher score, int64 (K, B).
        misses: negatives with this score or a higher one, int64 (K, B).
        num_positives: int64 (B,).
        num_negatives: int64 (B,).
    """

    new_hits: np.ndarray
    hits: np.ndarray
    misses_above: np.ndarray
    misses: np.ndarray
    num_positives: np.ndarray
    num_negatives: np.ndarray

    @property
    def _precision(self) -> np.ndarray:
        flagged = self.hits + self.misses
        return _divided(self.hits, flagged, empty=0.0)

    def roc_auc(self) -> np.ndarray:
        """As `ranking.roc_auc`, float64 (B,)."""
        ahead = 2 * self.num_negatives - self.misses_above - self.misses
        # Whole numbers until the last division, as there.
        twice_area = (self.new_hits * ahead).sum(0)
        return _divided(twice_area, 2 * self.num_positives * self.num_negatives)

    def pr_auc(self) -> np.ndarray:
        """As `ranking.pr_auc`, float64 (B,)."""
        area = _divided((self.new_hits * self._precision).sum(0), self.num_positives)
        return np.where(self.num_negatives > 0, area, np.nan)

    def precision_at_recalls(self, recalls: Sequence[float]) -> np.ndarray:
        """As `operating.precision_at_recalls`, float64 (len(recalls), B)."""
        found = np.full((len(recalls), len(self.num_positives)), np.nan)
        if len(self.hits):
            # best[k]: highest precision of cut k and all below it, which have at least its recall.
            best = np.maximum.accumulate(self._precision[::-1])[::-1]
            columns = np.arange(best.shape[1])
            for place, recall in enumerate(recalls):
                first = (self.hits < hits_for(recall, self.num_positives)).sum(0)
                found[place] = best[np.minimum(first, len(best) - 1), columns]
        return np.where(self.num_positives > 0, found, np.nan)


def hits_for(recall: float, num_positives: Any) -> Any:
    """The fewest hits with at least this recall; at least one. int, or int64 (B,)."""
    # 0.8 * 10 may be 8.000000000000002, which is no reason to ask for 9.
    return np.maximum(np.ceil(recall * num_positives - 1e-9).astype(np.int64), 1)


class RankedRows:
    """Rows sorted by score, ready for weights."""

    def __init__(self, is_positive: np.ndarray, scores: np.ndarray) -> None:
        """Gold as bool (N,), scores as float (N,)."""
        positive = np.asarray(is_positive, dtype=bool)
        values = np.asarray(scores, dtype=np.float64)
        if positive.shape != values.shape or positive.ndim != 1:
            raise ValueError(f"{positive.shape} gold values for {values.shape} scores")
        self._hits = np.flatnonzero(positive)
        self._hits = self._hits[np.argsort(-values[self._hits], kind="stable")]
        self._misses = np.flatnonzero(~positive)
        self._misses = self._misses[np.argsort(-values[self._misses], kind="stable")]
        falling, against = -values[self._hits], -values[self._misses]
        last_of_group = np.append(falling[1:] != falling[:-1], True)[: len(falling)]
        self._last = np.flatnonzero(last_of_group)
        self._above = np.searchsorted(against, falling[self._last], side="left")
        self._upto = np.searchsorted(against, falling[self._last], side="right")

    def cuts(self, weights: np.ndarray) -> WeightedCuts:
        """The table of cuts of each resample; weights int (N, B)."""
        hits = np.cumsum(weights[self._hits], axis=0, dtype=np.int64)
        misses = np.zeros((len(self._misses) + 1, weights.shape[1]), dtype=np.int64)
        np.cumsum(weights[self._misses], axis=0, out=misses[1:])
        num_positives = hits[-1] if len(hits) else misses[0]
        hits = hits[self._last]
        return WeightedCuts(
            np.diff(hits, axis=0, prepend=0),
            hits,
            misses[self._above],
            misses[self._upto],
            num_positives,
            misses[-1],
        )


class CalledRows:
    """Rows with their gold class and the class they were given, ready for weights."""

    def __init__(self, gold: np.ndarray, called: np.ndarray, num_classes: int) -> None:
        """Class numbers, int or bool (N,) each."""
        cells = np.asarray(gold, dtype=np.int64) * num_classes + np.asarray(called, dtype=np.int64)
        self._order = np.argsort(cells, kind="stable")
        self._cells, self._starts = np.unique(cells[self._order], return_index=True)
        self._classes = num_classes

    def confusion(self, weights: np.ndarray) -> np.ndarray:
        """Counts by gold and given class, int64 (C, C, B); weights int (N, B)."""
        table = np.zeros((self._classes**2, weights.shape[1]), dtype=np.int64)
        sums = np.add.reduceat(weights[self._order], self._starts, axis=0, dtype=np.int64)
        table[self._cells] = sums
        return table.reshape(self._classes, self._classes, -1)


def figure_of(confusion: np.ndarray, figure: Figure) -> np.ndarray:
    """A figure of (C, C, B) counts, float64 (B,), as metrics/classification.py defines it.

    precision, recall, f1 and mcc are those of class 1 of two; an empty denominator gives 0.
    """
    hits = np.einsum("ccb->cb", confusion)
    gold, called, rows = confusion.sum(1), confusion.sum(0), confusion.sum((0, 1))
    if figure == "accuracy":
        return _divided(hits.sum(0), rows, empty=0.0)
    f1 = _divided(2 * hits, gold + called, empty=0.0)
    if figure == "macro_f1":
        return _divided(f1.sum(0), (gold + called > 0).sum(0), empty=0.0)
    if figure == "weighted_f1":
        return _divided((f1 * gold).sum(0), rows, empty=0.0)
    if figure == "precision":
        return _divided(hits[1], called[1], empty=0.0)
    if figure == "recall":
        return _divided(hits[1], gold[1], empty=0.0)
    if figure == "f1":
        return np.asarray(f1[1])
    # float64: the product of four counts overflows 64 bits from about 55,000 rows on.
    excess = hits[1].astype(float) * hits[0] - (called[1] - hits[1]) * (gold[1] - hits[1]) * 1.0
    square = called[1].astype(float) * gold[1] * called[0] * gold[0]
    return _divided(excess, np.sqrt(square), empty=0.0)


@dataclass(frozen=True, slots=True)
class AtThreshold:
    """A figure of "positive if the score >= threshold", as a metric of (gold, scores)."""

    figure: Figure
    threshold: float

    def __call__(self, gold: np.ndarray, scores: np.ndarray) -> float:
        """Of rows that count once."""
        return float(self.weighted(gold, scores)(np.ones((len(gold), 1), dtype=np.int64))[0])

    def weighted(self, gold: np.ndarray, scores: np.ndarray) -> Weighting:
        """The same for weights."""
        called = np.asarray(scores, dtype=np.float64) >= self.threshold
        rows = CalledRows(np.asarray(gold, dtype=bool), called, 2)
        return lambda weights: figure_of(rows.confusion(weights), self.figure)


def weighted_form(metric: Metric, gold: np.ndarray, scores: np.ndarray) -> Weighting:
    """The metric of the rows as a function of weights.

    Fast for `ranking.roc_auc`, `ranking.pr_auc` and `AtThreshold`; any other callable is asked once
    a resample about the repeated rows.
    """
    if isinstance(metric, AtThreshold):
        return metric.weighted(gold, scores)
    if metric in (ranking.roc_auc, ranking.pr_auc):
        rows = RankedRows(gold, scores)
        if metric is ranking.roc_auc:
            return lambda weights: rows.cuts(weights).roc_auc()
        return lambda weights: rows.cuts(weights).pr_auc()

    def repeated(weights: np.ndarray) -> np.ndarray:
        found = []
        for column in weights.T:
            drawn = np.repeat(np.arange(len(column)), column)
            value = metric(gold[drawn], scores[drawn])
            found.append(np.nan if value is None else value)
        return np.array(found, dtype=np.float64)

    return repeated


def _divided(part: np.ndarray, whole: np.ndarray, empty: float = np.nan) -> np.ndarray:
    shape = np.broadcast_shapes(part.shape, whole.shape)
    out = np.full(shape, empty)
    np.divide(part, whole, out=out, where=whole > 0)
    return out
