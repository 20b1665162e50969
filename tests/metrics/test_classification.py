from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as judge

from filbert.metrics.classification import binary_metrics, multiclass_metrics, multilabel_metrics


def drawn_binary(seed: int):
    chance = np.random.default_rng(seed)
    positive = chance.random(200) < 0.3
    return positive, np.clip(0.3 * positive + chance.random(200) * 0.7, 0, 1)


def drawn_classes(seed: int, num_rows: int = 200, num_classes: int = 4):
    chance = np.random.default_rng(seed)
    gold = chance.integers(0, num_classes, num_rows)
    logits = chance.normal(size=(num_rows, num_classes)) + 1.5 * np.eye(num_classes)[gold]
    return gold, np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


@pytest.mark.parametrize("seed", range(4))
def test_binary_metrics_equal_those_of_scikit_learn(seed):
    positive, scores = drawn_binary(seed)
    predicted = scores >= 0.45
    expected = {
        "accuracy": judge.accuracy_score(positive, predicted),
        "f1": judge.f1_score(positive, predicted),
        "precision": judge.precision_score(positive, predicted),
        "recall": judge.recall_score(positive, predicted),
        "mcc": judge.matthews_corrcoef(positive, predicted),
        "roc_auc": judge.roc_auc_score(positive, scores),
        "pr_auc": judge.average_precision_score(positive, scores),
        "loss": judge.log_loss(positive, np.clip(scores, 1e-7, 1 - 1e-7)),
        "threshold": 0.45,
    }
    # 1e-9: the same quantities, summed in another order.
    assert binary_metrics(positive, scores, 0.45) == pytest.approx(expected, abs=1e-9)


def test_binary_metrics_of_a_table_worked_out_by_hand():
    # 2 right alarms, 1 false, 1 missed, 4 rightly left alone.
    positive = [True] * 3 + [False] * 5
    scores = [0.9, 0.8, 0.2, 0.7, 0.1, 0.1, 0.1, 0.1]
    found = binary_metrics(positive, scores, 0.5)
    assert found["accuracy"] == pytest.approx(6 / 8)
    assert found["precision"] == found["recall"] == found["f1"] == pytest.approx(2 / 3)
    assert found["mcc"] == pytest.approx((2 * 4 - 1 * 1) / (3 * 3 * 5 * 5) ** 0.5)
    assert found["roc_auc"] == pytest.approx(14 / 15)


def test_a_score_equal_to_the_threshold_is_positive():
    assert binary_metrics([True], [0.5], 0.5)["recall"] == 1
    assert binary_metrics([True], [0.5], np.nextafter(0.5, 1))["recall"] == 0


def test_one_class_gives_no_area_and_no_warning():
    found = binary_metrics([False, False], [0.1, 0.2], 0.5)
    assert found["roc_auc"] is None and found["pr_auc"] is None
    assert found["f1"] == found["precision"] == found["recall"] == found["mcc"] == 0


def test_a_sure_and_wrong_row_has_a_finite_loss():
    assert binary_metrics([True], [0.0], 0.5)["loss"] == pytest.approx(-np.log(1e-7))


def test_mcc_does_not_overflow_on_a_large_table():
    positive = np.arange(400_000) % 2 == 0
    assert binary_metrics(positive, positive.astype(float), 0.5)["mcc"] == 1


@pytest.mark.parametrize("seed", range(4))
def test_multiclass_metrics_equal_those_of_scikit_learn(seed):
    gold, probabilities = drawn_classes(seed)
    predicted = probabilities.argmax(1)
    found = multiclass_metrics(gold, probabilities, labels=["a", "b", "c", "d"])
    assert found["accuracy"] == pytest.approx(judge.accuracy_score(gold, predicted))
    assert found["macro_f1"] == pytest.approx(judge.f1_score(gold, predicted, average="macro"))
    weighted = judge.f1_score(gold, predicted, average="weighted")
    assert found["weighted_f1"] == pytest.approx(weighted)
    assert found["loss"] == pytest.approx(judge.log_loss(gold, probabilities))
    theirs = judge.classification_report(
        gold, predicted, target_names=["a", "b", "c", "d"], output_dict=True
    )
    for label, scores in found["per_label"].items():
        assert scores["f1"] == pytest.approx(theirs[label]["f1-score"])
        assert scores["precision"] == pytest.approx(theirs[label]["precision"])
        assert scores["recall"] == pytest.approx(theirs[label]["recall"])
        assert scores["support"] == theirs[label]["support"]


def test_a_class_in_neither_gold_nor_predictions_does_not_lower_macro_f1():
    probabilities = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]])
    found = multiclass_metrics([0, 1], probabilities)
    assert found["macro_f1"] == judge.f1_score([0, 1], [0, 1], average="macro") == 1
    assert found["per_label"]["2"] == {"precision": 0, "recall": 0, "f1": 0, "support": 0}


def test_a_class_that_is_predicted_but_never_gold_lowers_macro_f1():
    found = multiclass_metrics([0, 0], np.array([[0.9, 0.1], [0.2, 0.8]]))
    assert found["macro_f1"] == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("seed", range(4))
def test_multilabel_metrics_equal_those_of_scikit_learn(seed):
    chance = np.random.default_rng(seed)
    gold = chance.random((150, 3)) < [0.5, 0.2, 0.1]
    gold[0], gold[1] = True, False
    probabilities = np.clip(0.3 * gold + chance.random((150, 3)) * 0.7, 0, 1)
    thresholds = [0.5, 0.4, 0.6]
    predicted = probabilities >= thresholds
    found = multilabel_metrics(gold, probabilities, thresholds, labels=["x", "y", "z"])
    for key, average in (("micro_f1", "micro"), ("macro_f1", "macro")):
        theirs = judge.f1_score(gold, predicted, average=average, zero_division=0)
        assert found[key] == pytest.approx(theirs)
    assert found["roc_auc"] == pytest.approx(judge.roc_auc_score(gold, probabilities))
    assert found["pr_auc"] == pytest.approx(judge.average_precision_score(gold, probabilities))
    assert found["loss"] == pytest.approx(
        judge.log_loss(gold.ravel(), np.clip(probabilities.ravel(), 1e-7, 1 - 1e-7))
    )
    assert found["left_out"] == []
    assert found["per_label"]["y"]["f1"] == pytest.approx(
        judge.f1_score(gold[:, 1], predicted[:, 1])
    )
    assert found["per_label"]["z"]["threshold"] == 0.6


def test_a_label_with_one_class_is_named_and_left_out_of_the_areas():
    gold = np.array([[1, 0], [0, 0], [1, 0]], dtype=bool)
    probabilities = np.array([[0.9, 0.2], [0.1, 0.1], [0.8, 0.3]])
    found = multilabel_metrics(gold, probabilities, [0.5, 0.5], labels=["seen", "never"])
    assert found["left_out"] == ["never"]
    assert found["roc_auc"] == 1 and found["pr_auc"] == 1
    assert found["macro_f1"] == 0.5
    assert found["per_label"]["never"]["roc_auc"] is None


def test_no_area_is_given_when_no_label_has_both_classes():
    found = multilabel_metrics([[False]], [[0.2]], [0.5])
    assert found["roc_auc"] is None and found["pr_auc"] is None and found["left_out"] == ["0"]


def test_decisions_made_elsewhere_are_scored_as_they_are():
    scores = [0.9, 0.2, 0.8, 0.1]
    found = binary_metrics([True, False, False, False], scores, 0.5, predicted=[0, 1, 0, 0])
    assert (found["accuracy"], found["recall"], found["roc_auc"]) == (0.5, 0, 1)
    shares = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert multiclass_metrics([0, 1], shares, predicted=[1, 1])["accuracy"] == 0.5
    gold = np.array([[True, False], [False, True]])
    found = multilabel_metrics(gold, shares, [0.5, 0.5], predicted=~gold)
    assert found["micro_f1"] == found["macro_f1"] == 0
