"""SQuAD's scores, against small cases worked out by hand and a slow search for the threshold."""

from __future__ import annotations

import random

import numpy as np
import pytest

from filbert.metrics.squad import (
    answer_scores,
    best_threshold,
    normalize,
    squad_metrics,
    token_f1,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The  Answer, an apple!", "answer apple"),
        ("a-b", "ab"),
        ("A.B. the", "ab"),
        ("Athens", "athens"),
        # No ASCII punctuation, so it stays; but it ends the word, so the article goes.
        ("the’s", "’s"),
        ("–an–", "– –"),
        ("\u00a0Ünder\u2003the ", "ünder"),
    ],
)
def test_case_punctuation_articles_and_spaces_do_not_count(text, wanted):
    assert normalize(text) == wanted


def test_f1_counts_words_as_often_as_both_have_them():
    # 2 of 3 and 2 of 4 words in common: precision 2/3, recall 1/2.
    assert token_f1("b b c", "b b b d", empty_can_match=True) == pytest.approx(4 / 7, abs=1e-15)
    assert token_f1("b", "c", empty_can_match=True) == 0.0


def test_two_empty_answers_agree_in_version_2_only():
    assert answer_scores(["the"], "a", empty_can_match=False) == (1.0, 0.0)
    assert answer_scores([], "the", empty_can_match=True) == (1.0, 1.0)
    assert answer_scores([], "word", empty_can_match=True) == (0.0, 0.0)


def test_the_best_of_the_gold_answers_counts():
    gold = ["red house", "big red house", "house"]
    assert answer_scores(gold, "The House", empty_can_match=False) == (1.0, 1.0)
    exact, f1 = answer_scores(gold, "big house", empty_can_match=False)
    assert (exact, f1) == (0.0, pytest.approx(0.8))


def test_gold_answers_without_a_word_are_left_out_where_others_have_some():
    assert answer_scores(["the", "house"], "", empty_can_match=True) == (0.0, 0.0)


def test_a_question_without_prediction_scores_nothing_and_is_counted():
    figures = squad_metrics([["b"], ["c"]], ["b", None])
    assert figures == {"exact_match": 50.0, "f1": 50.0, "missing": 1}
    assert squad_metrics([[], ["c"]], [None, "c"])["NoAns_exact"] == 0.0


def test_the_figures_of_version_2_come_with_a_question_without_answer():
    figures = squad_metrics(
        [["big house"], ["c"], [], []],
        ["house", "c", "", "d"],
        [0.2, 0.1, 0.9, 0.3],
    )
    assert figures == {
        "exact_match": 50.0,
        "f1": pytest.approx(100 * (2 / 3 + 2) / 4),
        "HasAns_exact": 50.0,
        "HasAns_f1": pytest.approx(100 * (2 / 3 + 1) / 2),
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
        # Answer c (0.1) only: 1 + both unanswerable ones; for F1 also the next.
        "best_exact": 75.0,
        "best_exact_thresh": 0.1,
        "best_f1": pytest.approx(100 * (2 / 3 + 3) / 4),
        "best_f1_thresh": 0.2,
    }


def test_where_nothing_should_be_answered_the_threshold_is_0_as_in_the_official_script():
    figures = squad_metrics([[], ["c"]], ["x", "y"], [-5.0, -4.0])
    assert (figures["best_exact"], figures["best_exact_thresh"]) == (50.0, 0.0)


def slow_search(
    gain: list[float], has: list[bool], answered: list[bool], odds: list[float]
) -> tuple[float, float]:
    """Try every number of answered questions, in the order of their odds."""
    order = sorted(range(len(odds)), key=lambda i: odds[i])
    results = []
    for count in range(len(order) + 1):
        given = order[:count]
        right = sum(not h for h in has)
        total = float(right)
        for i in given:
            total += gain[i] if has[i] else (-1 if answered[i] else 0)
        results.append((total, odds[given[-1]] if given else 0.0))
    best = max(total for total, _ in results)
    return next(result for result in results if result[0] == best)


@pytest.mark.parametrize("levels", [3, 1000])
def test_the_search_for_the_threshold_equals_trying_all(levels):
    draw = random.Random(levels)
    for _ in range(200):
        size = draw.randint(1, 12)
        has = [draw.random() < 0.5 for _ in range(size)]
        answered = [draw.random() < 0.7 for _ in range(size)]
        gain = [draw.choice([0.0, 0.25, 1.0]) for _ in range(size)]
        odds = [draw.randrange(-levels, levels) / 8 for _ in range(size)]
        wanted = slow_search(gain, has, answered, odds)
        total, threshold = best_threshold(
            np.array(gain), np.array(has), np.array(answered), np.array(odds)
        )
        assert (total, 0.0 if threshold is None else threshold) == wanted
