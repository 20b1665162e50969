"""Smaller vocabularies of every kind, after being saved and read again too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models

from filbert.data.records import read_rows
from filbert.samples import path as sample
from filbert.text.narrow import (
    count_changed,
    count_entries,
    useful_entries,
    without_others,
)
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import Vocabulary

KINDS = ("bert-base-uncased", "roberta-base", "albert-base-v2")
ODD = [
    "\u9f98 unknown \u6f22\u5b57",
    "na\u00efve caf\u00e9\nand a new line",
    "\U0001f600 x\u0301",
    "",
    "[MASK] <mask> written out",
]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rows = read_rows(sample("toxic_dev.csv.gz"))
    return [row.values["text"] for _, row in zip(range(150), rows, strict=False)] + ODD


def narrowed(tokenizer: Tokenizer, texts: list[str]):
    kept = useful_entries(tokenizer, count_entries(tokenizer, texts))
    return kept, without_others(tokenizer, kept)


@pytest.fixture(scope="module")
def real(shared_data: Path, texts: list[str]):
    """By kind: the tokenizer, the ids that the texts need, and the tokenizer with these only."""
    found = {}
    for name in KINDS:
        tokenizer = Tokenizer.load(shared_data / "tokenizers" / name)
        found[name] = (tokenizer, *narrowed(tokenizer, texts))
    return found


@pytest.mark.parametrize("name", KINDS)
def test_the_corpus_is_cut_into_the_same_tokens_and_pairs_too(real, texts, tmp_path, name):
    tokenizer, kept, small = real[name]
    assert small.vocab_size == len(kept) < tokenizer.vocab_size / 3
    assert count_changed(tokenizer, small, kept, texts)[0] == 0
    small.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    pairs = list(zip(texts, reversed(texts), strict=True))
    for one, other in zip(tokenizer.encode(pairs), again.encode(pairs), strict=True):
        assert tokenizer.tokens(one.input_ids) == again.tokens(other.input_ids)
        assert np.array_equal(one.token_type_ids, other.token_type_ids)
    assert again.specials == tokenizer.specials


def wordpiece(folder: Path, entries: list[str]) -> Tokenizer:
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *entries]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Tokenizer.load(folder)


def test_an_unknown_letter_of_a_unigram_vocabulary_costs_what_it_did():
    # Unknown costs 10 more than the lowest score: "xy zw", -26, goes before "<unk> yzw", -33. Were
    # "rare" left out, the second would cost 26 less a tenth.
    scores = [("<unk>", 0.0), ("xy", -13.0), ("zw", -13.0), ("yzw", -2.9), ("rare", -20.0)]
    backend = Backend(models.Unigram(scores, unk_id=0))
    tokenizer = Tokenizer(Vocabulary(backend, {"unk": "<unk>"}))
    assert tokenizer.encode(["xyzw"])[0].input_ids.tolist() == [1, 2]
    kept, small = narrowed(tokenizer, ["xyzw", "yzw"])
    assert kept == [0, 1, 2, 3, 4]
    assert count_changed(tokenizer, small, kept, ["xyzw"])[0] == 0


def test_letters_of_the_corpus_stay_in_both_forms(tmp_path):
    tokenizer = wordpiece(tmp_path, ["film", "f", "##f", "##i", "i", "l", "##m", "q", "##q"])
    _, small = narrowed(tokenizer, ["film"])
    known = {"film", "f", "##f", "##i", "i", "l", "##m"}
    assert known | set(tokenizer.specials.values()) == set(small.backend.get_vocab())


def test_entries_of_byte_level_bpe_stay_with_what_they_are_merged_from(real):
    tokenizer, _, small = real["roberta-base"]
    merges = json.loads(small.backend.to_str())["model"]["merges"]
    made = {"".join(merge) for merge in merges}
    ids = small.backend.get_vocab()
    assert all(len(text) == 1 or text in made or text[0] == "<" for text in ids)
    assert sum(len(text) == 1 for text in ids) == 256
