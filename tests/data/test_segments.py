"""Which stretches of a corpus become rows."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filbert.data.instances import full_sentences, pairs, pairs_of_document
from filbert.data.shards import Sentences

_path = Path(__file__).parents[1] / "reference" / "pretraining_procedures.py"
_spec = importlib.util.spec_from_file_location("pretraining_procedures", _path)
assert _spec and _spec.loader
published = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = published  # dataclasses look their module up
_spec.loader.exec_module(published)

# Documents, each given by the lengths of its sentences.
corpora = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=6)


def numbered(corpus: list[list[int]]) -> list[list[list[int]]]:
    """Documents whose tokens are 0, 1, 2, ...: a token is its own offset."""
    count = 0
    documents = []
    for lengths in corpus:
        document = []
        for length in lengths:
            document.append(list(range(count, count + length)))
            count += length
        documents.append(document)
    return documents


def sentences_of(corpus: list[list[int]]) -> Sentences:
    borders = np.cumsum([0, *(length for lengths in corpus for length in lengths)])
    return Sentences(borders, np.cumsum([0, *map(len, corpus)]))


@given(corpora, st.integers(2, 40), st.booleans(), st.sampled_from([0.0, 0.5]), st.integers(0, 99))
def test_pairs_are_those_of_the_published_script_draw_for_draw(corpus, room, swap, short, seed):
    documents, sentences = numbered(corpus), sentences_of(corpus)
    here, there = random.Random(seed), random.Random(seed)
    for number in range(len(corpus)):
        ours = pairs_of_document(
            sentences, number, here, max_tokens=room, short_rate=short, swap=swap
        )
        wanted = published.pairs_of(documents, number, room, short, there, swap)
        rows = np.array(ours).reshape(-1, 5).tolist()
        assert [(list(range(*r[:2])), list(range(*r[2:4])), r[4]) for r in rows] == [
            (pair.a, pair.b, pair.label) for pair in wanted
        ]
    assert here.random() == there.random(), "and as many draws were made"


@given(corpora, st.integers(2, 40))
def test_full_sentences_are_those_of_the_plain_procedure(corpus, room):
    plan = full_sentences(sentences_of(corpus), room)
    starts = set(np.cumsum([sum(lengths) for lengths in corpus]).tolist())
    rows = []
    for begin, end, *_ in plan.tolist():
        row: list[int] = []
        for token in range(begin, end):
            row += [-1, token] if token in starts and token > begin else [token]
        rows.append(row)
    assert rows == published.stretches(numbered(corpus), room, -1)


@given(corpora, st.integers(2, 40))
def test_full_sentences_lose_no_token_and_need_no_more_room_than_there_is(corpus, room):
    sentences = sentences_of(corpus)
    plan = full_sentences(sentences, room)
    assert plan[0, 0] == 0 and plan[-1, 1] == sentences.borders[-1]
    assert np.array_equal(plan[1:, 0], plan[:-1, 1])
    starts = sentences.borders[sentences.firsts]
    inside = [((starts > begin) & (starts < end)).sum() for begin, end in plan[:, :2]]
    used = plan[:, 1] - plan[:, 0] + inside
    assert (used > 0).all() and (used <= room).all()


@given(corpora, st.integers(2, 40))
def test_a_sentence_that_fits_into_a_row_is_not_cut(corpus, room):
    sentences = sentences_of(corpus)
    cuts = set(full_sentences(sentences, room)[:, 0].tolist())
    for begin, end in zip(sentences.borders, sentences.borders[1:], strict=False):
        if end - begin <= room:
            assert not cuts.intersection(range(begin + 1, end))


def test_pairs_depend_on_seed_version_and_document_only():
    corpus = [[5, 9, 4, 7, 6, 8] for _ in range(40)]
    options = {"max_tokens": 30, "short_rate": 0.1, "kind": "nsp"}
    first = pairs(sentences_of(corpus), seed=1, version=0, **options)
    assert np.array_equal(first, pairs(sentences_of(corpus), seed=1, version=0, **options))
    for other in ({"seed": 2, "version": 0}, {"seed": 1, "version": 1}):
        assert not np.array_equal(first, pairs(sentences_of(corpus), **other, **options))
    of_document = {tuple((row - row[0]).tolist()) for row in first[first[:, 4] == 0][:, :4]}
    assert len(of_document) > 3, "equal documents are not cut alike"


@pytest.mark.parametrize("kind", ["nsp", "sop"])
def test_a_corpus_of_one_sentence_still_gives_a_pair(kind):
    rows = pairs(sentences_of([[5]]), seed=0, version=0, max_tokens=30, short_rate=0.0, kind=kind)
    assert rows.tolist() == [[0, 5, 0, 5, 1]]
