"""Runs a study: prepares the rows, runs every contestant with every seed, writes the results."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from rich.progress import Progress, TaskID

from filbert.compare.child import Ended, fraction_done, run_child
from filbert.compare.contestant_options import TRAINED, Contestant
from filbert.compare.prepare import SPLITS, prepare
from filbert.compare.recipe import Study, chosen
from filbert.compare.results import write_results
from filbert.compare.runs import Run, asks_auto, changes, device_of, refuse_changed, runs_of
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
# Expected seconds of a linear contestant until one was measured.
_LINEAR_SECONDS = 20.0
# Seconds between two lines of progress where stderr is no terminal.
_BETWEEN_LINES = 60.0


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
    with guarded(folder) as lock:
        state = _prepared(study, folder, overwrite=overwrite)
        # The precision "auto" depends on a measurement, so it is chosen once for a study.
        precision = dict(state.get("precision", {}))
        for device in {device_of(one) for one in asked if asks_auto(one)} - precision.keys():
            precision[device] = choose_precision("auto", choose_device(device or None)).name
        runs = runs_of(study, folder, state["data"], precision)
        refuse_changed(runs, asked, state, overwrite=overwrite)
        before = state.get("contestants", {})
        # Contestants that are not run now keep the options of their runs.
        state |= {
            "precision": precision,
            "options": study.options,
            "contestants": {
                c.name: {"kind": c.kind, "options": c.options, "cleaning": list(c.steps)}
                if c in asked or c.name not in before
                else before[c.name]
                for c in study.contestants
            },
        }
        write_state(folder, state)
        left = [run for run in runs if run.contestant in asked and not run.is_finished]
        if not left:
            count = sum(run.contestant in asked for run in runs)
            say(f"all {count} requested runs are finished; only the results are computed again")
        _run_all(left, runs, folder, state, lock)
        say("computing metrics, intervals and tests")
        marks = {run.key: run.job.fingerprint for run in runs}
        return write_results(study, folder, state, marks, show_texts=show_texts)


def _prepared(study: Study, folder: Path, *, overwrite: bool) -> dict[str, Any]:
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
                f"again with --overwrite."
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
    _describe(study, state["data"])
    return state


def _describe(study: Study, facts: Mapping[str, Any]) -> None:
    for name in SPLITS:
        counts = ", ".join(f"{label}: {n:,}" for label, n in facts[name]["label_counts"].items())
        say(f"{name}: {facts[name]['rows']:,} rows ({counts})")
    if facts["positive"] is not None and study.positive is None and study.merge_as is None:
        say(f"positive: {facts['positive']!r}, the second label; --positive names the other one")
    for name, earlier, what in (
        ("dev", "train", "a training row"),
        ("test", "train", "a training row"),
        ("test", "dev", "a dev row"),
    ):
        if count := facts["near_duplicates"].get(f"{name}_like_{earlier}"):
            say(f"{name}: {count:,} rows nearly repeat {what}")


def _is_whole(folder: Path, facts: dict[str, Any]) -> bool:
    path = folder / facts["path"]
    return path.is_file() and sha256_of(path) == str(facts["sha256"])


@contextmanager
def guarded(out: Path) -> Iterator[int]:
    """Lock the folder for this process; the descriptor of the lock is inherited by the child.

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


def read_state(out: Path) -> dict[str, Any]:
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


def write_state(out: Path, state: dict[str, Any]) -> None:
    """Replace study.json."""
    write_json(out / "study.json", state)


def _run_all(
    left: Sequence[Run], runs: Sequence[Run], folder: Path, state: dict[str, Any], lock: int
) -> None:
    """Run the runs that are left, one after the other.

    Raises:
        Interrupted: A signal was received.
    """
    times: dict[str, list[float]] = {}
    for run in runs:
        seconds = state["runs"].get(run.key, {}).get("seconds")
        if run.is_finished and seconds:
            times.setdefault(run.contestant.folder, []).append(seconds)
    known = {run.contestant.folder: run.contestant for run in runs}
    with Stop() as stop, progress_bar("left") as bar:
        line = bar.add_task("", total=1, left="", visible=False)
        num_before = sum(run.is_finished for run in runs if run not in left)
        for at, run in enumerate(left):
            title = f"[{num_before + at + 1} of {len(runs)}] {run.contestant.name}, seed {run.seed}"
            steps = num_steps(run.job.training, state["data"]["train"]["rows"])
            queue = [later.contestant for later in left[at:]]
            progress = RunProgress(
                bar, line, title, times, queue, known, steps, fraction_done(run.out, steps) or 0.0
            )  # fmt: skip
            remaining = in_words(progress.seconds_left(0.0, None))
            bar.console.print(f"{title}: {remaining}", highlight=False, markup=False)
            record = state["runs"].get(run.key, {})
            if record.get("fingerprint") != run.job.fingerprint:
                record = state["runs"][run.key] = {"fingerprint": run.job.fingerprint}
            record |= {"status": "running", "error": None}
            write_state(folder, state)
            clock, before = time.perf_counter(), record.get("seconds", 0.0)
            try:
                ended = _run(run, progress, stop=stop, lock=lock)
            except KeyboardInterrupt:
                record |= {"status": "interrupted", "seconds": before + time.perf_counter() - clock}
                write_state(folder, state)
                raise
            bar.update(line, visible=False)
            seconds = before + time.perf_counter() - clock
            # Messages are shown on other machines, which have other folders.
            error = ended.error and ended.error.replace(f"{folder.absolute()}/", "")
            record |= {"status": ended.status, "error": error, "seconds": seconds}
            write_state(folder, state)
            if ended.status == "finished":
                times.setdefault(run.contestant.folder, []).append(seconds)
                say(f"{title}: {_headline(run)}, {seconds:,.0f} s")
            elif ended.status == "failed":
                say(f"{title} failed: {error}")
            if stop.name is not None:
                done = sum(run.is_finished for run in runs)
                raise Interrupted(
                    f"{stop.name}: stopped with {done} of {len(runs)} runs finished; the saved "
                    f"state of the current run is kept. The same command with --out {folder} "
                    "resumes it."
                )


def _run(run: Run, progress: RunProgress, *, stop: Stop, lock: int) -> Ended:
    source = run.source
    if source is not None and not source.is_trained:
        what = "learn from" if run.contestant.kind == "distilled" else "take the model of"
        return Ended(
            "failed",
            f"There is no finished run of {source.contestant.name} with seed {source.seed} to "
            f"{what}. Run or fix that one first, then give the same command again.",
        )
    ended = run_child(
        run.job, run.job_path, stop=stop, lock=lock, steps=progress.steps, on_tick=progress
    )
    if stop.name is not None and ended.status != "finished":
        # Also if the signal came before the child could save anything.
        return Ended("interrupted")
    return ended


def _headline(run: Run) -> str:
    """Return the dev metric that chose the best step."""
    facts = read_run(run.out) or {}
    metric = (facts.get("best") or {}).get("metric")
    value = ((facts.get("metrics") or {}).get("dev") or {}).get(metric)
    return "finished" if value is None else f"dev {metric} {value:.4f}"


@dataclass
class RunProgress:
    """Shows the progress of the current run: a bar, or a line a minute without a terminal.

    Attributes:
        bar: Of the study; disabled if stderr is no terminal.
        line: The task of the bar.
        title: Title of the run.
        times: Seconds of the finished runs, by folder of the contestant.
        queue: Contestants of the current run and of those that have not started.
        contestants: All contestants by folder.
        steps: Optimiser steps of the run, if known.
        begun: Fraction of the training that an earlier process had done.
    """

    bar: Progress
    line: TaskID
    title: str
    times: dict[str, list[float]]
    queue: Sequence[Contestant]
    contestants: Mapping[str, Contestant]
    steps: int | None
    begun: float
    last_line: float = 0.0

    def __call__(self, elapsed: float, fraction: float | None) -> None:
        """Show the seconds so far and the fraction of the training that is done."""
        if fraction is not None:
            # A killed run repeats some of its steps.
            self.begun = min(self.begun, fraction)
        remaining = in_words(self.seconds_left(elapsed, fraction))
        self.bar.update(
            self.line,
            visible=True,
            description=self.title.replace("[", r"\["),
            total=self.steps or 1,
            completed=int((fraction or 0.0) * (self.steps or 1)),
            left=remaining,
        )
        if self.bar.disable and elapsed - self.last_line >= _BETWEEN_LINES:
            self.last_line = elapsed
            done = "" if fraction is None else f"{fraction:.0%} trained, "
            say(f"{self.title}: {done}{remaining}")

    def seconds_left(self, elapsed: float, fraction: float | None) -> float | None:
        """Estimate the seconds until the end of the study; None while nothing was measured."""
        current, *waiting = self.queue
        whole = self._expected(current)
        if fraction is not None and fraction > self.begun:
            whole = elapsed / (fraction - self.begun)
        if whole is None:
            return None
        total = max(whole * (1.0 - self.begun) - elapsed, 0.0)
        for one in waiting:
            expected = self._expected(one)
            if expected is None and current.kind not in TRAINED:
                return None
            # Only trained contestants lack an estimate, and the current one is of that kind.
            total += whole if expected is None else expected
        return total

    def _expected(self, contestant: Contestant) -> float | None:
        """Return the mean seconds of its other seeds, else of contestants of the same kind."""
        if own := self.times.get(contestant.folder):
            return fmean(own)
        is_trained = contestant.kind in TRAINED
        alike = [
            fmean(seconds)
            for folder, seconds in self.times.items()
            if (self.contestants[folder].kind in TRAINED) == is_trained
        ]
        if alike:
            return fmean(alike)
        return None if is_trained else _LINEAR_SECONDS


def num_steps(training: Mapping[str, Any], rows: int) -> int | None:
    """Return the optimiser steps of a run; None if a time limit or other rows decide."""
    # TinyBERT has two stages with logs of their own.
    if training.get("method") == "tinybert" or any(
        training.get(key) for key in ("time", "extra", "augment_with")
    ):
        return None
    if training.get("steps"):
        return int(training["steps"])
    batches = math.ceil(rows / int(training.get("batch_size", 32)))
    return max(1, math.ceil(float(training.get("epochs", 3.0)) * batches))


def in_words(seconds: float | None) -> str:
    """Return a text such as "about 24 min left"."""
    if seconds is None:
        return "time left not known yet"
    if seconds < 90:
        return f"about {max(1, round(seconds))} s left"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"
