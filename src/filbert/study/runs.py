"""The runs of a study: each contestant with each seed, its mark, and what of it is there."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError
from filbert.files import sha256_of
from filbert.study.contestant_options import TRAINED, Contestant
from filbert.study.contestants import Job, finished_mark, trained_mark
from filbert.study.prepare import SPLITS
from filbert.study.recipe import Study, training_options
from filbert.train.log import say

# What does not change the figures, so that a run stays what it is when they change.
_FREE = ("save_every", "license", "language")


@dataclass(frozen=True)
class Run:
    """One contestant with one seed.

    Attributes:
        source: the run of the same seed whose model it begins with.
    """

    contestant: Contestant
    seed: int
    job: Job
    out: Path
    source: Run | None = None

    @property
    def job_path(self) -> Path:
        """What its child process is told, beside the run folder."""
        return self.out.with_name(f"{self.out.name}.job.json")

    @property
    def key(self) -> str:
        """Its name in study.json."""
        return f"{self.contestant.folder}/{self.out.name}"

    @property
    def is_finished(self) -> bool:
        """Whether its folder is complete."""
        return finished_mark(self.out) == self.job.fingerprint

    @property
    def is_trained(self) -> bool:
        """Whether its model is there."""
        return trained_mark(self.out) == self.job.fingerprint


def runs_of(
    study: Study, folder: Path, data: Mapping[str, Any], precision: Mapping[str, str]
) -> list[Run]:
    """All runs, the first seed of everybody first: a study that is cut short is still one.

    Of a seed those that others are made from go first.

    Args:
        study: its contestants.
        folder: of the study.
        data: facts of the prepared rows.
        precision: what "auto" means, by the device that a contestant asks for ("" for none).
    """
    paths = {name: str((folder / data[name]["path"]).absolute()) for name in SPLITS}
    found: list[Run] = []
    order = sorted(study.contestants, key=lambda one: one.depth)
    for at in range(max(len(c.seeds) for c in study.contestants)):
        by_folder: dict[str, Run] = {}
        for one in order:
            if at >= len(one.seeds):
                continue
            seed = one.seeds[at]
            out = (folder / "contestants" / one.folder / f"seed-{seed}").absolute()
            training = training_options(one) if one.kind in TRAINED else {}
            if asks_auto(one) and device_of(one) in precision:
                training = training | {"precision": precision[device_of(one)]}
            source = None if one.source is None else by_folder[one.source.folder]
            job = Job(
                one.name,
                one.kind,
                one.options,
                training,
                one.cleaning,
                seed,
                paths,
                tuple(data["labels"]),
                data["positive"],
                str(out),
                mark_of(one, seed, data),
                None if source is None else str(source.out),
            )
            by_folder[one.folder] = Run(one, seed, job, out, source)
            found.append(by_folder[one.folder])
    return found


def asks_auto(one: Contestant) -> bool:
    """Whether a contestant leaves the number format to the machine."""
    is_trained = one.kind in TRAINED
    return is_trained and one.options.get("precision", "auto") == "auto"


def device_of(one: Contestant) -> str:
    """The device that a contestant asks for; "" for none."""
    return str(one.options.get("device") or "")


def mark_of(one: Contestant, seed: int, data: Mapping[str, Any]) -> str:
    """sha256 over all that decides what comes out of a run, as it was asked for.

    Files of the user count by their content; models with a name of their own never change.
    """
    content = {
        "kind": one.kind,
        "options": {k: v for k, v in one.options.items() if k not in _FREE},
        "cleaning": list(one.steps),
        "seed": seed,
        "data": [data[name]["sha256"] for name in SPLITS],
        "labels": data["labels"],
        "positive": data["positive"],
    }
    if digests := _digests(one.options):
        content["files"] = digests
    if one.source is not None:
        content["source"] = mark_of(one.source, seed, data)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digests(options: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of files of vectors and rows, and of models that lie on this machine."""
    found: dict[str, str] = {}
    if options.get("vectors") is not None:
        found["vectors"] = _sha256(Path(str(options["vectors"])).absolute())
    if options.get("model") is not None:
        found |= _digests_of(Path(str(options["model"])))
    for name in ("student", "augment_with", "extra"):
        if options.get(name) is not None:
            files = _digests_of(Path(str(options[name])))
            found |= {f"{name}: {path}": digest for path, digest in files.items()}
    return found


def _digests_of(place: Path) -> dict[str, str]:
    """sha256 by file of a model, or of a file of rows; {} of a model with a name of its own."""
    place = place.expanduser()
    if place.is_dir():
        files = sorted(path for path in place.rglob("*") if path.is_file())
    elif place.is_file():
        files = [place]
    elif Path(f"{place}.index").is_file():
        # The prefix of a TensorFlow checkpoint.
        files = sorted(place.parent.glob(f"{place.name}.*"))
    else:
        files = []
    # The story of a model holds times; what it computes is in the others.
    beside = ("README.md", "filbert.json")
    return {
        str(path.relative_to(place.parent)): _sha256(path.absolute())
        for path in files
        if path.name not in beside
    }


def _sha256(path: Path) -> str:
    facts = path.stat()
    return _remembered(path, facts.st_mtime_ns, facts.st_size)


@cache
def _remembered(path: Path, changed: int, size: int) -> str:
    """Of one large file that several contestants and seeds share, read once."""
    return sha256_of(path)


def begun_mark(run: Run, state: Mapping[str, Any]) -> str | None:
    """The mark of what stands in a run's folder, finished or not; None where nothing tells it."""
    trained = trained_mark(run.out)
    if trained is not None:
        return trained
    known = state["runs"].get(run.key, {}).get("fingerprint")
    if known is None and run.job_path.is_file():
        try:
            known = json.loads(run.job_path.read_text(encoding="utf-8")).get("fingerprint")
        except (OSError, ValueError, AttributeError):
            return None
    return None if known is None else str(known)


def refuse_changed(
    runs: Sequence[Run],
    asked: Collection[Contestant],
    state: Mapping[str, Any],
    *,
    overwrite: bool,
) -> None:
    """Clear the folders of runs whose contestant has changed; a finished one only when asked to.

    Args:
        runs: of the study.
        asked: the contestants that are run now; nobody else is looked at.
        state: content of study.json.
        overwrite: finished runs may go.

    Raises:
        ConfigError: a finished run would be lost, and `overwrite` is off; nothing was removed.
    """
    changed = [
        run
        for run in runs
        if run.contestant in asked
        and run.out.exists()
        and begun_mark(run, state) not in (None, run.job.fingerprint)
    ]
    for run in changed:
        if trained_mark(run.out) is None:
            continue
        what = _what_changed(run, state)
        if not overwrite:
            raise ConfigError(
                f"{run.contestant.name} has changed since it was run in {run.out.parents[2]}: "
                f"{what}. Give it another name, name another --out, or run it anew with "
                f"--overwrite."
            )
        source = run.source
        if source is not None and source.contestant not in asked and not source.is_finished:
            raise ConfigError(
                f"{run.contestant.name} would be run anew, but {source.contestant.name}, which it "
                f"is made from, is not there as the recipe has it now. Add it to --only."
            )
    for run in changed:
        say(f"{run.contestant.name}: {_what_changed(run, state)}; it is run anew")
        shutil.rmtree(run.out)


def _what_changed(run: Run, state: Mapping[str, Any]) -> str:
    told = state.get("contestants", {}).get(run.contestant.name, {})
    if not told:
        return "its options or the rows"
    now = {**run.contestant.options, "cleaning": list(run.contestant.steps)}
    before = {**told.get("options", {}), "cleaning": told.get("cleaning")}
    others = "its files or the rows"
    if run.contestant.source is not None:
        others = f"{run.contestant.source.name}, its files or the rows"
    return ", ".join(changes(before, now)) or others


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, in words."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [
        "other files"
        if name == "files"
        else f"{name} {_shown(before, name)} -> {_shown(now, name)}"
        for name in names
    ]


def _shown(options: Mapping[str, Any], name: str) -> str:
    return str(options[name])[:60] if options.get(name) is not None else "not given"
