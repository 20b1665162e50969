"""One word in many sentences: the vectors are the model's own, in every layer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from filbert.data.examples import Example
from filbert.errors import ConfigError, InputError
from filbert.inspection import neighbours
from filbert.inspection.context_vectors import vectors_of
from filbert.inspection.neighbours import word_in_context
from filbert.inspection.self_similarity import cosines, mean_cosine
from filbert.inspection.senses import Groups


def token_vectors(predictor, text, word, layer):
    """The mean of the word's token vectors as `embed` gives them."""
    (matrix,) = predictor.embed([text], pooling="none", layers=[layer])
    (encoding,) = predictor.tokenizer.encode([text], with_offsets=True)
    start = text.lower().index(word)
    rows = [
        i
        for i, (begin, end) in enumerate(encoding.offsets)
        if encoding.sequence[i] == 0 and begin < start + len(word) and end > start
    ]
    return matrix[rows].mean(0)


def test_similarities_are_those_of_the_vectors_that_embed_gives(predictor, sources, found):
    for layer, figures in enumerate(found.layers):
        vectors = np.stack(
            [token_vectors(predictor, one.text, "play", layer) for one in sources[:8]]
        )
        # Another order of float32 sums in another batch.
        assert abs(figures.self_similarity - mean_cosine(vectors)) < 1e-5
        if layer == found.layer:
            assert np.abs(found.similarity - cosines(vectors)).max() < 1e-5


def test_the_word_table_cannot_tell_the_places_apart_and_context_can(found):
    assert found.num_static == 1
    assert np.abs(found.static_similarity - 1).max() < 1e-6
    off = found.similarity[~np.eye(8, dtype=bool)]
    assert off.max() < 0.9999
    assert off.min() < 0.9
    assert not found.static_plane.any()


def test_the_static_vector_of_a_word_of_several_pieces_is_their_mean(predictor):
    texts = ["he plays it", "she was to play it", "it was playing"]
    result = word_in_context(predictor, ["play", "plays", "playing"], texts)
    assert result.pieces == (("play", "##s"), ("play",), ("play", "##ing"))
    table = predictor.model.encoder.embeddings.word.weight.detach().numpy()
    ids = [[predictor.tokenizer.id_of(piece) for piece in own] for own in result.pieces]
    wanted = cosines(np.stack([table[own].mean(0) for own in ids]))
    assert np.abs(result.static_similarity - wanted).max() < 1e-6
    assert result.num_static == 3


def test_a_vector_is_the_mean_of_its_tokens_not_their_sum(predictor):
    text = "he plays it"
    (encoding,) = predictor.tokenizer.encode([text])
    example = Example(0, encoding.input_ids, encoding.token_type_ids, encoding.num_tokens)
    layers = vectors_of(predictor, predictor.model, [example], [[np.array([2, 3])]])
    for layer, vectors in enumerate(layers):
        assert np.abs(vectors[0] - token_vectors(predictor, text, "plays", layer)).max() < 1e-5


def test_the_word_itself_is_no_other_word(predictor):
    result = word_in_context(predictor, "play", ["play", "Play play", "play"])
    assert result.layers[1].random is None
    assert result.nearest_words == ((),) * result.groups.count


def test_words_nearest_to_a_group_are_those_on_its_own_side():
    # Two groups left and right, high up; all words are high up too, so that without taking off the
    # means they would all be alike.
    places = np.array([[1.0, 0, 9], [1, 0.1, 9], [1, -0.1, 9], [-1, 0, 9], [-1, 0.1, 9]])
    words = np.array([[2.0, 0, 9], [-2, 0, 9], [0, 2, 9], [0, -2, 9], [1.5, 0.5, 9], [9, 0, 9]])
    forms = ["right", "left", "up", "down", "rightish", "own"]
    groups = Groups(np.array([0, 0, 0, 1, 1]), None, None)
    known = neighbours._Words(forms, np.arange(6), np.array([True] * 5 + [False]), 0)
    first, second = neighbours._nearest_words(places, groups, words, known)
    assert first[:2] == ("right", "rightish") and first[-1] == "left"
    assert second[0] == "left" and set(second[-2:]) == {"right", "rightish"}


def test_a_word_has_the_same_vectors_in_any_company(predictor, sources, found):
    reversed_ = word_in_context(predictor, "play", sources[::-1])
    assert np.abs(reversed_.similarity[::-1, ::-1] - found.similarity).max() < 1e-5


def test_figures_of_all_words_rest_on_the_other_texts_too(predictor, sources, found):
    assert found.others == 3
    assert found.texts == 11
    alone = word_in_context(predictor, "play", sources, others=0)
    assert alone.others == 0
    assert alone.layers[1].random != found.layers[1].random
    assert alone.layers[1].self_similarity == pytest.approx(found.layers[1].self_similarity)
    # "was" and "the" are in five texts and more.
    assert found.layers[0].num_words >= 2


def test_memory_is_bounded_by_a_number_of_words(predictor, sources, found, monkeypatch):
    monkeypatch.setattr(neighbours, "MOST_WORDS", 30)
    small = word_in_context(predictor, "play", sources)
    assert small.others < 3
    assert np.abs(small.similarity - found.similarity).max() < 1e-5
    assert small.layers[1].intra != found.layers[1].intra


def test_known_senses_are_compared_with_the_nearest_and_with_the_groups(found):
    assert found.senses == ("stage", "stage", "game", "game", "stage", "game", "stage", "game")
    same = [found.senses[found.nearest(i)] == found.senses[i] for i in range(8)]
    assert found.layers[found.layer].nearest_same == np.mean(same)
    # 1 only for the very groups that the senses make, 0 for groups by chance.
    assert found.agreement == adjusted_rand_score(found.senses, found.groups.numbers)
    assert -0.5 <= found.agreement < 1
    by_sense = np.array([sense == "game" for sense in found.senses]).astype(int)
    assert neighbours._agreement(Groups(by_sense, None, None), list(found.senses)) == 1


def test_senses_count_only_where_every_place_has_one(predictor, sources):
    some = [sources[0]._replace(sense=None), *sources[1:]]
    result = word_in_context(predictor, "play", some)
    assert result.senses is None
    assert result.agreement is None
    assert result.layers[0].nearest_same is None


def test_it_can_be_told_as_json(found):
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(told["occurrences"]) == 8
    first = told["occurrences"][0]
    assert first["text"][first["start"] : first["end"]] == "play"
    assert [layer["layer"] for layer in told["layers"]] == [0, 1, 2]
    assert told["layers"][1]["adjusted"]["self_similarity"] == pytest.approx(
        told["layers"][1]["self_similarity"] - told["layers"][1]["random"]
    )
    assert np.array(told["similarity"]).shape == (8, 8)


def test_the_same_seed_gives_the_same_answer(predictor, sources, found):
    assert word_in_context(predictor, "play", sources, name="tiny").to_dict() == found.to_dict()


@pytest.mark.parametrize(("layer", "number"), [(-1, 2), (0, 0), (-3, 0), (1, 1)])
def test_layers_are_counted_as_in_embed(predictor, sources, layer, number):
    assert word_in_context(predictor, "play", sources[:3], layer=layer).layer == number


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layer": 3}, "--layer 3 is not in -3..2"),
        ({"senses": 9}, "--senses 9: the word has 8 places"),
        ({"projection": "plot"}, "--plot 'plot'"),
        ({"most": 1}, "--limit 1"),
    ],
)
def test_impossible_options_are_refused(predictor, sources, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        word_in_context(predictor, "play", sources, **options)


def test_a_bare_string_and_an_empty_text_are_refused(predictor):
    with pytest.raises(InputError, match="Put it in a list"):
        word_in_context(predictor, "play", "to play a play")
    with pytest.raises(InputError, match="Text 2 is empty"):
        word_in_context(predictor, "play", ["a play", " ", "the play"])


def test_a_text_of_600_tokens_is_read_around_the_word(predictor):
    long = "the film was bad . " * 120 + "he was to play it"
    result = word_in_context(predictor, "play", [long, "she was to play it"])
    assert result.cut == (True, False)
