"""Columns are recognised by their content where the standard names are absent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from filbert.data.columns import ColumnNames, recognised
from filbert.data.records import read_rows
from filbert.errors import ConfigError, InputError

MESSAGES = [f"message {i} is about the card of person {i * 7}" for i in range(30)]
INTENTS = [["card_lost", "login", "balance"][i % 3] for i in range(30)]
TABLE = {"": [*range(30)], "url": [f"http://example.org/{'x' * 60}/{i}" for i in range(30)]}
TABLE |= {"message": MESSAGES, "intent": INTENTS}


def written(path: Path, **columns: list) -> Path:
    """A JSON Lines file; _ stands for a column without a name."""
    rows = zip(*columns.values(), strict=True)
    names = ["" if name == "_" else name for name in columns]
    path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    return path


def found(path: Path, names: ColumnNames | None = None, **more) -> dict[str, str]:
    chosen = recognised(path, names or ColumnNames(), **({"num_texts": 1, "label": "class"} | more))
    keys = ("text_column", "text_pair_column", "label_column")
    return {k: getattr(chosen, k) for k in keys if getattr(chosen, k) is not None}


def test_text_is_the_longest_column_with_blanks_and_label_the_one_that_repeats(tmp_path):
    path = written(tmp_path / "x.jsonl", **{k or "_": v for k, v in TABLE.items()})
    assert found(path) == {"text_column": "message", "label_column": "intent"}


def test_what_the_user_names_and_standard_names_come_first(tmp_path):
    path = written(tmp_path / "x.jsonl", text=INTENTS, message=MESSAGES, kind=INTENTS)
    assert found(path) == {"text_column": "text", "label_column": "kind"}
    named = ColumnNames(text_column="message", label_column="text")
    assert found(path, named) == {"text_column": "message", "label_column": "text"}


def test_two_texts_are_recognised_for_pairs_in_the_order_of_the_file(tmp_path):
    other = [f"{text}, and more of it" for text in MESSAGES]
    scores = [i / 7 for i in range(30)]
    path = written(tmp_path / "x.jsonl", id=[*range(30)], one=MESSAGES, other=other, score=scores)
    expected = {"text_column": "one", "text_pair_column": "other", "label_column": "score"}
    assert found(path, num_texts=2, label="number") == expected


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        (
            {"title": MESSAGES, "body": [*reversed(MESSAGES)], "stars": INTENTS},
            ('the text may be "title" or "body"', "--text-column title", "--text-pair-column body"),
        ),
        (
            {"message": MESSAGES, "intent": INTENTS, "language": ["en", "de"] * 15},
            ('the label may be "intent" or "language"', "--label-column intent"),
        ),
        (
            {"message": MESSAGES, "number": [*range(30)]},
            ("none looks like a label", "--text-column message --label-column NAME"),
        ),
    ],
)
def test_columns_that_cannot_be_told_apart_are_refused_with_both_flags(tmp_path, columns, parts):
    with pytest.raises(InputError) as caught:
        found(written(tmp_path / "x.jsonl", **columns))
    assert all(part in str(caught.value) for part in parts)


def test_recorded_names_are_used_for_files_that_have_their_columns(tmp_path):
    path = written(tmp_path / "x.jsonl", message=MESSAGES)
    recorded = {"text_column": "message", "label_column": "intent"}
    assert ColumnNames().or_recorded(recorded, path).text_column == "message"
    other = written(tmp_path / "y.jsonl", text=MESSAGES)
    assert ColumnNames().or_recorded(recorded, other) == ColumnNames()
    given = ColumnNames(label_column="kind")
    assert given.or_recorded(recorded, path) == replace(given, text_column="message")


def test_text_in_another_encoding_is_read(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes("text,label\nschön,gut\n".encode("latin-1"))
    (row,) = read_rows(path, encoding="latin-1")
    assert row.values == {"text": "schön", "label": "gut"}
    with pytest.raises(InputError, match="--encoding latin-1 or cp1252"):
        list(read_rows(path))
    with pytest.raises(ConfigError, match="utf-9"):
        read_rows(path, encoding="utf-9")
    path.write_bytes("text,label\nschön,gut\n".encode("utf-16"))
    (row,) = read_rows(path, encoding="utf-16")
    assert row.values["text"] == "schön"


@pytest.mark.parametrize(("mark", "proposed"), [(";", "';'"), ("\t", r"'\t'")])
def test_a_csv_file_with_another_separator_gets_it_proposed(tmp_path, mark, proposed):
    path = tmp_path / "x.csv"
    path.write_text(f"\ufefftext{mark}label\ngood, really{mark}pos\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_rows(path, required=["text"])
    assert f"--separator {proposed}" in str(caught.value)
    (row,) = read_rows(path, required=["text"], separator=mark)
    assert row.values["label"] == "pos"


def test_a_spreadsheet_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "x.xlsx"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match=r"Save it as CSV.*read_excel"):
        read_rows(path)
