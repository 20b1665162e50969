"""Rows made out of rows: what is replaced, by what, and the same every time."""

from __future__ import annotations

import pytest
import torch

from filbert.data.records import Row
from filbert.tasks.classification import Classification
from filbert.train import augment
from filbert.train.augment import augmented_rows
from filbert.train.distill_options import AugmentOptions

ROWS = [
    Row({"text": "Good, but long!", "label": "pos"}, "x.csv", 2),
    Row({"text": "bad", "text_pair": "not it", "label": "neg"}, "x.csv", 3),
    Row({"text": "...", "label": "neg"}, "x.csv", 4),
]


@pytest.fixture(autouse=True)
def shouting(monkeypatch):
    """One candidate for each word: the word in capitals."""

    def replaceable(text, predictor, most):
        spans = [match.span() for match in augment._WORD.finditer(text)]
        return [(start, end, [text[start:end].upper()]) for start, end in spans]

    class Loaded:
        model = None

        @classmethod
        def load(cls, *_, **__):
            return cls()

    monkeypatch.setattr(augment, "replaceable", replaceable)
    monkeypatch.setattr(augment, "Predictor", Loaded)
    monkeypatch.setattr(augment, "masked_lm_part", lambda model: None)


def made(rows=ROWS, copies=20, rate=0.4, seed=1):
    options = AugmentOptions(augment_with="x", augment_copies=copies, augment_rate=rate)
    task = Classification(labels=("neg", "pos"))
    return augmented_rows(rows, task, options, seed=seed, device=torch.device("cpu"))


def test_words_are_replaced_and_all_else_stays():
    found = made()
    first = [row for row in found if row.line == 2]
    texts = {row.values["text"] for row in first}
    assert "GOOD, but LONG!" in texts and "Good, BUT long!" in texts
    assert {text.lower() for text in texts} == {"good, but long!"}
    assert all(row.values["label"] == "pos" and row.path == "x.csv" for row in first)
    assert any(row.values["text_pair"] == "not IT" for row in found if row.line == 3)


def test_no_copy_is_the_row_itself_or_another_copy():
    texts = [(row.line, row.values["text"], row.values.get("text_pair")) for row in made(copies=99)]
    assert len(set(texts)) == len(texts)
    assert len([text for text in texts if text[0] == 2]) == 2**3 - 1
    assert not [text for text in texts if text[0] == 4], "there is no word to replace"


def test_about_the_share_of_words_that_is_asked_for_is_replaced():
    row = Row({"text": " ".join(f"w{i}" for i in range(50))}, "x", 1)
    words = [word for copy in made([row], copies=40) for word in copy.values["text"].split()]
    assert 0.36 < sum(word[0] == "W" for word in words) / len(words) < 0.44


def test_a_row_s_copies_depend_on_the_seed_and_its_number():
    assert made() == made()
    assert made(seed=2) != made()
    assert [row for row in made(ROWS[:1])] == [row for row in made() if row.line == 2]


def test_words_are_letters_and_digits_with_what_is_inside_them():
    text = "Don't (ever) re-read_it: naïve 42%"
    assert augment._WORD.findall(text) == ["Don't", "ever", "re-read", "it", "naïve", "42"]
