"""Spans of tokens: which window a token belongs to, what is listed, what a check finds."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.data.squad import SpanAnswer, Window, best_answers, best_windows, with_null


def test_a_token_belongs_to_the_window_that_shows_most_around_it():
    # Three windows of 5 (places 0-4, 3-7, 6-9 with 4): for token 4, window 0 shows min(4, 0) and
    # window 1 min(1, 3). Token 3: min(3, 1) against min(0, 4). Token 6: window 1 min(3, 1), window
    # 2 min(0, 3). Token 7: window 1 min(4, 0), window 2 min(1, 2).
    assert best_windows([(0, 5), (3, 5), (6, 4)]).tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_of_equally_good_windows_the_longer_then_the_first_wins():
    # Token 4 in the middle of both: min(4, 0) = 0 = min(0, 4); equal lengths, so the first.
    assert best_windows([(0, 5), (4, 5)])[4] == 0
    # Now the second is longer by one token: 0.05 < 0.06.
    assert best_windows([(0, 5), (4, 6)])[4] == 1


def entries(*totals: float) -> list[SpanAnswer]:
    return [SpanAnswer(f"text {total}", 0, 1, total, 0.0) for total in totals]


@pytest.mark.parametrize(
    ("n_best", "null", "wanted"),
    [
        (3, 2.5, [3.0, 2.5, 2.0]),
        # Equal sums: behind the span, as the entry that was added last.
        (4, 2.0, [3.0, 2.0, 2.0, 1.0]),
        # Below the listed ones: one more entry.
        (3, 0.5, [3.0, 2.0, 1.0, 0.5]),
        # The best span stays, since a threshold may still choose it.
        (1, 9.0, [9.0, 3.0]),
    ],
)
def test_no_answer_is_listed_at_its_rank(n_best, null, wanted):
    listed = with_null(
        entries(3.0, 2.0, 1.0)[:n_best], SpanAnswer("", None, None, null, 0.0), n_best
    )
    assert [answer.total for answer in listed] == wanted
    assert [answer.text for answer in listed].index("") == wanted.index(null) + (null == 2.0)


def test_tokens_that_stand_for_spaces_alone_are_no_answer():
    window = Window("q", " film", np.array([[0, 1], [0, 5]]), 0, 0, 2)
    logits = np.array([[2.0, 0.0], [1.0, 0.0]])
    answers = best_answers([window], [logits], n_best=9, max_length=1)
    assert answers == [SpanAnswer("film", 1, 5, 1.0, 0.0)]
