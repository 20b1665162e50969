"""Is one model better than another on the same rows: paired bootstrap, McNemar, Holm.

N rows, B resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from filbert.metrics.intervals import check, ends, resampled
from filbert.metrics.weighted import Metric, weighted_form


@dataclass(frozen=True, slots=True)
class Difference:
    """One minus other on the rows as they are, its interval, and a two-sided p-value.

    All None where the metric of one of them is not defined.
    """

    value: float | None
    low: float | None
    high: float | None
    p: float | None


def paired_bootstrap(
    metric: Metric,
    gold: ArrayLike,
    one: ArrayLike,
    other: ArrayLike,
    *,
    other_metric: Metric | None = None,
    resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Difference:
    """The difference of a metric between two models, with the same resamples of rows for both.

    Args:
        metric: of (gold, scores); see `intervals.bootstrap`.
        gold: classes, bool or int (N,).
        one: scores of the first model, float (N,).
        other: scores of the second.
        other_metric: where the second is measured otherwise, as at a threshold of its own.
        resamples: B. No p-value is below 2 / (B + 1).
        seed: of the draws.
        level: of the interval.

    The p-value is that of `two_sided_p`.
    """
    wanted, first, second = np.asarray(gold), np.asarray(one), np.asarray(other)
    theirs = metric if other_metric is None else other_metric
    values = metric(wanted, first), theirs(wanted, second)
    if values[0] is None or values[1] is None:
        check(resamples, level)
        return Difference(None, None, None, None)
    forms = [weighted_form(metric, wanted, first), weighted_form(theirs, wanted, second)]
    drawn = resampled(forms, wanted, resamples=resamples, seed=seed)
    low, high = ends(drawn[0] - drawn[1], level)
    return Difference(float(values[0] - values[1]), low, high, two_sided_p(drawn[0] - drawn[1]))


def two_sided_p(differences: np.ndarray) -> float | None:
    """min(1, 2 (1 + min(count of d <= 0, count of d >= 0)) / (B + 1)) of B resampled differences d.

    It asks how far the resamples reach across zero, so it is at most 1 - level when and only when
    the percentile interval leaves zero out. A resample of exactly zero speaks against both sides:
    two equal models get 1. The one that is added is the sample itself (Davison and Hinkley 1997,
    chapter 4): a p-value of 0 would claim more than B draws can tell.

    None when no difference is defined.
    """
    defined = differences[~np.isnan(differences)]
    if not len(defined):
        return None
    across = min(int(np.sum(defined <= 0)), int(np.sum(defined >= 0)))
    return min(1.0, 2 * (1 + across) / (len(defined) + 1))


@dataclass(frozen=True, slots=True)
class McNemar:
    """Rows that only one of two models got right, and the p-value of that division."""

    p: float
    only_one_right: int
    only_other_right: int


def mcnemar(gold: ArrayLike, one_called: ArrayLike, other_called: ArrayLike) -> McNemar:
    """Are the two equally often right? Exact, two-sided; of class numbers or names (N,) each.

    Rows that both or neither got right say nothing. Under equal accuracy the others fall to either
    side like a fair coin, which is a binomial test with no approximation for small counts. With no
    such row p is 1.

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
    """p-values corrected for their number by Holm's step-down, in the order given.

    Calling all of them below 0.05 a difference is wrong, even once, in at most one of 20 such
    families, however the tests depend on each other. The smallest is multiplied by their number m,
    the next by m - 1, and so on; none is less than the one before it, none above 1.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(stepped, 1.0)
    return [float(p) for p in corrected]
