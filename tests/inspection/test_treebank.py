from __future__ import annotations

import gzip

import numpy as np
import pytest

from filbert import samples
from filbert.errors import InputError
from filbert.inspection.maps import merged
from filbert.inspection.treebank import read_treebank, words_of


def line(number, form, head, relation, misc="_"):
    return f"{number}\t{form}\t_\t_\t_\t_\t{head}\t{relation}\t_\t{misc}\n"


def written(tmp_path, text):
    path = tmp_path / "trees.conllu"
    path.write_text(text, encoding="utf-8")
    return path


GOOD = (
    "# newdoc id = a\n# sent_id = 1\n"
    + line(1, "He", 2, "nsubj", "Entity=(e1)")
    + line(2, "ran", 0, "root", "SpaceAfter=No")
    + line(3, ".", 2, "punct")
    + "\n"
)


def test_a_sentence_is_its_words_their_places_and_their_heads(tmp_path):
    (tree,) = read_treebank(written(tmp_path, GOOD))
    assert tree.text == "He ran."
    assert tree.words == ("He", "ran", ".")
    assert [tree.text[s:e] for s, e in zip(tree.starts, tree.ends, strict=True)] == [
        "He", "ran", ".",
    ]  # fmt: skip
    assert tree.heads.tolist() == [1, -1, 1]
    assert tree.relations == ("nsubj", "root", "punct")
    assert tree.entities == ("(e1)", "", "")
    assert tree.is_new_document
    assert tree.where.endswith("trees.conllu:3")


def test_the_last_sentence_needs_no_blank_line_and_the_file_may_be_packed(tmp_path):
    path = tmp_path / "trees.conllu.gz"
    path.write_bytes(gzip.compress((GOOD + GOOD.rstrip("\n")).encode()))
    assert [tree.text for tree in read_treebank(path)] == ["He ran.", "He ran."]


def test_a_contraction_is_one_word_with_the_head_of_its_topmost_part(tmp_path):
    # French: "Il vient du port", du = de + le; both hang on "port".
    text = (
        line(1, "Il", 2, "nsubj")
        + line(2, "vient", 0, "root")
        + line("3-4", "du", "_", "_")
        + line(3, "de", 5, "case")
        + line(4, "le", 5, "det")
        + line(5, "port", 2, "obl")
        + line("5.1", "x", "_", "_")
        + "\n"
        # Spanish: "dámelo" = da + me + lo, and a word that hangs on its inside.
        + line("1-3", "dámelo", "_", "_", "SpaceAfter=No")
        + line(1, "da", 0, "root")
        + line(2, "me", 1, "iobj")
        + line(3, "lo", 1, "obj")
        + line(4, "!", 3, "punct")
        + "\n"
        # An invented one, whose second part is on top.
        + line("1-2", "beingold", "_", "_")
        + line(1, "being", 2, "cop")
        + line(2, "old", 3, "advcl")
        + line(3, "go", 0, "root")
        + "\n"
    )
    first, second, third = read_treebank(written(tmp_path, text))
    assert first.words == ("Il", "vient", "du", "port")
    assert first.heads.tolist() == [1, -1, 3, 1]
    assert first.relations[2] == "case"
    assert second.text == "dámelo!"
    assert second.heads.tolist() == [-1, 0]
    assert (third.heads.tolist(), third.relations) == ([1, -1], ("advcl", "root"))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("1\tHe\t_\n\n", "trees.conllu:1: 3 columns between tabs; CoNLL-U has 10"),
        ("1 He _ _ _ _ 0 root _ _\n\n", ":1: 1 columns between tabs"),
        (line(2, "He", 0, "root"), ":1: ID '2' stands where 1 is wanted"),
        (line(1, "He", 0, "root") + line(1, "ran", 1, "x"), ":2: ID '1' stands where 2"),
        (line("x", "He", 0, "root"), ":1: ID 'x' stands where 1 is wanted"),
        (line(1, "He", 3, "nsubj") + line(2, "ran", 0, "root"), ":1: HEAD is '3'; a word of"),
        (line(1, "He", "_", "nsubj"), ":1: HEAD is '_'"),
        (line(1, "He", "-1", "nsubj"), ":1: HEAD is '-1'"),
        (line(1, "He", "²", "nsubj"), ":1: HEAD is '²'"),
        (line(1, "He", 0, "_"), ":1: DEPREL, the relation to the head, is missing"),
        (line(1, "", 0, "root"), ":1: FORM, the second column, is empty"),
        (line(1, "a", 0, "root") + line(2, "b", 3, "x") + line(3, "c", 2, "x"), ":2: from this"),
        (line(1, "a", 1, "x"), ":1: from this word the heads lead in a circle"),
        (line(1, "a", 0, "root") + "# note\n", ":2: a comment within a sentence"),
        (line("1-2", "ab", "_", "_") + line(1, "a", 0, "root"), "not all words of a contraction"),
        (line("2-3", "ab", "_", "_") + line(1, "a", 0, "root"), ":1: ID 2-3 does not begin at"),
        ("# nothing\n\n", "trees.conllu: no sentence. A CoNLL-U file is wanted"),
        ("", "no sentence"),
    ],
)
def test_a_broken_line_is_told_in_a_sentence_with_its_number(tmp_path, broken, sentence):
    with pytest.raises(InputError) as caught:
        list(read_treebank(written(tmp_path, broken)))
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_no_file_or_no_text_is_told_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        list(read_treebank(tmp_path / "nothing.conllu"))
    (tmp_path / "latin.conllu").write_bytes(line(1, "né", 0, "root").encode("latin-1"))
    with pytest.raises(InputError, match=r":1: byte .* not UTF-8"):
        list(read_treebank(tmp_path / "latin.conllu"))


def test_the_sentences_that_ship_are_trees_with_their_own_text():
    path = samples.path("sentences.conllu")
    trees = list(read_treebank(path))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [t.text for t in trees] == [x[9:] for x in lines if x.startswith("# text = ")]
    assert len(trees) == 40
    assert sum(tree.is_new_document for tree in trees) == 6
    assert all((tree.heads < 0).sum() == 1 for tree in trees)


def test_tokens_belong_to_the_word_that_they_share_a_character_with(tiny, tmp_path):
    text = line(1, "played", 0, "root", "SpaceAfter=No") + line(2, ",", 1, "punct")
    text += line(3, "good", 1, "x") + "\n"
    (tree,) = read_treebank(written(tmp_path, text))
    (encoding,) = tiny.encode([tree.text], with_offsets=True)
    assert tiny.tokens(encoding.input_ids)[1:-1] == ["play", "##ed", ",", "good"]
    assert words_of(encoding, tree).tolist() == [-1, 0, 0, 1, 2, -1]


def test_a_word_that_was_cut_off_has_no_token(tiny, tmp_path):
    (tree,) = read_treebank(
        written(tmp_path, line(1, "he", 0, "root") + line(2, "was", 1, "x") + "\n")
    )
    (encoding,) = tiny.encode([tree.text], with_offsets=True, max_length=3)
    assert words_of(encoding, tree).tolist() == [-1, 0, -1]


def test_attention_to_a_word_is_the_sum_and_from_it_the_mean_of_its_tokens():
    maps = np.array(
        [
            [0.1, 0.2, 0.3, 0.4],
            [0.5, 0.1, 0.1, 0.3],
            [0.1, 0.3, 0.2, 0.4],
            [0.0, 0.0, 0.6, 0.4],
        ]
    )
    # A special token, a word of two pieces, a word of one; word 2 has none.
    found = merged(maps, np.array([-1, 0, 0, 1]), 3)
    wanted = [[(0.1 + 0.1 + 0.3 + 0.2) / 2, (0.3 + 0.4) / 2, 0], [0.6, 0.4, 0], [0, 0, 0]]
    assert np.allclose(found, wanted)
    stacked = merged(np.stack([maps, maps.T])[:, None], np.array([-1, 0, 0, 1]), 3)
    assert stacked.shape == (2, 1, 3, 3)
    assert np.allclose(stacked[0, 0], wanted)
