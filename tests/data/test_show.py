"""Examples as people read them."""

from __future__ import annotations

import re

import pytest

from filbert.data.instances import Instances, ObjectiveOptions, show_examples
from filbert.data.shards import Corpus, write_corpus
from filbert.text.tokenizer import Tokenizer

LINES = ["the film was very good .", "he played , she was playing .", "it was greatly bad !"]


@pytest.fixture(scope="module")
def corpus(tiny: Tokenizer, tmp_path_factory) -> Corpus:
    """Thirty documents of three sentences each."""
    document = [encoding.input_ids[1:-1].tolist() for encoding in tiny.encode(LINES)]
    return write_corpus(tmp_path_factory.mktemp("corpus"), [document] * 30)


@pytest.mark.parametrize("pair", ["none", "nsp", "sop"])
@pytest.mark.parametrize("masking", ["token", "word", "span"])
def test_the_words_behind_the_marks_are_the_text(corpus, tiny, pair, masking):
    options = ObjectiveOptions(pair=pair, masking=masking, max_length=40, mask_rate=0.4)
    known = re.sub(r"\W|##", "", "".join(LINES) * 2)
    for text in show_examples(corpus, tiny, options, 20):
        body = " ".join(line for line in text.splitlines() if line.startswith("  "))
        for segment in re.split(r"A: |B: |text: |next document: ", body):
            plain = re.sub(r"\[[^\[\]]*(?:\[\w+\])?→([^\]]+)\]", r"\1", segment)
            plain = re.sub(r"\[kept ([^\]]+)\]", r"\1", plain)
            assert re.sub(r"\W|##", "", plain) in known * 3


def test_the_counts_are_those_of_the_marks(corpus, tiny):
    options = ObjectiveOptions(pair="nsp", max_length=40, mask_rate=0.4)
    for text in show_examples(corpus, tiny, options, 20):
        head, question, *_ = text.splitlines()
        guess, masked, kept, other = map(
            int, re.search(r"(\d+) to guess: (\d+) masked, (\d+) kept, (\d+) rep", head).groups()
        )  # fmt: skip
        assert guess == masked + kept + other
        body = " ".join(text.split("\n", 2)[2].split())
        marks = (body.count("[MASK→"), body.count("[kept "))
        # Pieces of one word that fare alike share a mark.
        for seen, counted in zip(
            (*marks, body.count("→") - marks[0]), (masked, kept, other), strict=True
        ):
            assert seen <= counted and bool(seen) == bool(counted)
        assert question in (
            "B follows A (label 0)",
            "B comes from somewhere else (label 1)",
        )


def test_as_many_examples_are_shown_as_asked_for_and_there_are(corpus, tiny):
    options = ObjectiveOptions(max_length=40)
    count = Instances(corpus, tiny, options, 0).num_rows
    assert len(list(show_examples(corpus, tiny, options, 3))) == 3
    assert len(list(show_examples(corpus, tiny, options, 10**6))) == count


def test_the_next_document_stands_on_a_line_of_its_own(corpus, tiny):
    [first, *_] = show_examples(corpus, tiny, ObjectiveOptions(max_length=60), 1)
    assert "\n  text: " in first and "\n  next document: " in first
