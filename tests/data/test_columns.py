"""Columns without standard names are chosen where that is clear."""

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


def written(path: Path, **columns: list) -> Path:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows))
    return path


def found(path: Path, names: ColumnNames | None = None, **more) -> dict[str, str]:
    chosen = recognised(
        path, names or ColumnNames(), **({"num_texts": 1, "has_label": True} | more)
    )
    keys = ("text_column", "text_pair_column", "label_column")
    return {k: getattr(chosen, k) for k in keys if getattr(chosen, k) is not None}


def test_text_is_the_longest_column_and_label_the_other_one(tmp_path):
    path = written(tmp_path / "x.jsonl", intent=INTENTS, message=MESSAGES)
    assert found(path) == {"text_column": "message", "label_column": "intent"}
    path = written(tmp_path / "x.jsonl", number=[*range(30)], intent=INTENTS, message=MESSAGES)
    assert found(path, has_label=False) == {"text_column": "message"}
    named = ColumnNames(label_column="intent")
    assert found(path, named) == {"text_column": "message", "label_column": "intent"}
    expected = {"text_column": "message", "label_column": "intent"}
    assert found(path, apart=["number"]) == expected


def test_what_the_user_names_and_standard_names_come_first(tmp_path):
    path = written(tmp_path / "x.jsonl", text=INTENTS, kind=MESSAGES)
    assert found(path) == {"text_column": "text", "label_column": "kind"}
    named = ColumnNames(text_column="kind", label_column="text")
    assert found(path, named) == {"text_column": "kind", "label_column": "text"}


def test_two_texts_are_recognised_for_pairs_in_the_order_of_the_file(tmp_path):
    other = [f"{text}, and more of it" for text in MESSAGES]
    path = written(tmp_path / "x.jsonl", one=MESSAGES, other=other, score=[*range(30)])
    expected = {"text_column": "one", "text_pair_column": "other", "label_column": "score"}
    assert found(path, num_texts=2) == expected


@pytest.mark.parametrize(
    ("columns", "proposed"),
    [
        (
            {"message": MESSAGES, "intent": INTENTS, "language": ["en", "de"] * 15},
            "--text-column message --label-column intent",
        ),
        ({"message": MESSAGES}, "--text-column message --label-column NAME"),
        (
            {"one": MESSAGES, "two": MESSAGES, "score": INTENTS},
            "--text-column one --text-pair-column two --label-column score",
        ),
    ],
)
def test_several_columns_for_the_label_are_refused_with_the_flags(tmp_path, columns, proposed):
    with pytest.raises(InputError) as caught:
        found(written(tmp_path / "x.jsonl", **columns))
    assert all(part in str(caught.value) for part in [proposed, *columns])


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
