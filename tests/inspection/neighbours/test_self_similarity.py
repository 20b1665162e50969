"""The measures of Ethayarajh (2019) against their definitions, written out pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD

from filbert.inspection.self_similarity import (
    cosines,
    explainable_variance,
    intra_similarity,
    layer_figures,
    mean_cosine,
    mean_cosine_across,
    nearest_same,
    repeated_forms,
)

# Float64 throughout: what is left is roundings.
EXACT = 1e-12


@pytest.fixture
def vectors():
    return np.random.default_rng(0).standard_normal((9, 5)) + 0.7


def cosine(a, b):
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_the_mean_cosine_is_that_of_all_pairs(vectors):
    pairs = [cosine(a, b) for a, b in combinations(vectors, 2)]
    assert abs(mean_cosine(vectors) - np.mean(pairs)) < EXACT
    assert abs(cosines(vectors)[2, 5] - cosine(vectors[2], vectors[5])) < EXACT


def test_pairs_of_a_text_and_of_a_word_do_not_count_among_random_words(vectors):
    texts, forms = np.array([4, 4, 4, 1, 1, 9, 9, 9, 9]), list("abcab,a,,")
    pairs = [
        cosine(vectors[i], vectors[j])
        for i, j in combinations(range(9), 2)
        if texts[i] != texts[j] and forms[i] != forms[j]
    ]
    found = mean_cosine_across(vectors, texts, forms)
    assert found is not None
    assert abs(found - np.mean(pairs)) < EXACT
    assert mean_cosine_across(vectors, np.zeros(9), forms) is None
    assert mean_cosine_across(vectors, texts, ["the"] * 9) is None


def test_a_sentence_is_compared_with_the_mean_of_its_words(vectors):
    texts = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3])
    wanted = []
    for text in (0, 1, 3):
        own = vectors[texts == text]
        wanted.append(np.mean([cosine(word, own.mean(0)) for word in own]))
    found = intra_similarity(vectors, texts)
    assert found is not None
    assert abs(found - np.mean(wanted)) < EXACT
    assert intra_similarity(vectors[:2], np.array([0, 1])) is None


def test_one_direction_explains_what_scikit_learn_says(vectors):
    judge = TruncatedSVD(1, algorithm="arpack").fit(vectors)
    share = judge.singular_values_[0] ** 2 / np.square(vectors).sum()
    assert abs(explainable_variance(vectors) - share) < 1e-9
    assert explainable_variance(np.outer([1.0, 2, -3], [1, 1, 0])) == pytest.approx(1)


def test_the_nearest_is_never_the_place_itself():
    vectors = np.array([[1, 0.0], [1, 0.1], [0, 1], [0.3, 1]])
    assert nearest_same(cosines(vectors), ["a", "a", "b", "b"]) == 1
    assert nearest_same(cosines(vectors), ["a", "b", "a", "b"]) == 0


def test_a_repeated_word_has_letters_and_five_texts():
    forms = ["sea"] * 6 + ["."] * 6 + ["sky"] * 6
    texts = np.array([*range(6), *range(6), 0, 1, 2, 3, 3, 3])
    (rows,) = repeated_forms(forms, texts)
    assert rows.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_random_words_have_in_common_is_taken_off(vectors):
    places = vectors[:4]
    texts = np.arange(9) // 2
    figures = layer_figures(
        3, places, vectors, list("abcdefghi"), texts, vectors, texts, ["x", "x", "y", "y"]
    )
    random = mean_cosine_across(vectors, texts, list("abcdefghi"))
    assert figures.layer == 3
    assert figures.adjusted["self_similarity"] == pytest.approx(mean_cosine(places) - random)
    assert figures.adjusted["intra"] == pytest.approx(intra_similarity(vectors, texts) - random)
    assert figures.words_self_similarity is None
    assert figures.adjusted["words_self_similarity"] is None


def test_a_cone_alone_gives_an_adjusted_self_similarity_near_zero():
    draw = np.random.default_rng(1)
    cone = draw.standard_normal((400, 32)) + 3.0
    texts = np.arange(400)
    forms = list(map(str, range(350)))
    figures = layer_figures(1, cone[:50], cone[50:], forms, texts[50:], cone, texts, None)
    assert figures.self_similarity > 0.8
    # 50 places: the standard error of their mean cosine is about 0.005.
    assert abs(figures.adjusted["self_similarity"] or 1) < 0.02
    assert abs(figures.adjusted["explained"] or 1) < 0.02
    # As many as the word has: of fewer words one direction would explain more.
    pick = explainable_variance(cone[200:250])
    assert figures.random_explained == pytest.approx(pick, abs=0.02)
    assert explainable_variance(cone[200:203]) > pick + 0.02
