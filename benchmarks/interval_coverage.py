"""How often the bootstrap intervals of a study hold the true figure; for docs/statistics.md.

Scores are normal, those of positive rows shifted, so the true figures are known. Run it with
`python benchmarks/interval_coverage.py`; two minutes on a core, the same numbers everywhere.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from filbert.compare.statistics import mean_over_seeds
from filbert.metrics import ranking
from filbert.metrics.bootstrap import (
    Form,
    areas_form,
    confusion_form,
    ends,
    rates_of,
    resampled,
)

SHIFT = 1.8
SHARE = 0.1
DATA_SETS = 600
STUDIES = 300
RESAMPLES = 799


def f1_form(gold: np.ndarray, scores: np.ndarray, threshold: float) -> Form:
    """F1 at a threshold as a function of weights."""
    confusion_of = confusion_form(gold, scores >= threshold, 2)
    return lambda weights: {"value": rates_of(confusion_of(weights))["f1"]}


def roc_form(gold: np.ndarray, scores: np.ndarray) -> Form:
    """ROC AUC as a function of weights."""
    areas_of = areas_form(gold, scores)
    return lambda weights: {"value": areas_of(weights)[0]}


def pr_form(gold: np.ndarray, scores: np.ndarray) -> Form:
    """Average precision as a function of weights."""
    areas_of = areas_form(gold, scores)
    return lambda weights: {"value": areas_of(weights)[1]}


def truth() -> tuple[list[float], float]:
    """ROC AUC, average precision and F1 of endlessly many rows, and the best threshold."""
    chance = np.random.default_rng(0)
    gold = chance.random(2_000_000) < SHARE
    scores = chance.normal(size=gold.size) + SHIFT * gold
    threshold = ranking.best_f1_threshold(gold, scores)
    once = np.ones((gold.size, 1), dtype=np.int64)
    f1 = float(f1_form(gold, scores, threshold)(once)["value"][0])
    area = float(stats.norm.cdf(SHIFT / np.sqrt(2)))
    return [area, float(ranking.pr_auc(gold, scores) or 0), f1], threshold


def by_rows(num_positives: int, *, fixed: bool, bca: bool) -> np.ndarray:
    """Share of data sets whose 95 % interval holds the true ROC AUC, PR AUC, F1."""
    true, threshold = truth()
    chance = np.random.default_rng(num_positives)
    num_rows = round(num_positives / SHARE)
    held = np.zeros(3)
    for data_set in range(DATA_SETS):
        gold = chance.random(num_rows) < SHARE
        if fixed or gold.sum() < 2:
            gold = np.arange(num_rows) < num_positives
        scores = chance.normal(size=num_rows) + SHIFT * gold
        forms = [
            roc_form(gold, scores),
            pr_form(gold, scores),
            f1_form(gold, scores, threshold),
        ]
        drawn = resampled(forms, gold, resamples=RESAMPLES, seed=data_set)
        for place, (form, values) in enumerate(zip(forms, drawn, strict=True)):
            own = values["value"]
            low, high = _bca(form, own, num_rows) if bca else ends(own, 0.95)
            held[place] += low <= true[place] <= high
    return held / DATA_SETS


def _bca(form, values: np.ndarray, num_rows: int) -> tuple[float, float]:
    """Efron and Tibshirani 1993, section 14.3."""
    every = np.ones((num_rows, num_rows), dtype=np.int64)
    left_out = form(every - np.eye(num_rows, dtype=np.int64))["value"]
    pulls = left_out.mean() - left_out
    acceleration = (pulls**3).sum() / (6 * (pulls**2).sum() ** 1.5 + 1e-300)
    value = form(every[:, :1])["value"][0]
    below = (np.mean(values < value) + np.mean(values <= value)) / 2
    bias = stats.norm.ppf(np.clip(below, 1e-4, 1 - 1e-4))
    z = bias + stats.norm.ppf([0.025, 0.975])
    low, high = np.quantile(values, stats.norm.cdf(bias + z / (1 - acceleration * z)))
    return float(low), float(high)


def by_seeds(num_seeds: int, spread: float) -> tuple[float, float]:
    """Share of studies whose interval over seeds, and whose interval of one seed, holds the true
    mean ROC AUC over seeds; 1,000 rows, 100 positive, half-shared errors, shift N(1.8, spread).
    """
    chance = np.random.default_rng([num_seeds, round(100 * spread)])
    shifts = np.random.default_rng(0).normal(SHIFT, spread, 200_000)
    true = stats.norm.cdf(shifts / np.sqrt(2)).mean()
    gold = np.arange(1000) < 100
    held = np.zeros(2)
    for study in range(STUDIES):
        shared = chance.normal(size=1000)
        forms = []
        for _ in range(num_seeds):
            own = (shared + chance.normal(size=1000)) / np.sqrt(2)
            scores = own + chance.normal(SHIFT, spread) * gold
            forms.append(roc_form(gold, scores))
        drawn = resampled(forms, gold, resamples=RESAMPLES, seed=study)
        means = mean_over_seeds(drawn, [study, 1])
        for place, values in enumerate((means, drawn[0])):
            low, high = ends(values["value"], 0.95)
            held[place] += low <= true <= high
    over, one = held / STUDIES
    return float(over), float(one)


if __name__ == "__main__":
    for number in (10, 25, 50, 100, 300):
        for name, fixed, bca in (
            ("share as drawn", False, False),
            ("share fixed", True, False),
            ("share fixed, BCa", True, True),
        ):
            if not bca or number <= 50:
                held = by_rows(number, fixed=fixed, bca=bca)
                print(f"{number} positives, {name}: ROC, PR, F1 {held.round(3)}", flush=True)
    for spread in (0.0, 0.15, 0.4):
        for number in (2, 3):
            over, one = by_seeds(number, spread)
            print(
                f"{number} seeds, spread {spread}: over seeds {over:.3f}, one {one:.3f}", flush=True
            )
