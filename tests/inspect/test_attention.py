"""Attention maps, words and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.conftest import sizes
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers

from filbert.batch import pack
from filbert.errors import ConfigError, InputError
from filbert.inference.int8 import quantized
from filbert.inference.predictor import Predictor
from filbert.inspect import attention
from filbert.inspect.attention import (
    attention_and_vectors,
    attention_maps,
    check_head,
    readable_tokens,
    view_text,
    words_of,
)
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import Vocabulary

SIZES = sizes(vocab_size=50, layers=3, width=32, heads=4, inner=48, positions=64)
SEQUENCES = [[3, 9, 4], [5], [7, 1, 8, 2, 30, 31, 6, 11, 12, 13], [9, 9, 9, 9]]


def drawn(**changes: object) -> Model:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig.of(**{**SIZES, **changes}))  # type: ignore[arg-type]
    initialize(encoder, 0.3)
    return Model(encoder).eval()


@pytest.fixture(scope="module")
def model() -> Model:
    return drawn()


def test_there_is_one_map_a_sequence_layer_and_head_and_its_rows_sum_to_one(model):
    maps = attention_maps(model, pack(SEQUENCES))
    assert [tuple(m.shape) for m in maps] == [(3, 4, len(s), len(s)) for s in SEQUENCES]
    for one in maps:
        assert one.dtype == torch.float32
        assert (one.sum(-1) - 1).abs().max() < 1e-6  # a few roundings of float32


def test_a_sequence_has_the_same_maps_alone_and_in_company(model):
    together = attention_maps(model, pack(SEQUENCES))
    for sequence, maps in zip(SEQUENCES, together, strict=True):
        (alone,) = attention_maps(model, pack([sequence]))
        assert (alone - maps).abs().max() < 1e-6


def test_only_the_layers_and_heads_that_are_asked_for_come_in_that_order(model):
    whole = attention_maps(model, pack(SEQUENCES))
    part = attention_maps(model, pack(SEQUENCES), layers=[2, 0], heads=[3])
    for all_of_it, some in zip(whole, part, strict=True):
        assert torch.equal(some, all_of_it[[2, 0]][:, [3]])


def test_shared_layers_have_a_map_for_every_time_they_run():
    (maps,) = attention_maps(drawn(num_hidden_groups=1), pack([SEQUENCES[2]]))
    assert maps.shape[0] == 3
    assert not torch.allclose(maps[0], maps[1])


def test_a_causal_encoder_looks_at_nothing_ahead_and_a_local_one_at_nothing_far():
    (causal,) = attention_maps(drawn(causal=True), pack([SEQUENCES[2]]))
    assert causal.triu(1).abs().max() == 0
    local = drawn(rotary_base=100.0, local_window=4, global_every=2, position_offset=0)
    (maps,) = attention_maps(local, pack([SEQUENCES[2]]))
    far = (torch.arange(10)[:, None] - torch.arange(10)).abs() > 2
    assert maps[1][:, far].abs().max() == 0
    assert maps[0][:, far].abs().max() > 0


def test_a_layer_that_lost_heads_has_zeros_for_them():
    pruned = drawn(heads_per_layer=(4, 1, 3))
    maps = torch.stack(attention_maps(pruned, pack([SEQUENCES[2]])))[0]
    sums = maps.sum(-1).mean(-1).round()
    assert sums.tolist() == [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]]
    (some,) = attention_maps(pruned, pack([SEQUENCES[2]]), heads=[3, 0])
    assert torch.equal(some, maps[:, [3, 0]])


def test_a_quantised_model_shows_what_it_computes_itself(model):
    maps = attention_maps(quantized(drawn()), pack(SEQUENCES))
    exact = attention_maps(model, pack(SEQUENCES))
    for own, other in zip(maps, exact, strict=True):
        assert 0 < (own - other).abs().mean() < 0.01 or len(own[0, 0]) == 1


def test_who_does_not_ask_pays_nothing(model):
    attention_maps(model, pack(SEQUENCES))
    with pytest.raises(IndexError):
        attention_maps(model, pack([[10_000]]))
    for part in model.modules():
        assert not part._forward_hooks
        assert not part._forward_pre_hooks


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"layers": [3]}, "layer 3 is not in 0..2"),
        ({"layers": [-1]}, "layer -1 is not in 0..2"),
        ({"heads": [4]}, "head 4 is not in 0..3"),
        ({"heads": [True]}, "head True"),
        ({"heads": []}, r"heads is \[\]"),
        ({"layers": 1}, "layers is 1"),
    ],
)
def test_layers_and_heads_that_are_not_there_are_refused(model, asked, sentence):
    with pytest.raises(ConfigError, match=sentence):
        attention_maps(model, pack(SEQUENCES), **asked)


@pytest.mark.parametrize("fields", [{}, {"rotary_base": 100.0}, {"num_hidden_groups": 1}])
def test_the_softmax_of_queries_and_keys_is_the_map(fields):
    found, pairs = attention_and_vectors(drawn(**fields), pack(SEQUENCES))
    for vectors, maps in zip(pairs, found, strict=True):
        assert vectors.shape == (3, 2, 4, maps.shape[-1], 8)
        query, key = vectors.unbind(1)
        own = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(8), -1)
        # The same products in another order: a few units in the last place of float32.
        torch.testing.assert_close(own, maps, atol=1e-6, rtol=0)


def test_queries_and_keys_of_pruned_heads_are_zeros():
    _, pairs = attention_and_vectors(drawn(heads_per_layer=(4, 1, 3)), pack(SEQUENCES))
    assert pairs[2][1, :, 1:].abs().max() == 0 < pairs[2][1, :, 0].abs().max()


@pytest.fixture(scope="module")
def predictor(tiny_model) -> Predictor:
    return Predictor.load(tiny_model)


def test_a_pair_is_shown_with_its_tokens_words_and_exact_weights(predictor):
    view = view_text(predictor, ("He was greatly good.", "Playing!"), name="tiny")
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
def test_every_kind_of_model_is_shown(tiny, fields):
    torch.manual_seed(0)
    config = EncoderConfig.of(
        vocab_size=tiny.vocab_size, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=32, **fields,
    )  # fmt: skip
    encoder = Encoder(config)
    initialize(encoder, 0.2)
    view = view_text(Predictor(Model(encoder), tiny), "the film was very good", name="drawn")
    assert view.queries_keys.shape[:3] == (3, 2, 4)
    np.testing.assert_allclose(view.maps[~view.is_pruned].sum(-1), 1, atol=1e-6)
    if "heads_per_layer" not in fields:
        assert not view.is_pruned.any()
        return
    assert view.is_pruned.tolist() == [[False] * 4, [False] + [True] * 3, [False] * 3 + [True]]
    with pytest.raises(ConfigError, match="head 2 of layer 1 of drawn was pruned"):
        check_head(view, 1, 2)


def test_more_attention_than_fits_is_refused_with_a_length_that_does(predictor, monkeypatch):
    monkeypatch.setattr(attention, "MOST_WEIGHTS", 8 * 10**2 + 5)
    with pytest.raises(ConfigError, match=r"8 heads over 11 tokens .* --max-length 10"):
        view_text(predictor, "film " * 9, name="tiny")
    assert view_text(predictor, "film " * 9, name="tiny", max_length=10).truncated


def test_tokens_of_a_byte_vocabulary_are_shown_as_characters(shared_data):
    tokenizer = Tokenizer.load(shared_data / "tokenizers" / "roberta-base")
    texts = ("Café unhurriedly", "of")
    (encoding,) = tokenizer.encode([texts], with_offsets=True)
    tokens = readable_tokens(encoding, texts, tokenizer)
    words = words_of(encoding, texts, tokenizer)
    names = ["<s>", "Café", "unhurriedly", "</s>", "</s>", "of", "</s>"]
    assert [word.text for word in words] == names
    assert "".join(tokens) == "<s>Caféunhurriedly</s></s>of</s>"
    assert [row for word in words for row in word.rows] == list(range(len(tokens)))


@pytest.mark.parametrize("item", ["", " \n", ("a film", " "), ("", "a film")])
def test_an_empty_text_is_refused_in_a_sentence(predictor, item):
    with pytest.raises(InputError, match="is empty. Give a sentence"):
        view_text(predictor, item, name="tiny")


def test_a_text_that_is_too_long_is_refused_unless_cutting_was_asked_for(predictor):
    text = "the film " * 300
    with pytest.raises(InputError, match="has 602 tokens, tiny reads 64.*--max-length 64"):
        view_text(predictor, text, name="tiny")
    view = view_text(predictor, text, name="tiny", max_length=9)
    assert (len(view.tokens), view.num_tokens, view.truncated) == (9, 602, True)


def test_something_that_is_no_text_is_refused(predictor):
    with pytest.raises(InputError, match="Item 0 is a int"):
        view_text(predictor, 3, name="tiny")


def test_half_a_character_does_no_harm(predictor):
    view = view_text(predictor, "the \ud83d film", name="tiny")
    assert "\ud83d" not in view.texts[0]


# Words

TEXT = "played,  he\n\twas (not) good \n"


@pytest.fixture(scope="module")
def unparted() -> Tokenizer:
    """As Gemma has it: characters, blanks among them, and nothing that parts words."""
    letters = {letter: number for number, letter in enumerate("?▁,.()\n\tabcdefghilmnopstwy")}
    backend = Backend(models.BPE(letters, [], unk_token="?"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    return Tokenizer(Vocabulary(backend, {"unk": "?"}, None))


def pieces_by_word(tokenizer: Tokenizer, text: str | tuple[str, str]) -> list[str]:
    texts = (text,) if isinstance(text, str) else text
    (encoding,) = tokenizer.encode([text], with_offsets=True)
    tokens = tokenizer.tokens(encoding.input_ids)
    words = words_of(encoding, texts, tokenizer)
    assert [row for word in words for row in word.rows] == list(range(len(tokens)))
    return [" ".join(tokens[row] for row in word.rows) for word in words if word.side >= 0]


def test_word_pieces_keep_the_words_of_their_own_splitting_step(tiny):
    for text in (TEXT, ("good, he", "played")):
        (encoding,) = tiny.encode([text], with_offsets=True)
        texts = (text,) if isinstance(text, str) else text
        for word in words_of(encoding, texts, tiny):
            rows = list(word.rows)
            if word.side >= 0:
                own = (encoding.words == encoding.words[rows[0]]) & (encoding.sequence == word.side)
                assert np.flatnonzero(own).tolist() == rows


def test_tokens_of_nothing_but_white_space_go_to_the_word_they_stand_before(byte_pieces):
    words = pieces_by_word(byte_pieces, TEXT)
    assert words == ["play ed", ",", "Ġ Ġhe", "Ċ ĉ was", "Ġ (", "no t", ")", "Ġgood Ġ Ċ"]
    # A text of white space alone is one word, and so is each side of a pair.
    assert pieces_by_word(byte_pieces, " \n") == ["Ġ Ċ"]
    assert pieces_by_word(byte_pieces, ("good ", " good")) == ["g ood Ġ", "Ġgood"]


def test_white_space_and_marks_part_words_where_the_vocabulary_does_not(unparted, unigram_pieces):
    (encoding,) = unigram_pieces.encode(["he played, good!"], with_offsets=True)
    assert encoding.words.tolist() == [-1, 0, 1, 1, 2, 2, -1]
    words = words_of(encoding, ["he played, good!"], unigram_pieces)
    assert [word.rows for word in words] == [(row,) for row in range(7)]
    words = pieces_by_word(unparted, TEXT)
    assert words == [
        "p l a y e d", ",", "▁ ▁ h e", "\n \t w a s", "▁ (", "n o t", ")", "▁ g o o d ▁ \n",
    ]  # fmt: skip
    (encoding,) = unparted.encode([TEXT], with_offsets=True)
    words = [word.text for word in words_of(encoding, (TEXT,), unparted)]
    assert words == ["played", ",", "he", "was", "(", "not", ")", "good"]
