from __future__ import annotations

import random

import numpy as np
import pytest

from filbert.data.splitting import (
    BAND_SIZE,
    NUM_BANDS,
    THRESHOLD,
    NearDuplicates,
    between,
    near_duplicates,
    normalised,
    signatures,
)

WORDS = ["harbour", "lantern", "maple", "quiet", "river", "stone", "copper", "window", "garden"]
WORDS += ["autumn", "letter", "silver", "orchard", "bridge", "kettle", "meadow", "pocket", "violin"]
NUMBERED = [f"{word}{n}" for n, word in enumerate(WORDS * 3)]
BASE = "the orchard behind the copper bridge was quiet all winter and full of silver lanterns"
TEMPLATE = "the quiet river and the stone bridge in autumn, visitor number {}"


def similarity(one: str, other: str) -> float:
    """The reference: uses nothing of the code under test but the normalisation."""
    a, b = (
        {plain[i : i + 5] for i in range(max(1, len(plain) - 4))}
        for plain in map(normalised, (one, other))
    )
    return len(a & b) / len(a | b) if normalised(one) and normalised(other) else 0.0


def groups(near: NearDuplicates) -> list[list[int]]:
    members = [np.flatnonzero(near.clusters == name).tolist() for name in np.unique(near.clusters)]
    return [rows for rows in members if len(rows) > 1]


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


def test_all_pairs_of_a_brute_force_comparison_are_found_and_no_others():
    texts = invented(60, 7)
    near = near_duplicates(texts)
    given = dict(zip(map(tuple, near.pairs.tolist()), near.similarity.tolist(), strict=True))
    # Each text that is equal once normalised is paired with the first such text only.
    wanted = {
        (i, j): value
        for j in range(len(texts))
        for i in range(j)
        if (value := similarity(texts[i], texts[j])) >= THRESHOLD
        and (all(near.equal_to[row] == row for row in (i, j)) or near.equal_to[j] == i)
    }
    assert len(wanted) > 15
    # The expected number of misses is far below one.
    assert sum((1 - value**BAND_SIZE) ** NUM_BANDS for value in wanted.values()) < 0.1
    assert given == pytest.approx(wanted, abs=1e-12)


def test_signatures_agree_as_often_as_the_texts_are_similar():
    other = " ".join(NUMBERED[:-8] + ["cherry", "basket"])
    table = signatures([" ".join(NUMBERED), other], 5000)
    # 5,000 draws: a standard deviation below 0.0071; four of them.
    expected = similarity(" ".join(NUMBERED), other)
    assert (table[0] == table[1]).mean() == pytest.approx(expected, abs=0.028)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["The  quiet river, the STONE!", "\uff34he quiet river; the stone."], [[0, 1]]),
        (["!!!", "", "...", "", "  ", "!!!"], [[0, 5]]),
        (["ok", "ok.", "okay", "oh", "OK"], [[0, 1, 4]]),
        (["नमस्ते दुनिया आज", "नमस्ते दुनिया, आज।", "\ud800 odd", "\ud800 odd"], [[0, 1], [2, 3]]),
        (["", ""], []),
        ([], []),
    ],
)
def test_equal_means_equal_but_for_case_width_space_and_punctuation(texts, expected):
    assert groups(near_duplicates(texts)) == expected


def test_every_row_of_a_template_that_an_earlier_part_has_too_is_a_leak():
    near = near_duplicates([TEMPLATE.format(n) for n in range(600)], parts=(200, 200, 200))
    part = np.arange(600) // 200
    for one, other in ((0, 1), (0, 2), (1, 2)):
        rows, _ = between(near, part == one, part == other)
        assert rows.tolist() == list(range(200 * other, 200 * other + 200))


def test_between_names_the_most_similar_source():
    train = ["nothing of the kind", BASE + " and kettles", BASE, BASE.upper() + "!"]
    other = ["a meadow far away", BASE + ".", BASE + " and kettle", "Nothing of the kind?"]
    is_train = np.arange(8) < 4
    rows, sources = between(near_duplicates(train + other), is_train, ~is_train)
    assert rows.tolist() == [5, 6, 7]
    assert sources.tolist() == [2, 1, 0]  # of the equal rows 2 and 3 the first


def test_a_leak_is_found_through_an_equal_row_that_came_first():
    # The pair was found between the first rows of their kind, which are both judged here.
    texts = [BASE, BASE + " again", BASE, BASE + " again", "a meadow"]
    is_source = np.array([False, False, True, False, False])
    rows, sources = between(near_duplicates(texts), is_source, ~is_source)
    assert rows.tolist() == [0, 1, 3]
    assert sources.tolist() == [2, 2, 2]
