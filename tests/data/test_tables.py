"""CSV and TSV files with another separator, an index column or very many columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from filbert.data.records import RECORDS, column_names, read_rows
from filbert.errors import ConfigError, InputError


def put(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def values(path: Path, **options) -> list[dict]:
    return [row.values for row in read_rows(path, **options)]


@pytest.mark.parametrize(
    ("name", "separator", "content"),
    [
        ("a.csv", ";", 'text;label\n"one; two, three";x\n'),
        ("a.tsv", ";", 'text;label\n"one; two, three";x\n'),
        ("a.tsv", r"\t", 'text\tlabel\n"one; two, three"\tx\n'),
    ],
)
def test_another_separator_is_read_when_it_is_named(tmp_path, name, separator, content):
    path = put(tmp_path, name, content)
    assert values(path, separator=separator) == [{"text": "one; two, three", "label": "x"}]
    assert column_names(path, separator) == ["text", "label"]


def test_a_separator_is_one_character(tmp_path):
    with pytest.raises(ConfigError, match="--separator '::': give one character"):
        read_rows(put(tmp_path, "a.csv", "text\na\n"), separator="::")


def test_an_index_that_the_header_does_not_name_is_left_out_and_logged_once(tmp_path, caplog):
    path = put(tmp_path, "a.csv", 'text,label\n"1","one","x"\n"2","two","y"\n')
    expected = [{"text": "one", "label": "x"}, {"text": "two", "label": "y"}]
    assert values(path) == values(path) == expected
    assert [record.message for record in caplog.records] == [
        f"{path}: every row has one field more than the header; the first is read as an index "
        "column."
    ]


@pytest.mark.parametrize(
    "rows", ["1,one,x\ntwo,y\n", "1,one,\n2,two,\n", "one,two,x\nthree,four,y\n"]
)
def test_rows_with_a_comma_too_many_are_not_taken_for_an_index(tmp_path, rows):
    with pytest.raises(InputError) as caught:
        values(put(tmp_path, "a.csv", "text,label\n" + rows))
    sentence = str(caught.value)
    assert "a.csv:2: 3 fields, but the header names 2." in sentence
    assert "--separator" in sentence and "name them in the header" in sentence


def test_reading_a_header_compares_names_in_linear_time(tmp_path, monkeypatch):
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    num_columns = 300
    header = [Name(f"c{i}") for i in range(num_columns)]
    records = [(1, header), (2, ["x"] * num_columns)]
    monkeypatch.setitem(RECORDS, "csv", lambda *_: iter(records))
    (row,) = read_rows(put(tmp_path, "a.csv", "replaced"), required=["c0"])
    assert list(row.values) == header
    # A few comparisons a column for equal hashes; looking through the header takes 150.
    assert compared < 10 * num_columns
