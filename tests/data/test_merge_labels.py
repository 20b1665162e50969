from __future__ import annotations

import json
from pathlib import Path

import pytest

from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError
from filbert.tasks.base import TaskOptions
from filbert.tasks.classification import Classification
from filbert.tasks.rows import read_task_rows

MERGED = ColumnNames(text_column="comment", merge_labels=("loud", "curt"), merge_as="unfriendly")
CSV = "comment,loud,curt,kind\na film,0,0,1\na play,1,0,0\nthe sea,0,1,0\nthe day,1,1,1\n"
WANTED = ["not unfriendly", "unfriendly", "unfriendly", "unfriendly"]


def written(folder: Path, content: str, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def read(path: Path, names: ColumnNames = MERGED, **more) -> list[Row]:
    return list(names.read(path, required=("text", "label"), **more))


def test_a_row_has_the_label_where_any_of_the_columns_is_one(tmp_path):
    rows = read(written(tmp_path, CSV))
    assert [row.values["label"] for row in rows] == WANTED
    assert [row.line for row in rows] == [2, 3, 4, 5]
    assert rows[0].values == {"text": "a film", "label": "not unfriendly"}


def test_columns_that_are_also_wanted_for_themselves_stay(tmp_path):
    rows = read(written(tmp_path, CSV), extra=("curt", "kind"))
    assert rows[2].values == {"text": "the sea", "label": "unfriendly", "curt": "1", "kind": "0"}


def test_a_label_column_of_the_file_is_not_read_beside_merged_columns(tmp_path):
    content = "comment,label,loud,curt\na film,curious,0,1\n"
    assert read(written(tmp_path, content))[0].values["label"] == "unfriendly"
    # It may be one of the merged columns itself.
    names = ColumnNames(text_column="comment", merge_labels=("label", "loud"), merge_as="x")
    assert read(written(tmp_path, "comment,label,loud\na film,1,0\n"), names)[0].values == {
        "text": "a film",
        "label": "x",
    }


def test_numbers_and_truth_values_of_json_lines_are_zeros_and_ones(tmp_path):
    values = [(0, 1), (0.0, 0.0), (True, False), ("0", "1.0")]
    lines = [json.dumps({"comment": "a", "loud": one, "curt": two}) for one, two in values]
    rows = read(written(tmp_path, "\n".join(lines), "rows.jsonl"))
    assert [row.values["label"] for row in rows] == [
        "unfriendly",
        "not unfriendly",
        "unfriendly",
        "unfriendly",
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("yes", "holds 'yes'"),
        ("", "holds ''"),
        ("0.5", "holds '0.5'"),
    ],
)
def test_a_value_that_is_neither_zero_nor_one_is_named_by_file_line_and_column(
    tmp_path, value, said
):
    # The first column decides already; the second is looked at all the same.
    path = written(tmp_path, f"comment,loud,curt\na film,0,0\na play,1,{value}\n")
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == (f"{path}:3: column 'curt' {said}; a label column holds 0 or 1.")


def test_bad_rows_go_to_on_error_and_reading_goes_on(tmp_path):
    path = written(tmp_path, "comment,loud,curt\na,0,yes\nb,1,0\nc,1\nd,,1\ne,0,0\n")
    errors: list[InputError] = []
    rows = read(path, on_error=errors.append)
    assert [row.line for row in rows] == [3, 6]
    assert [str(error).split(":")[1] for error in errors] == ["2", "4", "5"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"merge_labels": ("a",)}, "--as the label that they become; give both"),
        ({"merge_as": "x"}, "--as the label that they become; give both"),
        ({"merge_labels": (), "merge_as": "x"}, "--merge-labels names nothing"),
        (
            {"merge_labels": ("a", "b", "a"), "merge_as": "x"},
            "names a, b, a; give different",
        ),
        ({"merge_labels": ("a",), "merge_as": " "}, "--as '' is no label; give a word"),
        ({"merge_labels": ("a",), "merge_as": "x\n"}, "is no label; give a word"),
        (
            {"merge_labels": ("a",), "merge_as": "x", "label_column": "b"},
            "--merge-labels and --label-column both say where the label is",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(given, sentence):
    with pytest.raises(ConfigError) as caught:
        _ = ColumnNames(**given).merged
    assert sentence in str(caught.value)


def test_the_merged_label_is_the_positive_class(tmp_path):
    task = Classification.from_options(TaskOptions(), MERGED)
    assert task.labels == ("not unfriendly", "unfriendly")
    # By alphabet "not ..." may come before or after the name; the order is not left to that.
    names = ColumnNames(text_column="comment", merge_labels=("loud",), merge_as="angry")
    assert Classification.from_options(TaskOptions(), names).spec.positive == "angry"
    rows = list(read_task_rows(task, written(tmp_path, CSV), MERGED))
    assert [task.fit(rows).gold(row) for row in rows] == [0, 1, 1, 1]


def test_a_model_is_only_evaluated_on_merged_rows_of_its_own_labels(tmp_path):
    path = written(tmp_path, CSV)
    with pytest.raises(ConfigError) as caught:
        read_task_rows(Classification(labels=("0", "1")), path, MERGED)
    assert str(caught.value) == (
        "--merge-labels makes one label of ['not unfriendly', 'unfriendly']; this model gives one "
        "of ['0', '1']. Name the merged label with --as as it was in training."
    )
    with pytest.raises(ConfigError, match="this model gives any number of labels"):
        read_task_rows(Classification(("loud", "curt"), multilabel=True), path, MERGED)
