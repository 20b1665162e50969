"""Correlations and squared error, judged by scipy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_squared_error

from filbert.errors import InputError
from filbert.metrics.similarity import regression_metrics


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("digits", [0, 8], ids=["many ties", "no ties"])
def test_the_figures_are_those_of_scipy_and_scikit_learn(seed, digits):
    draw = np.random.default_rng(seed)
    gold = np.round(draw.uniform(0, 5, 200), digits)
    values = np.round(gold + draw.normal(0, 2, 200), digits)
    found = regression_metrics(gold, values)
    assert list(found) == ["pearson", "spearman", "mse"]
    # 1e-12: the same sums in float64, in another order.
    assert found["pearson"] == pytest.approx(stats.pearsonr(gold, values)[0], abs=1e-12)
    assert found["spearman"] == pytest.approx(stats.spearmanr(gold, values)[0], abs=1e-12)
    assert found["mse"] == pytest.approx(mean_squared_error(gold, values), rel=1e-12)


@pytest.mark.parametrize(
    ("gold", "values"),
    [([1, 2, 3], [2.7, 2.7, 2.7]), ([0.1, 0.1, 0.1], [1, 2, 3]), ([1], [2]), ([1, 2], [0, 0])],
    ids=["predictions", "gold", "one row", "zeros"],
)
def test_a_constant_side_has_no_correlation_and_gives_no_warning(gold, values):
    found = regression_metrics(gold, values)
    assert found["pearson"] is found["spearman"] is None
    assert found["mse"] == pytest.approx(np.mean((np.array(gold) - values) ** 2))


def test_predictions_that_differ_by_rounding_only_are_constant_to_pearson():
    values = np.full(4, 2.7)
    values[0] = np.nextafter(2.7, 3)
    assert regression_metrics([1, 2, 3, 4], values)["pearson"] is None


def test_a_prediction_that_is_not_finite_is_refused_by_its_row():
    with pytest.raises(InputError, match="score of row 2 is not a finite number"):
        regression_metrics([1, 2], [1.0, float("nan")])
