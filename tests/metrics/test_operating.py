from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as judge

from filbert.metrics.operating import brier_score, precision_at_recalls


def test_precision_at_recalls_of_a_table_worked_out_by_hand():
    # Falling scores: + - + + -. Cuts (recall, precision): 1/3 1, 1/3 1/2, 2/3 2/3, 1 3/4, 1 3/5.
    gold, scores = [True, False, True, True, False], [0.9, 0.8, 0.7, 0.6, 0.1]
    found = precision_at_recalls(gold, scores, (0.3, 0.5, 0.9, 1.0))
    assert found == {0.3: 1.0, 0.5: 0.75, 0.9: 0.75, 1.0: 0.75}


@pytest.mark.parametrize("levels", [1000, 8])
@pytest.mark.parametrize("seed", range(4))
def test_precision_at_recalls_is_the_best_point_of_scikit_learns_curve(seed, levels):
    chance = np.random.default_rng(seed)
    gold = chance.random(200) < 0.2
    scores = np.round((0.3 * gold + 0.7 * chance.random(200)) * levels) / levels
    precision, recall, _ = judge.precision_recall_curve(gold, scores)
    for wanted, value in precision_at_recalls(gold, scores).items():
        assert value == pytest.approx(precision[recall >= wanted - 1e-12].max(), abs=1e-12)


def test_a_recall_that_whole_positives_reach_exactly_asks_for_no_more_of_them():
    # 0.55 * 100 is 55.00000000000001 in float64: asking for 56 would include a false alarm.
    gold = np.array([True] * 55 + [False] * 5 + [True] * 45)
    found = precision_at_recalls(gold, np.linspace(1, 0, 105), (0.55,))
    assert found[0.55] == 1.0


def test_rows_of_equal_score_are_taken_or_left_together():
    assert precision_at_recalls([True, False, True], [0.5, 0.5, 0.4], (0.5,)) == {0.5: 2 / 3}


def test_without_positive_rows_there_is_no_precision_at_a_recall():
    assert precision_at_recalls([False, False], [0.1, 0.2], (0.5,)) == {0.5: None}


def test_a_recall_outside_0_to_1_is_our_own_mistake():
    with pytest.raises(ValueError, match=r"recall 1\.5"):
        precision_at_recalls([True], [0.1], (1.5,))


def test_the_brier_score_is_that_of_scikit_learn():
    chance = np.random.default_rng(0)
    gold, scores = chance.random(50) < 0.3, chance.random(50)
    wanted = judge.brier_score_loss(gold, scores)
    assert brier_score(gold, scores) == pytest.approx(wanted, abs=1e-14)
    assert brier_score([True, False], [1.0, 0.0]) == 0.0
