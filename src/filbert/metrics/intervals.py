"""Confidence intervals of metrics: bootstrap percentile intervals over rows.

N rows, B resamples. Rows are drawn with replacement, from each class as many as it has: stratified,
so both classes are in every resample and an interval speaks of rows of this class balance.

Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapters 13 (percentile) and
14 (BCa). Percentile and not BCa: the ends follow any monotone change of scale, never leave the
range of the metric, need no jackknife of N more evaluations, and agree with the p-value of a paired
difference (metrics/paired.py) on the same resamples. The price: no correction for bias and
skewness, which shows with few positives and near the ends of the scale; docs/statistics.md says how
much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from filbert.errors import ConfigError, InputError
from filbert.metrics.weighted import Metric, Weighting, weighted_form

# Weights made at once. Part of what a seed means: another block gives other draws.
_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure of the rows as they are, and where the middle `level` of its resamples lie.

    All None where the figure is not defined, as an area is for rows of one class.
    """

    value: float | None
    low: float | None
    high: float | None


def bootstrap(
    metric: Metric,
    gold: ArrayLike,
    scores: ArrayLike,
    *,
    resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """A percentile interval of a metric.

    An interval of width zero, as a faultless ranking gets it, does not say that the figure is sure:
    no resample of rows without an error holds one.

    Args:
        metric: of (gold, scores). Fast for `ranking.roc_auc`, `ranking.pr_auc`, `AtThreshold`.
        gold: classes, bool or int (N,).
        scores: float (N,), or (N, C) where the metric takes that.
        resamples: B.
        seed: of the draws; equal seeds and gold give equal draws.
        level: share of the resamples between the two ends.

    Raises ConfigError for options out of range, InputError when there is no row.
    """
    wanted, values = np.asarray(gold), np.asarray(scores)
    form = weighted_form(metric, wanted, values)
    found = metric(wanted, values)
    if found is None:
        check(resamples, level)
        return Interval(None, None, None)
    (drawn,) = resampled([form], wanted, resamples=resamples, seed=seed)
    low, high = ends(drawn, level)
    return Interval(float(found), low, high)


def resampled(
    forms: Sequence[Weighting], gold: np.ndarray, *, resamples: int, seed: int
) -> list[np.ndarray]:
    """Each metric on the same resamples, float64 (B,) or, as the form gives it, (..., B)."""
    blocks: list[list[np.ndarray]] = [[] for _ in forms]
    for weights in draws(gold, resamples=resamples, seed=seed):
        for values, form in zip(blocks, forms, strict=True):
            values.append(form(weights))
    return [np.concatenate(values, axis=-1) for values in blocks]


def draws(gold: np.ndarray, *, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Weights of all resamples, int32 (N, b) a block: how often each row was drawn.

    Within a class each row is equally likely and their weights add up to the rows of the class.
    """
    check(resamples, 0.5)
    classes, numbers = np.unique(gold, return_inverse=True)
    if not len(numbers):
        raise InputError("there is no row to resample. Give at least one labelled row.")
    members = [np.flatnonzero(numbers.reshape(-1) == c) for c in range(len(classes))]
    chance = np.random.default_rng(seed)
    width = max(1, _BLOCK // len(numbers))
    for start in range(0, resamples, width):
        size = min(width, resamples - start)
        weights = np.empty((len(numbers), size), dtype=np.int32)
        for rows in members:
            drawn = chance.integers(0, len(rows), size=(len(rows), size))
            places = (drawn * size + np.arange(size)).ravel()
            counts = np.bincount(places, minlength=len(rows) * size)
            weights[rows] = counts.reshape(len(rows), size)
        yield weights


def ends(values: np.ndarray, level: float) -> tuple[float | None, float | None]:
    """The two percentiles around the middle `level`; None of no defined value.

    The ends are the resamples of rank (B + 1) (1 - level) / 2 from below and above (Efron and
    Tibshirani 1993, chapter 12): the rule under which "the interval leaves zero out" and "p is at
    most 1 - level" are the same statement.
    """
    check(1, level)
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None, None
    tail = (1 - level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail], method="weibull")
    return float(low), float(high)


def check(resamples: int, level: float) -> None:
    """Refuse what gives no interval."""
    if resamples < 1:
        raise ConfigError(f"resamples is {resamples}; give at least 1, better 1000 or more.")
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; an interval's level lies between 0 and 1, as 0.95.")
