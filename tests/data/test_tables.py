"""Rows in memory become files of JSON Lines."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from filbert.data.tables import as_data_frame, as_files, items_of
from filbert.errors import ConfigError, InputError

ROWS = [{"text": "good", "label": 1}, {"text": "bad", "label": None}]


class Frame:
    """The part of a pandas DataFrame that is used."""

    columns = ("text", "label")

    def to_dict(self, orient):
        assert orient == "records"
        return [{"text": "good", "label": np.float64(1)}, {"text": "bad", "label": float("nan")}]


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
        Frame(),
    ],
    ids=["list", "iterator", "columns", "arrow", "pandas"],
)
def test_a_table_becomes_one_line_of_json_for_each_row(rows):
    assert written(rows) == ROWS
    assert list(items_of(Frame()))[0]["text"] == "good"


def test_real_data_frames_become_rows():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["good", "bad"], "label": [1, None]})
    assert written(frame) == ROWS
    shown = as_data_frame([{"label": "pos", "scores": {"pos": 1.0}}], frame.index[1:])
    assert shown.to_dict("records") == [{"label": "pos", "score_pos": 1.0}]
    assert list(shown.index) == [1]


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


def test_a_data_frame_is_refused_in_a_sentence_without_pandas(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ConfigError, match="as_frame needs pandas"):
        as_data_frame([])
