"""Rows in memory become files of JSON Lines."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from filbert.data.tables import as_data_frame, as_files, items_of
from filbert.errors import InputError

ROWS = [{"text": "good", "label": 1}, {"text": "bad", "label": None}]


def written(rows):
    with as_files({"data": rows, "lr": 1}, ["data"]) as options:
        path = Path(options["data"])
        found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert options["lr"] == 1 and not path.exists()
    return found


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        iter(ROWS),
        {"text": ["good", "bad"], "label": np.array([1, np.nan])},
        pa.table({"text": ["good", "bad"], "label": [1, None]}),
        pandas.DataFrame(ROWS),
        polars.DataFrame(ROWS),
    ],
    ids=["list", "iterator", "columns", "arrow", "pandas", "polars"],
)
def test_a_table_becomes_one_line_of_json_for_each_row(rows):
    assert written(rows) == ROWS


@pytest.mark.parametrize("library", [pandas, polars])
def test_the_items_of_a_frame_are_its_rows_and_those_of_a_column_its_values(library):
    frame = library.DataFrame(ROWS)
    assert [row["text"] for row in items_of(frame)] == ["good", "bad"]
    assert list(items_of(frame["text"])) == ["good", "bad"]


def test_answers_become_a_frame_with_the_index_of_the_rows():
    index = pandas.DataFrame(ROWS).index[1:]
    answers = as_data_frame([{"label": "pos", "scores": {"pos": 1.0}}], index)
    assert answers.to_dict("records") == [{"label": "pos", "score_pos": 1.0}]
    assert list(answers.index) == [1]


def test_values_of_numpy_and_dates_become_json():
    row = {"a": np.int64(3), "b": np.array([[1, 2]]), "c": np.bool_(True), "d": date(2020, 1, 2)}
    assert written([row]) == [{"a": 3, "b": [[1, 2]], "c": True, "d": "2020-01-02"}]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([1], "data: row 1 is a int, not a dict. Give a path"),
        (object(), "data is a object, which has no rows. Give a path"),
        ({"text": 3}, "every column must be a list"),
        ({"text": ["good"], "label": []}, "all lists of one length"),
        ([*ROWS, {"text": b"good"}], "data, row 3, column 'text': a value of type bytes"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(rows, words):
    with pytest.raises(InputError, match=words):
        written(rows)


def test_paths_shares_and_none_are_left_alone():
    given = {"train": "a.csv", "dev": 0.1, "test": None, "data": Path("b.csv")}
    with as_files(given, given) as options:
        assert options == given | {"data": "b.csv"}
