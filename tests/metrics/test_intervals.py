from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from filbert.errors import ConfigError, InputError
from filbert.metrics import ranking
from filbert.metrics.intervals import bootstrap, draws, ends
from filbert.metrics.weighted import AtThreshold


def binormal(chance: np.random.Generator, num_rows: int = 300, num_positives: int = 90):
    """Rows of a known ROC AUC of Phi(1.2 / sqrt 2) = 0.80."""
    gold = np.arange(num_rows) < num_positives
    return gold, stats.norm.cdf(chance.normal(size=num_rows) + 1.2 * gold)


def test_every_resample_holds_as_many_rows_of_each_class_as_there_are():
    gold = np.array([2, 0, 0, 1, 1, 1, 2, 0, 0])
    weights = np.concatenate(list(draws(gold, resamples=50, seed=0)), axis=1)
    assert weights.shape == (9, 50)
    for label in range(3):
        assert (weights[gold == label].sum(0) == (gold == label).sum()).all()


def test_within_a_class_every_row_is_drawn_equally_often():
    gold = np.arange(30) < 10
    weights = np.concatenate(list(draws(gold, resamples=4000, seed=0)), axis=1)
    # A weight is binomial(n, 1 / n): mean 1, variance 1 - 1 / n; 0.07 is more than four errors.
    np.testing.assert_allclose(weights.mean(1), 1, atol=0.07)
    np.testing.assert_allclose(weights[gold].var(1), 0.9, atol=0.12)


def test_equal_seeds_give_equal_intervals_and_others_do_not():
    gold, scores = binormal(np.random.default_rng(0))
    first, again = (bootstrap(ranking.roc_auc, gold, scores, resamples=200) for _ in range(2))
    assert first == again
    assert bootstrap(ranking.roc_auc, gold, scores, resamples=200, seed=1) != first


def test_a_fast_metric_and_a_plain_callable_get_the_same_interval():
    gold, scores = binormal(np.random.default_rng(1))
    for fast in (ranking.roc_auc, ranking.pr_auc, AtThreshold("f1", 0.6)):
        mine = bootstrap(fast, gold, scores, resamples=60)
        plain = bootstrap(lambda g, s, m=fast: m(g, s), gold, scores, resamples=60)
        assert (mine.value, mine.low, mine.high) == pytest.approx(
            (plain.value, plain.low, plain.high), abs=1e-12
        )


def test_the_ends_agree_with_those_of_scipy():
    gold, scores = binormal(np.random.default_rng(2), 400, 200)
    mine = bootstrap(ranking.roc_auc, gold, scores, resamples=4000)

    def area(positives, negatives):
        return ranking.roc_auc(
            np.arange(len(positives) + len(negatives)) < len(positives),
            np.concatenate([positives, negatives]),
        )

    theirs = stats.bootstrap(
        (scores[gold], scores[~gold]), area, vectorized=False, method="percentile",
        n_resamples=1500, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    # The interval is 0.085 wide; an end of 1,500 resamples errs by about 0.0015.
    assert (mine.low, mine.high) == pytest.approx((theirs.low, theirs.high), abs=0.006)


def test_the_ends_are_the_ranks_that_the_rule_names():
    # 1,999 resamples at 95 %: the 50th from below and from above.
    values = np.random.default_rng(0).permutation(np.arange(1.0, 2000.0))
    assert ends(values, 0.95) == pytest.approx((50.0, 1950.0), abs=1e-9)


def test_a_95_percent_interval_holds_the_true_area_in_about_95_of_100_data_sets():
    true = float(stats.norm.cdf(1.2 / np.sqrt(2)))
    chance = np.random.default_rng(0)
    covered = 0
    for data_set in range(200):
        gold, scores = binormal(chance)
        found = bootstrap(ranking.roc_auc, gold, scores, resamples=400, seed=data_set)
        covered += found.low <= true <= found.high
    # Binomial with p = 0.95 has a deviation of 3 in 200; the percentile interval is known to fall
    # short by a point or two at this size.
    assert 0.90 <= covered / 200 <= 0.985


def test_a_metric_that_is_not_defined_has_no_interval():
    found = bootstrap(ranking.roc_auc, np.ones(5, dtype=bool), np.linspace(0, 1, 5))
    assert (found.value, found.low, found.high) == (None, None, None)


def test_without_rows_or_with_odd_options_there_is_a_sentence():
    gold, scores = np.array([True, False]), np.array([0.9, 0.1])
    with pytest.raises(InputError, match="no row"):
        bootstrap(AtThreshold("accuracy", 0.5), gold[:0], scores[:0])
    with pytest.raises(ConfigError, match="resamples is 0"):
        bootstrap(ranking.roc_auc, gold, scores, resamples=0)
    with pytest.raises(ConfigError, match="level is 95"):
        bootstrap(ranking.roc_auc, gold, scores, level=95)
