"""Two classifiers on the same rows."""

from __future__ import annotations

import numpy as np

from filbert.study.side_by_side import side_by_side


def answers(scores):
    return [{"scores": {"neg": 1 - s, "pos": s}} for s in scores]


def compared(first, second, gold):
    return side_by_side(
        ["pos" if g else "neg" for g in gold],
        {"a": answers(first), "b": answers(second)},
        {"a": 0.5, "b": 0.5},
        positive="pos",
        resamples=199,
    )


def test_a_perfect_model_is_told_from_one_that_guesses():
    draw = np.random.default_rng(0)
    gold = draw.random(300) < 0.3
    found = compared(np.where(gold, 0.9, 0.1), draw.random(300), gold)
    assert found["intervals"]["a"]["roc_auc"]["value"] == 1.0
    pair = found["pair"]
    assert (pair["one"], pair["other"]) == ("a", "b")
    for metric in ("roc_auc", "pr_auc", "f1"):
        assert pair[metric]["low"] > 0 and pair[metric]["p"] <= 0.02
    assert pair["mcnemar"]["only_other_right"] == 0 and pair["mcnemar"]["p"] < 0.001


def test_a_model_is_not_told_from_itself():
    draw = np.random.default_rng(1)
    gold, scores = draw.random(200) < 0.4, draw.random(200)
    pair = compared(scores, scores, gold)["pair"]
    for metric in ("roc_auc", "pr_auc", "f1"):
        assert (pair[metric]["low"], pair[metric]["high"], pair[metric]["p"]) == (0, 0, 1)
    assert pair["mcnemar"]["p"] == 1
