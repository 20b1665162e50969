"""The runs of a study: each contestant with each seed, its fingerprint and its state on disk."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from filbert.compare.contestant_options import TRAINED, Contestant
from filbert.compare.contestants import Job, finished_mark, trained_mark
from filbert.compare.prepare import SPLITS
from filbert.compare.recipe import Study, training_options
from filbert.errors import ConfigError
from filbert.files import sha256_of
from filbert.train.log import say

# Options that do not change the result, so that they are no part of the fingerprint.
_FREE = ("save_every", "license", "language")


@dataclass(frozen=True)
class Run:
    """One contestant with one seed.

    Attributes:
        source: The run of the same seed whose model it starts from.
    """

    contestant: Contestant
    seed: int
    job: Job
    out: Path
    source: Run | None = None

    @property
    def job_path(self) -> Path:
        """The job file of its child process, next to the run folder."""
        return self.out.with_name(f"{self.out.name}.job.json")

    @property
    def key(self) -> str:
        """Its name in study.json."""
        return f"{self.contestant.folder}/{self.out.name}"

    @property
    def is_finished(self) -> bool:
        """Return whether its folder is complete."""
        return finished_mark(self.out) == self.job.fingerprint

    @property
    def is_trained(self) -> bool:
        """Return whether its model is complete."""
        return trained_mark(self.out) == self.job.fingerprint


def runs_of(
    study: Study, folder: Path, data: Mapping[str, Any], precision: Mapping[str, str]
) -> list[Run]:
    """Return all runs: the first seed of all contestants first, sources before what needs them.

    An interrupted study can then be reported.

    Args:
        study: Its contestants.
        folder: Of the study.
        data: Facts of the prepared rows.
        precision: Meaning of "auto" by requested device ("" for none).
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
    """Return whether a contestant has the precision "auto"."""
    is_trained = one.kind in TRAINED
    return is_trained and one.options.get("precision", "auto") == "auto"


def device_of(one: Contestant) -> str:
    """Return the requested device; "" for none."""
    return str(one.options.get("device") or "")


def mark_of(one: Contestant, seed: int, data: Mapping[str, Any]) -> str:
    """Return the sha256 of everything that decides the result of a run.

    Files of the user count by their content; built-in and Hub models count by name.
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
    """Return the sha256 of files of vectors and rows, and of local models."""
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
    """Return the sha256 of each file of a local model or of a file of rows; else {}."""
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
    # These hold times; the other files decide what the model computes.
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
    """Return the sha256; a large file that several contestants share is read once."""
    return sha256_of(path)


def begun_mark(run: Run, state: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of a run's folder, finished or not; None if it is unknown."""
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
    """Remove the folders of runs whose contestant has changed; finished ones with `overwrite` only.

    Args:
        runs: Of the study.
        asked: Contestants that are run now; the others are not checked.
        state: Content of study.json.
        overwrite: Finished runs may be removed.

    Raises:
        ConfigError: A finished run would be lost without `overwrite`; nothing was removed.
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
    """Return the differences as texts."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [
        "other files"
        if name == "files"
        else f"{name} {_shown(before, name)} -> {_shown(now, name)}"
        for name in names
    ]


def _shown(options: Mapping[str, Any], name: str) -> str:
    return str(options[name])[:60] if options.get(name) is not None else "not given"
