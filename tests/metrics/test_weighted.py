from __future__ import annotations

import numpy as np
import pytest

from filbert.metrics import operating, ranking
from filbert.metrics.classification import binary_metrics, multiclass_metrics
from filbert.metrics.weighted import AtThreshold, CalledRows, RankedRows, figure_of, weighted_form

RECALLS = (0.3, 0.5, 0.8, 0.9, 1.0)


def drawn(seed: int, num_rows: int = 120, levels: int | None = None):
    chance = np.random.default_rng(seed)
    gold = chance.random(num_rows) < 0.3
    scores = np.clip(0.25 * gold + chance.random(num_rows) * 0.7, 0, 1)
    scores = scores if levels is None else np.round(scores * levels) / levels
    return gold, scores, chance.integers(0, 4, size=(num_rows, 12))


def repeated(weights: np.ndarray, column: int) -> np.ndarray:
    return np.repeat(np.arange(len(weights)), weights[:, column])


@pytest.mark.parametrize("levels", [None, 5, 1])
@pytest.mark.parametrize("metric", [ranking.roc_auc, ranking.pr_auc])
def test_a_weighted_area_is_that_of_the_repeated_rows(metric, levels):
    gold, scores, weights = drawn(0, levels=levels)
    found = weighted_form(metric, gold, scores)(weights)
    for column, value in enumerate(found):
        rows = repeated(weights, column)
        # 1e-12: both sum a few hundred float64 terms.
        assert value == pytest.approx(metric(gold[rows], scores[rows]), abs=1e-12)


@pytest.mark.parametrize("levels", [None, 6])
def test_weighted_precision_at_recalls_is_that_of_the_repeated_rows(levels):
    gold, scores, weights = drawn(1, levels=levels)
    found = RankedRows(gold, scores).cuts(weights).precision_at_recalls(RECALLS)
    for column in range(weights.shape[1]):
        rows = repeated(weights, column)
        wanted = operating.precision_at_recalls(gold[rows], scores[rows], RECALLS)
        np.testing.assert_allclose(found[:, column], list(wanted.values()), atol=1e-12)


@pytest.mark.parametrize("figure", ["f1", "precision", "recall", "accuracy", "mcc"])
def test_a_weighted_figure_at_a_threshold_is_that_of_the_repeated_rows(figure):
    gold, scores, weights = drawn(2)
    found = AtThreshold(figure, 0.55).weighted(gold, scores)(weights)
    for column, value in enumerate(found):
        rows = repeated(weights, column)
        wanted = binary_metrics(gold[rows], scores[rows], 0.55)[figure]
        assert value == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("figure", ["accuracy", "macro_f1", "weighted_f1"])
def test_a_weighted_figure_of_many_classes_is_that_of_the_repeated_rows(figure):
    chance = np.random.default_rng(3)
    gold, called = chance.integers(0, 3, 60), chance.integers(0, 5, 60)
    weights = chance.integers(0, 3, size=(60, 20))
    # Class 4 is called once only, so in some resamples it does not occur at all.
    called[called == 4] = 3
    called[0] = 4
    assert (weights[0] == 0).any()
    found = figure_of(CalledRows(gold, called, 5).confusion(weights), figure)
    for column, value in enumerate(found):
        rows = repeated(weights, column)
        judged = multiclass_metrics(
            gold[rows], np.full((len(rows), 5), 0.2), predicted=called[rows]
        )
        assert value == pytest.approx(judged[figure], abs=1e-12)


def test_any_other_metric_is_asked_about_the_repeated_rows():
    gold, scores, weights = drawn(4)

    def slow(gold, scores):
        return ranking.roc_auc(gold, scores)

    fast = weighted_form(ranking.roc_auc, gold, scores)(weights)
    np.testing.assert_allclose(weighted_form(slow, gold, scores)(weights), fast, atol=1e-12)


def test_areas_of_a_resample_without_one_of_the_classes_are_not_numbers():
    gold, scores = np.array([True, True, False, False]), np.array([0.9, 0.6, 0.7, 0.1])
    weights = np.array([[2, 0, 1], [1, 0, 0], [0, 1, 2], [0, 3, 0]])
    cuts = RankedRows(gold, scores).cuts(weights)
    for values in (cuts.roc_auc(), cuts.pr_auc()):
        assert np.isnan(values[:2]).all() and values[2] == 1.0


def test_rates_without_a_row_to_divide_by_are_zero_as_elsewhere():
    gold, called = np.array([False, False]), np.array([False, False])
    confusion = CalledRows(gold, called, 2).confusion(np.ones((2, 1), dtype=int))
    for figure in ("precision", "recall", "f1", "mcc"):
        assert figure_of(confusion, figure) == [0.0]


def test_areas_of_huge_weights_do_not_overflow():
    gold, scores, weights = drawn(5)
    form = weighted_form(ranking.roc_auc, gold, scores)
    # 120 rows of weight 10**6: pairs of rows outgrow 32 bits.
    large = form((weights * 1_000_000).astype(np.int32))
    np.testing.assert_allclose(large, form(weights), atol=1e-12)
