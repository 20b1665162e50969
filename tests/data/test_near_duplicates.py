from __future__ import annotations

import random

import numpy as np
import pytest

from filbert.data.near_duplicates import (
    MAX_NEAR,
    bands_for,
    between,
    jaccard,
    leakage,
    missed,
    near_duplicates,
    normalised,
    repeats_within,
    shingle_sets,
    shingles,
    signatures,
)
from filbert.errors import ConfigError

WORDS = ["harbour", "lantern", "maple", "quiet", "river", "stone", "copper", "window", "garden"]
WORDS += ["autumn", "letter", "silver", "orchard", "bridge", "kettle", "meadow", "pocket", "violin"]


def five_grams(text: str) -> set[str]:
    """The judge: written without any of the code under test but the normalisation."""
    plain = normalised(text)
    return {plain[i : i + 5] for i in range(max(1, len(plain) - 4))} if plain else set()


def similarity(one: str, other: str) -> float:
    a, b = five_grams(one), five_grams(other)
    return len(a & b) / len(a | b) if a and b else 0.0


def invented(num_themes: int, copies: int, seed: int = 0) -> list[str]:
    """Texts of 1 to 40 words, and copies of each with up to a third of the words replaced."""
    draw = random.Random(seed)
    texts = []
    for _ in range(num_themes):
        theme = [draw.choice(WORDS) + str(draw.randrange(90)) for _ in range(draw.randrange(1, 41))]
        for _ in range(copies):
            words = list(theme)
            for _ in range(draw.randrange(0, 1 + len(words) // 3)):
                words[draw.randrange(len(words))] = draw.choice(WORDS)
            texts.append(" ".join(words))
    draw.shuffle(texts)
    return texts


@pytest.mark.parametrize("threshold", [0.6, 0.8, 0.9])
def test_all_pairs_of_a_brute_force_comparison_are_found_and_no_others(threshold):
    texts = invented(40, 8)
    wanted = {
        (i, j): value
        for j in range(len(texts))
        for i in range(j)
        if (value := similarity(texts[i], texts[j])) >= threshold
    }
    found = near_duplicates(texts, threshold=threshold)
    given = dict(zip(map(tuple, found.pairs.tolist()), found.similarity.tolist(), strict=True))
    assert len(wanted) > 40
    for pair, value in given.items():
        assert value == pytest.approx(wanted[pair], abs=1e-12), pair
    # Each text that is equal once normalised is paired with the first of its kind only.
    own = {
        pair: value
        for pair, value in wanted.items()
        if all(found.equal_to[row] == row for row in pair) or found.equal_to[pair[1]] == pair[0]
    }
    # The expected number of misses is the sum of `missed` over these pairs, far below one.
    assert sum(missed(value, threshold) for value in own.values()) < 0.1
    assert set(given) == set(own)


def test_a_pair_at_nine_tenths_is_missed_once_in_billions_and_one_at_the_threshold_in_thousands():
    assert bands_for(0.8) == (25, 5)
    assert missed(0.9) == pytest.approx((1 - 0.9**5) ** 25)
    assert missed(0.9) < 3e-10
    assert missed(0.8) < 5e-5
    for threshold in np.arange(0.6, 1.0001, 0.01):
        assert missed(float(min(1, threshold)), float(min(1, threshold))) <= 1e-3


def test_candidates_are_as_likely_as_the_formula_says():
    # One band of five and one pair of similarity J, over many seeds: found with J**5.
    one = " ".join(f"{word}{n}" for n, word in enumerate(WORDS * 2))
    other = " ".join(one.split()[:-4] + ["cherry", "basket"])
    J = similarity(one, other)
    tables = [signatures([one, other], 125, seed=seed) for seed in range(40)]
    agree = np.concatenate([(table[0] == table[1]) for table in tables])
    # 5,000 draws, so a deviation below 0.006; four of them.
    assert agree.mean() == pytest.approx(J, abs=0.024)
    in_band = np.concatenate([(t[0] == t[1]).reshape(25, 5).all(axis=1) for t in tables])
    # 1,000 bands: a deviation below 0.016; four of them.
    assert in_band.mean() == pytest.approx(J**5, abs=0.064)


def test_letter_case_width_space_and_punctuation_do_not_tell_texts_apart():
    texts = [
        "The  quiet river, the STONE!",
        "the quiet river the stone",
        "\uff34he quiet river; the stone.",
    ]
    found = near_duplicates(texts)
    assert found.equal_to.tolist() == [0, 0, 0]
    assert found.similarity.tolist() == [1.0, 1.0]


def test_a_text_of_punctuation_keeps_it_and_an_empty_one_is_near_to_nothing():
    found = near_duplicates(["!!!", "", "...", "", "  ", "!!!"])
    assert found.groups() == [[0, 5]]


def test_texts_shorter_than_a_shingle_are_near_only_to_equal_ones():
    found = near_duplicates(["ok", "ok.", "okay", "oh", "OK"])
    assert found.groups() == [[0, 1, 4]]


def test_clusters_join_rows_that_a_chain_of_pairs_connects():
    words = [f"{word}{n}" for n, word in enumerate(WORDS * 3)]
    chain = [" ".join(words[start : start + 40]) for start in range(0, 16, 2)]
    assert similarity(chain[0], chain[1]) >= 0.8 > similarity(chain[0], chain[-1])
    found = near_duplicates(["something else entirely", *chain])
    assert found.groups() == [list(range(1, 9))]
    assert found.clusters.tolist() == [0] + [1] * 8
    # Pairs come in another order, so that clusters grow together from their middle.
    order = [5, 0, 7, 2, 4, 6, 1, 3]
    assert near_duplicates([chain[i] for i in order]).groups() == [list(range(8))]


TEMPLATE = "the quiet river and the stone bridge in autumn, visitor number {}"


def test_thousands_of_rows_from_one_template_are_one_cluster_with_few_pairs():
    found = near_duplicates([TEMPLATE.format(n) for n in range(2000)])
    assert found.groups() == [list(range(2000))]
    # There are 2 million pairs; a row keeps MAX_NEAR with lower rows.
    assert len(found.pairs) <= 2000 * MAX_NEAR
    assert len(np.unique(found.pairs[:, 1])) == 1999


def test_each_row_keeps_the_most_alike_of_its_pairs_with_every_part():
    texts = [TEMPLATE.format(n) for n in range(150)]
    found = near_duplicates(texts, parts=(100, 50))
    low, high = found.pairs.T
    kept = np.bincount(high[(high >= 100) & (low < 100)], minlength=150)[100:]
    assert (kept > 0).all() and kept.max() == MAX_NEAR


def test_pairs_that_are_kept_are_the_most_alike_ones(monkeypatch):
    words = [f"{word}{n}" for n, word in enumerate(WORDS * 6)]
    texts = [" ".join(["else"] * changed + words[changed:]) for changed in (4, 1, 3, 2, 0)]
    found = near_duplicates(texts)
    assert found.pairs[found.pairs[:, 1] == 4, 0].tolist() == [0, 1, 2, 3], "the control"
    monkeypatch.setattr("filbert.data.near_duplicates.MAX_NEAR", 3)
    found = near_duplicates(texts)
    assert found.pairs[found.pairs[:, 1] == 4, 0].tolist() == [1, 2, 3]
    assert found.clusters.tolist() == [0] * 5


def test_a_pair_that_agrees_in_bands_of_several_pieces_is_told_once(monkeypatch):
    texts = invented(10, 6)
    whole = near_duplicates(texts)
    monkeypatch.setattr("filbert.data.near_duplicates._PENDING", 1)
    pieces = near_duplicates(texts)
    assert np.array_equal(pieces.pairs, whole.pairs)
    assert np.array_equal(pieces.similarity, whole.similarity)
    assert np.array_equal(pieces.clusters, whole.clusters)


@pytest.mark.parametrize("num_test", [60, 200])
def test_every_row_of_a_template_that_train_holds_too_is_a_leak(num_test):
    train = [TEMPLATE.format(n) for n in range(200)]
    test = [TEMPLATE.format(n) for n in range(200, 200 + num_test)]
    assert leakage(train, test).rows.tolist() == list(range(num_test))


def test_a_part_after_the_first_is_a_source_of_leaks_too():
    texts = [TEMPLATE.format(n) for n in range(600)]
    found = near_duplicates(texts, parts=(200, 200, 200))
    part = np.arange(600) // 200
    rows, _, _ = between(found, part == 1, part == 2)
    assert rows.tolist() == list(range(400, 600))


def test_a_row_repeats_within_its_file_only_if_it_is_near_to_an_earlier_one_of_it():
    words = [f"{word}{n}" for n, word in enumerate(WORDS * 3)]
    chain = [" ".join(words[start : start + 40]) for start in (0, 4, 8)]
    assert similarity(chain[0], chain[1]) >= 0.8 > similarity(chain[0], chain[2])
    found = near_duplicates([chain[1], chain[0], chain[2]], parts=(1, 2))
    assert found.clusters.tolist() == [0, 0, 0]
    assert repeats_within(found, np.array([False, True, True])).tolist() == []
    # Each of these is paired with the first of the other file alone, and yet repeats the other.
    found = near_duplicates([chain[1], chain[1] + "!", chain[1] + "?"], parts=(1, 2))
    assert repeats_within(found, np.array([False, True, True])).tolist() == [2]
    # Near to the first of two that are equal, of which the set holds the second.
    found = near_duplicates([chain[1], chain[1] + "!", chain[0]], parts=(1, 2))
    assert repeats_within(found, np.array([False, True, True])).tolist() == [2]


def test_the_same_texts_give_the_same_answer_in_any_company():
    texts = invented(20, 5)
    alone = near_duplicates(texts)
    more = near_duplicates([*texts, *invented(20, 5, seed=1)])
    inside = (more.pairs < len(texts)).all(axis=1)
    assert np.array_equal(more.pairs[inside], alone.pairs)
    assert np.array_equal(near_duplicates(texts).clusters, alone.clusters)


def test_signatures_do_not_depend_on_how_texts_fall_into_blocks(monkeypatch):
    texts = [normalised(text) for text in invented(10, 6)] + ["", "a"]
    whole = signatures(texts, 25)
    monkeypatch.setattr("filbert.data.near_duplicates._CHUNK_CHARACTERS", 100)
    # In blocks of one, every text ends where a block does.
    for size in (17, 1):
        monkeypatch.setattr("filbert.data.near_duplicates._BLOCK", size)
        assert np.array_equal(signatures(texts, 25), whole)


def test_the_similarity_does_not_depend_on_how_pairs_fall_into_pieces(monkeypatch):
    texts = [normalised(text) for text in invented(10, 3)]
    pairs = np.array([(i, j) for j in range(len(texts)) for i in range(j)])
    wanted = [similarity(texts[i], texts[j]) for i, j in pairs.tolist()]
    assert jaccard(texts, pairs) == pytest.approx(wanted, abs=1e-12)
    monkeypatch.setattr("filbert.data.near_duplicates._CHARACTERS_AT_ONCE", 300)
    assert jaccard(texts, pairs) == pytest.approx(wanted, abs=1e-12)


def test_shingles_never_reach_from_one_text_into_the_next():
    texts = ["abcdefg", "", "xy", "hijklm", "äöüß\U0001f642z"]
    _, sizes = shingles(texts)
    assert sizes.tolist() == [3, 0, 1, 2, 2]
    hashes, sizes = shingle_sets(["aaaaaaaaa", "abcdeabcde", "abcde"])
    assert sizes.tolist() == [1, 5, 1]
    assert hashes[-1] in hashes[1:6]


def test_lone_surrogates_and_texts_in_other_scripts_are_compared_like_any_other():
    texts = ["नमस्ते दुनिया आज मौसम अच्छा है", "नमस्ते दुनिया, आज मौसम अच्छा है।", "\ud800 odd", "\ud800 odd"]
    assert near_duplicates(texts).groups() == [[0, 1], [2, 3]]


def test_leakage_names_the_nearest_training_row_and_whether_labels_differ():
    base = "the orchard behind the copper bridge was quiet all winter and full of silver lanterns"
    train = ["nothing of the kind", base + " and kettles", base, base.upper() + "!"]
    other = ["a meadow far away", base + ".", base + " and kettle", "Nothing of the kind?"]
    found = leakage(
        train, other, train_labels=["a", "b", "a", "b"], other_labels=["a", "a", "a", "a"]
    )
    assert found.rows.tolist() == [1, 2, 3]
    assert found.sources.tolist() == [2, 1, 0]  # of the equal rows 2 and 3 the first
    assert found.labels_differ.tolist() == [False, True, False]
    assert found.similarity[0] == found.similarity[2] == 1.0
    assert found.similarity[1] == pytest.approx(similarity(train[1], other[2]))
    assert leakage(train, other).labels_differ is None
    assert leakage([], other).rows.tolist() == leakage(train, []).rows.tolist() == []


def test_a_leak_is_found_through_an_equal_row_that_came_first():
    # The pair was found between the first rows of their kind, which are both of dev here.
    base = "the orchard behind the copper bridge was quiet all winter and full of silver lanterns"
    texts = [base, base + " again", base, base + " again", "a meadow"]
    found = near_duplicates(texts)
    rows, sources, near = between(
        found,
        np.array([False, False, True, False, True]),
        np.array([True, True, False, True, False]),
    )
    assert rows.tolist() == [0, 1, 3]
    assert sources.tolist() == [2, 2, 2]
    assert near[0] == 1.0 and near[1] == near[2] == pytest.approx(similarity(base, texts[1]))


@pytest.mark.parametrize("threshold", [0.0, 0.59, 1.01, float("nan")])
def test_a_threshold_that_cannot_be_searched_for_is_refused(threshold):
    with pytest.raises(ConfigError, match=r"it must be from 0\.6 to 1"):
        near_duplicates(["a"], threshold=threshold)


def test_at_threshold_one_only_equal_texts_are_found():
    texts = invented(20, 4)
    found = near_duplicates(texts, threshold=1)
    assert (found.similarity == 1).all()
    assert (found.equal_to[found.pairs[:, 1]] == found.pairs[:, 0]).all()


def test_no_texts_have_no_near_duplicates():
    assert near_duplicates([]).groups() == []
    assert near_duplicates(["", ""]).groups() == []
