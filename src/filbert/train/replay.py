"""Repeat a recorded run from the filbert.json of its model and compare the metrics.

filbert.json holds the options, the hashes of the data and of the base model, the seeds, the number
of threads, the versions and the metrics. Training starts only after every input has the recorded
hash.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from filbert.checkpoints.opening import find_model
from filbert.data.records import file_digest
from filbert.data.shards import Corpus
from filbert.errors import ConfigError, FormatError, InputError, printable
from filbert.files import read_json
from filbert.model.config import PRECISIONS
from filbert.model.precision import choose_device
from filbert.tasks.base import task_names
from filbert.train.finetune import finetune
from filbert.train.log import say
from filbert.train.options import FinetuneOptions, share_in
from filbert.train.pretrain import pretrain
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.provenance import base_model, commit, device_name, versions
from filbert.train.run_folder import read_run

# Tolerance if the machine, the libraries or the number of threads differ.
LOOSE = 1e-3
# Options that name files of a run; the names of their entries in filbert.json under "data".
_SPLITS = {"data": "train", "train": "train", "corpus": "train", "dev": "dev", "test": "test"}
_FILES = (*_SPLITS, "model", "tokenizer")
# Recorded options of pre-training that no longer exist.
_REMOVED = ("reinit_layers", "dry_run", "new_tokens")


class Figure(NamedTuple):
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
        return abs(self.recorded - self.replayed)

    def is_within(self, tolerance: float) -> bool:
        """Whether the difference is at most `tolerance`."""
        # NaN in both runs counts as equal.
        same = self.recorded != self.recorded and self.replayed != self.replayed
        return same or (self.difference is not None and self.difference <= tolerance)


@dataclass(frozen=True)
class Verdict:
    """The result of `replay`.

    Attributes:
        out: The new run folder.
        figures: Every metric of both runs.
        differs: Sentences on what differs from the recorded run.
        tolerance: Largest difference of a metric that counts as equal.
        same_weights: Whether the weight files are equal bit by bit; None if the recorded run has no
            hashes.
    """

    out: str
    figures: tuple[Figure, ...]
    differs: tuple[str, ...]
    tolerance: float
    same_weights: bool | None

    @property
    def is_same(self) -> bool:
        """Whether all metrics are within the tolerance and, if it is 0, the weights are equal."""
        if not self.figures:  # a run without dev and test rows has only weights to compare
            return self.same_weights is True
        near = all(figure.is_within(self.tolerance) for figure in self.figures)
        return near and not (self.tolerance == 0 and self.same_weights is False)


def replay(
    name: str,
    *,
    out: str | None = None,
    tolerance: float | None = None,
    overwrite: bool = False,
    device: str | None = None,
    data_root: str | None = None,
) -> Verdict:
    """Train a model again with the options of its filbert.json and compare the metrics.

    Args:
        name: The model, or its run folder.
        out: The run folder to make; next to the recorded one if not given.
        tolerance: Largest difference that passes. If not given, 0 if versions, device, threads and
            processes are the same, else `LOOSE`.
        overwrite: Replace an earlier run in `out`.
        device: As in `RunOptions`; by default the kind of the recorded run.
        data_root: Folder with the files of the run, if they have moved.

    Raises:
        InputError: A file is missing or differs from the recorded one; nothing was trained.
        ConfigError, FormatError: The folder records no run, or one that cannot be repeated.
        RunError, Interrupted: As in training.
    """
    if tolerance is not None and not tolerance >= 0:
        raise ConfigError(f"tolerance is {tolerance}; it must be zero or above.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("A replay runs in one process; start it without torchrun.")
    folder, record = _read_record(name)
    options = _options(folder, record, data_root)
    options |= {"out": out or _next_to(folder), "overwrite": overwrite}
    if device is not None:
        options["device"] = device
    before = torch.get_num_threads()
    torch.set_num_threads(_threads(record) or before)
    try:
        differs = _circumstances(record, options.get("device"))
        for sentence in differs:
            say(f"replay: {sentence}")
        if record.get("command") == "pretrain":
            run = pretrain(PretrainOptions.from_keywords(options))
        else:
            run = finetune(FinetuneOptions.from_keywords(options))
    finally:
        torch.set_num_threads(before)
    new = read_json(Path(options["out"], "model", "filbert.json"))
    if record.get("precision") != new["precision"]:
        differs.append(f"Precision was {record.get('precision')} and is {new['precision']}.")
    then, now = _flat(record["metrics"]), _flat(run["metrics"])
    files = {n: e for n, e in (record.get("files") or {}).items() if n.endswith(".safetensors")}
    return Verdict(
        options["out"],
        tuple(Figure(*key, then.get(key), now.get(key)) for key in dict.fromkeys([*then, *now])),
        tuple(differs),
        (LOOSE if differs else 0.0) if tolerance is None else tolerance,
        all(new["files"].get(n) == entry for n, entry in files.items()) if files else None,
    )


def _read_record(name: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a model and the content of its filbert.json.

    Raises:
        FormatError: The file does not exist or records no run.
    """
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


def _options(folder: Path, record: Mapping[str, Any], data_root: str | None) -> dict[str, Any]:
    """Return the recorded options by flat name, with paths of files that have their hashes."""
    options, is_pretraining = dict(record["options"]), record.get("command") == "pretrain"
    if record.get("command") == "distill":
        raise ConfigError(
            f"{folder} is a student, and its teacher's weights are no part of it, so it cannot be "
            "replayed. Run filbert distill with the options in its filbert.json."
        )
    if not is_pretraining and options.get("task") not in task_names():
        # Only built-in tasks are allowed: a downloaded folder must not choose a module to import.
        raise ConfigError(
            f"{folder / 'filbert.json'}: the task {printable(str(options.get('task')))!r} is none "
            "of filbert's own. Run filbert finetune with it yourself."
        )
    for option, paths in _files(folder, options, data_root).items():
        for index, path in enumerate(paths):
            if option in _SPLITS:
                facts = record["data"].get(_SPLITS[option]) or {}
                _check_hash(path, _recorded_hash(facts, path, index))
            elif option == "model":
                _check_base(path, record)
        options[option] = ",".join(paths) if is_pretraining else paths[0]
    options |= {"resume": False, "tensorboard": False, "save_every": 0, "seeds": 1}
    if record.get("precision") in PRECISIONS:
        options["precision"] = record["precision"]
    if is_pretraining:
        return {name: value for name, value in options.items() if name not in _REMOVED}
    return options | {"show_texts": False}


def _next_to(folder: Path) -> str:
    run = folder.absolute().parent
    if folder.name == "model" and read_run(run) is not None:
        return str(run.with_name(f"{run.name}-replay"))
    return str(Path("runs") / f"{folder.absolute().name}-replay")


def _threads(record: Mapping[str, Any]) -> int | None:
    """Return the recorded number of threads, if this machine has as many CPUs."""
    threads = (record.get("device") or {}).get("threads")
    return threads if isinstance(threads, int) and 0 < threads <= (os.cpu_count() or 1) else None


def _circumstances(record: Mapping[str, Any], device: str | None) -> list[str]:
    """Describe differences that can change the last bits: versions, code, device and threads."""
    recorded = record.get("device") or {}
    then = {**(record.get("versions") or {}), "filbert": record.get("filbert")}
    then |= {"device": recorded.get("name")}
    then |= {name: recorded.get(name) for name in ("threads", "processes")}
    now: dict[str, Any] = {**versions(), "filbert": version("filbert")}
    now["device"] = device_name(choose_device(device))
    now |= {"threads": torch.get_num_threads(), "processes": 1}
    if "commit" in record:
        then["commit"], now["commit"] = record["commit"] or "none", commit() or "none"
    differs = [
        f"{name} was {then.get(name) or 'not recorded'} and is {value}."
        for name, value in now.items()
        if then.get(name) != value
    ]
    if record["options"].get("time"):
        differs.append("The run was fitted to a time budget, so its steps depend on the clock.")
    return differs


def _flat(metrics: Mapping[str, Any]) -> dict[tuple[str, str], float | None]:
    """Flatten metrics to (split, metric) -> number; nested names are joined with dots."""
    numbers: dict[tuple[str, str], float | None] = {}

    def add(split: str, name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                add(split, f"{name}.{key}" if name else str(key), inner)
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            numbers[split, name] = None if value is None else float(value)

    for split, values in metrics.items():
        add(split, "", values)
    return numbers


# The files of a run


def _files(folder: Path, options: Mapping[str, Any], data_root: str | None) -> dict[str, list[str]]:
    """Return the paths of the files that the options name.

    They are in `data_root` by their names, or where run.json next to the model or filbert.json
    says. A model may be an id of the Hub or a built-in name.
    """
    typed = (read_run(folder.absolute().parent) or {}).get("options")
    typed = {**options, **typed} if isinstance(typed, dict) else options
    found = {}
    for option in _FILES:
        recorded = typed.get(option)
        names = [str(name) for name in (recorded if isinstance(recorded, list) else [recorded])]
        if recorded is None or option not in options:
            continue
        if option in ("dev", "test") and share_in(names[0]) is not None:
            continue  # a part of the file in `data`
        if data_root is not None:
            moved = [Path(data_root, Path(name).name) for name in names]
            names = [
                str(path) if path.exists() else name
                for path, name in zip(moved, names, strict=True)
            ]
        found[option] = names
    return found


def _recorded_hash(facts: Mapping[str, Any], path: str, index: int) -> str | None:
    """Return the hash of a file in the facts of its split; that of shards is of the whole."""
    inputs = facts.get("inputs") or []
    is_text = index < len(inputs) and not Path(path, "manifest.json").is_file()
    return inputs[index].get("sha256") if is_text else facts.get("sha256")


def _check_hash(path: str, recorded: str | None) -> None:
    """Check that a file of rows or text, or a folder of token shards, is the recorded one.

    Raises:
        InputError: It is missing or has changed.
    """
    if not Path(path).exists():
        raise InputError(
            f"{path} of the recorded run is not there. Name the folder of its files with "
            "--data-root."
        )
    sha256 = Corpus.open(path).digest if Path(path).is_dir() else file_digest(path)
    if recorded not in (None, sha256):
        raise InputError(
            f"{path} has changed: its sha256 is {sha256[:12]}..., that of the recorded run "
            f"{recorded[:12]}.... Name the folder of the old file with --data-root."
        )


def _check_base(name: str, record: Mapping[str, Any]) -> None:
    """Check that the files of the base model have the recorded hashes.

    Raises:
        InputError: One is missing or has changed.
    """
    place = find_model(name)
    now = base_model(name, place if place.is_dir() else place.parent)["files"]
    for file, entry in ((record.get("base_model") or {}).get("files") or {}).items():
        if now.get(file) != entry:
            raise InputError(
                f"{name} is not the model that the run started from: {file} is missing or has "
                "changed. Name the folder of the right one with --data-root."
            )
