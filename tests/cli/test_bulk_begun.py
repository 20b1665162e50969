"""How embed and predict begin: beside what earlier runs left, in which format, into what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("filbert.data.texts.CHUNK_ROWS", 4)


def write(path: Path, count: int, bad: int | None = None) -> Path:
    """So many texts; row `bad` (from 0) is not UTF-8."""
    rows = [b"the film was good"] * count
    if bad is not None:
        rows[bad] = b"caf\xe9"
    path.write_bytes(b"\n".join(rows) + b"\n")
    return path


def test_resume_begins_anew_beside_an_older_file_where_no_chunk_was_whole(call, model, tmp_path):
    source = write(tmp_path / "rows.txt", 3)
    out = tmp_path / "answers.jsonl"
    out.write_text("an older file\n")
    folder = tmp_path / "answers.jsonl.unfinished"
    folder.mkdir()
    (folder / "answers").write_bytes(b'{"lab')  # killed before there was a journal
    done = call("predict", model, source, "--out", out, "--resume")
    assert done.status == 0, done.err
    assert len(out.read_text().splitlines()) == 3
    assert not folder.exists()


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_files_that_are_put_together_at_their_end_are_no_streams(call, tmp_path, name):
    source = write(tmp_path / "rows.txt", 3)
    os.mkfifo(tmp_path / name)
    done = call("embed", "nowhere", source, "--out", tmp_path / name)
    assert done.status == 2
    assert f"{name} is a stream" in done.err and "Name a file" in done.err


def test_answers_in_int8_that_nobody_has_measured_are_told_of(call, unmeasured_model, tmp_path):
    source = write(tmp_path / "rows.txt", 3)
    unmeasured = "int8 was not compared with float32 on labelled rows"
    for verb, name, count in (("predict", "a.jsonl", 1), ("embed", "v.npy", 0)):
        flags = ("--out", tmp_path / name, "--precision", "int8")
        done = call(verb, unmeasured_model, source, *flags)
        assert done.status == 0, done.err
        assert done.err.count(unmeasured) == count
