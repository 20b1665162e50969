from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from filbert.data.records import column_names, read_rows
from filbert.errors import InputError


def write(folder: Path, **columns: object) -> Path:
    path = folder / "a.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    return path


def read(path: Path, **options) -> tuple[list[dict], list[str]]:
    errors: list[InputError] = []
    rows = [row.values for row in read_rows(path, on_error=errors.append, **options)]
    return rows, [str(error).rsplit("/", 1)[-1] for error in errors]


def test_a_long_text_repeated_by_a_dictionary_does_not_fill_the_memory(tmp_path):
    texts = pyarrow.array(["x" * 4 * 2**20])
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 512, pyarrow.int32()), texts)
    path = tmp_path / "a.parquet"
    # Without the stored Arrow schema the column is read as plain strings.
    with parquet.ParquetWriter(
        path, pyarrow.schema({"text": column.type}), compression="zstd", store_schema=False
    ) as writer:
        writer.write_table(pyarrow.table({"text": column}))
    assert path.stat().st_size < 2000
    before = pyarrow.total_allocated_bytes()
    peak = max(pyarrow.total_allocated_bytes() for _ in read_rows(path)) - before
    assert peak < 100 * 2**20


def test_text_in_parquet_that_is_not_utf_8_is_a_bad_row(tmp_path):
    raw = pyarrow.array([b"good", b"b\xff", b"last"])
    text = pyarrow.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    rows, errors = read(write(tmp_path, text=text))
    assert rows == [{"text": "good"}, {"text": "last"}]
    assert errors == ['a.parquet:2: "text" holds text that is not UTF-8.']


def test_a_time_in_parquet_that_python_cannot_hold_is_a_bad_row(tmp_path):
    at = pyarrow.array([0, 2**62], pyarrow.timestamp("us"))
    rows, errors = read(write(tmp_path, text=["a", "b"], at=at))
    assert [row["text"] for row in rows] == ["a"]
    assert errors == [
        'a.parquet:2: "at" holds a value of type timestamp[us] that Python cannot hold.'
    ]


def test_a_parquet_column_name_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["text", "text"]), path)
    for look in (read_rows, column_names):
        with pytest.raises(InputError, match='names the column "text" twice. Rename one'):
            look(path)


def test_a_parquet_file_that_may_not_be_read_is_not_called_another_format(tmp_path, monkeypatch):
    path = write(tmp_path, text=["a"])

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(parquet, "ParquetFile", refuse)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        column_names(path)


@pytest.mark.parametrize(
    "content",
    [
        '[\n{"text": "a"},\n{"text": "b"}\n]\n',
        '[{"text": "a"},\n{"text": "b"}]\n',
        '{\n "text": 1}',
    ],
)
def test_a_json_array_or_a_spread_out_object_is_told_what_json_lines_are(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(InputError, match="a.json:1: broken JSON .* one object a line"):
        read_rows(path, required=["text"])


def test_an_empty_first_object_is_called_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n" + json.dumps({"text": "a"}) + "\n")
    with pytest.raises(InputError, match=r'no column "text"; the object is empty, \{\}\.$'):
        read_rows(path, required=["text"])
