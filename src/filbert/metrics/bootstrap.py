"""Uncertainty of metrics: bootstrap percentile intervals, paired tests and Holm's correction.

N rows, B resamples, C classes, K distinct scores of positive rows.

A resample is a column of weights: how often each row was drawn. Rows are drawn with replacement,
from each class as many as it has, so that both classes are in every resample and an interval is
valid for rows of this class balance; with a small class among several, from all rows together,
because few rows drawn among themselves hardly vary. Sorting happens once; a resample costs a
cumulative sum.

Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapters 13 (percentile) and
14 (BCa). The percentile method is used instead of BCa because its ends follow any monotone change
of scale, never leave the range of the metric, need no jackknife of N more evaluations, and agree
with the p-value of a paired difference on the same resamples. It does not correct bias and
skewness, which matters with few positives and near the ends of the scale: docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# Maps weights, int (N, B), to values, (..., B); NaN where one is undefined.
Weighting = Callable[[np.ndarray], np.ndarray]
# Maps weights, int (N, B), to metrics by name, float64 (B,) each.
Form = Callable[[np.ndarray], dict[str, np.ndarray]]

# Weights made at once. Part of what a seed means: another block size gives other draws.
_BLOCK = 2**20
# Drawing n rows of a class among themselves loses 1 / n of the variance of its mean.
_FEWEST_OF_CLASS = 10


def resampled(
    forms: Sequence[Form], gold: np.ndarray, *, resamples: int, seed: int
) -> list[dict[str, np.ndarray]]:
    """Compute the metrics of each form on the same resamples, float64 (B,) by name."""
    blocks = [
        [form(weights) for form in forms] for weights in draws(gold, resamples=resamples, seed=seed)
    ]
    return [
        {name: np.concatenate([block[name] for block in own]) for name in own[0]}
        for own in zip(*blocks, strict=True)
    ]


def draws(gold: np.ndarray, *, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the weights of all resamples in blocks, int32 (N, b).

    Within a class each row is equally likely, and the weights add up to the rows of the class. If
    one of more than two classes has fewer than ten rows, all rows are one class.
    """
    _, numbers, sizes = np.unique(gold, return_inverse=True, return_counts=True)
    if len(sizes) > 2 and sizes.min() < _FEWEST_OF_CLASS:
        numbers, sizes = np.zeros_like(numbers), sizes[:1]
    members = [np.flatnonzero(numbers.reshape(-1) == c) for c in range(len(sizes))]
    generator = np.random.default_rng(seed)
    width = max(1, _BLOCK // len(numbers))
    for start in range(0, resamples, width):
        size = min(width, resamples - start)
        weights = np.empty((len(numbers), size), dtype=np.int32)
        for rows in members:
            drawn = generator.integers(0, len(rows), size=(len(rows), size))
            cells = (drawn * size + np.arange(size)).ravel()
            counts = np.bincount(cells, minlength=len(rows) * size)
            weights[rows] = counts.reshape(len(rows), size)
        yield weights


def ends(values: np.ndarray, level: float) -> tuple[float | None, float | None]:
    """Return the percentiles around the middle `level`; None without a defined value.

    They are the resamples of rank (B + 1) (1 - level) / 2 from below and above (Efron and
    Tibshirani 1993, chapter 12). By this rule the interval excludes zero if and only if p is at
    most 1 - level.
    """
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None, None
    tail = (1 - level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail], method="weibull")
    return float(low), float(high)


def two_sided_p(differences: np.ndarray) -> float | None:
    """Return min(1, 2 (1 + min(count of d <= 0, count of d >= 0)) / (B + 1)).

    It is at most 1 - level if and only if the percentile interval excludes zero. A resample of
    exactly zero counts for both sides: two equal models get 1. The 1 that is added is the sample
    itself (Davison and Hinkley 1997, chapter 4), because B draws cannot support a p-value of 0.
    None without a defined difference.
    """
    defined = differences[~np.isnan(differences)]
    if not len(defined):
        return None
    across = min(int(np.sum(defined <= 0)), int(np.sum(defined >= 0)))
    return min(1.0, 2 * (1 + across) / (len(defined) + 1))


def difference(one: np.ndarray, other: np.ndarray, *, level: float = 0.95) -> dict[str, Any]:
    """Return `low`, `high` and `p` of the difference of two models on the same resamples, (B,)."""
    low, high = ends(one - other, level)
    return {"low": low, "high": high, "p": two_sided_p(one - other)}


class McNemar(NamedTuple):
    """Rows that only one of two models got right, and the p-value of that division."""

    p: float
    only_one: int
    only_other: int


def mcnemar(gold: ArrayLike, one_called: ArrayLike, other_called: ArrayLike) -> McNemar:
    """Test whether two models are right equally often: exact and two-sided; classes (N,) each.

    Rows that both or neither got right carry no information. Under equal accuracy the others are a
    fair coin, which gives a binomial test without an approximation. Without such a row p is 1.

    Source: McNemar 1947; the exact form in Dietterich 1998, section 3.1 (there with chi-square).
    """
    wanted = np.asarray(gold)
    one, other = np.asarray(one_called) == wanted, np.asarray(other_called) == wanted
    only_one, only_other = int(np.sum(one & ~other)), int(np.sum(other & ~one))
    if only_one + only_other == 0:
        return McNemar(1.0, 0, 0)
    from scipy.stats import binomtest

    p = binomtest(only_one, only_one + only_other, 0.5).pvalue
    return McNemar(float(p), only_one, only_other)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's step-down, in the order given.

    The probability of any false rejection stays below the level, however the tests depend on each
    other. The smallest of m p-values is multiplied by m, the next by m - 1, and so on.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(stepped, 1.0)
    return [float(p) for p in corrected]


def areas_form(
    is_positive: np.ndarray, scores: np.ndarray, recalls: Sequence[float] = ()
) -> Weighting:
    """Return a function from weights to areas and precisions, float64 (2 + recalls, B).

    It computes `ranking.roc_auc`, `ranking.pr_auc`, and for each of `recalls`, from 0 to 1, the
    highest precision of any cut with at least that recall. The cut is chosen on these very rows, so
    it compares rankings and is no estimate for new rows. Values that are not defined are NaN.

    Gold is bool (N,), scores are float (N,). Rows are sorted once. Cuts are at the scores of
    positive rows: no area and no best precision depends on others.
    """
    positive = np.asarray(is_positive, dtype=bool)
    falling_all = -np.asarray(scores, dtype=np.float64)
    hit_rows, miss_rows = (
        rows[np.argsort(falling_all[rows], kind="stable")]
        for rows in (np.flatnonzero(positive), np.flatnonzero(~positive))
    )
    falling, against = falling_all[hit_rows], falling_all[miss_rows]
    last_of_group = np.append(falling[1:] != falling[:-1], True)[: len(falling)]
    last = np.flatnonzero(last_of_group)
    num_above = np.searchsorted(against, falling[last], side="left")
    num_upto = np.searchsorted(against, falling[last], side="right")

    def of(weights: np.ndarray) -> np.ndarray:
        hits = np.cumsum(weights[hit_rows], axis=0, dtype=np.int64)
        misses = np.zeros((len(miss_rows) + 1, weights.shape[1]), dtype=np.int64)
        np.cumsum(weights[miss_rows], axis=0, out=misses[1:])
        num_positives, num_negatives = hits[-1] if len(hits) else misses[0], misses[-1]
        # (K, B): positives at or above each cut, those exactly at it, negatives above and up to it.
        hits = hits[last]
        new_hits = np.diff(hits, axis=0, prepend=0)
        above, upto = misses[num_above], misses[num_upto]
        precision = _divided(hits, hits + upto, empty=0.0)
        # Integers until the last division.
        twice_area = (new_hits * (2 * num_negatives - above - upto)).sum(0)
        found = np.full((2 + len(recalls), weights.shape[1]), np.nan)
        found[0] = _divided(twice_area, 2 * num_positives * num_negatives)
        found[1] = _divided((new_hits * precision).sum(0), num_positives)
        found[1, num_negatives == 0] = np.nan
        if len(hits):
            # best[k]: highest precision of cut k and all below it, which have at least its recall.
            best = np.maximum.accumulate(precision[::-1])[::-1]
            for row, recall in enumerate(recalls, 2):
                # 0.8 * 10 may be 8.000000000000002, which must not require 9 hits.
                least = np.ceil(recall * num_positives - 1e-9).astype(np.int64)
                first = (hits < np.maximum(least, 1)).sum(0)
                found[row] = best[np.minimum(first, len(best) - 1), np.arange(best.shape[1])]
        found[2:, num_positives == 0] = np.nan
        return found

    return of


def confusion_form(gold: np.ndarray, called: np.ndarray, num_classes: int) -> Weighting:
    """Return a function from weights to counts by gold and predicted class, int64 (C, C, B).

    The class numbers are int or bool (N,) each.
    """
    cells = np.asarray(gold, dtype=np.int64) * num_classes + np.asarray(called, dtype=np.int64)
    order = np.argsort(cells, kind="stable")
    filled, starts = np.unique(cells[order], return_index=True)

    def of(weights: np.ndarray) -> np.ndarray:
        table = np.zeros((num_classes**2, weights.shape[1]), dtype=np.int64)
        table[filled] = np.add.reduceat(weights[order], starts, axis=0, dtype=np.int64)
        return table.reshape(num_classes, num_classes, -1)

    return of


def rates_of(confusion: np.ndarray) -> dict[str, np.ndarray]:
    """Compute rates of (C, C, B) counts, float64 (B,), as metrics/classification.py defines them.

    precision, recall, f1 and mcc are those of class 1 of two; an empty denominator gives 0.
    """
    hits = np.einsum("ccb->cb", confusion)
    gold, called, rows = confusion.sum(1), confusion.sum(0), confusion.sum((0, 1))
    f1 = _divided(2 * hits, gold + called, empty=0.0)
    # float64: the product of four counts overflows 64 bits from about 55,000 rows on.
    excess = hits[1].astype(float) * hits[0] - (called[1] - hits[1]) * (gold[1] - hits[1]) * 1.0
    square = called[1].astype(float) * gold[1] * called[0] * gold[0]
    return {
        "accuracy": _divided(hits.sum(0), rows, empty=0.0),
        "macro_f1": _divided(f1.sum(0), (gold + called > 0).sum(0), empty=0.0),
        "weighted_f1": _divided((f1 * gold).sum(0), rows, empty=0.0),
        "precision": _divided(hits[1], called[1], empty=0.0),
        "recall": _divided(hits[1], gold[1], empty=0.0),
        "f1": f1[1],
        "mcc": _divided(excess, np.sqrt(square), empty=0.0),
    }


def binary_form(
    is_positive: np.ndarray,
    scores: np.ndarray,
    called: np.ndarray,
    *,
    recalls: Mapping[str, float] | None = None,
) -> Form:
    """Return the areas and rates of a binary classifier.

    Args:
        is_positive: Gold, bool (N,).
        scores: Of the positive class, float (N,).
        called: Decisions, bool (N,).
        recalls: By name, to give the best precision at.
    """
    at = recalls or {}
    areas_of = areas_form(is_positive, scores, tuple(at.values()))
    confusion_of = confusion_form(is_positive, called, 2)
    names = ("f1", "precision", "recall", "accuracy", "mcc")

    def of(weights: np.ndarray) -> dict[str, np.ndarray]:
        rates = rates_of(confusion_of(weights))
        areas = dict(zip(("roc_auc", "pr_auc", *at), areas_of(weights), strict=True))
        return areas | {name: rates[name] for name in names}

    return of


def class_form(gold: np.ndarray, called: np.ndarray, num_classes: int) -> Form:
    """Return the rates of a choice between classes; class numbers, int (N,) each."""
    confusion_of = confusion_form(gold, called, num_classes)
    names = ("accuracy", "macro_f1", "weighted_f1")

    def of(weights: np.ndarray) -> dict[str, np.ndarray]:
        rates = rates_of(confusion_of(weights))
        return {name: rates[name] for name in names}

    return of


def _divided(part: np.ndarray, whole: np.ndarray, empty: float = np.nan) -> np.ndarray:
    out = np.full(np.broadcast_shapes(part.shape, whole.shape), empty)
    np.divide(part, whole, out=out, where=whole > 0)
    return out
