"""Repeat a recorded run from the filbert.json of its model and compare the metrics.

filbert.json holds the options, the hashes of the data and of the base model, the seeds, the number
of threads, the versions and the metrics. Training starts only after every input was found and has
the recorded hash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.data.columns import ColumnNames
from filbert.data.records import file_digest
from filbert.data.shards import Corpus
from filbert.errors import ConfigError, FilbertError, FormatError, InputError, printable
from filbert.files import read_json
from filbert.model.config import PRECISIONS
from filbert.model.precision import choose_device
from filbert.tasks.base import task_names
from filbert.train.finetune import finetune
from filbert.train.log import say
from filbert.train.options import FinetuneOptions, InputPaths, names_of, share_in
from filbert.train.pretrain import pretrain
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.provenance import BUILT_IN, base_model, commit, device_name, versions
from filbert.train.run_folder import read_run

# Tolerance if the machine, the libraries or the number of threads differ.
LOOSE = 1e-3
# Entries of filbert.json that must be objects, if present.
_OBJECTS = ("options", "data", "metrics", "files", "base_model", "versions", "device", "tokenizer")
_SHORT = 12


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
    places: InputPaths | None = None,
) -> Verdict:
    """Train a model again with the options of its filbert.json and compare the metrics.

    Args:
        name: The model, or its run folder.
        out: The run folder to make; next to the recorded one if not given.
        tolerance: Largest difference that passes. If not given, 0 if versions, device, threads and
            processes are the same, else `LOOSE`.
        overwrite: Replace an earlier run in `out`.
        device: As in `RunOptions`; by default the kind of the recorded run.
        places: Current paths of files that have moved.

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
    run_options = {"out": out or _next_to(folder), "overwrite": overwrite}
    if device is not None:
        run_options["device"] = device
    options = _options(folder, record, places or InputPaths(), run_options)
    place = Path(options.run.out)
    before = torch.get_num_threads()
    torch.set_num_threads(_threads(record) or before)
    try:
        differs = _circumstances(record, options.run.device)
        for sentence in differs:
            say(f"replay: {sentence}")
        run = pretrain(options) if isinstance(options, PretrainOptions) else finetune(options)
    finally:
        torch.set_num_threads(before)
    new = read_json(place / "model" / "filbert.json")
    for split, facts in record["data"].items():
        if facts.get("sha256") != (new["data"].get(split) or {}).get("sha256"):
            differs.append(f"The {split} data, as it was read, is not the same.")
    if record.get("precision") != new["precision"]:
        differs.append(f"Precision was {record.get('precision')} and is {new['precision']}.")
    then, now = _flat(record["metrics"]), _flat(run["metrics"])
    files = {n: e for n, e in (record.get("files") or {}).items() if n.endswith(".safetensors")}
    return Verdict(
        str(place),
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
    entries: dict[str, Any] = {key: record.get(key) for key in _OBJECTS}
    for key in ("data", "files", "metrics"):
        inner = entries[key]
        entries |= inner if isinstance(inner, dict) else {}
    wrong = [key for key in ("options", "data", "metrics") if record.get(key) is None]
    wrong += [key for key, value in entries.items() if not isinstance(value, dict | None)]
    if wrong:
        raise FormatError(
            f"{path}: {printable(wrong[0])} is missing or no object, so it records no run. Name "
            "another model."
        )
    return folder, record


def _options(
    folder: Path, record: Mapping[str, Any], places: InputPaths, run_options: Mapping[str, Any]
) -> FinetuneOptions | PretrainOptions:
    """Return the recorded options with current paths, for a run in another folder."""
    options = dict(record["options"])
    is_pretraining = record.get("command") == "pretrain"
    if record.get("command") == "distill":
        raise ConfigError(
            f"{folder} is a student, and its teacher's weights are no part of it, so it cannot be "
            "replayed. Run filbert distill with the options in its filbert.json."
        )
    if not is_pretraining and options.get("task") not in task_names():
        # Only built-in tasks are allowed: a downloaded folder must not choose a module to import.
        raise ConfigError(
            f"{folder / 'filbert.json'}: the task {options.get('task')!r} is none of filbert's "
            f"own. Run filbert finetune with it yourself."
        )
    options |= _find_sources(folder, record, places)
    options |= {"resume": False, "tensorboard": False, "save_every": 0, "seeds": 1, **run_options}
    if record.get("precision") in PRECISIONS:
        options["precision"] = record["precision"]
    if not is_pretraining:
        return FinetuneOptions.from_keywords(options | {"show_texts": False})
    options.pop("reinit_layers", None)  # recorded by earlier versions
    return PretrainOptions.from_keywords(options | {"dry_run": False})


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


class _Search(NamedTuple):
    """Where the files of a run may be now: given paths, and folders for recorded ones."""

    options: Mapping[str, Any]
    typed: Mapping[str, Any]
    places: InputPaths
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, folder: Path, record: Mapping[str, Any], places: InputPaths) -> _Search:
        """Search the working folder, the folders above the model and `data_root`."""
        root = () if places.data_root is None else (Path(places.data_root),)
        run = (read_run(folder.absolute().parent) or {}).get("options")
        typed = run if isinstance(run, dict) else {}
        folders = (*root, Path.cwd(), *folder.absolute().parents)
        return cls(record["options"], typed, places, folders)

    def paths(self, option: str, recorded: str, index: int = 0) -> Iterator[Path]:
        """Yield the paths where a file may be, without duplicates."""
        given = getattr(self.places, option)
        if given is not None:
            names = names_of(given)
            yield Path(names[index] if index < len(names) else given)
            return
        names = (recorded, *names_of(self.typed.get(option) or ())[index : index + 1])
        paths = [folder / name for name in names for folder in self.folders]
        if self.places.data_root is not None:
            paths.insert(0, Path(self.places.data_root) / Path(recorded).name)
        yield from dict.fromkeys(paths)

    def file(
        self,
        option: str,
        recorded: str | None,
        digest: str | None,
        digest_of: Callable[[Path], str | None] = file_digest,
        index: int = 0,
    ) -> str:
        """Return the path of the file with the recorded hash."""
        name, flag = recorded or str(self.options.get(option)), f"--{option.replace('_', '-')}"
        others = []
        for path in self.paths(option, name, index):
            if path.exists() and (sha256 := digest_of(path)) is not None:
                if digest in (None, sha256):
                    return str(path)
                others.append((path, sha256))
        if not others:
            raise InputError(
                f"{getattr(self.places, option) or name} of the recorded run is not there. Name it "
                f"with {flag}, or its folder with --data-root."
            )
        path, sha256 = others[0]
        raise InputError(
            f"{path} has changed: its sha256 is {sha256[:_SHORT]}..., that of the recorded run "
            f"{str(digest)[:_SHORT]}.... Name the old file with {flag}."
        )

    def corpus(self, option: str, facts: Mapping[str, Any]) -> list[str]:
        """Return the paths of token shards or of text files."""
        inputs = facts.get("inputs") or []
        recorded = names_of(self.options.get(option) or getattr(self.places, option))
        is_text = (
            len(recorded) > 1
            or any(path.is_file() for path in self.paths(option, recorded[0]))
            or Path(recorded[0]).name in {entry.get("path") for entry in inputs}
        )
        if not is_text:
            return [self.file(option, recorded[0], facts.get("sha256"), _digest_of_shards)]
        digests = [entry.get("sha256") for entry in inputs]
        digests += [None] * (len(recorded) - len(digests))
        return [
            self.file(option, name, digests[index], index=index)
            for index, name in enumerate(recorded)
        ]


def _digest_of_shards(path: Path) -> str | None:
    return Corpus.open(path).digest if (path / "manifest.json").is_file() else None


def _find_sources(folder: Path, record: Mapping[str, Any], places: InputPaths) -> dict[str, Any]:
    """Return the options that name files, with current paths; only recorded hashes are accepted.

    Raises:
        InputError: A file is missing, or no file has the recorded hash.
    """
    search = _Search.of(folder, record, places)
    sources: dict[str, Any] = {}
    is_pretraining = record.get("command") == "pretrain"
    for split in ("train", "dev", "test"):
        option = "corpus" if is_pretraining and split == "train" else split
        if split == "train" and search.options.get("data"):
            option = "data"
        recorded = search.options.get(option)
        if recorded and split != "train" and share_in(str(recorded)) is not None:
            continue
        if not (search.options.get(option) or getattr(places, option)):
            if split == "train":
                raise InputError(
                    f"{folder / 'filbert.json'} does not say what the model was trained on. Name "
                    f"it with --{option}."
                )
            continue
        facts = record["data"].get(split) or {}
        if is_pretraining:
            sources[option] = search.corpus(option, facts)
        else:
            sources[option] = search.file(option, facts.get("path"), facts.get("sha256"))
    for option in ("tokenizer", "new_tokens") if is_pretraining else ():
        if recorded := search.options.get(option):
            existing = (str(path) for path in search.paths(option, recorded) if path.exists())
            # The recorded name may be a Hub id.
            sources[option] = getattr(places, option) or next(existing, recorded)
    if search.options.get("model"):
        sources["model"] = _find_base(search, record)
    return sources


def dev_rows(folder: Path) -> tuple[str, ColumnNames] | None:
    """Return the dev rows that a fine-tuned model was evaluated on in training, and their columns.

    Args:
        folder: Of the model.

    Returns:
        None if filbert.json names none, or the file was moved or changed.
    """
    try:
        record = read_json(folder / "filbert.json")
        facts = record["data"]["dev"]
        if share_in(str(record["options"].get("dev", 0))) is not None:
            return None  # a part of a file
        file = _Search.of(folder, record, InputPaths()).file("dev", facts["path"], facts["sha256"])
        return file, ColumnNames.recorded(record["options"])
    except (OSError, FilbertError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _find_base(search: _Search, record: Mapping[str, Any]) -> str:
    """Return the current name of the base model, after comparing the hashes of its files."""
    recorded, base = str(search.options["model"]), record.get("base_model") or {}
    if search.places.model is not None:
        names = [search.places.model]
    else:
        # A folder, an archive, or the prefix of a TensorFlow checkpoint.
        names = [
            str(path)
            for path in search.paths("model", recorded)
            if path.exists() or Path(f"{path}.index").is_file()
        ]
        if base.get("hub_id") or not base or recorded in BUILT_IN:
            names.append(recorded)
    differences = []
    for name in names:
        try:
            difference = _difference_from_base(name, find_model(name), record)
        except FilbertError as error:  # a folder with this name that is no model
            difference = str(error)
        if not difference:
            return name
        differences.append(difference)
    missing = (
        f"{recorded}, the model that the run started from, is not there. Name it with --model."
    )
    raise InputError(differences[0] if differences else missing)


def _difference_from_base(name: str, place: Path, record: Mapping[str, Any]) -> str:
    """Describe the first difference from the recorded base model; empty if there is none."""
    base = record.get("base_model") or {}
    now = base_model(name, place if place.is_dir() else place.parent)["files"]
    for file, entry in (base.get("files") or {}).items():
        sha256, wanted = (now.get(file) or {}).get("sha256"), entry.get("sha256")
        if sha256 != wanted:
            state = f"has the sha256 {sha256[:_SHORT]}..." if sha256 else "is not there"
            return (
                f"{name} is not the model that the run started from: {file} {state}, "
                f"{str(wanted)[:_SHORT]}... was recorded. Name the right one with --model."
            )
    tokens = (record.get("tokenizer") or {}).get("fingerprint")
    if record.get("command") != "pretrain" and tokens is not None:
        fingerprint = read_tokenizer(place).fingerprint
        if fingerprint != tokens:
            return (
                f"{name} has another tokenizer than the recorded run: its fingerprint is "
                f"{fingerprint[:_SHORT]}..., not {tokens[:_SHORT]}.... Name the right model with "
                "--model."
            )
    return ""
