"""Occurrences of a word and their nearest neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.errors import ConfigError, InputError
from filbert.inference.predictor import Predictor
from filbert.inspect.neighbours import LocatedSentence, find_neighbours, word_pattern


@pytest.fixture(scope="module")
def predictor(tiny_model) -> Predictor:
    return Predictor.load(tiny_model)


def test_every_occurrence_is_compared_with_every_other(predictor):
    texts = ["the film was good", "he was great", "The film was good", "a film , a film"]
    found = find_neighbours(predictor, "film", texts)
    spans = [one.text[one.start : one.end] for one in found.occurrences]
    assert spans == ["film"] * 4 and found.num_found == 4
    assert found.layer == 2 and len(found.mean_cosine) == 3
    # The first and the third sentence are the same to this uncased model.
    assert found.nearest(0) == 1 and found.nearest(1) == 0
    assert found.cosines[0, 1] == pytest.approx(1.0)
    pairs = found.cosines[~np.eye(4, dtype=bool)]
    assert found.mean_cosine[2] == pytest.approx(pairs.mean())
    assert found.same_sense is None
    assert found.to_dict()["occurrences"][0]["nearest"] == 1


def test_the_share_of_neighbours_with_the_same_sense_is_counted(predictor):
    texts = [("the film was good", "a"), ("the film was good", "a"), ("he was a film", "b")]
    sentences = [LocatedSentence(text, "", sense) for text, sense in texts]
    found = find_neighbours(predictor, "film", sentences)
    # The two equal sentences are nearest to each other; the third has no other of its sense.
    assert found.same_sense == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def test_a_long_text_is_cut_around_the_word(predictor):
    long = "the film " * 60 + "was great " + "a play " * 60
    found = find_neighbours(predictor, "great", [long, "was great a"])
    assert len(found.occurrences) == 2


def test_words_are_matched_whole_in_any_case_and_inside_text_without_spaces():
    assert word_pattern(["bank", "banks"]).findall("Bank, embankment banks") == ["Bank", "banks"]
    assert word_pattern(["銀行"]).findall("彼は銀行に行った") == ["銀行"]


@pytest.mark.parametrize(
    ("word", "texts", "options", "error", "message"),
    [
        ("play", ["a play", "a film"], {}, InputError, "occurs once"),
        (" ", ["a play"], {}, ConfigError, "--word is empty"),
        ("play", ["a play", "a play"], {"layer": 3}, ConfigError, r"not in -3\.\.2"),
        ("play", ["a play", "a play"], {"limit": 1}, ConfigError, "--limit is 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(predictor, word, texts, options, error, message):
    with pytest.raises(error, match=message):
        find_neighbours(predictor, word, texts, **options)
