from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from filbert.batch import pack
from filbert.errors import InputError
from filbert.inspection.heads import NUMBERS, HeadStudy, maps_of, study
from filbert.inspection.maps import attention_maps
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model

TEXTS = ["the film was playing", "he played , he was good", "a film"]


def drawn(**changes):
    torch.manual_seed(0)
    config = EncoderConfig(
        **{
            "vocab_size": 34,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "max_position_embeddings": 64,
            **changes,
        }
    )
    encoder = Encoder(config)
    initialize(encoder, 0.4)
    return Model(encoder).eval()


@pytest.fixture(scope="module")
def model():
    return drawn()


@pytest.fixture(scope="module")
def encodings(tiny):
    return tiny.encode(TEXTS, with_offsets=True)


def numbers_of_map(tiny, encoding, map_nn):
    """All numbers of one head whose map is given, in a model of one layer and head."""
    found = HeadStudy(drawn(num_hidden_layers=1, num_attention_heads=1), tiny)
    found.add(torch.tensor(map_nn, dtype=torch.float32)[None, None], encoding)
    return {name: float(values[0, 0]) for name, values in found.result().values.items()}


def test_a_head_that_looks_at_the_token_before_is_described_as_that(tiny):
    (encoding,) = tiny.encode(["the film was"], with_offsets=True)  # [CLS] the film was [SEP]
    found = numbers_of_map(tiny, encoding, np.eye(5, k=-1) + np.diag([1, 0, 0, 0, 0]))
    assert found["previous"] == 1
    assert found["next"] == found["itself"] == found["sep"] == 0
    assert found["entropy"] == 0
    assert found["distance"] == 1
    # "the" looks at [CLS], which is no token of the text.
    assert found["cls"] == pytest.approx(1 / 3)
    assert found["confidence"] == pytest.approx(2 / 3)
    # No word here has two pieces, and none comes twice.
    assert math.isnan(found["same_word"])
    assert math.isnan(found["same_token"])


def test_a_head_that_looks_everywhere_alike_has_the_largest_entropy(tiny):
    (encoding,) = tiny.encode(["the film was"], with_offsets=True)
    found = numbers_of_map(tiny, encoding, np.full((5, 5), 0.2))
    assert found["entropy"] == pytest.approx(math.log(5))
    for name in ("cls", "sep", "itself", "previous", "next", "confidence"):
        assert found[name] == pytest.approx(0.2)
    # From places 1, 2 and 3 of 0..4: (1+0+1+2+3 + 2+1+0+1+2 + 3+2+1+0+1) / 15.
    assert found["distance"] == pytest.approx(20 / 15)


def test_pieces_of_a_word_and_the_same_token_elsewhere_are_told_apart(tiny):
    # [CLS] play ##ed , play [SEP]: the second "play" is another word.
    (encoding,) = tiny.encode(["played , play"], with_offsets=True)
    assert tiny.tokens(encoding.input_ids)[1:5] == ["play", "##ed", ",", "play"]
    weights = np.zeros((6, 6))
    weights[1, [2, 4]] = 0.3, 0.7
    weights[2, [1, 2]] = 0.5, 0.5
    weights[3, 3] = 1
    weights[4, [1, 4]] = 0.1, 0.9
    found = numbers_of_map(tiny, encoding, weights)
    assert found["same_word"] == pytest.approx((0.3 + 0.5) / 2)
    assert found["same_token"] == pytest.approx((0.7 + 0.1) / 2)
    assert found["itself"] == pytest.approx((0 + 0.5 + 1 + 0.9) / 4)


def test_the_second_text_of_a_pair_counts_its_own_words(tiny):
    # [CLS] played [SEP] played [SEP]: word 0 of both texts is not one word.
    (encoding,) = tiny.encode([("played", "played")], with_offsets=True)
    weights = np.zeros((7, 7))
    weights[1, [2, 4]] = 0.25, 0.75
    weights[4, 6] = 1
    found = numbers_of_map(tiny, encoding, weights)
    assert found["same_word"] == pytest.approx(0.25 / 4)
    assert found["same_token"] == pytest.approx(0.75 / 4)
    assert found["sep"] == pytest.approx(1 / 4)


def test_every_token_counts_the_same_however_long_its_text_is(model, tiny, encodings):
    together = study(model, tiny, encodings)
    assert (together.num_texts, together.num_tokens) == (
        3,
        sum(len(e.input_ids) for e in encodings),
    )
    alone = [study(model, tiny, [encoding]) for encoding in encodings]
    for number in NUMBERS:
        sums = sum(
            np.nan_to_num(one.values[number.name]) * one.counts[number.name] for one in alone
        )
        count = sum(one.counts[number.name] for one in alone)
        assert np.allclose(together.values[number.name], sums / count, atol=1e-9)


def test_texts_that_do_not_fit_together_give_the_same_maps(model, encodings):
    whole = attention_maps(model, pack([e.input_ids for e in encodings]))
    for max_entries in (1, 10_000):
        parts = list(maps_of(model, encodings, max_entries=max_entries))
        for part, one in zip(parts, whole, strict=True):
            # Sequences of other lengths beside it change the last bit.
            assert (part - one).abs().max() < 1e-6


def test_pruned_heads_have_no_numbers(tiny, encodings):
    found = study(drawn(heads_per_layer=(2, 1)), tiny, encodings)
    for values in found.values.values():
        assert np.isnan(values).tolist() == [[False, False], [False, True]]


def test_texts_without_any_token_are_refused(model, tiny):
    with pytest.raises(InputError, match="no text to look at"):
        study(model, tiny, tiny.encode(["", " "], with_offsets=True))
