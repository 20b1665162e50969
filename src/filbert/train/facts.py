"""The content of run.json, and the part of it that is copied to filbert.json of a model folder.

run.json stays with the run and holds paths as they were given. A model folder is shared, so its
filbert.json holds file names only, and no text of the data set.
"""

from __future__ import annotations

import dataclasses
import math
import platform
import re
import shutil
import subprocess
from collections import Counter
from datetime import datetime, timezone
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.weights import weight_files
from filbert.data.examples import lengths_of, rows_of
from filbert.errors import FormatError
from filbert.files import portable, sha256_of
from filbert.model.heads import Model
from filbert.speed.precision import Precision
from filbert.tasks.base import Task
from filbert.tasks.classification import Classification
from filbert.text.tokenizer import Tokenizer
from filbert.train.distributed import Parallel, Trainable
from filbert.train.options import DECLARED, PATHS, TrainOptions
from filbert.train.prepare import Split
from filbert.train.trainer import Outcome

# How many token counts run.json keeps per split, for the report's histogram.
_SAMPLED_LENGTHS = 2_000
# What is told, in this order.
_TOLD = (
    "filbert", "commit", "command", "name", "started", "finished", "seconds", "status", "steps",
    "tokens", "options", "versions", "device", "precision", "base_model", "tokenizer", "data",
    "metrics", "best", "bf16_loss", "int8_loss",
    "teacher",
)  # fmt: skip
# Names that only filbert knows, as the Hub knows them; None where it does not.
BUILT_IN = {
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
    "filbert-mini": None,
}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_CARD_CHARACTERS = 2**16


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


def story_of(run: dict[str, Any]) -> dict[str, Any]:
    """The part of run.json that a model folder takes along.

    Args:
        run: the content of run.json after the last step.
    """
    story = {key: run[key] for key in _TOLD if key in run}
    story["options"] = {
        name: portable(value) if name in PATHS else value for name, value in run["options"].items()
    }
    story["model"] = {key: run["model"][key] for key in ("family", "parameters", "trained")}
    story["data"] = {
        split: {name: value for name, value in facts.items() if name != "lengths"}
        | {"path": portable(facts["path"])}
        for split, facts in run["data"].items()
    }
    if run.get("base_model") is not None:
        base = run["base_model"]
        story["base_model"] = base | {"name": portable(base["name"])}
    return story


def versions() -> dict[str, str]:
    """Of Python and the libraries that decide what a run computes."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "tokenizers": version("tokenizers"),
    }


def commit() -> str | None:
    """The git commit that filbert runs from, with "+changes-" and a
    hash of them behind it when its code was changed.

    None for an installed package, or where git does not answer.
    """
    package = Path(__file__).parents[1]
    root = package.parents[1]
    git = shutil.which("git")
    if git is None or package != root / "src" / "filbert" or not (root / ".git").exists():
        return None

    def ask(*words: str) -> str:
        return subprocess.run(
            [git, "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        found = ask("rev-parse", "HEAD")
        changes = ask("diff", "HEAD", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return None
    # Two trees that were changed after the same commit need not be alike.
    return f"{found}+changes-{sha256(changes.encode()).hexdigest()[:12]}" if changes else found


def base_model(name: str, folder: Path | None) -> dict[str, Any]:
    """The model that a run starts from: its name, the sha256 of its files, what its card says.

    Args:
        name: as the user gave it.
        folder: where it lies; what describes it and holds its weights is hashed.

    Returns:
        `name`; `hub_id`, None for a folder of the user's; `files`: name -> {"sha256"}; `license`
        and `language` (a list) of its model card, None where it has none.
    """
    paths: list[Path] = []
    if folder is not None:
        try:
            paths = [folder / "config.json", *weight_files(folder)]
        except FormatError:  # a checkpoint of Google's
            paths = [*folder.glob("*_config.json"), *folder.glob("*.data-?????-of-?????")]
    files = {path.name: {"sha256": sha256_of(path)} for path in sorted(paths) if path.is_file()}
    card = folder / "README.md" if folder is not None else None
    return {"name": name, "hub_id": _hub_id(name), "files": files, **_declared(card)}


def _hub_id(name: str) -> str | None:
    if name in BUILT_IN:
        return BUILT_IN[name]
    hub_id = name.partition("@")[0]  # without the revision
    is_id = _HUB_ID.fullmatch(hub_id) and not Path(name).exists()
    return hub_id if is_id else None


def _declared(card: Path | None) -> dict[str, Any]:
    """License and languages in the front matter of a model card.

    Only these two keys are looked for, in the forms that cards use, so no YAML is interpreted.
    """
    found: dict[str, Any] = {"license": None, "language": None}
    if card is None or not card.is_file():
        return found
    try:
        with card.open(encoding="utf-8-sig") as file:
            text = file.read(_CARD_CHARACTERS)
    except (OSError, ValueError):
        return found
    begin, _, rest = text.partition("---\n")
    front = f"\n{rest}".partition("\n---")[0] if not begin.strip() else ""
    for key in found:
        entry = re.search(rf"^{key}:[ ]*(.*(?:\n[ ]*-[ ]+.*)*)", front, re.MULTILINE)
        items = re.findall(r"[^\s,\[\]'\"]+", entry[1]) if entry else []
        kept = [item for item in items if re.fullmatch(DECLARED[key], item)]
        if kept:
            found[key] = kept if key == "language" else kept[0]
    return found
