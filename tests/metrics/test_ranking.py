from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as judge

from filbert.errors import InputError
from filbert.metrics import ranking
from filbert.report.plots import Ranking


def drawn(seed: int, num_rows: int = 300, levels: int | None = None):
    chance = np.random.default_rng(seed)
    positive = chance.random(num_rows) < 0.2
    scores = np.clip(0.25 * positive + chance.random(num_rows) * 0.7, 0, 1)
    return positive, scores if levels is None else np.round(scores * levels) / levels


@pytest.mark.parametrize("levels", [None, 7])
@pytest.mark.parametrize("seed", range(5))
def test_areas_are_those_of_all_pairs_and_of_all_steps_in_recall(seed, levels):
    positive, scores = drawn(seed, levels=levels)
    hits, misses = scores[positive][:, None], scores[~positive]
    pairs = (hits > misses).mean() + 0.5 * (hits == misses).mean()
    # 1e-12: both sum a few hundred float64 terms.
    assert ranking.roc_auc(positive, scores) == pytest.approx(pairs, abs=1e-12)
    precision = [positive[scores >= score].mean() for score in hits[:, 0]]
    assert ranking.pr_auc(positive, scores) == pytest.approx(np.mean(precision), abs=1e-12)


def test_curves_pass_through_the_points_of_scikit_learn():
    positive, scores = drawn(1, levels=9)
    curves = Ranking("", positive, scores)
    false_rate, true_rate = curves.curve("roc")
    their_false, their_true, _ = judge.roc_curve(positive, scores, drop_intermediate=False)
    np.testing.assert_allclose(false_rate, their_false, atol=1e-12)
    np.testing.assert_allclose(true_rate, their_true, atol=1e-12)
    recall, precision = (side[1:] for side in curves.curve("pr"))
    their_precision, their_recall, _ = judge.precision_recall_curve(positive, scores)
    # Theirs runs from low to high scores and ends with an invented point (recall 0, precision 1).
    np.testing.assert_allclose(recall, their_recall[:-1][::-1], atol=1e-12)
    np.testing.assert_allclose(precision, their_precision[:-1][::-1], atol=1e-12)


@pytest.mark.parametrize("positive", [[True, True], [False, False]])
def test_areas_are_none_when_only_one_class_is_present(positive):
    assert ranking.roc_auc(positive, [0.1, 0.9]) is None
    assert ranking.pr_auc(positive, [0.1, 0.9]) is None


def f1_at(positive, scores, threshold):
    return judge.f1_score(positive, scores >= threshold, zero_division=0)


@pytest.mark.parametrize("levels", [None, 5])
@pytest.mark.parametrize("seed", range(8))
def test_no_threshold_has_a_higher_f1_than_the_best_one(seed, levels):
    positive, scores = drawn(seed, num_rows=60, levels=levels)
    best = ranking.best_f1_threshold(positive, scores)
    every_cut = [*scores, *(scores + 1e-9), 0.0, 1.1]
    brute_force = max(f1_at(positive, scores, cut) for cut in every_cut)
    assert f1_at(positive, scores, best) == pytest.approx(brute_force, abs=1e-12)


def test_of_equally_good_thresholds_the_highest_is_taken():
    # F1 with one row flagged, 2 * 1 / (1 + 2), equals that with four, 2 * 2 / (4 + 2).
    positive, scores = [True, False, False, True, False], [0.9, 0.8, 0.7, 0.6, 0.1]
    assert f1_at(positive, np.array(scores), 0.85) == f1_at(positive, np.array(scores), 0.5)
    assert ranking.best_f1_threshold(positive, scores) == pytest.approx(0.85)


def test_the_threshold_is_a_half_without_positive_rows():
    assert ranking.best_f1_threshold([False, False], [0.2, 0.3]) == 0.5
    assert ranking.best_f1_threshold([], []) == 0.5


@pytest.mark.parametrize("low", [0.3, float(np.nextafter(0.3, 1))], ids=["even", "odd"])
def test_the_threshold_parts_two_adjacent_floats(low):
    # Their middle rounds onto the even one of the two, which is the lower one once and the upper
    # once.
    high = float(np.nextafter(low, 1))
    threshold = ranking.best_f1_threshold([False, True], [low, high])
    assert low < threshold <= high


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -0.1, 1.1])
def test_a_score_that_is_no_probability_is_refused_with_its_row(score):
    with pytest.raises(InputError, match="row 2 .* from 0 to 1"):
        ranking.probabilities([0.5, score])


def test_a_float32_rounding_error_above_one_is_a_probability():
    assert ranking.probabilities(np.float32([1.0000001]))[0] == 1
