"""Resampled metrics, percentile intervals, paired tests and Holm's correction."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import precision_recall_curve

from filbert.metrics import ranking
from filbert.metrics.bootstrap import (
    areas_form,
    confusion_form,
    draws,
    ends,
    holm,
    mcnemar,
    rates_of,
    resampled,
    two_sided_p,
)
from filbert.metrics.classification import binary_metrics, multiclass_metrics

RECALLS = (0.3, 0.5, 0.8, 0.9, 1.0)


def drawn(seed: int, num_rows: int = 120, levels: int | None = None):
    chance = np.random.default_rng(seed)
    gold = chance.random(num_rows) < 0.3
    scores = np.clip(0.25 * gold + chance.random(num_rows) * 0.7, 0, 1)
    scores = scores if levels is None else np.round(scores * levels) / levels
    return gold, scores, chance.integers(0, 4, size=(num_rows, 12))


def repeated(weights: np.ndarray, column: int) -> np.ndarray:
    return np.repeat(np.arange(len(weights)), weights[:, column])


def once(gold):
    return np.ones((len(gold), 1), dtype=np.int64)


def area(gold, scores):
    """ROC AUC as a function of weights."""
    areas_of = areas_form(gold, scores)
    return lambda weights: {"area": areas_of(weights)[0]}


def interval(gold, scores, *, resamples=2000, seed=0):
    (values,) = resampled([area(gold, scores)], gold, resamples=resamples, seed=seed)
    return ends(values["area"], 0.95)


def differences(gold, one, other, *, resamples, seed=0):
    forms = [area(gold, one), area(gold, other)]
    mine, theirs = resampled(forms, gold, resamples=resamples, seed=seed)
    return mine["area"] - theirs["area"]


def binormal(chance: np.random.Generator, num_rows: int = 300, num_positives: int = 90):
    """Rows of a known ROC AUC of Phi(1.2 / sqrt 2) = 0.80."""
    gold = np.arange(num_rows) < num_positives
    return gold, stats.norm.cdf(chance.normal(size=num_rows) + 1.2 * gold)


def exchangeable(chance: np.random.Generator, num_rows: int = 300, num_positives: int = 90):
    """Two models of the same quality whose errors are partly the same."""
    gold = np.arange(num_rows) < num_positives
    shared = chance.normal(size=num_rows) + 1.5 * gold
    return gold, shared + chance.normal(size=num_rows), shared + chance.normal(size=num_rows)


@pytest.mark.parametrize("levels", [None, 5, 1])
def test_weighted_areas_are_those_of_the_repeated_rows(levels):
    gold, scores, weights = drawn(0, levels=levels)
    areas = areas_form(gold, scores)(weights)
    for values, metric in zip(areas, (ranking.roc_auc, ranking.pr_auc), strict=True):
        for column, value in enumerate(values):
            rows = repeated(weights, column)
            # 1e-12: both sum a few hundred float64 terms.
            assert value == pytest.approx(metric(gold[rows], scores[rows]), abs=1e-12)


@pytest.mark.parametrize("levels", [None, 6])
def test_precision_at_recalls_is_the_best_point_of_scikit_learns_curve(levels):
    gold, scores, weights = drawn(1, levels=levels)
    found = areas_form(gold, scores, RECALLS)(weights)[2:]
    for column in range(weights.shape[1]):
        rows = repeated(weights, column)
        precision, recall, _ = precision_recall_curve(gold[rows], scores[rows])
        wanted = [precision[recall >= least - 1e-12].max() for least in RECALLS]
        np.testing.assert_allclose(found[:, column], wanted, atol=1e-12)


def test_precision_at_recalls_of_a_table_worked_out_by_hand():
    # Falling scores: + - + + -. Cuts (recall, precision): 1/3 1, 1/3 1/2, 2/3 2/3, 1 3/4, 1 3/5.
    gold = np.array([True, False, True, True, False])
    areas_of = areas_form(gold, np.array([0.9, 0.8, 0.7, 0.6, 0.1]), (0.3, 0.5, 0.9, 1.0))
    found = areas_of(once(gold))[2:]
    assert found[:, 0].tolist() == [1, 0.75, 0.75, 0.75]


def test_without_positive_rows_there_is_no_precision_at_a_recall():
    gold = np.array([False, False])
    assert np.isnan(areas_form(gold, np.array([0.1, 0.2]), (0.5,))(once(gold))).all()


@pytest.mark.parametrize("rate", ["f1", "precision", "recall", "accuracy", "mcc"])
def test_a_weighted_rate_at_a_threshold_is_that_of_the_repeated_rows(rate):
    gold, scores, weights = drawn(2)
    found = rates_of(confusion_form(gold, scores >= 0.55, 2)(weights))[rate]
    for column, value in enumerate(found):
        rows = repeated(weights, column)
        wanted = binary_metrics(gold[rows], scores[rows], 0.55)[rate]
        assert value == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("rate", ["accuracy", "macro_f1", "weighted_f1"])
def test_a_weighted_rate_of_many_classes_is_that_of_the_repeated_rows(rate):
    chance = np.random.default_rng(3)
    gold, called = chance.integers(0, 3, 60), chance.integers(0, 5, 60)
    weights = chance.integers(0, 3, size=(60, 20))
    # Class 4 is predicted once only, so in some resamples it does not occur at all.
    called[called == 4] = 3
    called[0] = 4
    assert (weights[0] == 0).any()
    found = rates_of(confusion_form(gold, called, 5)(weights))[rate]
    for column, value in enumerate(found):
        rows = repeated(weights, column)
        wanted = multiclass_metrics(
            gold[rows], np.full((len(rows), 5), 0.2), predicted=called[rows]
        )
        assert value == pytest.approx(wanted[rate], abs=1e-12)


def test_areas_of_a_resample_without_one_of_the_classes_are_not_numbers():
    gold, scores = np.array([True, True, False, False]), np.array([0.9, 0.6, 0.7, 0.1])
    weights = np.array([[2, 0, 1], [1, 0, 0], [0, 1, 2], [0, 3, 0]])
    for values in areas_form(gold, scores)(weights):
        assert np.isnan(values[:2]).all() and values[2] == 1.0


def test_within_a_class_every_row_is_drawn_equally_often():
    gold = np.arange(30) < 10
    weights = np.concatenate(list(draws(gold, resamples=4000, seed=0)), axis=1)
    # A weight is binomial(n, 1 / n): mean 1, variance 1 - 1 / n; 0.07 is more than four errors.
    np.testing.assert_allclose(weights.mean(1), 1, atol=0.07)
    np.testing.assert_allclose(weights[gold].var(1), 0.9, atol=0.12)


def test_rows_of_small_classes_vary_as_much_as_the_binomial_says():
    gold, is_right = np.arange(30), np.arange(30) % 5 > 0
    weights = np.concatenate(list(draws(gold, resamples=4000, seed=0)), axis=1)
    accuracies = is_right @ weights / 30
    assert accuracies.std() == pytest.approx((0.8 * 0.2 / 30) ** 0.5, rel=0.05)


def test_the_ends_agree_with_those_of_scipy():
    gold, scores = binormal(np.random.default_rng(2), 400, 200)
    low, high = interval(gold, scores, resamples=4000)

    def roc_auc(positives, negatives):
        return ranking.roc_auc(
            np.arange(len(positives) + len(negatives)) < len(positives),
            np.concatenate([positives, negatives]),
        )

    theirs = stats.bootstrap(
        (scores[gold], scores[~gold]), roc_auc, vectorized=False, method="percentile",
        n_resamples=1500, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    # The interval is 0.085 wide; an end of 1,500 resamples errs by about 0.0015.
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.006)


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
        low, high = interval(gold, scores, resamples=400, seed=data_set)
        covered += low <= true <= high
    # Binomial with p = 0.95 has a deviation of 3 in 200; the percentile interval is known to fall
    # short by a point or two at this size.
    assert 0.90 <= covered / 200 <= 0.985


def test_p_is_counted_as_its_formula_says():
    assert two_sided_p(np.array([-1.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])) == 2 * 3 / 10
    assert two_sided_p(np.full(999, 0.1)) == 2 / 1000
    assert two_sided_p(np.full(999, -0.1)) == 2 / 1000
    assert two_sided_p(np.array([np.nan, 1.0, 1.0, 1.0])) == 2 / 4
    assert two_sided_p(np.array([np.nan])) is None


@pytest.mark.parametrize("seed", range(12))
def test_p_is_at_most_5_percent_if_and_only_if_the_interval_leaves_zero_out(seed):
    gold, one, other = exchangeable(np.random.default_rng(seed))
    drawn = differences(gold, one + 0.06 * seed * gold, other, resamples=1999, seed=seed)
    low, high = ends(drawn, 0.95)
    assert (two_sided_p(drawn) <= 0.05) == (low > 0 or high < 0)


def test_p_values_of_models_of_equal_quality_are_roughly_uniform():
    chance = np.random.default_rng(5)
    p_values = []
    for data_set in range(200):
        gold, one, other = exchangeable(chance)
        p_values.append(two_sided_p(differences(gold, one, other, resamples=400, seed=data_set)))
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
    assert (found.only_one, found.only_other) == (9, 1)
    assert found.p == pytest.approx(22 / 1024, abs=1e-15)


@pytest.mark.parametrize(("only_one", "only_other"), [*itertools.product([0, 3, 40], [1, 5, 17])])
def test_mcnemar_is_the_binomial_tail_twice(only_one, only_other):
    gold = np.array(["yes"] * (only_one + only_other))
    one = np.array(["yes"] * only_one + ["no"] * only_other)
    other = np.array(["no"] * only_one + ["yes"] * only_other)
    tail = stats.binom.cdf(min(only_one, only_other), only_one + only_other, 0.5)
    assert mcnemar(gold, one, other).p == pytest.approx(min(1.0, 2 * tail), rel=1e-12)


def test_holm_of_a_list_worked_out_by_hand():
    # Rising: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 raised to the one before.
    found = holm([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-15)
