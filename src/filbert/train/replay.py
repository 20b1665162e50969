"""Repeat a recorded run from the filbert.json of its model and compare the metrics.

filbert.json holds the options, the hashes of the data and of the base model, the seeds, the number
of threads, the versions and the metrics. What differs from the recorded run is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from filbert.checkpoints.opening import find_model
from filbert.errors import ConfigError, FormatError, checked_keywords, printable
from filbert.files import read_json
from filbert.model.config import PRECISIONS
from filbert.tasks.base import task_names
from filbert.train.finetune import finetune
from filbert.train.options import PATHS, FinetuneOptions
from filbert.train.pretrain import pretrain
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.run_folder import read_run

# Tolerance if the machine, the libraries, the data or the number of threads differ.
LOOSE = 1e-3


class Compared(NamedTuple):
    """One metric of the recorded and the repeated run; None if a run has no value."""

    split: str
    metric: str
    recorded: float | None
    replayed: float | None

    @property
    def difference(self) -> float | None:
        """The absolute difference; 0 if both are missing, None if one is."""
        if self.recorded is None or self.replayed is None:
            return 0.0 if self.recorded is self.replayed else None
        # NaN in both runs counts as equal.
        are_nan = self.recorded != self.recorded and self.replayed != self.replayed
        return 0.0 if are_nan else abs(self.recorded - self.replayed)


@dataclass(frozen=True)
class Replay:
    """The result of `replay`.

    Attributes:
        out: The new run folder.
        metrics: Every metric of both runs.
        differs: Sentences on what differs from the recorded run.
        tolerance: Largest difference of a metric that counts as equal.
        same_weights: Whether the weight files are equal bit by bit; None if the recorded run has no
            hashes.
    """

    out: str
    metrics: tuple[Compared, ...]
    differs: tuple[str, ...]
    tolerance: float
    same_weights: bool | None

    @property
    def is_same(self) -> bool:
        """Whether all metrics are within the tolerance and, if it is 0, the weights are equal."""
        if not self.metrics:  # a run without dev and test rows has only weights to compare
            return self.same_weights is True
        near = all(self.is_near(metric) for metric in self.metrics)
        return near and not (self.tolerance == 0 and self.same_weights is False)

    def is_near(self, metric: Compared) -> bool:
        """Return whether the difference of a metric is within the tolerance."""
        return metric.difference is not None and metric.difference <= self.tolerance


@checked_keywords
def replay(
    model: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    tolerance: float | None = None,
    overwrite: bool = False,
    device: str | None = None,
) -> Replay:
    """Train a model again with the options of its filbert.json and compare the metrics.

    Args:
        model: Its folder or name, or its run folder.
        out: The run folder to make; next to the recorded one if not given.
        tolerance: Largest difference that passes. If not given, 0 if nothing differs from the
            recorded run, else `LOOSE`.
        device: As in `RunOptions`; by default the kind of the recorded run.

    Raises:
        InputError: A file is missing.
        ConfigError, FormatError: The folder records no run, or one that cannot be repeated.
        RunError, Interrupted: As in training.
    """
    if tolerance is not None and not tolerance >= 0:
        raise ConfigError(f"tolerance is {tolerance}; it must be zero or above.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("A replay runs in one process; start it without torchrun.")
    folder, record = _read_record(str(model))
    options = _options(folder, record) | {"overwrite": overwrite}
    options["out"] = str(out or _next_to(folder))
    if device is not None:
        options["device"] = device
    kind = PretrainOptions if record.get("command") == "pretrain" else FinetuneOptions
    try:
        chosen = kind.from_keywords(options)
    except ConfigError as error:
        raise ConfigError(f"{folder / 'filbert.json'}: {error}") from error
    threads, before = (record.get("device") or {}).get("threads"), torch.get_num_threads()
    if isinstance(threads, int) and 0 < threads <= (os.cpu_count() or 1):
        torch.set_num_threads(threads)
    try:
        run = pretrain(chosen) if isinstance(chosen, PretrainOptions) else finetune(chosen)
    finally:
        torch.set_num_threads(before)
    new = read_json(Path(options["out"], "model", "filbert.json"))
    differs = _differences(record, new)
    then, now = _flat(record["metrics"]), _flat(run["metrics"])
    files = {n: e for n, e in (record.get("files") or {}).items() if n.endswith(".safetensors")}
    return Replay(
        options["out"],
        tuple(
            Compared(key[0], ".".join(key[1:]), then.get(key), now.get(key))
            for key in dict.fromkeys([*then, *now])
        ),
        differs,
        (LOOSE if differs else 0.0) if tolerance is None else tolerance,
        all(new["files"].get(n) == entry for n, entry in files.items()) if files else None,
    )


def _read_record(name: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a model and the content of its filbert.json."""
    run_model = Path(name) / "model"
    folder = run_model if (run_model / "filbert.json").is_file() else find_model(name)
    path = folder / "filbert.json"
    if not path.is_file():
        raise FormatError(
            f"{name} has no filbert.json, so its training is not recorded. Name one that "
            f"filbert trained."
        )
    record = read_json(path)
    for key in ("options", "data", "metrics"):
        entry = record.get(key)
        inner = list(entry.values()) if isinstance(entry, dict) and key != "options" else []
        if not all(isinstance(value, dict) for value in (entry, *inner)):
            raise FormatError(f"{path}: {key} is missing or damaged, so it records no run.")
    return folder, record


def _options(folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded options by flat name; paths as in run.json, where it is still there."""
    options, command = dict(record["options"]), record.get("command")
    if command == "distill":
        raise ConfigError(
            f"{folder} is a student, and its teacher's weights are no part of it, so it cannot be "
            "replayed. Run filbert distill with the options in its filbert.json."
        )
    if command != "pretrain" and options.get("task") not in task_names():
        # Only built-in tasks are allowed: a downloaded folder must not choose a module to import.
        raise ConfigError(
            f"{folder / 'filbert.json'}: the task {printable(str(options.get('task')))!r} is not "
            "built in. Run filbert finetune with it yourself."
        )
    typed = (read_run(folder.absolute().parent) or {}).get("options") or {}
    options |= {name: typed[name] for name in PATHS if name in options and name in typed}
    options |= {"resume": False, "tensorboard": False, "save_every": 0, "seeds": 1}
    if record.get("precision") in PRECISIONS:
        options["precision"] = record["precision"]
    return options


def _next_to(folder: Path) -> str:
    run = folder.absolute().parent
    if folder.name == "model" and read_run(run) is not None:
        return str(run.with_name(f"{run.name}-replay"))
    return str(Path("runs") / f"{folder.absolute().name}-replay")


def _differences(record: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe what differs between two filbert.json that can change a result."""
    then, now = _circumstances(record), _circumstances(new)
    differs = [
        f"{name} was {then[name]} and is {now.get(name)}."
        for name in then
        if then[name] != now.get(name)
    ]
    if record["options"].get("time"):
        differs.append("The run was fitted to a time budget, so its steps depend on the clock.")
    return tuple(differs)


def _circumstances(record: Mapping[str, Any]) -> dict[str, str]:
    """Return versions, code, device, data and base model of a run, by name."""
    base = (record.get("base_model") or {}).get("files") or {}
    facts = {name: record.get(name) for name in ("filbert", "commit", "precision")}
    facts |= {**(record.get("versions") or {}), **(record.get("device") or {})}
    facts |= {f"sha256 of {split}": one.get("sha256") for split, one in record["data"].items()}
    facts |= {f"sha256 of the base model's {file}": one["sha256"] for file, one in base.items()}
    return {name: printable(str(value)) for name, value in facts.items() if value is not None}


def _flat(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], float | None]:
    """Return the numbers inside nested metrics, by split and names."""
    if isinstance(value, Mapping):
        parts = (_flat(inner, (*path, str(key))) for key, inner in value.items())
        return {whole: number for part in parts for whole, number in part.items()}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {path: None if value is None else float(value)} if value is None or is_number else {}
