"""The content of run.json, and the part of it that is copied to filbert.json of a model folder.

run.json stays with the run and holds paths as they were given. A model folder is shared, so its
filbert.json holds file names only, and no text of the data set.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import metadata_load
from yaml import YAMLError  # type: ignore[import-untyped]

from filbert.checkpoints.opening import HUB_ID
from filbert.checkpoints.weights import weight_files
from filbert.errors import FormatError
from filbert.files import portable, sha256_of
from filbert.train.distributed import Parallel, Trainable
from filbert.train.options import DECLARED, FREE, PATHS, flat
from filbert.train.schedule import Progress, Schedule
from filbert.train.state import digest_of

# Keys of run.json that filbert.json has too, in this order.
_COPIED = (
    "filbert", "commit", "command", "name", "started", "finished", "seconds", "status", "steps",
    "tokens", "options", "versions", "device", "precision", "base_model", "tokenizer", "data",
    "metrics", "best", "bf16_loss", "int8_loss",
    "teacher",
)  # fmt: skip
# Built-in model names and their Hub ids; None for a model that is not on the Hub.
BUILT_IN = {
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
    "filbert-mini": None,
}


def begun(job: Any, model: Trainable, *, clock: float, parallel: Parallel) -> dict[str, Any]:
    """Return the part of run.json that every run has before its first step.

    Args:
        job: The run, with `command`, `options`, `checkpoint`, `tokenizer` and `precision`.
        clock: `time.perf_counter` when the run started.
    """
    options, checkpoint, tokenizer = job.options, job.checkpoint, job.tokenizer
    source = options.model.name
    return {
        "filbert": version("filbert"),
        "commit": commit(),
        "command": job.command,
        "name": Path(options.run.out).name,
        "started": now(before=time.perf_counter() - clock),
        "options": {name: value for name, value in flat(options).items() if value is not None},
        "versions": versions(),
        "device": {
            "name": device_name(parallel.device),
            "threads": torch.get_num_threads(),
            "processes": parallel.world,
        },
        "precision": job.precision.name,
        "precision_reason": job.precision.reason,
        "model": {
            "source": source,
            "family": checkpoint.family,
            "parameters": sum(p.numel() for p in model.parameters()),
            "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "config": checkpoint.config.settings(),
            "notes": list(checkpoint.notes),
        },
        "tokenizer": {
            "kind": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
            "fingerprint": tokenizer.fingerprint,
        },
        "base_model": None if source is None else base_model(source, checkpoint.source),
    }


def ended(*stages: Progress, schedule: Schedule, clock: float) -> dict[str, Any]:
    """Return what every run.json has after the last step but metrics.

    `schedule` is that of the last stage, and `clock` as for `begun`.
    """
    last, seconds = stages[-1], sum(stage.seconds for stage in stages)
    whole = sum(stage.clock_before for stage in stages) + time.perf_counter() - clock
    return {
        "finished": now(),
        "seconds": whole,
        "status": "done" if schedule.is_over(last) else "stopped early",
        "steps": last.step,
        "training_seconds": seconds,
        "tokens_per_second": sum(stage.tokens for stage in stages) / max(seconds, 1e-9),
        "fill": last.fill,
    }


def now(*, before: float = 0.0) -> str:
    """Return the time, or that of some seconds before, in UTC."""
    moment = datetime.now(timezone.utc) - timedelta(seconds=before)
    return moment.isoformat(timespec="seconds")


def device_name(device: torch.device) -> str:
    """Return the name of the CPU or GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if name := re.search(r"^model name\s*:(.*)$", text, re.MULTILINE):
            return name[1].strip()
    return platform.processor() or platform.machine()


def copied(run: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a finished run.json that filbert.json has too, without folder names."""
    entries = {key: run[key] for key in _COPIED if key in run}
    entries["options"] = _portable(run["options"])
    entries["model"] = {key: run["model"][key] for key in ("family", "parameters", "trained")}
    entries["data"] = {
        split: {name: value for name, value in facts.items() if name != "lengths"}
        | {"path": portable(facts["path"])}
        for split, facts in run["data"].items()
    }
    if run.get("base_model") is not None:
        base = run["base_model"]
        entries["base_model"] = base | {"name": portable(base["name"])}
    return entries


def _portable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by flat name, with the last part of absolute paths."""
    return {name: portable(value) if name in PATHS else value for name, value in options.items()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that affect the results."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "tokenizers": version("tokenizers"),
    }


def commit() -> str | None:
    """Return the git commit that filbert runs from, or None for an installed package.

    Uncommitted changes in the source add "+changes-" and a hash of them. None also if git fails.
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
    # Two working trees with the same commit can contain different changes.
    return (
        f"{found}+changes-{hashlib.sha256(changes.encode()).hexdigest()[:12]}" if changes else found
    )


def base_model(name: str, folder: Path | None) -> dict[str, Any]:
    """Describe the model that a run starts from, by the name that the user gave.

    Returns:
        `name`; `hub_id`, None for a local folder; `files`, configuration and weights of `folder`:
        name -> {"sha256"}; `license` and `language` (a list) of its model card, None if the card
        declares none.
    """
    paths: list[Path] = []
    if folder is not None:
        try:
            paths = [folder / "config.json", *weight_files(folder)]
        except FormatError:  # a TensorFlow checkpoint of Google
            paths = [*folder.glob("*_config.json"), *folder.glob("*.data-?????-of-?????")]
    files = {path.name: {"sha256": sha256_of(path)} for path in sorted(paths) if path.is_file()}
    card = folder / "README.md" if folder is not None else None
    return {"name": name, "hub_id": _hub_id(name), "files": files, **_declared(card)}


def _hub_id(name: str) -> str | None:
    if name in BUILT_IN:
        return BUILT_IN[name]
    hub_id = name.partition("@")[0]  # without the revision
    is_id = HUB_ID.fullmatch(hub_id) and not Path(name).exists()
    return hub_id if is_id else None


def _declared(card: Path | None) -> dict[str, Any]:
    """Read license and languages from the front matter of a model card, in the Hub's spelling."""
    found: dict[str, Any] = {"license": None, "language": None}
    try:
        front = (metadata_load(card) if card is not None else None) or {}
    except (OSError, ValueError, YAMLError):
        return found
    for key in found:
        value = front.get(key)
        # YAML 1.1 reads the code of Norwegian as a boolean.
        items = [
            "no" if v is False else str(v) for v in (value if isinstance(value, list) else [value])
        ]
        kept = [item for item in items if re.fullmatch(DECLARED[key], item)]
        if kept:
            found[key] = kept if key == "language" else kept[0]
    return found


def fingerprint(options: Any, model: Trainable, digests: Mapping[str, str]) -> str:
    """Return a SHA-256 of all that decides what a run computes: options, data, starting weights.

    Only the last part of an absolute path counts: a run's folder may be moved, and the content is
    in `digests` and in the weights.
    """
    chosen = _portable({name: one for name, one in flat(options).items() if name not in FREE})
    content = {"options": chosen, "data": dict(digests), "model": digest_of(model.state_dict())}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()
