"""What a page or a terminal shows of a text: tokens, words, weights; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from filbert.batch import pack
from filbert.errors import ConfigError, InputError
from filbert.inspection.maps import attention_maps, merged
from filbert.inspection.queries_keys import queries_and_keys
from filbert.inspection.view import chosen_map, shown_tokens, view_of, words_of
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def predictor(tiny_model) -> Predictor:
    return Predictor.load(tiny_model)


def test_a_pair_is_shown_with_its_tokens_words_and_exact_weights(predictor):
    view = view_of(predictor, ("He was greatly good.", "Playing!"), name="tiny")
    assert view.tokens == (
        "[CLS]", "he", "was", "great", "##ly", "good", ".", "[SEP]", "play", "##ing", "!", "[SEP]",
    )  # fmt: skip
    words = ("[CLS]", "He", "was", "greatly", "good", ".", "[SEP]", "Playing", "!", "[SEP]")
    assert view.words == words
    assert view.units.tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 8, 9]
    assert view.sequence.tolist() == [-1, 0, 0, 0, 0, 0, 0, -1, 1, 1, 1, -1]
    (encoding,) = predictor.tokenizer.encode([("He was greatly good.", "Playing!")])
    batch = pack([encoding.input_ids], [encoding.token_type_ids])
    assert torch.equal(torch.from_numpy(view.maps), attention_maps(predictor.model, batch)[0])
    vectors = torch.from_numpy(view.queries_keys)
    assert torch.equal(vectors, queries_and_keys(predictor.model, batch)[0])


def test_the_attention_of_words_is_that_of_clark_and_others_by_hand():
    maps = np.array([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])
    # To the second word, tokens 1 and 2: the sum. From it: the mean.
    wanted = [[0.5, 0.5], [0.25, 0.75]]
    np.testing.assert_allclose(merged(maps, np.array([0, 1, 1])), wanted)
    np.testing.assert_array_equal(merged(maps, np.arange(3)), maps)


def test_one_head_is_chosen_or_the_mean_over_what_is_left_open(predictor):
    view = view_of(predictor, "the film was good", name="tiny")
    np.testing.assert_array_equal(chosen_map(view, 1, 2), view.maps[1, 2])
    np.testing.assert_allclose(chosen_map(view, None, 2), view.maps[:, 2].mean(0), atol=1e-7)
    np.testing.assert_allclose(chosen_map(view, 1, None), view.maps[1].mean(0), atol=1e-7)
    for layer, head, sentence in ((2, 0, "layer 2 is not in 0..1"), (0, -1, "head -1 is not in")):
        with pytest.raises(ConfigError, match=sentence):
            chosen_map(view, layer, head)


@pytest.mark.parametrize(
    "fields",
    [
        {"heads_per_layer": (4, 1, 3)},
        {"num_hidden_groups": 1},
        {"causal": True},
        {"rotary_base": 100.0, "local_window": 4, "global_every": 2, "position_offset": 0},
    ],
    ids=["pruned", "albert", "causal", "modernbert"],
)
def test_every_kind_of_model_is_shown_and_the_mean_is_over_heads_that_it_has(tiny, fields):
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=tiny.vocab_size, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=32, **fields,
    )  # fmt: skip
    encoder = Encoder(config)
    initialize(encoder, 0.2)
    view = view_of(Predictor(Model(encoder), tiny), "the film was very good", name="drawn")
    assert view.queries_keys.shape[:3] == (3, 2, 4)
    choices = [(None, None), (1, None), (None, 2), (0, 3)]
    for layer, head in choices:
        np.testing.assert_allclose(chosen_map(view, layer, head).sum(-1), 1, atol=1e-6)
    if "heads_per_layer" not in fields:
        assert not view.is_lost.any()
        return
    assert view.is_lost.tolist() == [[False] * 4, [False] + [True] * 3, [False] * 3 + [True]]
    np.testing.assert_array_equal(chosen_map(view, 1, None), view.maps[1, 0])
    np.testing.assert_allclose(chosen_map(view, None, 3), view.maps[0, 3])
    with pytest.raises(ConfigError, match="head 2 of layer 1 of drawn was pruned"):
        chosen_map(view, 1, 2)


def test_more_attention_than_fits_is_refused_with_a_length_that_does(predictor, monkeypatch):
    monkeypatch.setattr("filbert.inspection.maps.MOST_ENTRIES", 8 * 10**2 + 5)
    with pytest.raises(ConfigError, match=r"11 tokens before 8 heads .* --max-length 10\."):
        view_of(predictor, "film " * 9, name="tiny")
    assert view_of(predictor, "film " * 9, name="tiny", max_length=10).truncated


def test_tokens_of_a_byte_vocabulary_are_shown_as_characters(shared_data):
    tokenizer = Tokenizer.load(shared_data / "tokenizers" / "roberta-base")
    texts = ("Café unhurriedly", "of")
    (encoding,) = tokenizer.encode([texts], with_offsets=True)
    tokens = shown_tokens(encoding, texts, tokenizer)
    units, words = words_of(encoding, texts, tokenizer)
    assert words == ("<s>", "Café", "unhurriedly", "</s>", "</s>", "of", "</s>")
    assert "".join(tokens) == "<s>Caféunhurriedly</s></s>of</s>"
    assert len(units) == len(tokens) > len(words)


@pytest.mark.parametrize("item", ["", " \n", ("a film", " "), ("", "a film")])
def test_an_empty_text_is_refused_in_a_sentence(predictor, item):
    with pytest.raises(InputError, match="is empty. Give a sentence"):
        view_of(predictor, item, name="tiny")


def test_a_text_that_is_too_long_is_refused_unless_cutting_was_asked_for(predictor):
    text = "the film " * 300
    with pytest.raises(InputError, match="has 602 tokens, tiny reads 64.*--max-length 64"):
        view_of(predictor, text, name="tiny")
    view = view_of(predictor, text, name="tiny", max_length=9)
    assert (len(view.tokens), view.num_tokens, view.truncated) == (9, 602, True)


def test_something_that_is_no_text_is_refused(predictor):
    with pytest.raises(InputError, match="Item 0 is a int"):
        view_of(predictor, 3, name="tiny")


def test_half_a_character_does_no_harm(predictor):
    view = view_of(predictor, "the \ud83d film", name="tiny")
    assert "\ud83d" not in view.texts[0]
