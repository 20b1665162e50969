"""The Task protocol: its size, what every task keeps in filbert.json, and who may name a class."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import filbert
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, InputError
from filbert.tasks import base
from filbert.tasks.base import (
    TaskOptions,
    changed,
    task_class,
    task_from_dict,
    task_names,
    task_to_dict,
)
from filbert.tasks.rows import read_task_rows, row_of_value, row_texts

SOURCE = Path(filbert.__file__).parent
CLASSES = {task_class(name).__name__ for name in task_names()}
STORED = {
    "classification": {"labels": ["a", "b"], "thresholds": [0.25], "temperature": 2.0},
    "embedding": {"scale": 30.0, "pooling": "cls", "on_overflow": "error"},
    "multiple_choice": {"num_choices": 4, "on_overflow": "error"},
    "regression": {"on_overflow": "window", "stride": 7, "clean": ["urls"]},
    "span_qa": {"has_unanswerable": True, "null_threshold": -1.5},
    "tagging": {"labels": ["O", "B-a", "I-a"], "repair_tags": True},
}


def members(protocol: type) -> set[str]:
    return {name for kind in protocol.__mro__ for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", task_names())
def test_a_task_has_no_public_member_beside_the_protocol_and_its_fields(name):
    kind = task_class(name)
    fields = set(kind.__dataclass_fields__)
    assert {n for n in vars(kind) if not n.startswith("_")} - fields <= members(base.Task)


def test_no_module_outside_the_package_imports_a_task_class_or_asks_for_one():
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent == SOURCE / "tasks":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("filbert.tasks"):
                assert not CLASSES & {alias.name for alias in node.names}, path
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                asked = ast.unparse(node.args[0])
                # `flags.task` and `options.task` are options.
                is_task = asked.split(".")[-1] == "task" and not asked.startswith(("flags", "opt"))
                assert not is_task, (path, node.lineno)


@pytest.mark.parametrize("name", task_names())
def test_what_filbert_json_keeps_makes_the_same_task_again(name):
    task = task_from_dict(task_class(name), STORED[name] | {"of a later version": 1})
    content = json.loads(json.dumps(task_to_dict(task)))
    assert content["name"] == task.spec.name == name and content.items() >= STORED[name].items()
    assert task_from_dict(task_class(name), content) == task == changed(task)
    assert task.spec.selection_metric in task.spec.metric_names


@pytest.mark.parametrize("name", sorted(set(task_names()) - {"classification"}))
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"merge_labels": ("a", "b"), "merge_as": "x"}, "--merge-labels is for classification; "),
        ({"label_columns": ("a", "b")}, "--label-columns is for classification; "),
        ({"merge_as": "x"}, "--as the label that they become; give both"),
    ],
)
def test_a_task_without_classes_refuses_label_columns(name, columns, words):
    task = task_class(name).from_options(TaskOptions(), ColumnNames())
    with pytest.raises(ConfigError, match=words):
        read_task_rows(task, "rows.csv", ColumnNames(**columns))


@pytest.mark.parametrize(
    ("name", "value", "texts"),
    [
        ("classification", ("a", "b"), [("a", "b")]),
        ("embedding", ("a", "b"), ["a", "b"]),
        ("multiple_choice", {"context": "x", "choices": ("a", "b")}, [("x", "a"), ("x", "b")]),
        ("span_qa", {"question": "q", "context": "c"}, [("q", "c")]),
        ("tagging", ["a", "b"], ["a b"]),
    ],
)
def test_a_value_from_python_becomes_a_row_with_texts(name, value, texts):
    task = task_class(name).from_options(TaskOptions(), ColumnNames())
    assert row_texts(task, row_of_value(task, value, 0)) == texts
    with pytest.raises(InputError, match="Item 3"):
        row_of_value(task, 7, 3)
