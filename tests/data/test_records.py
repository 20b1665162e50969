from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import random
import sys
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from filbert.data import streams
from filbert.data.records import Row, column_names, expected_rows, file_digest, read_rows
from filbert.errors import ConfigError, InputError


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def values(path: Path | str, **options) -> list[dict]:
    return [row.values for row in read_rows(path, **options)]


def refused(path: Path | str, **options) -> str:
    with pytest.raises(InputError) as caught:
        list(read_rows(path, **options))
    sentence = str(caught.value)
    assert len(sentence) < 400 and sentence.endswith((".", "?"))
    return sentence


# What is read


def test_csv_follows_rfc_4180_and_counts_the_lines_where_rows_start(tmp_path):
    path = put(tmp_path, "a.csv", 'text,label\r\n"one, ""two""\nthree",x\r\n\r\nfour,"y"\r\n')
    rows = list(read_rows(path))
    assert [row.values for row in rows] == [
        {"text": 'one, "two"\nthree', "label": "x"},
        {"text": "four", "label": "y"},
    ]
    assert [row.line for row in rows] == [2, 5]
    assert rows[1].where == f"{path}:5"


def test_tsv_is_split_at_tabs_only(tmp_path):
    path = put(tmp_path, "a.tsv", 'text\tlabel\nsay "hi, you\tx\n"open\ty\n')
    assert values(path) == [
        {"text": 'say "hi, you', "label": "x"},
        {"text": '"open', "label": "y"},
    ]


def test_parquet_rows_are_numbered_from_one(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": [f"t{i}" for i in range(3000)], "n": list(range(3000))})
    parquet.write_table(table, path, row_group_size=700)
    rows = list(read_rows(path))
    assert rows[0] == Row({"text": "t0", "n": 0}, str(path), 1)
    assert rows[-1] == Row({"text": "t2999", "n": 2999}, str(path), 3000)
    assert column_names(path) == ["text", "n"]


def test_any_other_file_is_one_text_a_line_and_a_blank_line_is_an_empty_text(tmp_path):
    path = put(tmp_path, "a.txt", "one\r\n\n two\u2028three \nlast")
    assert values(path) == [
        {"text": "one"},
        {"text": ""},
        {"text": " two\u2028three "},
        {"text": "last"},
    ]
    assert values(put(tmp_path, "noname", "x\n")) == [{"text": "x"}]


PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": partial(pyarrow.compress, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_files_are_read_whatever_their_name(tmp_path, suffix):
    content = ("text,label\n" + "some text,1\n" * 5000).encode()
    pack = PACKERS[suffix]
    one, two = content[:20_003], content[20_003:]
    assert len(values(put(tmp_path, "b.csv", pack(content)))) == 5000
    path = put(tmp_path, "a.csv" + suffix, pack(one) + pack(two))
    rows = values(path)
    assert len(rows) == 5000 and rows[-1] == {"text": "some text", "label": "1"}
    assert column_names(path) == ["text", "label"]


def test_columns_are_chosen_and_renamed(tmp_path):
    path = put(tmp_path, "a.csv", "id,comment_text,toxic,insult\n1,hello,0,1\n")
    columns = {"text": "comment_text"}
    assert values(path, columns=columns) == [
        {"text": "hello", "id": "1", "toxic": "0", "insult": "1"}
    ]
    assert values(path, columns=columns, required=["text"], optional=()) == [{"text": "hello"}]
    assert values(path, columns=columns, optional=["text_pair"], extra=["insult", "toxic"]) == [
        {"text": "hello", "insult": "1", "toxic": "0"}
    ]


def test_standard_input_is_json_lines_or_texts_as_it_begins(monkeypatch):
    def piped(content: str) -> list[Row]:
        stream = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content.encode())))
        monkeypatch.setattr(sys, "stdin", stream)
        return list(read_rows("-"))

    assert [(row.values["text"], row.line) for row in piped('\n{"text": "a"}\n')] == [("a", 2)]
    texts = piped("\nplain {\n")
    assert [row.values["text"] for row in texts] == ["", "plain {"]
    assert texts[1].where == "stdin:2"
    with pytest.raises(InputError, match="stdin has no rows"):
        piped("")


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
            min_size=2,
            max_size=2,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_the_csv_module_writes_comes_back(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([["text", "label"], *table])
    assert [list(row.values()) for row in values(path)] == table


def test_rows_are_streamed_in_little_memory(tmp_path):
    path = put(
        tmp_path, "a.csv.gz", gzip.compress(b"text,label\n" + (b"x" * 3998 + b",1\n") * 6_000)
    )
    tracemalloc.start()
    assert sum(1 for _ in read_rows(path)) == 6_000  # 24 MB of text
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20


# What is refused


def test_a_missing_file_and_a_folder_are_refused_before_the_first_row(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_rows(tmp_path / "a.csv")
    with pytest.raises(InputError, match="a folder, not a file"):
        read_rows(tmp_path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.txt", "a.csv.gz"])
def test_an_empty_file_is_refused(tmp_path, name):
    content = gzip.compress(b"") if name.endswith(".gz") else b""
    assert "empty" in refused(put(tmp_path, name, content))


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    path = put(tmp_path, "a.csv", "id,comment_text,toxic\n1,hello,0\n")
    with pytest.raises(InputError) as caught:
        read_rows(path, required=["text"])
    assert str(caught.value) == (
        f'{path}: no column "text"; the columns are id, comment_text, toxic. '
        "Name the right one with --text-column comment_text, or check --separator."
    )
    with pytest.raises(InputError, match=r'no column "toxik"; .* Did you mean toxic\?'):
        read_rows(path, extra=["toxik"])
    # A column with another use is not proposed.
    columns = {"label": "comment_text"}
    assert "--text-column NAME" in refused(path, required=["text", "label"], columns=columns)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", 'text,label\n"a\nb",1\nc\n', "a.csv:4: 1 fields, but the header names 2."),
        ("a.tsv", "text\tlabel\na\tb\t1\n", "a.tsv:2: 3 fields, but the header names 2"),
        ("a.csv", 'text,label\na,1\n"b\nc","d\ne\nf,3\n', "a.csv:3: a quote opens in the row"),
        ("a.csv", 'text,label\n"b" c,2\n', "a.csv:2: not a CSV row"),
        ("a.csv", "text,label\na\rb,2\n", "a.csv:2: not a CSV row, new-line character"),
        ("a.csv", "text,text\na,2\n", 'a.csv:1: the header names the column "text" twice'),
        ("a.csv", b"text,label\na,1\nb\xe9,2\n", "a.csv:3: the byte 0xE9 is not UTF-8"),
        ("a.txt", b"\xef\xbb\xbfa\nb\xe9\n", "a.txt:2: the byte 0xE9 is not UTF-8"),
        ("a.csv", "text,label\na,1\nb\0c,2\n", "a.csv:3: a NUL character"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "a.jsonl:2: broken JSON: Expecting value"),
        ("a.jsonl", '["a"]\n', "a.jsonl:1: a JSON value of type list. JSON Lines"),
        ("a.jsonl", "[" * 100_000 + "\n", "a.jsonl:1: broken JSON: maximum recursion"),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', 'a.jsonl:2: "text" is missing (null)'),
        ("a.jsonl", '{"text": 5}\n', 'a.jsonl:1: "text" holds a value of type int; expected a'),
        ("a.jsonl", '{"text": "a\\u0000"}\n', 'a.jsonl:1: "text" holds a NUL'),
        ("a.jsonl", '{"text": "a"}\n{"texd": "b"}\n', 'a.jsonl:2: no column "text"; the columns'),
        ("a.csv", b"PK\x03\x04rest", "a.csv: not text but a ZIP archive"),
        ("a.csv", "text\nx\n".encode("utf-16"), "a.csv:1: the byte 0xFF is not UTF-8. Name the"),
        ("a.parquet", b"text\nx\n", "a.parquet: not a Parquet file, or a damaged one"),
    ],
)
def test_a_file_gone_wrong_is_named_by_file_and_line(tmp_path, name, content, sentence):
    path = put(tmp_path, name, content)
    assert sentence in refused(path, required=["text"])


@pytest.mark.parametrize(
    ("encoding", "whole", "byte"),
    [("utf-8", "\u00e9", "C3"), ("utf-16-le", "ab", "62"), ("shift_jis", "\u8868", "95")],
)
def test_a_file_cut_inside_a_character_is_refused_with_its_line(tmp_path, encoding, whole, byte):
    path = put(tmp_path, "a.txt", f"one\n{whole}".encode(encoding)[:-1])
    assert f"a.txt:2: the byte 0x{byte} is not {encoding}" in refused(path, encoding=encoding)
    path.write_bytes(f"one\n{whole}".encode(encoding))
    assert values(path, encoding=encoding) == [{"text": "one"}, {"text": whole}]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"comment": ["x"]}, 'a.parquet: no column "text"; the columns are comment'),
        ({"text": [1, 2]}, 'a.parquet:1: "text" holds a value of type int; expected a string'),
        ({"text": ["a", None]}, 'a.parquet:2: "text" is missing (null)'),
        ({"text": pyarrow.array([], pyarrow.string())}, "a.parquet: no rows"),
    ],
)
def test_parquet_without_texts_is_refused(tmp_path, columns, sentence):
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert sentence in refused(tmp_path / "a.parquet", required=["text"])


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_stream_that_breaks_off_is_refused_after_its_good_rows(tmp_path, suffix):
    rng = random.Random(0)
    lines = "".join(f'{{"text": "{rng.random()}"}}\n' for _ in range(20_000))
    packed = PACKERS[suffix](lines.encode())
    path = put(tmp_path, "a.jsonl" + suffix, packed[: len(packed) * 2 // 3])
    good = 0
    with pytest.raises(InputError, match=r"is cut off or damaged\. .* Reading stops at line 1"):
        for _ in read_rows(path):
            good += 1
    assert 10_000 < good < 14_000


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_line_of_ten_megabytes_is_refused(tmp_path, suffix):
    head = b'{"text": "ok"}\n' if suffix == "jsonl" else b"text\n"
    path = put(tmp_path, "a." + suffix, head + b"x" * 10_000_000 + b"\nok\n")
    expected = f"a.{suffix}:2: a line of more than 4,194,304 characters"
    assert expected in refused(path)


def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    path = put(tmp_path, "a.csv.gz", gzip.compress(b"text\n" + b"x" * 100_000_000 + b"\nlast\n", 1))
    errors: list[InputError] = []
    tracemalloc.start()
    rows = values(path, on_error=errors.append)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == [{"text": "last"}] and peak < 60 * 2**20
    assert "a.csv.gz:2: a line of more than 4,194,304 characters" in str(errors[0])


def test_a_field_within_the_limit_is_read_and_an_open_quote_ends_at_it(tmp_path):
    path = put(tmp_path, "a.csv", "text,label\n" + "x" * 1_000_000 + ",1\n")
    assert len(values(path)[0]["text"]) == 1_000_000
    path = put(tmp_path, "a.csv", 'text,label\nfine,1\n"open,2\n' + "more text,3\n" * 400_000)
    assert "a.csv:3: a quote opens in the row that begins here and is not closed" in refused(path)


# Reading on behind a bad row


def test_bad_rows_are_handed_over_and_reading_goes_on(tmp_path):
    content = b'text,label\na,1\nb\nc\xff,2\n"d\0\n",3\ne,4\n"f"g,5\nh,6\n'
    errors: list[InputError] = []
    rows = list(read_rows(put(tmp_path, "a.csv", content), on_error=errors.append))
    assert [(row.values["text"], row.line) for row in rows] == [("a", 2), ("e", 7), ("h", 9)]
    assert [str(error).split(":")[1] for error in errors] == ["3", "4", "5", "8"]


@settings(deadline=None, max_examples=150)
@given(
    st.binary(max_size=80),
    st.sampled_from(
        ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.csv.gz", "a.xz", "a.zst", "a.parquet"]
    ),
)
def test_any_bytes_give_rows_or_our_own_error(tmp_path_factory, content, name):
    path = put(tmp_path_factory.mktemp("fuzz"), name, content)
    try:
        for row in read_rows(path):
            assert all(isinstance(value, str) for value in row.values.values()) or "json" in name
    except InputError as error:
        assert str(path) in str(error)


def test_small_blocks_change_nothing(tmp_path, monkeypatch):
    content = 'text,label\n"é\n,\U0001f600",1\n\nx,2\n' * 3 + 'y,"3"'
    path = put(tmp_path, "a.csv", content)
    whole = [(row.values, row.line) for row in read_rows(path)]
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(streams, "_BLOCK", size)
        assert [(row.values, row.line) for row in read_rows(path)] == whole


# Files that are not what they seem


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (b"te\xffxt,label", "a.csv:1: the byte 0xFF is not UTF-8"),
        (b"te\0xt,label", "a.csv:1: a NUL character"),
        (b"x" * 5_000_000, "a.csv:1: a line of more than 4,194,304 characters"),
        (b'"text"x,label', "a.csv:1: not a CSV row"),
    ],
)
def test_behind_a_bad_header_line_no_row_is_taken_for_the_header(tmp_path, first, problem):
    path = put(tmp_path, "a.csv", first + b"\na,b\nc,d\n")
    assert problem in refused(path)
    assert problem in refused(path, on_error=lambda error: None)


def test_rows_that_are_closed_keep_no_file_open(tmp_path):
    path = put(tmp_path, "a.csv", "text\n" + "a\n" * 200_000)

    def is_open() -> bool:
        links = Path("/proc/self/fd").iterdir()
        return any(os.readlink(link) == str(path) for link in links if link.is_symlink())

    rows = read_rows(path)
    next(rows)
    assert is_open()
    rows.close()
    assert not is_open()
    # The traceback of an error refers to the reader.
    with pytest.raises(InputError) as caught:
        list(read_rows(put(tmp_path, "a.csv", "text\n" + "a,b\n" * 200_000)))
    assert not is_open() and caught.value.__traceback__ is not None


def test_a_pipe_is_refused_where_a_file_is_read_twice(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    for look in (column_names, file_digest):
        with pytest.raises(InputError, match="a.csv: a pipe; this file is read more than once"):
            look(tmp_path / "a.csv")


def test_a_pipe_is_read(tmp_path):
    path = tmp_path / "a.csv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"text\none\ntwo\n",))
    writer.start()
    assert [row.values["text"] for row in read_rows(path)] == ["one", "two"]
    writer.join()


# Separators


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


# Parquet and JSON


def write(folder: Path, **columns: object) -> Path:
    parquet.write_table(pyarrow.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


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


def test_a_parquet_value_that_python_cannot_hold_ends_the_rows(tmp_path):
    at = pyarrow.array([2**62], pyarrow.timestamp("us"))
    assert "a.parquet:1: Parquet data near this row" in refused(write(tmp_path, text=["a"], at=at))


def test_a_parquet_column_name_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["text", "text"]), path)
    for look in (read_rows, column_names):
        with pytest.raises(InputError, match='names the column "text" twice. Rename one'):
            look(path)


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
    with pytest.raises(InputError, match="a.json:1: broken JSON.* one object a line"):
        read_rows(path, required=["text"])


# How many rows there will be


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_the_rows_are_estimated_from_the_share_of_bytes_that_is_read(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(streams, "_BLOCK", 2**14)
    num_rows = 20_000
    content = b"".join(b"%x the film\n" % (n * 2654435761 % 2**60) for n in range(num_rows))
    path = put(tmp_path, "a.txt" + suffix, PACKERS.get(suffix, bytes)(content))
    expected = expected_rows(path)
    assert expected(0) is None
    rows = read_rows(path)
    for _ in range(num_rows // 2):
        next(rows)
    # Blocks, and the decompressors' own buffers of up to 128 KB, are read ahead.
    assert expected(num_rows // 2) == pytest.approx(num_rows, rel=0.5)
    assert sum(1 for _ in rows) == num_rows // 2
    assert expected(num_rows) >= num_rows


def test_parquet_has_an_exact_number_of_rows(tmp_path):
    assert expected_rows(write(tmp_path, text=["a"] * 70))(0) == 70
