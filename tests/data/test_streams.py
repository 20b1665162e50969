from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest

from filbert.data.records import column_names, file_digest, read_rows
from filbert.errors import InputError


def put(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def refused(path: Path, **options) -> str:
    with pytest.raises(InputError) as caught:
        list(read_rows(path, **options))
    return str(caught.value)


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (b"te\xffxt,label", "a.csv:1: byte 2 of the file"),
        (b"te\0xt,label", "a.csv:1: a NUL character"),
        (b"x" * 5_000_000, "a.csv:1: a line of 5,000,000 characters"),
        (b'"text"x,label', "a.csv:1: text follows a closing quote"),
    ],
)
def test_behind_a_bad_header_line_no_row_is_taken_for_the_header(tmp_path, first, problem):
    path = put(tmp_path, "a.csv", first + b"\na,b\nc,d\n")
    errors: list[InputError] = []
    assert list(read_rows(path, on_error=errors.append)) == []
    (error,) = map(str, errors)
    assert problem in error and error.endswith("Without a header no row can be read.")
    assert problem in refused(path)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_who_keeps_an_error_or_stops_early_keeps_no_file_open(tmp_path, name):
    row = b'{"text": "a"}\n'
    path = put(tmp_path, name, row * 20_000 + b"a\xff\n" + row * 200_000)

    def is_open() -> bool:
        links = Path("/proc/self/fd").iterdir()
        return any(os.readlink(link) == str(path) for link in links if link.is_symlink())

    with pytest.raises(InputError) as kept:
        list(read_rows(path))
    assert not is_open() and kept.value.__traceback__ is not None
    rows = read_rows(path)
    next(rows)
    assert is_open()
    rows.close()
    assert not is_open()
    if name != "a.txt":
        column_names(path)
        assert not is_open()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.csv.gz"])
def test_lines_that_end_with_cr_only_are_named_as_the_cause(tmp_path, name):
    content = b"text,label\ra,1\rb,2\r"
    path = put(tmp_path, name, gzip.compress(content) if name.endswith(".gz") else content)
    assert f"{name}: ends its lines with CR only; convert it" in refused(path)


def test_a_file_of_one_line_may_end_with_cr(tmp_path):
    assert column_names(put(tmp_path, "a.csv", b"text,label\r")) == ["text", "label"]


def test_a_file_that_was_packed_twice_is_said_to_be(tmp_path):
    content = gzip.compress(gzip.compress(b"text\na\n"))
    for name in ("a.csv.gz.gz", "a.csv.gz", "a.csv.xz.gz"):
        assert f"{name}: packed twice; unpack it once." in refused(put(tmp_path, name, content))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_pipe_is_refused_where_a_file_is_read_twice(tmp_path, name):
    os.mkfifo(tmp_path / name)
    assert f"{name}: a pipe or a device" in refused(tmp_path / name)
    with pytest.raises(InputError, match="use - for a stream"):
        file_digest(tmp_path / name)


def test_a_pipe_of_texts_is_read(tmp_path):
    path = tmp_path / "a.txt"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    assert [row.values["text"] for row in read_rows(path)] == ["one", "two"]
    writer.join()


def test_a_file_that_may_not_be_read_is_not_called_missing(tmp_path, monkeypatch):
    path = put(tmp_path, "a.csv", b"text\na\n")
    # The superuser, who may run the tests, may read everything.
    monkeypatch.setattr(os, "access", lambda *_: False)
    for look in (column_names, file_digest):
        with pytest.raises(InputError, match="a.csv: cannot be read: Permission denied"):
            look(path)


def test_a_path_that_the_system_refuses_is_an_error_of_ours(tmp_path):
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        column_names(tmp_path / ("x" * 5000))
    with pytest.raises(InputError, match="cannot be read: .*embedded null"):
        column_names("a\0b")
