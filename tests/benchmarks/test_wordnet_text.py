"""WordNet's database as sentences; the lines are the database's own, its pointers fewer."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"

NOUNS = (
    "  1 This software and database is being provided to you\n"
    "00000010 15 n 01 national_capital 0 001 @ 00000001 n 0000 | the capital city of a nation\n"
    "00000020 15 n 03 Paris 0 City_of_Light 0 French_capital 0 002 @i 00000010 n 0000 "
    ";c 00000030 n 0000 | the capital and largest city of France; and international center of "
    "culture and commerce\n"
    '00000030 15 n 01 stay 0 000 | remaining in a place; "they had a nice stay in Paris"; "a short '
    'stay"\n'
)
VERBS = (
    '00000040 30 v 01 relax 0 000 01 + 02 00 | make less tight; "relax the tension on the rope"\n'
)
ADJECTIVES = (
    "00000050 00 a 01 good 0 001 & 00000060 a 0000 | having desirable qualities\n"
    "00000060 00 s 02 bang-up(p) 0 bully 0 001 & 00000050 a 0000 | very good; "
    '"a bully pulpit"- T. Roosevelt\n'
)
ADVERBS = '00000070 02 r 01 fast 0 000 | quickly; "how fast can he get here?"\n'


@pytest.fixture
def wordnet(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("wordnet_text")


@pytest.fixture
def made(wordnet, tmp_path):
    parts = {"noun": NOUNS, "verb": VERBS, "adj": ADJECTIVES, "adv": ADVERBS}
    for name, text in parts.items():
        (tmp_path / f"data.{name}").write_text(text, encoding="ascii")
    return wordnet.families(wordnet.senses(tmp_path))


def test_a_sense_stands_above_its_kinds_and_examples_and_the_rest_comes_last(made):
    names = [[sense.words[0] for sense in each] for each in made]
    assert names == [
        ["national capital", "Paris"],
        ["good", "bang-up"],
        ["stay"],
        ["relax"],
        ["fast"],
    ]


def test_neighbours_are_put_together_until_a_document_is_long(wordnet):
    lines = [["a b", "c"], ["d e f"], ["g"], ["h i"], ["j"]]
    found = list(wordnet.documents(iter(lines), words=4))
    assert found == [["a b", "c", "d e f"], ["g", "h i", "j"]]
    assert list(wordnet.documents(iter(lines[:4]), words=4))[-1] == ["g", "h i"]


def test_every_sense_becomes_sentences(wordnet, made):
    told = {sense.words[0]: wordnet.sentences(sense) for each in made for sense in each}
    assert told == {
        "national capital": "The national capital is the capital city of a nation.",
        "Paris": "Paris is the capital and largest city of France; and international center of "
        "culture and commerce. Another word for Paris is City of Light or French capital.",
        "stay": "Stay: remaining in a place. They had a nice stay in Paris. A short stay.",
        "relax": "To relax is to make less tight. Relax the tension on the rope.",
        "good": "Good: having desirable qualities.",
        "bang-up": "Bang-up: very good. Another word for bang-up is bully. A bully pulpit.",
        "fast": "Fast: quickly. How fast can he get here?",
    }
