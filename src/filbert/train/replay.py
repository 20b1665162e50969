"""Repeat a recorded run from the filbert.json of its model and compare the metrics.

filbert.json holds the options, the hashes of the data and of the base model, the seeds, the number
of threads, the versions and the metrics. Training starts only after every input was found and has
the recorded hash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from filbert.model.precision import choose_device
from filbert.model.precision_names import PRECISIONS
from filbert.tasks.base import task_names
from filbert.train.facts import BUILT_IN, base_model, commit, device_name, versions
from filbert.train.folder import read_run
from filbert.train.log import say
from filbert.train.options import FinetuneOptions, names_of
from filbert.train.pretrain_options import PretrainOptions

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
    places: Places | None = None,
) -> Verdict:
    """Train a model again with the options of its filbert.json and compare the metrics.

    Args:
        name: The model, or its run folder.
        out: The run folder to make; next to the recorded one if not given.
        tolerance: Largest difference that passes. If not given, 0 if versions, device, threads and
            processes are the same, else `LOOSE`.
        overwrite: Replace an earlier run in `out`.
        device: As in `FinetuneOptions`; by default the kind of the recorded run.
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
    folder, story = read_story(name)
    chosen = _options(
        folder, story, places or Places(), out=out, overwrite=overwrite, device=device
    )
    place = chosen if isinstance(chosen, PretrainOptions) else chosen.run
    threads = _threads(story)
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        differs = _circumstances(story, place.device)
        for sentence in differs:
            say(f"replay: {sentence}")
        run = _train(chosen)
    finally:
        torch.set_num_threads(before)
    made = read_json(Path(place.out) / "model" / "filbert.json")
    differs += _unlike(story, made)
    exact = 0.0 if not differs else LOOSE
    return Verdict(
        place.out,
        tuple(_figures(story.get("metrics") or {}, run["metrics"])),
        tuple(differs),
        exact if tolerance is None else tolerance,
        _same_weights(story.get("files") or {}, made["files"]),
    )


def _options(
    folder: Path,
    story: Mapping[str, Any],
    places: Places,
    *,
    out: str | None,
    overwrite: bool,
    device: str | None,
) -> FinetuneOptions | PretrainOptions:
    """Return the recorded options with current paths, for a run in `out`."""
    is_pretraining = story.get("command") == "pretrain"
    if story.get("command") == "distill":
        raise ConfigError(
            f"{folder} is a student, and its teacher's weights are no part of it, so it cannot be "
            "replayed. Run filbert distill with the options in its filbert.json."
        )
    options = dict(story["options"])
    if not is_pretraining and options.get("task") not in task_names():
        # Only built-in tasks are allowed: a downloaded folder must not choose a module to import.
        raise ConfigError(
            f"{folder / 'filbert.json'}: the task {options.get('task')!r} is none of filbert's "
            f"own. Run filbert finetune with it yourself."
        )
    options |= found_sources(folder, story, places)
    options |= {"overwrite": overwrite, "resume": False, "tensorboard": False, "save_every": 0}
    options |= {"out": out or _beside(folder), "seeds": 1}
    if is_pretraining:
        options.pop("reinit_layers", None)  # recorded by earlier versions
    options["device"] = device or options.get("device")
    options |= {"show_texts": False} if not is_pretraining else {"dry_run": False}
    if story.get("precision") in PRECISIONS:
        options["precision"] = story["precision"]
    kind: type[FinetuneOptions] | type[PretrainOptions]
    kind = PretrainOptions if is_pretraining else FinetuneOptions
    return kind.from_keywords(options)


def read_story(name: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a model and the content of its filbert.json.

    Raises:
        FormatError: The file does not exist or records no run.
    """
    run_model = Path(name) / "model"
    folder = run_model if (run_model / "filbert.json").is_file() else find_model(name)
    path = folder / "filbert.json"
    if not path.is_file():
        raise FormatError(
            f"{name} has no filbert.json, so nothing tells how it was trained. Name one that "
            f"filbert trained."
        )
    story = read_json(path)
    for key in ("options", "data", "metrics"):
        if story.get(key) is None:
            raise FormatError(
                f"{path}: {key} is missing, so it tells of no run. Name another model."
            )
    inner = [(key, story.get(key)) for key in _OBJECTS]
    for key in ("data", "files", "metrics"):
        inner += list(story[key].items()) if isinstance(story.get(key), dict) else []
    for key, value in inner:
        if value is not None and not isinstance(value, dict):
            raise FormatError(
                f"{path}: {printable(key)} is no object, so it tells of no run. Name another model."
            )
    return folder, story


def _train(options: FinetuneOptions | PretrainOptions) -> dict[str, Any]:
    if isinstance(options, PretrainOptions):
        from filbert.train.pretrain import pretrain

        return pretrain(options)
    from filbert.train.finetune import finetune

    return finetune(options)


def _beside(folder: Path) -> str:
    run = folder.absolute().parent
    if folder.name == "model" and read_run(run) is not None:
        return str(run.with_name(f"{run.name}-replay"))
    return str(Path("runs") / f"{folder.absolute().name}-replay")


def _threads(story: Mapping[str, Any]) -> int | None:
    """Return the recorded number of threads, if this machine has as many CPUs."""
    recorded = (story.get("device") or {}).get("threads")
    return recorded if isinstance(recorded, int) and 0 < recorded <= (os.cpu_count() or 1) else None


def _circumstances(story: Mapping[str, Any], device: str | None) -> list[str]:
    """Describe differences that can change the last bits: versions, code, device and threads."""
    here = {**versions(), "filbert": version("filbert")}
    then = {**(story.get("versions") or {}), "filbert": story.get("filbert")}
    found = [
        f"{name} was {then.get(name) or 'not recorded'} and is {now}."
        for name, now in here.items()
        if then.get(name) != now
    ]
    if "commit" in story and story["commit"] != commit():
        found.append(f"The code was {_at(story.get('commit'))} and is {_at(commit())}.")
    recorded = story.get("device") or {}
    now = {
        "device": device_name(choose_device(device)),
        "threads": torch.get_num_threads(),
        "processes": 1,
    }
    was = {name: recorded.get("name" if name == "device" else name) for name in now}
    found += [
        f"{name}: {was[name] or 'not recorded'} then, {value} now."
        for name, value in now.items()
        if was[name] != value
    ]
    if (story.get("options") or {}).get("time"):
        found.append("The run was fitted to a time budget, so its steps depend on the clock.")
    return found


def _at(found: Any) -> str:
    return f"at commit {str(found)[:12]}" if found else "an installed package"


def _unlike(story: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    """Describe differences that appear during the run: data as it was read, and precision."""
    found = []
    for split, facts in (story.get("data") or {}).items():
        new = (made["data"].get(split) or {}).get("sha256")
        if facts.get("sha256") != new:
            found.append(f"The {split} data, as it was read, is not the same.")
    if story.get("precision") != made["precision"]:
        found.append(f"Precision was {story.get('precision')} and is {made['precision']}.")
    return found


def _figures(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> list[Figure]:
    then, now = _flat(recorded), _flat(replayed)
    return [Figure(*key, then.get(key), now.get(key)) for key in dict.fromkeys([*then, *now])]


def _flat(metrics: Mapping[str, Any]) -> dict[tuple[str, str], float | None]:
    """Flatten metrics to (split, metric) -> number; nested names are joined with dots."""
    found: dict[tuple[str, str], float | None] = {}

    def take(split: str, name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                take(split, f"{name}.{key}" if name else str(key), inner)
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            found[split, name] = None if value is None else float(value)

    for split, figures in metrics.items():
        take(split, "", figures)
    return found


def _same_weights(recorded: Mapping[str, Any], made: Mapping[str, Any]) -> bool | None:
    then = {name: entry for name, entry in recorded.items() if name.endswith(".safetensors")}
    if not then:
        return None
    return all(name in made and made[name] == entry for name, entry in then.items())


@dataclass(frozen=True, kw_only=True)
class Places:
    """Current paths of the files of a run; others are searched at their recorded paths.

    Attributes:
        train: Training rows.
        dev: Dev rows; for pre-training held-out text, files separated by commas.
        test: Test rows.
        corpus: Text or token shards, files separated by commas.
        model: The model that the run started from.
        tokenizer: Folder of the vocabulary, for pre-training.
        new_tokens: List of new vocabulary entries.
        data_root: Folder in which all files are searched by their names.
    """

    train: str | None = None
    dev: str | None = None
    test: str | None = None
    corpus: str | None = None
    model: str | None = None
    tokenizer: str | None = None
    new_tokens: str | None = None
    data_root: str | None = None


def found_sources(folder: Path, story: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """Return the options that name files, with current paths.

    Files are searched in this order: the path in `places`; the recorded path, relative to the
    working folder, the folders above the model and `data_root`; the path in run.json next to the
    model. Only a file with the recorded hash is accepted.

    Args:
        folder: Of the model.
        story: The content of its filbert.json.
        places: Paths that the user gave.

    Raises:
        InputError: A file is missing, or no file found has the recorded hash.
    """
    search = _Search(folder, story, places)
    found: dict[str, Any] = {}
    is_pretraining = story.get("command") == "pretrain"
    for split in ("train", "dev", "test"):
        option = "corpus" if is_pretraining and split == "train" else split
        if not (search.options.get(option) or getattr(places, option)):
            if split == "train":
                raise InputError(
                    f"{folder / 'filbert.json'} does not say what the model was trained on. Name "
                    f"it with --{option}."
                )
            continue
        facts = story["data"].get(split) or {}
        found[option] = (
            search.corpus(option, facts)
            if is_pretraining
            else search.file(option, facts.get("path"), facts.get("sha256"), file_digest)
        )
    if is_pretraining:
        for option in ("tokenizer", "new_tokens"):
            recorded = search.options.get(option)
            if recorded:
                found[option] = getattr(places, option) or search.any_of(option, recorded)
    if search.options.get("model"):
        found["model"] = _same_base(search, story, places)
    return found


def dev_rows(folder: Path) -> tuple[str, ColumnNames] | None:
    """Return the dev rows that a fine-tuned model was evaluated on in training, and their columns.

    Args:
        folder: Of the model.

    Returns:
        None if filbert.json names none, or the file was moved or changed.
    """
    try:
        story = read_json(folder / "filbert.json")
        facts = story["data"]["dev"]
        file = _Search(folder, story, Places()).file(
            "dev", facts["path"], facts["sha256"], file_digest
        )
        return file, ColumnNames.recorded(story["options"])
    except (OSError, FilbertError, AttributeError, LookupError, TypeError, ValueError):
        return None


class _Search:
    def __init__(self, folder: Path, story: Mapping[str, Any], places: Places) -> None:
        self.options: dict[str, Any] = story["options"]
        self.places = places
        self._around = [Path.cwd(), *folder.absolute().parents]
        if places.data_root is not None:
            self._around.insert(0, Path(places.data_root))
        run = read_run(folder.absolute().parent) or {}
        self._run_options = run.get("options") if isinstance(run.get("options"), dict) else {}

    def candidates(self, option: str, recorded: str, index: int = 0) -> Iterator[Path]:
        """Yield the paths where a file may be, without duplicates."""
        given = getattr(self.places, option)
        if given is not None:
            yield Path(_listed(given)[index] if index < len(_listed(given)) else given)
            return
        paths = [place / recorded for place in self._around]
        if self.places.data_root is not None:
            paths.insert(0, Path(self.places.data_root) / Path(recorded).name)
        typed = _listed((self._run_options or {}).get(option) or ())
        paths += [place / typed[index] for place in self._around if index < len(typed)]
        yield from dict.fromkeys(paths)

    def file(
        self,
        option: str,
        recorded: str | None,
        digest: str | None,
        digest_of: Callable[[Path], str | None],
        index: int = 0,
    ) -> str:
        """Return the path of the file with the recorded hash."""
        name = recorded or str(self.options.get(option))
        other: tuple[Path, str] | None = None
        for path in self.candidates(option, name, index):
            found = digest_of(path) if path.exists() else None
            if found is not None and digest in (None, found):
                return str(path)
            if found is not None:
                other = other or (path, found)
        flag = f"--{option.replace('_', '-')}"
        if other is None:
            given = getattr(self.places, option)
            raise InputError(
                f"{given or name} of the recorded run is not there. Name it with {flag}, or its "
                f"folder with --data-root."
            )
        raise InputError(
            f"{other[0]} has changed: its sha256 is {other[1][:_SHORT]}..., that of the recorded "
            f"run {str(digest)[:_SHORT]}.... Name the old file with {flag}."
        )

    def any_of(self, option: str, recorded: str) -> str:
        """Return the first path that exists, else the recorded name, which may be a Hub id."""
        paths = (path for path in self.candidates(option, recorded) if path.exists())
        return str(next(paths, recorded))

    def corpus(self, option: str, facts: Mapping[str, Any]) -> list[str]:
        """Return the paths of token shards or of text files."""
        inputs = facts.get("inputs") or []
        recorded = _listed(self.options.get(option) or getattr(self.places, option))
        if len(recorded) == 1 and not self._is_text(option, recorded[0], inputs):
            return [self.file(option, recorded[0], facts.get("sha256"), _digest_of_shards)]
        digests = [entry.get("sha256") for entry in inputs]
        digests += [None] * (len(recorded) - len(digests))
        return [
            self.file(option, name, digests[index], file_digest, index)
            for index, name in enumerate(recorded)
        ]

    def _is_text(self, option: str, recorded: str, inputs: Sequence[Any]) -> bool:
        if any(path.is_file() for path in self.candidates(option, recorded)):
            return True
        names = {entry.get("path") for entry in inputs}
        return Path(recorded).name in names


def _digest_of_shards(path: Path) -> str | None:
    return Corpus.open(path).digest if (path / "manifest.json").is_file() else None


def _listed(given: str | Iterable[str]) -> list[str]:
    return list(names_of(given))


def _same_base(search: _Search, story: Mapping[str, Any], places: Places) -> str:
    """Return the current name of the base model, after comparing the hashes of its files."""
    recorded = str(search.options["model"])
    base = story.get("base_model") or {}
    paths = [path for path in search.candidates("model", recorded) if _is_model(path)]
    names = [str(path) for path in paths]
    if places.model is not None:
        names = [places.model]
    elif base.get("hub_id") or not base or recorded in BUILT_IN:
        names.append(recorded)
    wrong = ""
    for name in names:
        try:
            unlike = _unlike_base(name, find_model(name), story)
        except FilbertError as error:  # a folder with this name that is no model
            unlike = str(error)
        if not unlike:
            return name
        wrong = wrong or unlike
    raise InputError(
        wrong
        or f"{recorded}, the model that the run started from, is not there. Name it with --model."
    )


def _is_model(path: Path) -> bool:
    # A folder, an archive, or the prefix of a TensorFlow checkpoint; `find_model` checks the rest.
    return path.exists() or Path(f"{path}.index").is_file()


def _unlike_base(name: str, place: Path, story: Mapping[str, Any]) -> str:
    """Describe the first difference from the recorded base model; empty if there is none."""
    base = story.get("base_model") or {}
    now = base_model(name, place if place.is_dir() else place.parent)["files"]
    for file, entry in (base.get("files") or {}).items():
        found, wanted = (now.get(file) or {}).get("sha256"), entry.get("sha256")
        if found != wanted:
            state = f"has the sha256 {found[:_SHORT]}..." if found else "is not there"
            return (
                f"{name} is not the model that the run started from: {file} {state}, "
                f"{str(wanted)[:_SHORT]}... was recorded. Name the right one with --model."
            )
    tokens = (story.get("tokenizer") or {}).get("fingerprint")
    if story.get("command") != "pretrain" and tokens is not None:
        found = read_tokenizer(place).fingerprint
        if found != tokens:
            return (
                f"{name} has another tokenizer than the recorded run: its fingerprint is "
                f"{found[:_SHORT]}..., not {tokens[:_SHORT]}.... Name the right model with --model."
            )
    return ""
