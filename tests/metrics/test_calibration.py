from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from filbert.metrics.calibration import expected_calibration_error, fit_temperature


def drawn(seed: int, temperature: float, num_rows: int = 4000, num_classes: int = 3):
    """Logits that are right when divided by `temperature`."""
    chance = np.random.default_rng(seed)
    honest = chance.normal(size=(num_rows, num_classes)) * 2
    share = np.exp(log_softmax(honest, axis=1)).cumsum(1)
    targets = (chance.random((num_rows, 1)) > share).sum(1).clip(0, num_classes - 1)
    return honest * temperature, targets


def softmax_loss(logits, targets, temperature):
    return -log_softmax(logits / temperature, axis=1)[np.arange(len(targets)), targets].mean()


def sigmoid_loss(logits, targets, temperature):
    return np.logaddexp(0, np.where(targets, -logits, logits) / temperature).mean()


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_behind_the_data_is_found(temperature):
    logits, targets = drawn(0, temperature)
    # 8 %: three standard errors of the estimate on 4,000 rows.
    found = fit_temperature(logits, targets, multilabel=False)
    assert found == pytest.approx(temperature, rel=0.08)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_temperature_is_where_another_optimiser_finds_the_valley(multilabel):
    logits, targets = drawn(1, 2.0, num_rows=300)
    if multilabel:
        targets = np.random.default_rng(2).random(logits.shape) < expit(logits / 2)
    loss = sigmoid_loss if multilabel else softmax_loss
    # Nelder-Mead on the plain formula: other method, other arithmetic. 1e-4: its own stopping rule.
    judge = minimize(
        lambda log_t: loss(logits, targets, np.exp(log_t[0])),
        [0.3],
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-12},
    )
    found = fit_temperature(logits, targets, multilabel=multilabel)
    assert found == pytest.approx(np.exp(judge.x[0]), rel=1e-4)


def test_large_logits_do_not_overflow():
    logits = np.array([[2000.0, -2000.0], [2000.0, -2000.0], [-2000.0, 2000.0]])
    assert fit_temperature(logits, [0, 1, 1], multilabel=False) == pytest.approx(20, rel=1e-4)


@pytest.mark.parametrize(
    ("logits", "targets", "multilabel"),
    [
        (np.zeros((0, 2)), [], False),
        (np.zeros((3, 2)), [0, 1, 1], False),
        ([[2.0, -1.0], [-1.0, 1.0]], [0, 1], False),
        ([[2.0, -1.0], [-1.0, 1.0]], [[True, False], [False, True]], True),
        ([[1.0], [2.0]], [0, 0], False),
    ],
    ids=["no rows", "equal logits", "all right", "all right, multi-label", "one class"],
)
def test_without_anything_to_fit_the_temperature_is_one(logits, targets, multilabel):
    assert fit_temperature(logits, targets, multilabel=multilabel) == 1.0


def test_an_overconfident_model_gets_a_temperature_above_one_and_a_lower_error():
    logits, targets = drawn(3, 4.0)
    temperature = fit_temperature(logits, targets, multilabel=False)

    def error(t):
        shares = np.exp(log_softmax(logits / t, axis=1))
        return expected_calibration_error(shares.argmax(1) == targets, shares.max(1))

    assert temperature > 2
    # 0.02: what 15 bins of 4,000 honest rows still show as noise.
    assert error(temperature) < 0.02 < 0.1 < error(1.0)


def test_calibration_error_of_a_table_worked_out_by_hand():
    # Bin (0.6, 0.8]: four rows at 0.7, half of them true, off by 0.2. Bin (0.8, 1]: one at 0.9.
    is_true = [True, True, False, False, True]
    confidence = [0.7, 0.7, 0.7, 0.7, 0.9]
    expected = (4 * 0.2 + 1 * 0.1) / 5
    assert expected_calibration_error(is_true, confidence, bins=5) == pytest.approx(expected)


def test_bins_hold_their_upper_edge_and_the_first_also_zero():
    # Of the rows at 0 and 0.5 half are true, and that at 0.51 is not.
    error = expected_calibration_error([False, True, False], [0.0, 0.5, 0.51], bins=2)
    assert error == pytest.approx((2 * 0.25 + 0.51) / 3)
