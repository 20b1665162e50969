"""What run.json says: the facts of a run, before the first step and after the last."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections import Counter
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.files import write_atomically
from filbert.model.heads import Model
from filbert.speed.precision import Precision
from filbert.tasks.base import Task
from filbert.train.options import FinetuneOptions
from filbert.train.trainer import Outcome

# How many token counts run.json keeps per split, for the report's histogram.
_SAMPLED_LENGTHS = 2_000


@dataclasses.dataclass
class Split:
    """One file of rows, read, tokenised and counted."""

    name: str
    path: str
    rows: list[Row]
    gold: list[Any]
    examples: list[Example]
    digest: str


def _split_facts(split: Split, max_length: int, labels: Counter[str]) -> dict[str, Any]:
    lengths = [example.num_tokens for example in split.examples]
    every = max(1, len(lengths) // _SAMPLED_LENGTHS)
    return {
        "path": split.path,
        "sha256": split.digest,
        "rows": len(split.rows),
        "label_counts": dict(labels),
        "tokens": int(sum(len(example.input_ids) for example in split.examples)),
        "truncated": sum(example.truncated for example in split.examples),
        "max_length": max_length,
        "lengths": lengths[::every][:_SAMPLED_LENGTHS],
    }


def opening(
    options: FinetuneOptions,
    task: Task,
    checkpoint: Checkpoint,
    model: Model,
    splits: dict[str, Split],
    max_length: int,
    started: datetime,
    precision: Precision,
    device: torch.device,
) -> dict[str, Any]:
    """What run.json knows before the first step."""
    labels = {name: _label_counts(split, task) for name, split in splits.items()}
    return {
        "filbert": version("filbert"),
        "command": "finetune",
        "task": options.task,
        "name": Path(options.out).name,
        "started": started.isoformat(timespec="seconds"),
        "options": {k: v for k, v in dataclasses.asdict(options).items() if v is not None},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "device": {"name": device_name(device), "threads": torch.get_num_threads()},
        "precision": precision.name,
        "precision_reason": precision.reason,
        "model": {
            "source": options.model,
            "family": checkpoint.family,
            "parameters": sum(p.numel() for p in model.parameters()),
            "config": dataclasses.asdict(checkpoint.config),
            "notes": list(checkpoint.notes),
        },
        "labels": list(task.labels or ()),
        "problem": _problem(task),
        "positive": _positive(task),
        "data": {
            name: _split_facts(split, max_length, labels[name]) for name, split in splits.items()
        },
    }


def closing(
    outcome: Outcome, task: Task, metrics: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """What it knows after the last one."""
    described = task.to_dict()
    return {
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": seconds,
        "status": outcome.status,
        "steps": outcome.steps,
        "best": {"step": outcome.best_step, "metric": outcome.metric, "value": outcome.best_value},
        "training_seconds": outcome.seconds,
        "tokens_per_second": outcome.num_tokens / max(outcome.seconds, 1e-9),
        "fill": outcome.fill,
        "metrics": metrics,
        "thresholds": described.get("thresholds"),
        "temperature": described.get("temperature"),
        "baselines": [],
    }


def device_name(device: torch.device) -> str:
    """The processor's or GPU's name, for people."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _problem(task: Task) -> str:
    if task.problem_type == "multi_label_classification":
        return "multilabel"
    return "binary" if task.num_labels == 2 else "multiclass"


def _positive(task: Task) -> str | None:
    if _problem(task) != "binary" or not task.labels:
        return None
    positive: str | None = task.to_dict().get("positive")
    return positive or task.labels[1]


def label_names(task: Task, gold: Any) -> str | list[str]:
    """A gold answer as label names."""
    assert task.labels is not None
    if isinstance(gold, np.ndarray):
        return [label for label, yes in zip(task.labels, gold, strict=True) if yes]
    label: str = task.labels[gold]
    return label


def _label_counts(split: Split, task: Task) -> Counter[str]:
    counts: Counter[str] = Counter({label: 0 for label in task.labels or ()})
    for gold in split.gold:
        names = label_names(task, gold)
        counts.update([names] if isinstance(names, str) else names)
    return counts


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file by new content, whole or not at all."""
    write_atomically(path, json.dumps(content, indent=2, default=list) + "\n")
