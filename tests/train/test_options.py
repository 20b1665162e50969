"""What options mean where they are not given, and which go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from filbert.errors import ConfigError
from filbert.tasks.base import task_class
from filbert.train import prepare
from filbert.train.options import FinetuneOptions, names_of
from filbert.train.prepare import load_for_task


def test_questions_are_read_in_windows_as_in_run_squad_unless_told_otherwise(monkeypatch):
    def length(**given) -> int:
        usual = {"model": "filbert-mini", "task": "span_qa", "train": "x", "out": "y"}
        options = FinetuneOptions(**usual | given)
        task = task_class(options.task).from_options(options, options)
        return load_for_task(options, task)[2]

    # The model's own limit is lower.
    assert prepare._USUAL_MAX_LENGTH == {"span_qa": 384}
    assert length() == length(task="regression") == 256
    monkeypatch.setitem(prepare._USUAL_MAX_LENGTH, "span_qa", 100)
    assert length() == 100
    assert (length(max_length=300), length(task="regression")) == (300, 256)


def test_lists_hold_texts_of_any_length_and_numbers_and_nothing_else():
    path = "/".join(["folder"] * 60)
    assert names_of(f"{path}, b") == names_of([Path(path), "b"]) == (path, "b")
    assert names_of([0, 1.0, "x,y"]) == ("0", "1", "x", "y")
    for odd in (7, [["a"]], [None], [float("nan")]):
        with pytest.raises(ConfigError, match="stands where names belong"):
            names_of(odd)
