"""New vocabulary entries, in every kind of vocabulary, after being saved and read again too."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import pytest

from filbert.errors import InputError
from filbert.text.extend import add_entries
from filbert.text.tokenizer import Tokenizer

KINDS = ("bert-base-uncased", "roberta-base", "albert-base-v2")


def cut(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.tokens(tokenizer.encode([text])[0].input_ids)[1:-1]


def real(shared_data: Path, name: str) -> Tokenizer:
    return Tokenizer.load(shared_data / "tokenizers" / name)


@pytest.fixture
def with_unused(tmp_path: Path) -> Tokenizer:
    lines = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    lines += ["co", "##vi", "##d", "the", "##o", "##s", "[unused2]"]
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n")
    return Tokenizer.load(tmp_path)


def test_unused_entries_give_their_places_first_and_then_the_vocabulary_grows(
    with_unused: Tokenizer,
) -> None:
    grown = add_entries(with_unused, ["Covid", "cos", "##os", "##ovi"])
    assert grown.rows_from == {1: (7, 8, 9), 2: (7, 12), 13: (11, 12), 14: (11, 8)}
    assert grown.tokenizer.tokens(grown.rows_from) == ["covid", "cos", "##os", "##ovi"]
    assert grown.tokenizer.vocab_size == 15
    assert grown.notes == (
        "3 new entries in the place of [unused0] to [unused2].",
        "1 new entry at ids 14 to 14.",
    )


def test_an_entry_that_is_there_or_given_twice_is_taken_once(with_unused: Tokenizer) -> None:
    grown = add_entries(with_unused, ["covid", "COVID", "the", "[MASK]", "[unused2]"])
    assert list(grown.rows_from) == [1]
    assert grown.notes[1] == "in the vocabulary already: the, [MASK], [unused2]."


def test_an_entry_of_unknown_characters_has_no_pieces(with_unused: Tokenizer) -> None:
    grown = add_entries(with_unused, ["zebra", "##zz"])
    assert grown.rows_from == {1: (), 2: ()}
    assert grown.notes[1] == "of unknown characters until now: zebra, ##zz."
    assert cut(grown.tokenizer, "zebra") == ["zebra"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("covid-19", r"'covid-19' \(cut into covid - 19\)"),
        ("heart attack", r"'heart attack' \(cut into heart attack\)"),
        ("  ", "''?"),
        ("##", "'##'"),
        ("x" * 101, "over 100 characters"),
        ("\x1b", r"x1b"),
    ],
)
def test_an_entry_that_no_text_could_hold_is_refused(
    with_unused: Tokenizer, entry: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        add_entries(with_unused, ["covid", entry])


@pytest.mark.parametrize("name", KINDS)
def test_new_words_are_whole_wherever_they_stand_in_a_text(shared_data: Path, name: str) -> None:
    old = real(shared_data, name)
    grown = add_entries(old, ["tocilizumab", "covid"])
    marks = {"wordpiece": "", "bytebpe": "Ġ", "unigram": "▁"}
    words = [marks[old.kind] + word for word in ("tocilizumab", "covid")]
    tokens = cut(grown.tokenizer, "of tocilizumab, for covid-19 and covid.")
    assert [token for token in tokens if token in words] == [words[0], words[1], words[1]]
    assert grown.tokenizer.decode(grown.tokenizer.encode(["a covid."])[0].input_ids) == "a covid."
    for number, word in zip(grown.rows_from, words, strict=True):
        assert grown.tokenizer.id_of(word) == number
        pieces = old.tokens(grown.rows_from[number])
        assert "".join(pieces).replace("##", "") == word
        assert len(pieces) > 1


@pytest.mark.parametrize("name", KINDS)
def test_other_words_are_cut_as_before(shared_data: Path, name: str) -> None:
    with gzip.open(shared_data / "wikitext103_tokens/wiki.valid.tokens.gz", "rt") as file:
        lines = [line for line, _ in zip(file, range(400), strict=False)]
    old = real(shared_data, name)
    new = add_entries(old, ["tocilizumab", "covid"]).tokenizer
    before, after = old.encode(lines), new.encode(lines)
    assert all(
        a.input_ids.tolist() == b.input_ids.tolist() for a, b in zip(before, after, strict=True)
    )


@pytest.mark.parametrize("name", KINDS)
def test_saved_entries_come_back_here_and_in_transformers(
    shared_data: Path, name: str, tmp_path: Path
) -> None:
    new = add_entries(real(shared_data, name), ["tocilizumab", "covid"]).tokenizer
    new.save(tmp_path)
    back = Tokenizer.load(tmp_path)
    assert (back.fingerprint, back.vocab_size) == (new.fingerprint, new.vocab_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        judge = AutoTokenizer.from_pretrained(tmp_path)
    text = "Of tocilizumab, for covid-19 and a cat."
    ids = new.encode([text])[0].input_ids.tolist()
    assert ids == judge(text)["input_ids"] == back.encode([text])[0].input_ids.tolist()


@pytest.mark.parametrize("name", KINDS)
def test_a_token_that_was_added_behind_a_vocabulary_keeps_its_id(
    shared_data: Path, name: str
) -> None:
    old = real(shared_data, name)
    size = old.vocab_size
    old.backend.add_tokens(["<extra>"])
    old = Tokenizer(_vocabulary(old))
    grown = add_entries(old, ["tocilizumab"], reuse_unused=False)
    assert old.id_of("<extra>") == grown.tokenizer.id_of("<extra>") == size
    assert list(grown.rows_from) == [size + 1]
    words = cut(grown.tokenizer, "a <extra> tocilizumab")
    assert words.count("<extra>") == 1 and words[-1].lstrip("▁Ġ") == "tocilizumab"


def _vocabulary(tokenizer: Tokenizer):  # type: ignore[no-untyped-def]
    from filbert.text.vocabulary import Vocabulary

    return Vocabulary(tokenizer.backend, tokenizer.specials)
