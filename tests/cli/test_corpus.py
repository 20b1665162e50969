"""filbert corpus, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from filbert.cli.verbs.corpus import corpus, size_of_text
from filbert.data.masking import ObjectiveOptions
from filbert.data.shards import CorpusOptions
from filbert.errors import ConfigError, FormatError, InputError


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("he was very good . it was a film\n\n" * 2 + "she was not bad and he was not\n")
    return path


def test_the_table_counts_what_was_made(tmp_path, text, vocab, capsys):
    corpus(str(text), tokenizer=str(vocab), out=tmp_path / "out", workers=1)
    said = " ".join(capsys.readouterr().out.split())
    for part in ("documents 2", "duplicate documents 1", "MB/s per worker", f"corpus: {tmp_path}"):
        assert part in said
    assert "cuts" not in said


def test_json_holds_counts_and_times(tmp_path, text, vocab, capsys):
    for kept in (0, 1):
        corpus(str(text), tokenizer=str(vocab), out=tmp_path / "out", workers=1, json=True)
        said = json.loads(capsys.readouterr().out)
        assert said["documents"] == 2 and said["shards"] == 1 and said["kept_shards"] == kept
    assert said["megabytes_per_second"] is None


def test_examples_are_shown_after_building_and_from_a_folder(tmp_path, text, vocab, capsys):
    out = tmp_path / "out"
    corpus(str(text), tokenizer=str(vocab), out=out, workers=1, show=1)
    assert "[MASK→" in capsys.readouterr().out
    objective = ObjectiveOptions(pair="nsp", mask_rate=0.3)
    corpus(str(out), show=1, objective=objective)
    assert "  B: " in capsys.readouterr().out


def test_what_is_missing_is_said(tmp_path, text, vocab):
    with pytest.raises(ConfigError, match="--tokenizer is missing"):
        corpus(str(text), out=tmp_path / "out")
    with pytest.raises(ConfigError, match="--out is missing"):
        corpus(str(text), tokenizer=str(vocab))
    with pytest.raises(FormatError, match=r"no manifest\.json"):
        corpus(str(tmp_path), show=1)
    with pytest.raises(InputError, match="a folder, not a file"):
        corpus(str(tmp_path), tokenizer=str(vocab), out=tmp_path / "out")
    with pytest.raises(ConfigError, match="pair is 'nps'"):
        corpus(str(text), objective=ObjectiveOptions(pair="nps"))


def test_bad_lines_are_named_but_not_all_of_them(tmp_path, vocab, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(b"he\n" + b"\xff\n" * 9)
    corpus(
        str(path),
        tokenizer=str(vocab),
        out=tmp_path / "out",
        workers=1,
        options=CorpusOptions(skip_bad_lines=True),
    )
    said = capsys.readouterr()
    assert said.err.count("left out: ") == 6 and "a.txt:2: byte 3" in said.err.replace("\n", "")
    assert "bad lines" in said.out


def test_the_end_can_be_foreseen_for_plain_text_only(tmp_path, text):
    assert size_of_text([str(text)]) == text.stat().st_size
    (tmp_path / "a.jsonl").write_text("{}")
    assert size_of_text([str(text), str(tmp_path / "a.jsonl")]) is None
