from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import random
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from filbert.data import streams
from filbert.data.records import MAX_FIELD, Row, column_names, file_digest, read_rows
from filbert.errors import InputError


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


def test_json_lines_keep_their_types(tmp_path):
    path = put(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "labels": ["x"]}\n')
    rows = list(read_rows(path, required=["text"]))
    assert [row.values for row in rows] == [
        {"text": "a", "label": 1},
        {"text": "b", "labels": ["x"]},
    ]
    assert [row.line for row in rows] == [1, 3]


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


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_compressed_files_are_read_as_they_are(tmp_path, suffix):
    content = ("text,label\n" + "some text,1\n" * 5000).encode()
    pack = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}[suffix]
    one, two = content[:20_003], content[20_003:]
    path = put(tmp_path, "a.csv" + suffix, pack(one) + pack(two))
    rows = values(path)
    assert len(rows) == 5000 and rows[-1] == {"text": "some text", "label": "1"}
    assert column_names(path) == ["text", "label"]


def test_a_byte_order_mark_is_dropped(tmp_path):
    for name, content in (
        ("a.csv", "text\nx\n"),
        ("a.jsonl", '{"text": "x"}\n'),
        ("a.txt", "x\n"),
    ):
        assert values(put(tmp_path, name, b"\xef\xbb\xbf" + content.encode())) == [{"text": "x"}]


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
    with pytest.raises(InputError, match="stdin: no rows"):
        piped("")


def test_the_digest_is_of_the_bytes(tmp_path):
    path = put(tmp_path, "a", b"abc")
    assert file_digest(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_the_real_files_are_read_whole(shared_data):
    rows = list(read_rows(shared_data / "jigsaw_toxic_binary/train.csv.gz"))
    assert len(rows) == 20_000 and set(rows[0].values) == {"comment_text", "toxic"}
    assert sum(int(row.values["toxic"]) for row in rows) == 1947


@settings(deadline=None, max_examples=100)
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
        tmp_path, "a.csv.gz", gzip.compress(b"text,label\n" + (b"x" * 998 + b",1\n") * 40_000)
    )
    tracemalloc.start()
    assert sum(1 for _ in read_rows(path)) == 40_000  # 40 MB of text
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


def test_a_header_alone_is_no_data(tmp_path):
    assert "a.csv: no rows" in refused(put(tmp_path, "a.csv", "text,label\n"))


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    path = put(tmp_path, "a.csv", "id,comment_text,toxic\n1,hello,0\n")
    with pytest.raises(InputError) as caught:
        read_rows(path, required=["text"])
    assert str(caught.value) == (
        f'{path}: no column "text"; the columns are id, comment_text, toxic. '
        "If comment_text is meant, pass --text-column comment_text."
    )
    with pytest.raises(InputError, match='no column "comment"; .* pass --text-column comment_text'):
        read_rows(path, columns={"text": "comment"})
    with pytest.raises(InputError, match=r'no column "toxik"; .* Did you mean toxic\?'):
        read_rows(path, extra=["toxik"])
    with pytest.raises(InputError, match="--text-pair-column NAME; the first line must name"):
        read_rows(path, required=["text_pair"], columns={"text": "comment_text"})


def test_another_separator_is_recognised(tmp_path):
    assert "split at commas" in refused(
        put(tmp_path, "a.csv", "text;label\nx;1\n"), required=["text"]
    )


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", 'text,label\n"a\nb",1\nc\n', "a.csv:4: 1 field, but the header names 2."),
        ("a.csv", "text,label\na,b,1\n", "a.csv:2: 3 fields, but the header names 2. A field that"),
        ("a.tsv", "text\tlabel\na\tb\t1\n", "a.tsv:2: 3 fields, but the header names 2. A text"),
        (
            "a.csv",
            'text,label\na,1\n"b,2\nc,3\n',
            "a.csv:3: a quote opens here and is never closed",
        ),
        (
            "a.csv",
            'text,label\na,1\n"b\nc","d\ne\nf,3\n',
            "a.csv:4: a quote opens here and is never closed",
        ),
        ("a.csv", 'text,label\n"b" c,2\n', "a.csv:2: text follows a closing quote"),
        ("a.csv", "text,label\na\rb,2\n", "a.csv:2: a carriage return stands outside quotes"),
        ("a.csv", "text,text\na,2\n", 'a.csv:1: the header names the column "text" twice'),
        (
            "a.csv",
            b"text,label\na,1\nb\xe9,2\n",
            "a.csv:3: byte 16 of the file (from 0) is 0xE9, not UTF-8",
        ),
        (
            "a.txt",
            b"\xef\xbb\xbfa\nb\xe9\n",
            "a.txt:2: byte 6 of the file (from 0) is 0xE9, not UTF-8",
        ),
        ("a.csv", "text,label\na,1\nb\0c,2\n", "a.csv:3: a NUL character at column 2"),
        ("a.txt", "one\n\0\n", "a.txt:2: a NUL character at column 1"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "a.jsonl:2: broken JSON at column"),
        ("a.jsonl", '["a"]\n', "a.jsonl:1: a list; expected an object"),
        ("a.jsonl", "3\n", "a.jsonl:1: a number; expected an object"),
        ("a.jsonl", "[" * 100_000 + "\n", "a.jsonl:1: JSON that cannot be read"),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', 'a.jsonl:2: "text" is missing (null)'),
        ("a.jsonl", '{"text": 5}\n', 'a.jsonl:1: "text" holds a value of type int; expected a'),
        ("a.jsonl", '{"text": "a\\u0000"}\n', 'a.jsonl:1: "text" holds a NUL character at place 2'),
        ("a.jsonl", '{"text": "a"}\n{"texd": "b"}\n', 'a.jsonl:2: no column "text"; the columns'),
        ("a.csv.gz", b"text\nx\n", "a.csv.gz: not a gzip file, in spite of its name"),
        ("a.csv.xz", b"text\nx\n", "a.csv.xz: not a xz file, in spite of its name"),
        ("a.csv.zst", b"text\nx\n", "a.csv.zst: not a zstd file, in spite of its name"),
        ("a.csv", gzip.compress(b"x\n", mtime=0), "a.csv: not text but gzip data; give it a name"),
        ("a.csv", b"PK\x03\x04rest", "a.csv: not text but a ZIP archive"),
        ("a.csv", "text\nx\n".encode("utf-16"), "a.csv:1: not text but UTF-16 text"),
        ("a.csv.bz2", bz2.compress(b"text\nx\n"), "a.csv.bz2: not text but bzip2 data"),
        ("a.parquet", b"text\nx\n", "a.parquet: not a Parquet file, in spite of its name"),
        ("a.parquet.gz", b"", "a.parquet.gz: Parquet inside gzip cannot be read in pieces"),
    ],
)
def test_a_file_gone_wrong_is_named_by_file_and_line(tmp_path, name, content, sentence):
    path = put(tmp_path, name, content)
    assert sentence in refused(path, required=["text"])


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
    lines = "".join(f'{{"text": "{rng.random()}"}}\n' for _ in range(100_000))
    pack = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}[suffix]
    packed = pack(lines.encode())
    path = put(tmp_path, "a.jsonl" + suffix, packed[: len(packed) * 2 // 3])
    good = 0
    with pytest.raises(InputError, match="breaks off or is damaged near this line. Reading stops"):
        for _ in read_rows(path):
            good += 1
    assert 50_000 < good < 70_000


@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt", "jsonl"])
def test_a_line_of_ten_megabytes_is_refused(tmp_path, suffix):
    head = b'{"text": "ok"}\n' if suffix == "jsonl" else b"text\n"
    path = put(tmp_path, "a." + suffix, head + b"x" * 10_000_000 + b"\nok\n")
    expected = f"a.{suffix}:2: a line of 10,000,000 characters; the limit is 4,194,304"
    assert expected in refused(path)


def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    path = put(tmp_path, "a.csv.gz", gzip.compress(b"text\n" + b"x" * 150_000_000 + b"\nlast\n", 1))
    errors: list[InputError] = []
    tracemalloc.start()
    rows = values(path, on_error=errors.append)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == [{"text": "last"}] and peak < 60 * 2**20
    assert "a.csv.gz:2: a line of more than 16,777,216 bytes" in str(errors[0])


def test_a_long_field_within_the_limit_is_read_and_the_csv_module_is_left_alone(tmp_path, request):
    before = csv.field_size_limit(5000)
    request.addfinalizer(lambda: csv.field_size_limit(before))
    path = put(tmp_path, "a.csv", "text,label\n" + "x" * 1_000_000 + ",1\n")
    rows = read_rows(path)
    assert len(next(rows).values["text"]) == 1_000_000
    assert csv.field_size_limit() == 5000


def test_an_open_quote_in_a_large_file_is_found_within_the_field_limit(tmp_path):
    path = put(tmp_path, "a.csv", 'text,label\nfine,1\n"open,2\n' + "more text,3\n" * 900_000)
    sentence = refused(path)
    assert "a.csv:3: a field of more than 4,194,304 characters begins here. Its quote" in sentence
    assert MAX_FIELD == 4_194_304


# Reading on behind a bad row


def test_bad_rows_are_handed_over_and_reading_goes_on(tmp_path):
    content = b'text,label\na,1\nb\nc\xff,2\n"d\0\n",3\ne,4\n"f"g,5\nh,6\n'
    errors: list[InputError] = []
    rows = list(read_rows(put(tmp_path, "a.csv", content), on_error=errors.append))
    assert [(row.values["text"], row.line) for row in rows] == [("a", 2), ("e", 7), ("h", 9)]
    assert [str(error).split(":")[1] for error in errors] == ["3", "4", "5", "8"]


def test_behind_an_open_quote_nothing_can_be_read_and_that_is_said(tmp_path):
    errors: list[InputError] = []
    path = put(tmp_path, "a.csv", 'text,label\na,1\n"b,2\nc,3\n')
    assert len(values(path, on_error=errors.append)) == 1
    assert len(errors) == 1 and "reading stops here" in str(errors[0])


def test_a_file_of_bad_rows_only_is_not_called_empty(tmp_path):
    errors: list[InputError] = []
    assert values(put(tmp_path, "a.jsonl", "nope\n"), on_error=errors.append) == []
    assert len(errors) == 1


@settings(deadline=None, max_examples=300)
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


def test_lines_are_counted_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "_BLOCK", 16)
    path = put(tmp_path, "a.csv", b"text,label\n" + b"some text,1\n" * 20 + b"b\xff,2\n")
    assert "a.csv:22: byte 252 of the file" in refused(path)


def test_small_blocks_change_nothing(tmp_path, monkeypatch):
    content = 'text,label\n"é\n,\U0001f600",1\n\nx,2\n' * 3 + 'y,"3"'
    path = put(tmp_path, "a.csv", content)
    whole = [(row.values, row.line) for row in read_rows(path)]
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(streams, "_BLOCK", size)
        assert [(row.values, row.line) for row in read_rows(path)] == whole
