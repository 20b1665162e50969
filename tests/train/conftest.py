"""A teacher for every task, made when a test first asks for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import filbert
from filbert.train.distill_options import DistillOptions
from filbert.train.finetune import finetune


def stress() -> ModuleType:
    """benchmarks/stress_resume.py, which has rows and a model."""
    path = Path(__file__).parents[2] / "benchmarks" / "stress_resume.py"
    spec = importlib.util.spec_from_file_location("stress_resume", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tune(model: Path, films: Path, out: Path, **options: Any) -> filbert.Run:
    """Fine-tune on `films`."""
    files = {name: str(films / f"{name}.csv") for name in ("train", "dev")}
    given = {"task": "classification", "model": str(model), "out": str(out)} | files
    return filbert.finetune(**given | {"precision": "float32", "lr": 3e-3} | options)


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., DistillOptions]:
    """Gives the options of a distillation by its task; the teacher has 2 layers, the student 1."""
    place = tmp_path_factory.mktemp("distill")
    module = stress()
    module.make_model(place / "model")

    taught = {"steps": 20, "lr": 3e-3, "max_tokens": 400, "eval_every": 20, "save_every": 0}

    def options(task: str, out: Path, **more: object) -> DistillOptions:
        files = module.make_rows(place, task)
        teacher = place / f"teacher-{task}"
        if not teacher.exists():
            finetune(module.options(task, place / "model", files, teacher, **taught))
        given = {
            "teacher": str(teacher / "model"), "student": str(place / "model"), "keep_layers": "1",
            **files, "out": str(out), "steps": 8, "lr": 3e-3, "max_tokens": 400,
            "precision": "float32", "device": "cpu",
        }  # fmt: skip
        return DistillOptions.from_keywords(given | more)

    return options
