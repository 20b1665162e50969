"""What run.json says: the facts of a run, before the first step and after the last."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections import Counter
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.examples import lengths_of, rows_of
from filbert.model.heads import Model
from filbert.speed.precision import Precision
from filbert.tasks.base import Task
from filbert.tasks.classification import Classification
from filbert.text.tokenizer import Tokenizer
from filbert.train.distributed import Parallel, Trainable
from filbert.train.options import TrainOptions
from filbert.train.prepare import Split
from filbert.train.provenance import base_model, commit, versions
from filbert.train.trainer import Outcome

# How many token counts run.json keeps per split, for the report's histogram.
_SAMPLED_LENGTHS = 2_000


def _split_facts(split: Split, task: Task, max_length: int, labels: Counter[str]) -> dict[str, Any]:
    rows = lengths_of(split.examples, rows_of(split.examples))
    lengths = [row["num_tokens"] for row in rows]
    every = max(1, math.ceil(len(lengths) / _SAMPLED_LENGTHS))
    return {
        "path": split.path,
        "sha256": split.digest,
        "rows": len(split.rows),
        "sequences": len(split.examples),
        "label_counts": dict(labels),
        "has_pairs": any(isinstance(text, tuple) for text in task.sequences(split.rows[0])),
        "tokens": int(sum(len(example.input_ids) for example in split.examples)),
        "truncated": sum(row["truncated"] for row in rows),
        "truncated_tokens": sum(
            example.num_tokens - len(example.input_ids)
            for example in split.examples
            if example.truncated
        ),
        "longest": max((example.num_tokens for example in split.examples), default=0),
        "max_length": max_length,
        "lengths": lengths[::every],
    }


def begun(
    command: str,
    options: TrainOptions,
    out: str,
    source: str | None,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    model: Trainable,
    started: datetime,
    precision: Precision,
    parallel: Parallel,
) -> dict[str, Any]:
    """What run.json knows of any run before its first step."""
    return {
        "filbert": version("filbert"),
        "commit": commit(),
        "command": command,
        "name": Path(out).name,
        "started": started.isoformat(timespec="seconds"),
        "options": {
            k: v
            for k, v in dataclasses.asdict(options).items()
            if v is not None and k not in options.unread
        },
        "versions": versions(),
        "device": {
            "name": device_name(parallel.device),
            "threads": torch.get_num_threads(),
            "processes": parallel.world,
        },
        "precision": precision.name,
        "precision_reason": precision.reason,
        "model": {
            "source": source,
            "family": checkpoint.family,
            "parameters": sum(p.numel() for p in model.parameters()),
            "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "config": dataclasses.asdict(checkpoint.config),
            "notes": list(checkpoint.notes),
        },
        "tokenizer": {
            "kind": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
            "fingerprint": tokenizer.fingerprint,
        },
        "base_model": None if source is None else base_model(source, checkpoint.source),
    }


def ended(outcome: Outcome, metrics: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What it knows of any run after its last step; `seconds` are those of this process."""
    return {
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": outcome.clock_before + seconds,
        "status": outcome.status,
        "steps": outcome.steps,
        "training_seconds": outcome.seconds,
        "tokens_per_second": outcome.num_tokens / max(outcome.seconds, 1e-9),
        "fill": outcome.fill,
        "metrics": metrics,
    }


def opening(
    command: str,
    options: TrainOptions,
    out: str,
    source: str,
    task_name: str,
    task: Task,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    model: Model,
    splits: dict[str, Split],
    max_length: int,
    started: datetime,
    precision: Precision,
    parallel: Parallel,
) -> dict[str, Any]:
    """What run.json knows before the first step."""
    labels = {name: _label_counts(split, task) for name, split in splits.items()}
    return begun(
        command,
        options,
        out,
        source,
        checkpoint,
        tokenizer,
        model,
        started,
        precision,
        parallel,
    ) | {
        "task": task_name,
        "labels": list(task.labels or ()),
        "problem": _problem(task),
        "positive": _positive(task),
        "data": {
            name: _split_facts(split, task, max_length, labels[name])
            for name, split in splits.items()
        },
    }


def closing(
    outcome: Outcome, task: Task, metrics: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """What it knows after the last one."""
    described = task.to_dict()
    return ended(outcome, metrics, seconds) | {
        "best": {"step": outcome.best_step, "metric": outcome.metric, "value": outcome.best_value},
        "thresholds": described.get("thresholds"),
        "temperature": described.get("temperature"),
        "null_threshold": described.get("null_threshold"),
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
    if not isinstance(task, Classification):
        return task.name
    if task.multilabel:
        return "multilabel"
    return "binary" if task.is_binary else "multiclass"


def _positive(task: Task) -> str | None:
    if not isinstance(task, Classification) or not task.is_binary or not task.labels:
        return None
    return task.labels[task.positive_id]


def _label_counts(split: Split, task: Task) -> Counter[str]:
    counts: Counter[str] = Counter()
    if isinstance(task, Classification):
        counts.update({label: 0 for label in task.labels or ()})
    for row in split.rows:
        counts.update(task.labels_of(row))
    return counts
