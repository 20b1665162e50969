"""Runs a study: prepares the rows, runs every contestant with every seed, writes the results."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filbert.compare.child import Ended, run_child
from filbert.compare.contestants import ContestantRun, trained_fingerprint
from filbert.compare.prepare import SPLITS, prepare
from filbert.compare.recipe import TRAINED, Contestant, Study, chosen, training_options
from filbert.compare.results import write_results
from filbert.data.records import file_digest
from filbert.errors import ConfigError, InputError, Interrupted
from filbert.files import sha256_of, write_json
from filbert.model.precision import choose_device, choose_precision
from filbert.report.folder import read_object
from filbert.train.log import say
from filbert.train.run_folder import read_run
from filbert.train.signals import Stop

# Fields of a study that decide what the prepared rows are.
_ROWS = (
    "text_column", "text_pair_column", "label_column", "merge_labels", "merge_as", "slice_column",
    "positive", "split", "seed",
)  # fmt: skip
# Options that do not change the result, so that they are no part of the fingerprint.
_FREE = ("save_every", "license", "language")

State = dict[str, Any]


def run_study(
    study: Study,
    out: str | Path,
    *,
    only: Sequence[str] = (),
    overwrite: bool = False,
    show_texts: bool = False,
) -> dict[str, Any]:
    """Run the missing runs of a study, then write the results of all that are finished.

    Args:
        study: Made by `read_study`.
        out: Its folder; finished runs of the same rows and options are kept.
        only: Contestants to run now; the others are included in the results if they are finished.
        overwrite: Replace finished runs of other rows or options.
        show_texts: The report shows texts.

    Returns:
        The content of results.json.

    Raises:
        InputError, ConfigError: Data or recipe is wrong; nothing was trained.
        Interrupted: Ctrl-C or SIGTERM; the message says how to resume.
    """
    folder = Path(out)
    asked = chosen(study.contestants, only) if only else list(study.contestants)
    names = {one.name for one in asked}
    with locked(folder) as lock:
        state: State = {"filbert": version("filbert"), "runs": {}} | read_state(folder)
        fresh = _prepared(study, folder, state)
        # The precision "auto" depends on a measurement, so it is chosen once for a study.
        if not isinstance(state.get("precision"), str):
            device = choose_device(study.options.get("device"))
            state["precision"] = choose_precision("auto", device).name
        runs = runs_of(study, folder, state["data"], state["precision"])
        wanted = [run for run in runs if run.contestant in names]
        try:
            _remove_changed(wanted, folder, overwrite=overwrite)
            if fresh is not None:
                shutil.rmtree(folder / "data", ignore_errors=True)
                fresh.rename(folder / "data")
        finally:
            if fresh is not None:
                shutil.rmtree(fresh, ignore_errors=True)
        state["options"] = study.options
        write_state(folder, state)
        left = [run for run in wanted if not run.is_finished]
        if not left:
            say(f"all {len(wanted)} requested runs are finished; only the results are computed")
        _run_all(left, runs, state, folder=folder, lock=lock)
        say("computing metrics, intervals and tests")
        return write_results(study, folder, state, runs, show_texts=show_texts)


# The folder of a study


@contextmanager
def locked(out: Path) -> Iterator[int]:
    """Lock the folder for this process; the child inherits the lock's descriptor.

    While a child holds it too, no second comparison starts, even if the parent was killed.

    Raises:
        ConfigError: The folder is a file, holds something else than a study, or is in use.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names the folder of the study.")
    is_empty = not out.is_dir() or all(path.name in (".lock", ".data") for path in out.iterdir())
    is_study = (out / "study.json").is_file() or any(out.glob("contestants/*/seed-*/run.json"))
    if not is_empty and not is_study:
        raise ConfigError(f"{out} is not empty and holds no study; name a new folder with --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"The folder {out} cannot be used: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"Another comparison is running in {out}; wait for it, or name another --out."
            ) from error
        yield lock
    finally:
        os.close(lock)


def read_state(out: Path) -> State:
    """Read study.json; {} if there is none.

    Raises:
        FormatError: It is damaged; without it, finished runs are found by their own folders.
    """
    path = out / "study.json"
    return read_object(path, "a study") if path.exists() else {}


def write_state(out: Path, state: State) -> None:
    """Replace study.json."""
    write_json(out / "study.json", state)


def _prepared(study: Study, folder: Path, state: State) -> Path | None:
    """Add the facts of the rows to `state`; return the folder of rows that were prepared now."""
    key = {name: getattr(study, name) for name in _ROWS}
    key["files"] = {name: file_digest(path) for name, path in study.sources.items()}
    key = json.loads(json.dumps(key))
    if state.get("data_key") == key and all(_is_whole(folder, state["data"][n]) for n in SPLITS):
        return None
    fresh = folder / ".data"
    shutil.rmtree(fresh, ignore_errors=True)
    facts = prepare(study, fresh)
    state |= {"data_key": key, "data": facts}
    for name in SPLITS:
        counts = ", ".join(f"{label}: {n:,}" for label, n in facts[name]["label_counts"].items())
        say(f"{name}: {facts[name]['rows']:,} rows ({counts})")
    if facts["positive"] is not None and study.positive is None and study.merge_as is None:
        say(f"positive: {facts['positive']!r}, the second label; --positive names the other one")
    for name, earlier in (("dev", "train"), ("test", "train"), ("test", "dev")):
        if count := facts["near_duplicates"].get(f"{name}_like_{earlier}"):
            say(f"{name}: {count:,} rows nearly repeat a row of {earlier}")
    return fresh


def _is_whole(folder: Path, facts: dict[str, Any]) -> bool:
    path = folder / facts["path"]
    return path.is_file() and sha256_of(path) == str(facts["sha256"])


# Runs and their fingerprints


def runs_of(
    study: Study, folder: Path, data: Mapping[str, Any], precision: str
) -> list[ContestantRun]:
    """Return all runs: the first seed of all contestants first, in the order of the recipe.

    An interrupted study can then be reported.

    Args:
        study: Its contestants.
        folder: Of the study.
        data: Facts of the prepared rows.
        precision: Meaning of "auto".
    """
    paths = {name: str((folder / data[name]["path"]).absolute()) for name in SPLITS}
    runs: list[ContestantRun] = []
    for at in range(max(len(c.seeds) for c in study.contestants)):
        by_name: dict[str, ContestantRun] = {}
        for one in study.contestants:
            if at >= len(one.seeds):
                continue
            seed = one.seeds[at]
            training = training_options(one) if one.kind in TRAINED else {}
            if one.kind in TRAINED and training.get("precision", "auto") == "auto":
                training = training | {"precision": precision}
            by_name[one.name] = ContestantRun(
                contestant=one.name,
                kind=one.kind,
                options=one.options,
                training=training,
                cleaning=one.cleaning,
                seed=seed,
                data=paths,
                labels=tuple(data["labels"]),
                positive=data["positive"],
                out=str((folder / "contestants" / one.name / f"seed-{seed}").absolute()),
                fingerprint=fingerprint_of(one, seed, data),
                source=None if one.source is None else by_name[one.source.name],
            )
        runs += by_name.values()
    return runs


def fingerprint_of(one: Contestant, seed: int, data: Mapping[str, Any]) -> str:
    """Return the sha256 of everything that decides the result of a run.

    Files of the user count by their content; built-in and Hub models count by name.
    """
    content = {
        "kind": one.kind,
        "options": {k: v for k, v in one.options.items() if k not in _FREE},
        "cleaning": one.steps,
        "seed": seed,
        "data": [data[name]["sha256"] for name in SPLITS],
        "labels": data["labels"],
        "positive": data["positive"],
    }
    if digests := _digests(one.options):
        content["files"] = digests
    if one.source is not None:
        content["source"] = fingerprint_of(one.source, seed, data)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digests(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the sha256 of files of vectors and rows, and of local models."""
    digests: dict[str, str] = {}
    if options.get("vectors") is not None:
        digests["vectors"] = _sha256(Path(str(options["vectors"])).absolute())
    for name in ("model", "student", "augment_with"):
        if options.get(name) is not None:
            prefix = "" if name == "model" else f"{name}: "
            place = Path(str(options[name])).expanduser()
            for path in _files_of(place):
                relative = path.relative_to(place.parent)
                digests[f"{prefix}{relative}"] = _sha256(path.absolute())
    return digests


def _files_of(place: Path) -> list[Path]:
    """Return the files of a local model, or a file of rows; [] for a name that is no path."""
    if place.is_dir():
        files = sorted(path for path in place.rglob("*") if path.is_file())
    elif place.is_file():
        files = [place]
    elif Path(f"{place}.index").is_file():
        # The prefix of a TensorFlow checkpoint.
        files = sorted(place.parent.glob(f"{place.name}.*"))
    else:
        return []
    # These hold times; the other files decide what the model computes.
    return [path for path in files if path.name not in ("README.md", "filbert.json")]


def _sha256(path: Path) -> str:
    facts = path.stat()
    return _remembered(path, facts.st_mtime_ns, facts.st_size)


@cache
def _remembered(path: Path, changed: int, size: int) -> str:
    """Return the sha256; a large file that several contestants share is read once."""
    return sha256_of(path)


def _remove_changed(runs: Sequence[ContestantRun], folder: Path, *, overwrite: bool) -> None:
    """Remove run folders of other rows or options; finished ones with `overwrite` only.

    Raises:
        ConfigError: A finished run would be lost without `overwrite`; nothing was removed.
    """
    changed = [run for run in runs if run.begun_fingerprint not in (None, run.fingerprint)]
    finished = {run.contestant: None for run in changed if trained_fingerprint(run.folder)}
    if finished and not overwrite:
        raise ConfigError(
            f"{folder} has finished runs of {', '.join(finished)} with other rows or options. Give "
            "the contestant another name, name another --out, or run it again with --overwrite."
        )
    for run in changed:
        say(f"{run.contestant}, seed {run.seed}: its rows or options changed; it is run again")
        shutil.rmtree(run.folder, ignore_errors=True)


# Running


def _run_all(
    left: Sequence[ContestantRun],
    runs: Sequence[ContestantRun],
    state: State,
    *,
    folder: Path,
    lock: int,
) -> None:
    """Run the runs that are left, one after the other.

    Raises:
        Interrupted: A signal was received.
    """
    with Stop() as stop:
        for number, run in enumerate(left, start=1):
            title = f"[{number} of {len(left)}] {run.contestant}, seed {run.seed}"
            say(title)
            clock = time.perf_counter()
            ended = _run_one(run, state, folder=folder, stop=stop, lock=lock)
            if ended.status == "finished":
                say(f"{title}: {_headline(run)}, {time.perf_counter() - clock:,.0f} s")
            elif ended.status == "failed":
                say(f"{title} failed: {ended.error}")
            if stop.name is not None:
                done = sum(run.is_finished for run in runs)
                raise Interrupted(
                    f"{stop.name}: stopped with {done} of {len(runs)} runs finished; the saved "
                    f"state of the current run is kept. The same command with --out {folder} "
                    "resumes it."
                )


def _run_one(run: ContestantRun, state: State, *, folder: Path, stop: Stop, lock: int) -> Ended:
    """Run one run in a child process, with its outcome in study.json."""
    ended = Ended("interrupted")
    try:
        if run.source is not None and not run.source.is_trained:
            ended = Ended(
                "failed",
                f"It needs a finished run of {run.source.contestant} with seed {run.source.seed}. "
                "Run or fix that one first, then give the same command again.",
            )
        else:
            run.write()
            ended = run_child(run, stop=stop, lock=lock)
            if stop.name is not None and ended.status != "finished":
                # Also if the signal came before the child could save anything.
                ended = Ended("interrupted")
    finally:
        # Messages are shown on other machines, which have other folders.
        error = ended.error and ended.error.replace(f"{folder.absolute()}/", "")
        ended = Ended(ended.status, error)
        record = {"fingerprint": run.fingerprint, "status": ended.status, "error": error}
        state["runs"][run.key] = record
        write_state(folder, state)
    return ended


def _headline(run: ContestantRun) -> str:
    """Return the dev metric that chose the best step."""
    facts = read_run(run.folder) or {}
    metric = (facts.get("best") or {}).get("metric")
    value = ((facts.get("metrics") or {}).get("dev") or {}).get(metric)
    return "finished" if value is None else f"dev {metric} {value:.4f}"
