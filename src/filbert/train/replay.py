"""Run a recorded recipe again and compare the numbers.

What a model folder's filbert.json tells is enough: options, hashes of the data and of the model it
started from, seeds, threads, versions, figures. Nothing is trained before every input was found
and has the recorded hash.
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
from filbert.errors import ConfigError, FormatError, printable
from filbert.files import read_json
from filbert.speed.names import PRECISIONS
from filbert.speed.precision import choose_device
from filbert.tasks.base import task_names
from filbert.train.facts import device_name
from filbert.train.folder import read_run
from filbert.train.log import say
from filbert.train.options import FinetuneOptions
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.provenance import commit, versions
from filbert.train.replay_sources import Places, found_sources

# Where anything that decides the last bits differs: machine, libraries, threads.
LOOSE = 1e-3
# Entries of filbert.json that are objects, where they are there.
_OBJECTS = ("options", "data", "metrics", "files", "base_model", "versions", "device", "tokenizer")


class Figure(NamedTuple):
    """One metric of the two runs; None where a run has none."""

    split: str
    metric: str
    recorded: float | None
    replayed: float | None

    @property
    def difference(self) -> float | None:
        """Absolute, 0 where neither is a number; None where only one of the two is."""
        if self.recorded is None or self.replayed is None:
            return 0.0 if self.recorded is self.replayed else None
        return abs(self.recorded - self.replayed)

    def is_within(self, tolerance: float) -> bool:
        """Whether the two are the same, give or take."""
        # Not a number in both runs is the same, too.
        same = self.recorded != self.recorded and self.replayed != self.replayed
        return same or (self.difference is not None and self.difference <= tolerance)


@dataclass(frozen=True)
class Verdict:
    """How a replay came out.

    Attributes:
        out: the new run folder.
        figures: every metric of both runs.
        differs: sentences on what was not as in the recorded run.
        tolerance: largest difference of a figure that is taken for the same.
        same_weights: whether the weight files are the same, bit for bit; None where the recorded
            run's hashes are not known.
    """

    out: str
    figures: tuple[Figure, ...]
    differs: tuple[str, ...]
    tolerance: float
    same_weights: bool | None

    @property
    def is_same(self) -> bool:
        """All figures within the tolerance; where that is 0, the weights bit for bit, too."""
        if not self.figures:  # a run without rows to judge by has its weights only
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
    """Train a model again as its filbert.json says, and compare.

    Args:
        name: the model, or the run folder around it.
        out: the run folder to make; beside the recorded one when not given.
        tolerance: largest difference that passes; when not given 0 where nothing that decides the
            numbers differs (versions, device, threads, processes), else `LOOSE`.
        overwrite: replace an earlier run in `out`.
        device: as in `FinetuneOptions`; the recorded run's kind when not given.
        places: where files lie now, if not where they were.

    Raises:
        InputError: a file is not there or is not the recorded one; nothing was trained.
        ConfigError, FormatError: the folder does not tell of a run, or of one that cannot be run.
        RunError, Interrupted: as in training.
    """
    if tolerance is not None and not tolerance >= 0:
        raise ConfigError(f"tolerance is {tolerance}; it must be zero or above.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("A replay runs in one process; start it without torchrun.")
    folder, story = read_story(name)
    is_pretraining = story.get("command") == "pretrain"
    if story.get("command") == "distill":
        raise ConfigError(
            f"{folder} is a student, and its teacher's weights are no part of it, so it cannot be "
            "replayed. Run filbert distill with the options in its filbert.json."
        )
    options = dict(story["options"])
    if not is_pretraining and options.get("task") not in task_names():
        # A folder may name a built-in task only: a module of its choosing must never be imported.
        raise ConfigError(
            f"{folder / 'filbert.json'}: the task {options.get('task')!r} is none of filbert's "
            f"own. Run filbert finetune with it yourself."
        )
    options |= found_sources(folder, story, places or Places())
    options |= {"overwrite": overwrite, "resume": False, "tensorboard": False, "save_every": 0}
    options |= {"out": out or _beside(folder), "seeds": 1}
    options["device"] = device or options.get("device")
    options |= {"show_texts": False} if not is_pretraining else {"dry_run": False}
    if story.get("precision") in PRECISIONS:
        options["precision"] = story["precision"]
    kind: type[FinetuneOptions] | type[PretrainOptions]
    kind = PretrainOptions if is_pretraining else FinetuneOptions
    chosen = kind.from_keywords(options)
    threads = _threads(story)
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        differs = _circumstances(story, chosen.device)
        for sentence in differs:
            say(f"replay: {sentence}")
        run = _train(chosen)
    finally:
        torch.set_num_threads(before)
    made = read_json(Path(options["out"]) / "model" / "filbert.json")
    differs += _unlike(story, made)
    exact = 0.0 if not differs else LOOSE
    return Verdict(
        str(options["out"]),
        tuple(_figures(story.get("metrics") or {}, run["metrics"])),
        tuple(differs),
        exact if tolerance is None else tolerance,
        _same_weights(story.get("files") or {}, made["files"]),
    )


def read_story(name: str) -> tuple[Path, dict[str, Any]]:
    """The folder of a model and its filbert.json.

    Raises:
        FormatError: there is none, or it tells of no run.
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
    """The recorded number of threads, if this machine has so many processors."""
    recorded = (story.get("device") or {}).get("threads")
    return recorded if isinstance(recorded, int) and 0 < recorded <= (os.cpu_count() or 1) else None


def _circumstances(story: Mapping[str, Any], device: str | None) -> list[str]:
    """What decides the last bits and is not as it was, in sentences."""
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
    """What turned out otherwise during the run: the data as it was read, the precision."""
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
    """(split, metric) -> number; figures by label get names with dots."""
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
