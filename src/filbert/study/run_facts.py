"""The content of run.json for runs that `finetune` and `distill` do not write, in their shape."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from filbert.data.records import Row
from filbert.predict import Predictor
from filbert.study.bigru import BiGRU
from filbert.study.linear import Linear
from filbert.tasks.base import Task
from filbert.train.facts import commit, device_name, versions
from filbert.train.folder import read_run

if TYPE_CHECKING:
    from filbert.study.contestants import Job


def fitted_facts(
    job: Job, fitted: Linear | BiGRU, rows: dict[str, list[Row]], metrics: dict[str, Any]
) -> dict[str, Any]:
    """Facts of a linear model or a BiGRU.

    Args:
        job: what was asked for.
        fitted: the model.
        rows: of each split.
        metrics: of dev and test.
    """
    task = fitted.task
    own = {"C": fitted.strength} if isinstance(fitted, Linear) else {}
    common = _common(job, task, torch.device("cpu"), metrics, task.selection_metric)
    return common | {
        "options": {**job.options, **own, "clean": job.cleaning, "seed": job.seed},
        "versions": versions() | {"scikit-learn": version("scikit-learn")},
        "precision": "float64" if isinstance(fitted, Linear) else "float32",
        "model": {
            "source": job.options.get("model") or job.options.get("vectors"),
            "family": job.kind,
            "parameters": fitted.num_parameters,
            "trained": fitted.num_parameters,
            "notes": [],
        },
        "task": "classification",
        "labels": list(job.labels),
        "problem": "binary" if task.is_binary else "multiclass",
        "positive": job.positive,
        "data": {name: {"path": job.data[name], "rows": len(part)} for name, part in rows.items()},
    }


def requantised_facts(job: Job, predictor: Predictor, metrics: dict[str, Any]) -> dict[str, Any]:
    """Of another run's model in another number format; rows and labels are as that run says."""
    assert job.source is not None
    source = read_run(Path(job.source)) or {}
    device = torch.device("cpu")
    if job.options["backend"] == "torch":
        device = next(predictor.model.parameters()).device
    chosen_by = (source.get("best") or {}).get("metric") or predictor.known_task().selection_metric
    kept = ("task", "labels", "problem", "positive", "data")
    return _common(job, predictor.known_task(), device, metrics, chosen_by) | {
        "options": {**job.options, "seed": job.seed},
        "versions": versions(),
        "precision": job.options["precision"],
        "model": {**(source.get("model") or {}), "source": job.options["of"]},
        **{name: source.get(name) for name in kept},
    }


def _common(
    job: Job, task: Task, device: torch.device, metrics: dict[str, Any], chosen_by: str
) -> dict[str, Any]:
    described = task.to_dict()
    return {
        "filbert": version("filbert"),
        "commit": commit(),
        "command": "compare",
        "name": job.contestant,
        "device": {
            "name": device_name(device),
            "threads": torch.get_num_threads(),
            "processes": 1,
        },
        "status": "done",
        "metrics": metrics,
        "best": {"step": 0, "metric": chosen_by, "value": metrics["dev"].get(chosen_by)},
        "thresholds": described.get("thresholds"),
        "temperature": described.get("temperature"),
        "baselines": [],
    }
