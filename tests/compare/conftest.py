from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from filbert.compare import study
from filbert.compare.recipe import Study, StudyOptions, read_study
from filbert.train.options import from_flat


@pytest.fixture
def recipe(films: Path, tiny_model: Path) -> dict[str, Any]:
    """A study of a tiny encoder and TF-IDF that takes seconds."""
    return {
        "train": str(films / "train.csv"),
        "dev": str(films / "dev.csv"),
        "test": str(films / "test.csv"),
        "positive": "pos",
        "precision": "float32",
        "device": "cpu",
        "max_length": 32,
        "steps": 4,
        "resamples": 100,
        "contestants": {
            "tiny": {"model": str(tiny_model), "lr": 3e-3},
            "tfidf": {"kind": "tfidf", "C": 10.0},
        },
    }


def study_of(recipe: dict[str, Any], **flags: Any) -> Study:
    return read_study(recipe, from_flat(StudyOptions, flags))


@pytest.fixture
def read():
    """`read(recipe, seeds=2)`: the study."""
    return study_of


@pytest.fixture
def no_training(monkeypatch):
    """Runs that were asked for, instead of running them."""
    asked = []

    def pretend(run, **_):
        asked.append(f"{run.contestant.name}/{run.seed}")
        return "failed", "pretended"

    monkeypatch.setattr(study, "run_child", pretend)
    return asked
