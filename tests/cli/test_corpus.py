"""filbert corpus, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from filbert.cli.verbs.data import corpus, size_of_text


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("he was very good . it was a film\n\n" * 2 + "she was not bad and he was not\n")
    return path


def test_the_table_counts_what_was_made(tmp_path, text, vocab, capsys):
    corpus(str(text), tokenizer=str(vocab), out=tmp_path / "out", workers=1)
    said = " ".join(capsys.readouterr().out.split())
    for part in (
        "documents 2",
        "duplicate documents 1",
        "seconds",
        f"corpus: {tmp_path}",
    ):
        assert part in said
    assert "cuts" not in said


def test_json_holds_counts_and_times(tmp_path, text, vocab, capsys):
    for kept in (0, 1):
        corpus(str(text), tokenizer=str(vocab), out=tmp_path / "out", workers=1, json=True)
        said = json.loads(capsys.readouterr().out)
        assert said["documents"] == 2 and said["shards"] == 1 and said["kept_shards"] == kept
    assert said["megabytes_per_second"] is None


def test_the_end_can_be_foreseen_for_plain_text_only(tmp_path, text):
    assert size_of_text([str(text)]) == text.stat().st_size
    (tmp_path / "a.jsonl").write_text("{}")
    assert size_of_text([str(text), str(tmp_path / "a.jsonl")]) is None
