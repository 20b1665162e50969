from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from filbert import samples
from filbert.errors import InputError
from filbert.inspection.head_coreference import (
    CoreferenceStudy,
    Mention,
    documents_of,
    mentions_of,
)
from filbert.inspection.treebank import read_treebank
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model


@pytest.fixture(scope="module")
def trees():
    return list(read_treebank(samples.path("sentences.conllu")))


@pytest.fixture(scope="module")
def model():
    config = EncoderConfig(
        vocab_size=34, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16,
    )  # fmt: skip
    return Model(Encoder(config))


def test_sentences_of_a_document_are_joined_and_their_places_stay_right(trees):
    documents = documents_of(trees)
    assert len(documents) == 6
    assert sum(len(document.words) for document in documents) == sum(len(t.words) for t in trees)
    for document in documents:
        for word, start, end in zip(document.words, document.starts, document.ends, strict=True):
            assert document.text[start:end] == word
    first, second = trees[0], trees[1]
    joined = documents[0].heads[len(first.words) : len(first.words) + len(second.words)]
    wanted = np.where(second.heads < 0, -1, second.heads + len(first.words))
    assert joined.tolist() == wanted.tolist()


def test_a_mention_is_known_by_its_topmost_word(trees):
    (document, *_) = documents_of(trees)
    # The old gardener planted three apple trees near the wall. She watered them ...
    found = mentions_of(document)
    assert found[:4] == [Mention("e1", 2), Mention("e2", 6), Mention("e1", 11), Mention("e2", 13)]
    # "Her neighbour": e3 around e1.
    assert [document.words[m.head] for m in found[4:6]] == ["Her", "neighbour"]
    assert [m.entity for m in found[4:6]] == ["e1", "e3"]


def test_mentions_that_do_not_close_or_open_are_told_in_a_sentence(trees):
    (document, *_) = documents_of(trees)
    opened = replace(document, entities=("(e1", *("",) * (len(document.words) - 1)))
    with pytest.raises(InputError, match="a mention of e1 has no end"):
        mentions_of(opened)
    closed = replace(document, entities=("e1)", *("",) * (len(document.words) - 1)))
    with pytest.raises(InputError, match="ends with 'The' has no beginning"):
        mentions_of(closed)


def test_attributes_are_read_over_and_mentions_in_several_parts_left_out(trees):
    (document, *_) = documents_of(trees)
    rest = ("",) * (len(document.words) - 3)
    marked = replace(document, entities=("(e1-person-2-coref", "(e7[1/2])", "e1)", *rest))
    assert mentions_of(marked) == [Mention("e1", 2)]


def test_a_head_that_looks_back_at_the_right_mention_is_found(trees, model):
    study, sure = CoreferenceStudy(model), 0
    for document in documents_of(trees):
        mentions = mentions_of(document)
        attention = np.random.default_rng(0).random((2, 2, *[len(document.words)] * 2))
        for mention in mentions:
            for other in mentions:
                if other.entity == mention.entity and other.head < mention.head:
                    attention[1, 0, mention.head, other.head] = 2
            # A word that is no mention's, and one after it, take nothing away.
            attention[1, 0, mention.head, 3] = 3
            attention[1, 0, mention.head, -1] = 3
        study.add_words(attention, document, set(range(len(document.words))))
        earlier: set[str] = set()
        for mention in mentions:
            sure += mention.entity in earlier
            earlier.add(mention.entity)
    found = study.result()
    assert found is not None
    assert (found.head, found.accuracy, found.mentions) == ("1-0", 1.0, sure)
    assert 0 < found.nearest < found.same_word < 1
    assert found.accuracies[0].max() < 0.7


def test_baselines_are_those_counted_by_hand(trees, model):
    # The train: [The train to the mountains] was late again. ... Finally [the train] was repaired.
    document = documents_of(trees)[3]
    keep = {0, 1, 2, 3, 4, *range(len(document.words) - 9, len(document.words))}
    study = CoreferenceStudy(model)
    study.add_words(np.zeros((2, 2, *[len(document.words)] * 2)), document, keep)
    found = study.result()
    assert found is not None
    assert (found.mentions, found.nearest, found.same_word) == (1, 1.0, 1.0)
    everything = mentions_of(document)
    left_out = sum(mention.head not in keep for mention in everything)
    assert (found.documents, found.truncated, found.left_out) == (1, 0, left_out)
    assert 0 < left_out < len(everything)
    assert CoreferenceStudy(model).result() is None
