"""What options mean where they are not given, and which go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.tasks.base import TaskOptions, task_class
from filbert.train import base_model
from filbert.train.base_model import load_for_task
from filbert.train.options import (
    BaseModelOptions,
    FinetuneOptions,
    changed,
    flat,
    keys_of_tables,
    names_of,
    options_in,
)


def test_questions_are_read_in_windows_as_in_run_squad_unless_told_otherwise(monkeypatch):
    def length(**given) -> int:
        task = task_class(given.pop("task", "span_qa")).from_options(TaskOptions(), ColumnNames())
        return load_for_task(BaseModelOptions(name="filbert-mini"), task, **given)[2]

    # The model's own limit is lower.
    assert base_model._USUAL_MAX_LENGTH == {"span_qa": 384}
    assert length() == length(task="regression") == 256
    monkeypatch.setitem(base_model._USUAL_MAX_LENGTH, "span_qa", 100)
    assert length() == 100
    assert (length(max_length=300), length(task="regression")) == (300, 256)


def test_lists_hold_texts_of_any_length_and_numbers_and_nothing_else():
    path = "/".join(["folder"] * 60)
    assert names_of(f"{path}, b") == names_of([Path(path), "b"]) == (path, "b")
    assert names_of([0, 1.0, "x,y"]) == ("0", "1", "x", "y")
    for odd in (7, [["a"]], [None], [float("nan")]):
        with pytest.raises(ConfigError, match="is no list of names"):
            names_of(odd)


GIVEN = {"task": "classification", "model": "minilm", "train": "a.csv", "out": "run"}


def test_flat_names_and_composed_values_are_the_same_options():
    options = FinetuneOptions.from_keywords(GIVEN | {"lr": 1e-3, "text_column": "comment"})
    assert (options.task.name, options.model.name, options.data.train) == (
        "classification",
        "minilm",
        "a.csv",
    )
    assert (options.train.lr, options.data.columns.text_column) == (1e-3, "comment")
    assert FinetuneOptions.from_keywords(flat(options)) == options
    assert changed(options, lr=2e-3, seed=7).run.seed == 7


def test_the_tables_of_a_recipe_are_the_inner_values():
    tables = {
        "task": {"name": "classification", "labels": ["a", "b"]},
        "model": {"name": "minilm"},
        "data": {"train": "a.csv", "text_column": "comment"},
        "train": {"lr": 1e-3},
    }
    keys, outside = keys_of_tables(tables | {"out": "run"}, FinetuneOptions)
    assert keys == GIVEN | {"labels": ["a", "b"], "text_column": "comment", "lr": 1e-3}
    assert outside == ["out"]
    for wrong, message in (
        ({"train": {"seed": 3}}, r"\[train\] has no option 'seed'"),
        ({"optimizer": {"lr": 3}}, r"no table \[optimizer\]"),
    ):
        with pytest.raises(ConfigError, match=message):
            keys_of_tables(wrong, FinetuneOptions)


def test_every_option_is_documented_once_and_no_class_has_more_than_twenty():
    options = options_in(FinetuneOptions)
    assert all(option.doc for option in options.values())
    sizes: dict[tuple[str, ...], int] = {}
    for option in options.values():
        sizes[option.path[:-1]] = sizes.get(option.path[:-1], 0) + 1
    assert max(sizes.values()) <= 20
