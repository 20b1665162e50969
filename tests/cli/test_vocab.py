"""`filbert vocab`: what it writes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from filbert.cli.verbs.data import vocab
from filbert.errors import ConfigError, InputError
from filbert.text.tokenizer import Tokenizer

POEM = "The sea, the old sea and the ships;\nthe ships that go to sea.\n\nOld ships rest here.\n"


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "poem.txt"
    path.write_text(POEM * 40, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("kind", ["wordpiece", "bytebpe", "unigram"])
def test_a_folder_is_written_that_loads_and_says_how_it_was_made(kind, text, tmp_path, capsys):
    out = tmp_path / "new" / kind
    vocab((text,), out=out, kind=kind, size=300, json=True)
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "vocabulary.json").read_text())
    tokenizer = Tokenizer.load(out)
    assert (tokenizer.kind, tokenizer.vocab_size) == (kind, report["size"])
    assert tokenizer.fingerprint == report["fingerprint"]
    assert report["options"]["size"] == 300
    assert report["corpus"]["documents"] == 41
    assert report["fit"]["unknown_rate"] == 0
    assert report["files"][0]["name"] == "poem.txt" and len(report["files"][0]["sha256"]) == 64
    assert (out / "vocab.txt").exists() == (kind == "wordpiece")


def test_the_table_shows_the_fit_and_stderr_what_is_missing(text, tmp_path, capsys):
    vocab((text,), out=tmp_path / "v", kind="wordpiece", size=500)
    done = capsys.readouterr()
    for words in ("unknown rate", "pieces per word", "used share", "tokens per byte", "ships;"):
        assert words in done.out
    assert "of 500 entries. Give more text" in done.err


def test_a_folder_is_replaced_only_when_asked_and_only_a_vocabulary(text, tmp_path):
    out = tmp_path / "v"
    vocab((text,), out=out, kind="wordpiece", size=80)
    with pytest.raises(ConfigError, match="exists. Name another folder, or add `overwrite`"):
        vocab((text,), out=out, kind="wordpiece", size=90)
    vocab((text,), out=out, kind="unigram", size=60, overwrite=True)
    assert Tokenizer.load(out).kind == "unigram"
    assert not (out / "vocab.txt").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    with pytest.raises(InputError, match="holds other files and no vocabulary"):
        vocab((text,), out=tmp_path / "home", kind="wordpiece", size=80, overwrite=True)
