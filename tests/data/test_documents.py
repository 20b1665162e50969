"""Documents out of plain text and rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import Table, parquet

from filbert.data import documents
from filbert.data.documents import read_documents
from filbert.errors import InputError

TEXT = "\n\nOne a.\n  One b.  \n\n \t\nTwo.\r\n\r\nThree."
WANTED = [("One a.", "One b."), ("Two.",), ("Three.",)]


def put(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines_of(*paths: Path, **options) -> list[tuple[str, ...]]:
    return list(read_documents(paths, **options))


def test_blank_lines_stand_between_documents_of_plain_text(tmp_path):
    assert lines_of(put(tmp_path / "a.txt", TEXT)) == WANTED


def test_a_row_is_a_document_and_its_line_breaks_separate_lines(tmp_path):
    rows = [{"text": "a\n\n b \r\nc\u2028d"}, {"text": " \n"}, {"text": "e"}]
    jsonl = put(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    parquet.write_table(Table.from_pylist(rows), tmp_path / "a.parquet")
    for path in (jsonl, tmp_path / "a.parquet"):
        assert lines_of(path) == [("a", "b", "c", "d"), ("e",)]


def test_another_column_can_hold_the_text(tmp_path):
    path = put(tmp_path / "a.jsonl", '{"body": "x", "text": "no"}')
    assert lines_of(path, text_column="body") == [("x",)]
    with pytest.raises(InputError, match="bdy"):
        lines_of(path, text_column="bdy")


def test_a_document_that_is_too_long_is_cut_between_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT", 10)
    path = put(tmp_path / "a.txt", "aaaa\nbbbb\ncccc\ndddddddddddddd\ne\n\nf\n")
    assert lines_of(path) == [("aaaa", "bbbb"), ("cccc",), ("dddddddddddddd",), ("e",), ("f",)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nb\xe9d\n", "a.txt:2: the byte 0xE9 is not UTF-8"),
        ("a.txt", b" \n\n", "a.txt: no text in it"),
        ("a.jsonl", b'{"text": "a"}\n{"text": null}\n', 'a.jsonl:2: "text" is missing'),
        ("a.jsonl", b'{"text": ""}\n', "a.jsonl: no text in it"),
    ],
)
def test_bad_input_is_named_with_file_and_line(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        lines_of(put(tmp_path / name, content))
