from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from filbert.metrics import ranking
from filbert.metrics.paired import holm, mcnemar, paired_bootstrap, two_sided_p
from filbert.metrics.weighted import AtThreshold


def exchangeable(chance: np.random.Generator, num_rows: int = 300, num_positives: int = 90):
    """Two models of the same worth whose errors are partly the same."""
    gold = np.arange(num_rows) < num_positives
    shared = chance.normal(size=num_rows) + 1.5 * gold
    return gold, shared + chance.normal(size=num_rows), shared + chance.normal(size=num_rows)


def test_p_is_counted_as_its_formula_says():
    assert two_sided_p(np.array([-1.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])) == 2 * 3 / 10
    assert two_sided_p(np.full(999, 0.1)) == 2 / 1000
    assert two_sided_p(np.full(999, -0.1)) == 2 / 1000
    assert two_sided_p(np.array([np.nan, 1.0, 1.0, 1.0])) == 2 / 4
    assert two_sided_p(np.array([np.nan])) is None


def test_a_model_does_not_differ_from_itself():
    gold, one, _ = exchangeable(np.random.default_rng(0))
    found = paired_bootstrap(ranking.roc_auc, gold, one, one, resamples=100)
    assert (found.value, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_the_other_way_round_the_difference_is_turned_and_p_is_the_same():
    gold, one, other = exchangeable(np.random.default_rng(1))
    mine = paired_bootstrap(ranking.pr_auc, gold, one, other, resamples=199)
    turned = paired_bootstrap(ranking.pr_auc, gold, other, one, resamples=199)
    assert turned.value == -mine.value and turned.p == mine.p
    assert (turned.low, turned.high) == pytest.approx((-mine.high, -mine.low), abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_p_is_at_most_5_percent_if_and_only_if_the_interval_leaves_zero_out(seed):
    gold, one, other = exchangeable(np.random.default_rng(seed))
    found = paired_bootstrap(
        ranking.roc_auc, gold, one + 0.06 * seed * gold, other, resamples=1999, seed=seed
    )
    assert (found.p <= 0.05) == (found.low > 0 or found.high < 0)


def test_the_same_resamples_for_both_make_the_interval_of_like_models_narrow():
    chance = np.random.default_rng(2)
    gold, one, _ = exchangeable(chance)
    near = one + 0.05 * chance.normal(size=len(one))
    _, strange, _ = exchangeable(np.random.default_rng(3))
    alike = paired_bootstrap(ranking.roc_auc, gold, one, near, resamples=300)
    unlike = paired_bootstrap(ranking.roc_auc, gold, one, strange, resamples=300)
    assert alike.high - alike.low < 0.2 * (unlike.high - unlike.low)


def test_each_model_is_judged_at_its_own_threshold():
    gold, one, _ = exchangeable(np.random.default_rng(4))
    found = paired_bootstrap(
        AtThreshold("f1", 1.0), gold, one, one / 2,
        other_metric=AtThreshold("f1", 0.5), resamples=50,
    )  # fmt: skip
    assert (found.value, found.p) == (0.0, 1.0)


def test_p_values_of_models_of_equal_worth_are_roughly_uniform():
    chance = np.random.default_rng(5)
    p_values = []
    for data_set in range(200):
        gold, one, other = exchangeable(chance)
        found = paired_bootstrap(ranking.roc_auc, gold, one, other, resamples=400, seed=data_set)
        p_values.append(found.p)
    # Deviations of a share of 200: 0.015 at 0.05, 0.035 at 0.5; three of them on either side.
    assert 0.005 <= np.mean(np.array(p_values) <= 0.05) <= 0.1
    assert 0.39 <= np.mean(np.array(p_values) <= 0.5) <= 0.61
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_mcnemar_of_a_table_worked_out_by_hand():
    # One alone is right 9 times, other alone once: 2 (1 + 10) / 2**10.
    gold = np.ones(14, dtype=int)
    one = np.array([1] * 9 + [0] + [1] * 2 + [0] * 2)
    other = np.array([0] * 9 + [1] + [1] * 2 + [0] * 2)
    found = mcnemar(gold, one, other)
    assert (found.only_one_right, found.only_other_right) == (9, 1)
    assert found.p == pytest.approx(22 / 1024, abs=1e-15)


@pytest.mark.parametrize(("only_one", "only_other"), [*itertools.product([0, 3, 40], [1, 5, 17])])
def test_mcnemar_is_the_binomial_tail_twice(only_one, only_other):
    gold = np.array(["yes"] * (only_one + only_other))
    one = np.array(["yes"] * only_one + ["no"] * only_other)
    other = np.array(["no"] * only_one + ["yes"] * only_other)
    tail = stats.binom.cdf(min(only_one, only_other), only_one + only_other, 0.5)
    assert mcnemar(gold, one, other).p == pytest.approx(min(1.0, 2 * tail), rel=1e-12)


def test_mcnemar_of_models_that_err_alike_finds_nothing():
    assert mcnemar([1, 0, 1], [1, 1, 1], [1, 1, 1]).p == 1.0


def test_holm_of_a_list_worked_out_by_hand():
    # Rising: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 raised to the one before.
    found = holm([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-15)


def test_holm_never_exceeds_one_and_of_one_test_changes_nothing():
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_holm_lies_between_the_plain_p_and_bonferroni_and_keeps_the_order():
    p = np.random.default_rng(0).random(30) ** 3
    found = np.array(holm(list(p)))
    assert (found >= p).all() and (found <= np.minimum(1, 30 * p) + 1e-15).all()
    assert (np.diff(found[np.argsort(p)]) >= 0).all()
