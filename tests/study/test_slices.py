from __future__ import annotations

import numpy as np
import pytest

from filbert.errors import InputError
from filbert.study.figures import Judged
from filbert.study.slices import by_column, by_length, slice_figures, slice_intervals


def texts(*lengths: int) -> list[dict]:
    return [{"text": " ".join(["word"] * length)} for length in lengths]


def named(parts) -> list[tuple[str, list[int]]]:
    return [(name, at.tolist()) for name, at in parts]


def values(*given) -> list[dict]:
    return [{"text": "a", "group": value} for value in given]


def test_lengths_fall_into_quartiles_of_whole_words():
    assert named(by_length(texts(8, 1, 2, 3, 4, 5, 6, 7))) == [
        ("1-2 words", [1, 2]),
        ("3-4 words", [3, 4]),
        ("5-6 words", [5, 6]),
        ("7-8 words", [0, 7]),
    ]


def test_rows_of_one_length_stay_together():
    assert named(by_length(texts(1, 1, 1, 1, 1, 1, 2, 1400))) == [
        ("1 word", [0, 1, 2, 3, 4, 5]),
        ("2-1,400 words", [6, 7]),
    ]


def test_texts_of_one_length_and_no_texts_give_no_part():
    assert by_length(texts(4, 4, 4)) == [] and by_length([]) == []


def test_both_texts_of_a_pair_count():
    rows = [{"text": "a b", "text_pair": "c"}, {"text": "", "text_pair": None}]
    assert named(by_length(rows)) == [("0 words", [1]), ("3 words", [0])]


@pytest.mark.parametrize(
    ("given", "yes", "no"),
    [
        (("1", "0", "1"), [0, 2], [1]),
        ((0.5, 0.499, "0.8333"), [0, 2], [1]),
        ((True, False, False), [0], [1, 2]),
        (("true", "False", "0"), [0], [1, 2]),
    ],
)
def test_shares_and_truth_values_become_yes_and_no(given, yes, no):
    assert named(by_column(values(*given), "group")) == [("yes", yes), ("no", no)]


@pytest.mark.parametrize("gone", ["nan", "NA", " null ", "None", float("nan")])
def test_a_word_for_nothing_in_a_column_of_shares_is_a_missing_value(gone):
    found = named(by_column(values("0.1", "0.7", gone, 0.2), "group"))
    assert found == [("yes", [1]), ("no", [0, 3]), ("not stated", [2])]


def test_names_stay_names_the_most_frequent_first():
    found = named(by_column(values("b", "a", "b", None, " "), "group"))
    assert found == [("b", [0, 2]), ("a", [1]), ("not stated", [3, 4])]


def test_numbers_beyond_one_are_names():
    found = named(by_column(values("1998", "0", "1998"), "group"))
    assert found == [("1998", [0, 2]), ("0", [1])]


def test_rare_values_share_a_slice():
    found = by_column(values(*(["often"] * 3), *(f"v{n:02}" for n in range(30))), "group")
    assert len(found) == 20
    assert (found[0][0], found[-1][0]) == ("often", "12 other values")
    assert sum(len(at) for _, at in found) == 33


def test_a_column_that_is_not_there_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r'"groups".*are: group\. Did you mean group\?'):
        by_column(values("a"), "groups")


def judged(gold, scores) -> Judged:
    table = np.stack([1 - np.array(scores), np.array(scores)], axis=1)
    return Judged(np.array(gold), table, 1, 0.5)


def test_a_slice_without_positives_has_only_what_negatives_tell():
    found = slice_figures(judged([0, 0, 0, 0], [0.1, 0.6, 0.2, 0.3]))
    assert found["false_positive_rate"] == 0.25 and found["accuracy"] == 0.75
    missing = {key for key, value in found.items() if value is None}
    assert missing == {"roc_auc", "pr_auc", "f1", "precision", "recall"}


def test_a_slice_without_negatives_has_no_false_positive_rate():
    assert slice_figures(judged([1, 1], [0.9, 0.4]))["false_positive_rate"] is None


@pytest.mark.parametrize(("num_positives", "is_there"), [(9, False), (10, True)])
def test_an_interval_needs_ten_rows_of_each_class(num_positives, is_there):
    gold = [1] * num_positives + [0] * 30
    scores = np.random.default_rng(0).random(len(gold))
    found = slice_intervals({"one": judged(gold, scores)}, resamples=50, level=0.95, seed=0)
    assert bool(found["one"]) == is_there
