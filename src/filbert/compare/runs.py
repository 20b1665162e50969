"""Runs a study: prepares the rows, runs every contestant with every seed, writes the results."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from filbert.compare.child import Ended, run_child
from filbert.compare.contestants import ContestantRun, trained_fingerprint
from filbert.compare.prepare import SPLITS, prepare
from filbert.compare.recipe import TRAINED, Contestant, Study, chosen, training_options
from filbert.compare.results import write_results
from filbert.data.records import file_digest
from filbert.errors import ConfigError, FormatError, InputError, Interrupted
from filbert.files import sha256_of, write_json
from filbert.model.precision import choose_device, choose_precision
from filbert.train.log import progress_bar, say
from filbert.train.run_folder import read_run
from filbert.train.signals import Stop

# Fields of a study that decide what the prepared rows are.
_ROWS = (
    "text_column", "text_pair_column", "label_column", "merge_labels", "merge_as", "keep_columns",
    "positive", "split", "seed", "near_duplicates",
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
        out: Its folder; runs that an earlier, perhaps killed, comparison finished are kept.
        only: Contestants to run now; the others are included in the results if they are finished.
        overwrite: Run again what the recipe has changed, and everything if the data has changed.
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
        state = _prepared(study, folder, overwrite=overwrite)
        # The precision "auto" depends on a measurement, so it is chosen once for a study.
        precision = dict(state.get("precision", {}))
        for device in {device_of(one) for one in asked if asks_auto(one)} - precision.keys():
            precision[device] = choose_precision("auto", choose_device(device or None)).name
        runs = runs_of(study, folder, state["data"], precision)
        wanted = [run for run in runs if run.contestant in names]
        # Contestants that are not run now keep the options of their runs.
        before = state.get("contestants", {})
        described = {one.name: _description(one) for one in study.contestants}
        described |= {name: before[name] for name in before.keys() & described.keys() - names}
        refuse_changed(wanted, described, state, overwrite=overwrite)
        state |= {"precision": precision, "options": study.options, "contestants": described}
        write_state(folder, state)
        left = [run for run in wanted if not run.is_finished]
        if not left:
            say(f"all {len(wanted)} requested runs are finished; only the results are computed")
        _run_all(left, runs, state, folder=folder, lock=lock)
        say("computing metrics, intervals and tests")
        return write_results(study, folder, state, runs, show_texts=show_texts)


def _description(one: Contestant) -> dict[str, Any]:
    return {"kind": one.kind, "options": one.options, "cleaning": list(one.steps)}


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
    is_empty = not out.is_dir() or all(path.name == ".lock" for path in out.iterdir())
    if not is_empty and not (out / "study.json").is_file() and not has_runs(out):
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


def has_runs(out: Path) -> bool:
    """Return whether the folder has runs of a study, with or without study.json."""
    return any(out.glob("contestants/*/seed-*/run.json"))


def read_state(out: Path) -> State:
    """Read study.json; {} if there is none.

    Raises:
        FormatError: It is damaged.
    """
    path = out / "study.json"
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content.get("runs"), dict):
            raise ValueError("it lacks the runs")
    except (OSError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{path} is damaged ({error}). Remove it: it is written again, and finished runs are "
            "recognised by their own folders."
        ) from error
    return dict(content)


def write_state(out: Path, state: State) -> None:
    """Replace study.json."""
    write_json(out / "study.json", state)


def _prepared(study: Study, folder: Path, *, overwrite: bool) -> State:
    """Return study.json with the facts of the rows; prepare the rows if they are missing."""
    key = {name: getattr(study, name) for name in _ROWS}
    key["files"] = {name: file_digest(path) for name, path in study.sources.items()}
    key = json.loads(json.dumps(key))
    state = read_state(folder)
    before = state.get("data_key")
    if before is not None and before != key:
        changed = ", ".join(changes(before, key))
        if not overwrite:
            raise ConfigError(
                f"{folder} holds a study of other rows ({changed}). Name another --out, or start "
                "again with --overwrite."
            )
        # Data that cannot be read must not delete the old runs.
        with TemporaryDirectory(dir=folder, prefix=".data-") as trial:
            prepare(study, Path(trial))
        say(f"other rows than before ({changed}): everything is run again")
        for name in ("data", "contestants", "plots"):
            shutil.rmtree(folder / name, ignore_errors=True)
        state = {}
    if state.get("data") and all(_is_whole(folder, state["data"][name]) for name in SPLITS):
        return state
    state = {"filbert": version("filbert"), "runs": {}} | state | {"data_key": key}
    if not has_runs(folder):
        # Marks the folder as a study's; if runs exist, the rows must be checked first.
        write_state(folder, state)
    state["data"] = prepare(study, folder / "data")
    _report_rows(study, state["data"])
    return state


def _report_rows(study: Study, facts: Mapping[str, Any]) -> None:
    for name in SPLITS:
        counts = ", ".join(f"{label}: {n:,}" for label, n in facts[name]["label_counts"].items())
        say(f"{name}: {facts[name]['rows']:,} rows ({counts})")
    if facts["positive"] is not None and study.positive is None and study.merge_as is None:
        say(f"positive: {facts['positive']!r}, the second label; --positive names the other one")
    for name, earlier in (("dev", "train"), ("test", "train"), ("test", "dev")):
        if count := facts["near_duplicates"].get(f"{name}_like_{earlier}"):
            say(f"{name}: {count:,} rows nearly repeat a row of {earlier}")


def _is_whole(folder: Path, facts: dict[str, Any]) -> bool:
    path = folder / facts["path"]
    return path.is_file() and sha256_of(path) == str(facts["sha256"])


# Runs and their fingerprints


def runs_of(
    study: Study, folder: Path, data: Mapping[str, Any], precision: Mapping[str, str]
) -> list[ContestantRun]:
    """Return all runs: the first seed of all contestants first, sources before what needs them.

    An interrupted study can then be reported.

    Args:
        study: Its contestants.
        folder: Of the study.
        data: Facts of the prepared rows.
        precision: Meaning of "auto" by requested device ("" for none).
    """
    paths = {name: str((folder / data[name]["path"]).absolute()) for name in SPLITS}
    runs: list[ContestantRun] = []
    for at in range(max(len(c.seeds) for c in study.contestants)):
        by_folder: dict[str, ContestantRun] = {}
        for one in sorted(study.contestants, key=lambda one: one.depth):
            if at >= len(one.seeds):
                continue
            seed = one.seeds[at]
            training = training_options(one) if one.kind in TRAINED else {}
            if asks_auto(one) and device_of(one) in precision:
                training = training | {"precision": precision[device_of(one)]}
            by_folder[one.folder] = ContestantRun(
                contestant=one.name,
                kind=one.kind,
                options=one.options,
                training=training,
                cleaning=one.cleaning,
                seed=seed,
                data=paths,
                labels=tuple(data["labels"]),
                positive=data["positive"],
                out=str((folder / "contestants" / one.folder / f"seed-{seed}").absolute()),
                fingerprint=fingerprint_of(one, seed, data),
                source=None if one.source is None else by_folder[one.source.folder],
            )
        runs += by_folder.values()
    return runs


def asks_auto(one: Contestant) -> bool:
    """Return whether a contestant has the precision "auto"."""
    return one.kind in TRAINED and one.options.get("precision", "auto") == "auto"


def device_of(one: Contestant) -> str:
    """Return the requested device; "" for none."""
    return str(one.options.get("device") or "")


def fingerprint_of(one: Contestant, seed: int, data: Mapping[str, Any]) -> str:
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


def refuse_changed(
    runs: Collection[ContestantRun],
    described: Mapping[str, Mapping[str, Any]],
    state: State,
    *,
    overwrite: bool,
) -> None:
    """Remove the folders of runs whose contestant has changed; finished ones with `overwrite` only.

    Args:
        runs: Those that are run now.
        described: Kind, options and cleaning of each contestant.
        state: Content of study.json, from before this command.
        overwrite: Finished runs may be removed.

    Raises:
        ConfigError: A finished run would be lost without `overwrite`; nothing was removed.
    """
    now = {run.contestant for run in runs}
    changed: dict[str, ContestantRun] = {}
    reasons: dict[str, str] = {}
    for run in runs:
        if not run.folder.exists() or _begun(run, state) in (None, run.fingerprint):
            continue
        before = state.get("contestants", {}).get(run.contestant)
        reasons[run.key] = _what_changed(run, before, described[run.contestant])
        changed[run.key] = run
        if trained_fingerprint(run.folder) is None:
            continue
        if not overwrite:
            raise ConfigError(
                f"{run.contestant} has changed since it was run in {run.folder.parents[2]}: "
                f"{reasons[run.key]}. Give it another name, name another --out, or run it again "
                "with --overwrite."
            )
        source = run.source
        if source is not None and source.contestant not in now and not source.is_finished:
            raise ConfigError(
                f"{run.contestant} would be run again, but {source.contestant}, which it is made "
                "from, has no finished run with these options. Add it to --only."
            )
    for key, run in changed.items():
        say(f"{run.contestant}: {reasons[key]}; it is run again")
        shutil.rmtree(run.folder)


def _begun(run: ContestantRun, state: State) -> str | None:
    """Return the fingerprint of a run's folder, finished or not; None if it is unknown."""
    trained = trained_fingerprint(run.folder)
    known = trained or state["runs"].get(run.key, {}).get("fingerprint")
    if known is None and run.job_path.is_file():
        try:
            known = json.loads(run.job_path.read_text(encoding="utf-8")).get("fingerprint")
        except (OSError, ValueError, AttributeError):
            return None
    return None if known is None else str(known)


def _what_changed(
    run: ContestantRun, before: Mapping[str, Any] | None, now: Mapping[str, Any]
) -> str:
    if not before:
        return "its options or the rows"
    flat = [{**one.get("options", {}), "cleaning": one.get("cleaning")} for one in (before, now)]
    source = "" if run.source is None else f"{run.source.contestant}, "
    return ", ".join(changes(*flat)) or f"{source}its files or the rows"


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences as texts such as "lr 0.001 -> 0.002"."""
    found = []
    for name in {**before, **now}:
        old, new = (
            "not given" if one.get(name) is None else str(one[name])[:60] for one in (before, now)
        )
        if before.get(name) != now.get(name):
            found.append("other files" if name == "files" else f"{name} {old} -> {new}")
    return found


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
    num_before = sum(run.is_finished for run in runs if run not in left)
    with Stop() as stop, progress_bar() as bar:
        line = bar.add_task("", total=len(runs))
        for at, run in enumerate(left):
            number = num_before + at + 1
            title = f"[{number} of {len(runs)}] {run.contestant}, seed {run.seed}"
            bar.update(line, description=title.replace("[", r"\["), completed=number - 1)
            seconds = seconds_left(left[at:], runs, state["runs"])
            bar.console.print(f"{title}{in_words(seconds)}", highlight=False, markup=False)
            ended = _run_one(run, state, folder=folder, stop=stop, lock=lock)
            if ended.status == "finished":
                spent = state["runs"][run.key]["seconds"]
                say(f"{title}: {_headline(run)}, {spent:,.0f} s")
            elif ended.status == "failed":
                say(f"{title} failed: {state['runs'][run.key]['error']}")
            if stop.name is not None:
                done = sum(run.is_finished for run in runs)
                raise Interrupted(
                    f"{stop.name}: stopped with {done} of {len(runs)} runs finished; the saved "
                    f"state of the current run is kept. The same command with --out {folder} "
                    "resumes it."
                )


def _run_one(run: ContestantRun, state: State, *, folder: Path, stop: Stop, lock: int) -> Ended:
    """Run one run in a child process, with its status and seconds in study.json."""
    record = state["runs"].get(run.key, {})
    if record.get("fingerprint") != run.fingerprint:
        record = state["runs"][run.key] = {"fingerprint": run.fingerprint}
    record |= {"status": "running", "error": None}
    write_state(folder, state)
    clock, before = time.perf_counter(), record.get("seconds", 0.0)
    ended = Ended("interrupted")
    try:
        if run.source is not None and not run.source.is_trained:
            what = "learn from" if run.kind == "distilled" else "take the model of"
            ended = Ended(
                "failed",
                f"There is no finished run of {run.source.contestant} with seed {run.source.seed} "
                f"to {what}. Run or fix that one first, then give the same command again.",
            )
        else:
            ended = run_child(run, stop=stop, lock=lock)
            if stop.name is not None and ended.status != "finished":
                # Also if the signal came before the child could save anything.
                ended = Ended("interrupted")
    finally:
        # Messages are shown on other machines, which have other folders.
        error = ended.error and ended.error.replace(f"{folder.absolute()}/", "")
        seconds = before + time.perf_counter() - clock
        record |= {"status": ended.status, "error": error, "seconds": seconds}
        write_state(folder, state)
    return ended


def _headline(run: ContestantRun) -> str:
    """Return the dev metric that chose the best step."""
    facts = read_run(run.folder) or {}
    metric = (facts.get("best") or {}).get("metric")
    value = ((facts.get("metrics") or {}).get("dev") or {}).get(metric)
    return "finished" if value is None else f"dev {metric} {value:.4f}"


def seconds_left(
    left: Sequence[ContestantRun], runs: Sequence[ContestantRun], records: Mapping[str, Any]
) -> float | None:
    """Estimate the seconds of the runs that are left; None if nothing similar has finished.

    A run is expected to take as long as other seeds of its contestant, otherwise as long as other
    contestants of its kind.
    """
    times: dict[str, list[float]] = {}
    for run in runs:
        record = records.get(run.key, {})
        if record.get("status") == "finished":
            for group in (run.contestant, f"kind {run.kind}"):
                times.setdefault(group, []).append(record["seconds"])
    expected = [times.get(run.contestant) or times.get(f"kind {run.kind}") for run in left]
    return sum(fmean(known) for known in expected if known) if all(expected) else None


def in_words(seconds: float | None) -> str:
    """Return a text such as ": about 24 min left"; empty without an estimate."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f": about {max(1, round(seconds))} s left"
    if seconds < 90 * 60:
        return f": about {round(seconds / 60)} min left"
    return f": about {seconds / 3600:.1f} h left"
