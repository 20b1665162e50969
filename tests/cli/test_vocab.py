"""`filbert vocab`: what it writes, prints and refuses."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from filbert.cli import output
from filbert.cli.verbs.vocab import vocab
from filbert.errors import ConfigError, InputError
from filbert.text import learning
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


def test_how_far_it_is_is_told_without_a_terminal_too(text, tmp_path, capsys, monkeypatch):
    vocab((text,), out=tmp_path / "a", kind="unigram", size=60)
    assert "MB" not in capsys.readouterr().err, "short work needs no words"
    monkeypatch.setattr(output, "INTERVAL", 0.0)
    vocab((text,), out=tmp_path / "b", kind="unigram", size=60)
    said = capsys.readouterr().err
    assert re.search(r"^.+: 0\.0 MB$", said, re.MULTILINE)
    assert re.search(r"^choosing pieces, \d+ left$", said, re.MULTILINE)
    vocab((text,), out=tmp_path / "c", kind="wordpiece", size=60)
    assert re.search(r"^learning.*: \d+ of 60$", capsys.readouterr().err, re.MULTILINE)


def test_the_table_shows_the_fit_and_stderr_what_is_missing(text, tmp_path, capsys):
    vocab((text,), out=tmp_path / "v", kind="wordpiece", size=500)
    done = capsys.readouterr()
    for words in ("unknown rate", "pieces per word", "entries used", "tokens per byte", "ships;"):
        assert words in done.out
    assert "of 500 entries. Give more text" in done.err


def test_a_sample_is_announced_with_its_share(tmp_path, capsys, monkeypatch):
    pick = random.Random(0)
    lines = [" ".join("".join(pick.choices("abcdef", k=9)) for _ in range(50)) for _ in range(600)]
    path = tmp_path / "words.txt"
    path.write_text("\n\n".join(lines), encoding="utf-8")
    bound = learning.memory_needed("wordpiece", 12_000, 108_000)
    monkeypatch.setattr(learning, "MAX_MEMORY", bound)
    vocab((str(path),), out=tmp_path / "v", kind="wordpiece", size=100, json=True)
    done = capsys.readouterr()
    corpus = json.loads(done.out)["corpus"]
    assert corpus["sample_rate"] == 0.25
    share = corpus["used_bytes"] / corpus["bytes"]
    assert f"{corpus['used_documents']} of 600 documents, {share:.2%} of the bytes" in done.err


def test_a_folder_is_replaced_only_when_asked_and_only_a_vocabulary(text, tmp_path):
    out = tmp_path / "v"
    vocab((text,), out=out, kind="wordpiece", size=80)
    with pytest.raises(ConfigError, match="exists. Name another folder, or add --overwrite"):
        vocab((text,), out=out, kind="wordpiece", size=90)
    vocab((text,), out=out, kind="unigram", size=60, overwrite=True)
    assert Tokenizer.load(out).kind == "unigram"
    assert not (out / "vocab.txt").exists()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    with pytest.raises(ConfigError, match="holds other files and no vocabulary"):
        vocab((text,), out=tmp_path / "home", kind="wordpiece", size=80, overwrite=True)


def test_bad_input_is_named_and_leaves_no_folder(text, tmp_path):
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"one line\nna\xefve\n")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    out = tmp_path / "v"
    for file, message in (
        (latin, r"latin.txt:2: byte 11 .* not UTF-8"),
        (empty, "empty.txt: no text in it"),
        (tmp_path / "none.txt", "no such file"),
        ("-", "Standard input"),
    ):
        with pytest.raises(InputError, match=message):
            vocab((text, str(file)), out=out, kind="wordpiece", size=80)
    with pytest.raises(ConfigError, match="--size 12 is too small"):
        vocab((text,), out=out, kind="wordpiece", size=12)
    assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
