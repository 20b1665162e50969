"""Runs a study: prepares the rows, runs every contestant with every seed, writes the results."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from rich.progress import Progress, TaskID

from filbert.data.records import file_digest
from filbert.errors import ConfigError, FormatError, InputError, Interrupted
from filbert.files import sha256_of, write_json
from filbert.speed.names import PRECISIONS
from filbert.speed.precision import choose_device, choose_precision
from filbert.study.child import Ended, run_child
from filbert.study.contestant_options import TRAINED, Contestant
from filbert.study.prepare import SPLITS, prepare
from filbert.study.recipe import Study, chosen
from filbert.study.results import write_results
from filbert.study.runs import Run, asks_auto, changes, device_of, refuse_changed, runs_of
from filbert.train.folder import read_run
from filbert.train.log import progress_bar, say
from filbert.train.signals import Stop


def run_study(
    study: Study,
    out: str | Path,
    *,
    only: Sequence[str] = (),
    overwrite: bool = False,
    show_texts: bool = False,
) -> dict[str, Any]:
    """Do what is left of a study, then judge all that is there.

    Args:
        study: as `read_study` made it.
        out: its folder; what an earlier, maybe killed, comparison has finished there is kept.
        only: contestants to run now; the others are judged if they are there.
        overwrite: run anew what the recipe has changed, and everything when the data has.
        show_texts: the report shows texts.

    Returns:
        The content of results.json.

    Raises:
        InputError, ConfigError: data or recipe is wrong; nothing was trained.
        Interrupted: Ctrl-C or SIGTERM; the message says how to go on.
    """
    folder = Path(out)
    asked = chosen(study.contestants, only) if only else list(study.contestants)
    with guarded(folder) as lock:
        state = _prepared(study, folder, overwrite=overwrite)
        left_to = [one for one in asked if asks_auto(one)]
        precision = _settled(state.get("precision", {}), left_to, folder)
        runs = runs_of(study, folder, state["data"], precision)
        refuse_changed(runs, asked, state, overwrite=overwrite)
        state["precision"] = precision
        state["options"] = study.options
        told_before = state.get("contestants", {})
        # What is not run now keeps the options that its runs had.
        state["contestants"] = {
            c.name: {"kind": c.kind, "options": c.options, "cleaning": list(c.steps)}
            if c in asked or c.name not in told_before
            else told_before[c.name]
            for c in study.contestants
        }
        write_state(folder, state)
        left = [run for run in runs if run.contestant in asked and not run.is_finished]
        if not left:
            count = sum(run.contestant in asked for run in runs)
            say(
                f"all {count} runs that were asked for are finished; only the figures are worked "
                f"out again"
            )
        _run_all(left, runs, folder, state, lock)
        say("working out the figures, intervals and tests")
        marks = {run.key: run.job.fingerprint for run in runs}
        return write_results(study, folder, state, marks, show_texts=show_texts)


def _settled(
    known: Mapping[str, str], contestants: Sequence[Contestant], folder: Path
) -> dict[str, str]:
    """What the precision "auto" means in this study, by the device that is asked for.

    It goes by the clock, so it is settled once: as finished runs had it, else as is fast here.
    """
    found = dict(known)
    for one in contestants:
        device = device_of(one)
        if device not in found:
            found[device] = (
                _precision_before(folder, device)
                or choose_precision("auto", choose_device(device or None)).name
            )
    return found


def _precision_before(folder: Path, device: str) -> str | None:
    """That of a finished run which was left to the machine too, made before it was written down."""
    for path in sorted(folder.glob("contestants/*/seed-*/run.json")):
        facts = read_run(path.parent) or {}
        options = facts.get("options") or {}
        asked = options.get("precision") == "auto" and (options.get("device") or "") == device
        if asked and facts.get("precision") in PRECISIONS:
            return str(facts["precision"])
    return None


def _prepared(study: Study, folder: Path, *, overwrite: bool) -> dict[str, Any]:
    """study.json with the facts of the rows; they are made when they are not there yet."""
    key = {
        name: getattr(study, name)
        for name in (
            "text_column", "text_pair_column", "label_column", "merge_labels", "merge_as",
            "keep_columns", "positive", "split", "seed", "near_duplicates",
        )
    }  # fmt: skip
    key["files"] = {name: file_digest(path) for name, path in study.sources.items()}
    key = json.loads(json.dumps(key))
    state = read_state(folder)
    before = state.get("data_key")
    if before is not None and before != key:
        changed = ", ".join(changes(before, key))
        if not overwrite:
            raise ConfigError(
                f"{folder} holds a study of other rows ({changed}). Name another --out, or start "
                f"anew with --overwrite."
            )
        # What cannot be read must not cost what is there.
        with TemporaryDirectory(dir=folder, prefix=".data-") as trial:
            prepare(study, Path(trial))
        say(f"other rows than before ({changed}): everything is done anew")
        for name in ("data", "contestants", "plots"):
            shutil.rmtree(folder / name, ignore_errors=True)
        state = {}
    if state.get("data") and all(_is_whole(folder, state["data"][name]) for name in SPLITS):
        return state
    state = {"filbert": version("filbert"), "runs": {}} | state | {"data_key": key}
    if not has_runs(folder):
        # So that the folder is known as a study's; where runs are, they must agree first.
        write_state(folder, state)
    facts = prepare(study, folder / "data")
    state["data"] = facts
    for name in SPLITS:
        counts = ", ".join(f"{label}: {n:,}" for label, n in facts[name]["label_counts"].items())
        say(f"{name}: {facts[name]['rows']:,} rows ({counts})")
    if facts["positive"] is not None and study.positive is None and study.merge_as is None:
        say(f"positive: {facts['positive']!r}, the second label; --positive names the other one")
    repeats = facts["near_duplicates"]
    for name in ("dev", "test"):
        if repeats.get(f"{name}_like_train"):
            say(f"{name}: {repeats[f'{name}_like_train']:,} rows nearly repeat a training row")
    if repeats.get("test_like_dev"):
        say(f"test: {repeats['test_like_dev']:,} rows nearly repeat a dev row")
    return state


def _is_whole(folder: Path, facts: dict[str, Any]) -> bool:
    path = folder / facts["path"]
    return path.is_file() and sha256_of(path) == str(facts["sha256"])


def _run_all(
    left: Sequence[Run], runs: Sequence[Run], folder: Path, state: dict[str, Any], lock: int
) -> None:
    """Run what is left, one after the other.

    Raises:
        Interrupted: asked to stop.
    """
    everyone = list({run.contestant.folder: run.contestant for run in runs}.values())
    times = Times({})
    for run in runs:
        seconds = state["runs"].get(run.key, {}).get("seconds")
        if run.is_finished and seconds:
            times.add(run.contestant, seconds)
    with Stop() as stop, progress_bar("left") as bar:
        shown = bar.add_task("", total=1, left="", visible=False)
        begun = sum(run.is_finished for run in runs if run not in left)
        for at, run in enumerate(left):
            number = begun + at + 1
            waiting = [later.contestant for later in left[at + 1 :]]
            title = f"[{number} of {len(runs)}] {run.contestant.name}, seed {run.seed}"
            first = times.left([run.contestant, *waiting], everyone)
            bar.console.print(f"{title}: {told(first)}", highlight=False, markup=False)
            steps = num_steps(run.job.training, state["data"]["train"]["rows"])
            tell = RunProgress(
                bar,
                shown,
                title=title,
                times=times,
                current=run.contestant,
                waiting=waiting,
                everyone=everyone,
                steps=steps,
                begun=fraction_done(Path(run.job.out), steps) or 0.0,
            )
            marks = state["runs"].get(run.key, {})
            if marks.get("fingerprint") != run.job.fingerprint:
                marks = {}
            state["runs"][run.key] = marks
            marks |= {"fingerprint": run.job.fingerprint, "status": "running", "error": None}
            write_state(folder, state)
            clock = time.perf_counter()
            before = marks.get("seconds", 0.0)
            try:
                if run.source is not None and not run.source.is_trained:
                    ended = Ended("failed", _without_source(run, run.source))
                else:
                    ended = run_child(
                        run.job, run.job_path, stop=stop, lock=lock, steps=steps, on_tick=tell
                    )
            except KeyboardInterrupt:
                marks |= {"status": "interrupted", "seconds": before + time.perf_counter() - clock}
                write_state(folder, state)
                raise
            bar.update(shown, visible=False)
            seconds = before + time.perf_counter() - clock
            if stop.name is not None and ended.status != "finished":
                # Also where the signal came before the child could save anything.
                ended = Ended("interrupted")
            # Sentences are shown to others, who have other folders.
            error = ended.error and ended.error.replace(f"{folder.absolute()}/", "")
            marks |= {"status": ended.status, "error": error, "seconds": seconds}
            write_state(folder, state)
            if ended.status == "finished":
                times.add(run.contestant, seconds)
                say(f"{title}: {_headline(run)}, {seconds:,.0f} s")
            elif ended.status == "failed":
                say(f"{title} failed: {error}")
            if stop.name is not None:
                _stop(stop, runs, folder)


def _without_source(run: Run, source: Run) -> str:
    """Why a run has nothing to begin with."""
    what = "learn from" if run.contestant.kind == "distilled" else "take the model of"
    return (
        f"There is no finished run of {source.contestant.name} with seed {source.seed} to {what}. "
        "Run or mend that one first, then give the same command again."
    )


def _stop(stop: Stop, runs: Sequence[Run], folder: Path) -> None:
    done = sum(run.is_finished for run in runs)
    raise Interrupted(
        f"{stop.name}: stopped with {done} of {len(runs)} runs finished; what was saved of the one "
        f"in progress is kept. The same command with --out {folder} goes on from there."
    )


def _headline(run: Run) -> str:
    """The figure that chose the best step, on dev."""
    facts = read_run(run.out) or {}
    metric = (facts.get("best") or {}).get("metric")
    value = ((facts.get("metrics") or {}).get("dev") or {}).get(metric)
    return "finished" if value is None else f"dev {metric} {value:.4f}"


@contextmanager
def guarded(out: Path) -> Iterator[int]:
    """Hold the folder for this process; gives the descriptor of the lock, for the child to inherit.

    As long as a child holds it too, no second comparison begins, even when the parent was killed.

    Raises:
        ConfigError: it is a file, holds something that is no study, or is in use.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names the folder of the study.")
    holds = out.is_dir() and any(path.name != ".lock" for path in out.iterdir())
    if holds and not (out / "study.json").is_file() and not has_runs(out):
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
    """Whether runs of a study are there, whatever became of study.json."""
    return any(out.glob("contestants/*/seed-*/run.json"))


def read_state(out: Path) -> dict[str, Any]:
    """The content of study.json; {} where there is none.

    Raises:
        FormatError: it is damaged.
    """
    place = out / "study.json"
    if not place.exists():
        return {}
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
        if not isinstance(content.get("runs"), dict):
            raise ValueError("it lacks the runs")
    except (OSError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{place} is damaged ({error}). Remove it: finished runs tell by themselves what they "
            "are, and it is written anew."
        ) from error
    return dict(content)


def write_state(out: Path, state: dict[str, Any]) -> None:
    """Replace study.json."""
    write_json(out / "study.json", state)


# Of a run's time, what is spent on training; the rest loads, predicts and measures.
_TRAINING_SHARE = 0.9
_TAIL = 4_096
# A guess, until one was measured.
_LINEAR_SECONDS = 20.0


class Times:
    """Seconds of finished runs, by contestant.

    Args:
        measured: the folder name of a contestant, and the seconds of its finished runs.
    """

    def __init__(self, measured: dict[str, list[float]]) -> None:
        self.measured = measured

    def add(self, contestant: Contestant, seconds: float) -> None:
        """One more finished run."""
        self.measured.setdefault(contestant.folder, []).append(seconds)

    def expected(self, contestant: Contestant, others: Iterable[Contestant]) -> float | None:
        """Seconds of a run: as its other seeds took, else as others of a like kind did."""
        own = self.measured.get(contestant.folder)
        if own:
            return fmean(own)
        alike = [
            fmean(self.measured[other.folder])
            for other in others
            if _is_trained(other) == _is_trained(contestant) and self.measured.get(other.folder)
        ]
        if alike:
            return fmean(alike)
        return None if _is_trained(contestant) else _LINEAR_SECONDS

    def left(
        self,
        waiting: Sequence[Contestant],
        everyone: Sequence[Contestant],
        *,
        current: Contestant | None = None,
        elapsed: float = 0.0,
        fraction: float | None = None,
        begun: float = 0.0,
    ) -> float | None:
        """Seconds until the end; None while nothing is known.

        Args:
            waiting: the contestant of every run that has not begun.
            everyone: all contestants.
            current: of the run in progress.
            elapsed: the seconds of its process so far.
            fraction: of its training that is done.
            begun: of that, what was done when its process began.
        """
        rest, projected = 0.0, None
        if current is not None:
            projected = self.expected(current, ()) or self.expected(current, everyone)
            if fraction and fraction > begun:
                projected = elapsed / ((fraction - begun) * _TRAINING_SHARE)
            if projected is None:
                return None
            rest = max(projected * (1.0 - begun * _TRAINING_SHARE) - elapsed, 0.0)
        for one in waiting:
            expected = self.expected(one, everyone)
            if expected is None and current is not None and _is_trained(current):
                expected = projected
            if expected is None:
                return None
            rest += expected
        return rest


def fraction_done(run: Path, steps: int | None) -> float | None:
    """How much of a run's training is done, by its metrics.jsonl; None where that is unknown."""
    if not steps:
        return None
    try:
        with (run / "metrics.jsonl").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            return min(1.0, float(json.loads(line)["step"]) / steps)
        except (ValueError, KeyError, TypeError):
            continue
    return None


def num_steps(training: dict[str, Any], rows: int) -> int | None:
    """Optimiser steps of a run; None when it goes by the clock, or by more rows than these."""
    if training.get("time"):
        return None
    # TinyBERT has two stages with logs of their own.
    if training.get("method") == "tinybert" or any(
        training.get(k) for k in ("extra", "augment_with")
    ):
        return None
    if training.get("steps"):
        return int(training["steps"])
    batches = math.ceil(rows / int(training.get("batch_size", 32)))
    return max(1, math.ceil(float(training.get("epochs", 3.0)) * batches))


def told(seconds: float | None) -> str:
    """For people: "about 24 min left"."""
    if seconds is None:
        return "time left not known yet"
    if seconds < 90:
        return f"about {max(1, round(seconds))} s left"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def _is_trained(contestant: Contestant) -> bool:
    return contestant.kind in TRAINED


_BETWEEN_LINES = 60.0


class RunProgress:
    """Called while a run goes on.

    Args:
        bar: of the study; disabled where stderr is no terminal.
        shown: the line of it.
        title: of the run.
        times: of the runs so far.
        current: the contestant.
        waiting: those of the runs that have not begun.
        everyone: all of them.
        steps: of the run, where they are known.
        begun: fraction of the training that an earlier process had done.
    """

    def __init__(
        self,
        bar: Progress,
        shown: TaskID,
        *,
        title: str,
        times: Times,
        current: Contestant,
        waiting: Sequence[Contestant],
        everyone: Sequence[Contestant],
        steps: int | None,
        begun: float,
    ) -> None:
        self.bar, self.shown, self.title, self.times = bar, shown, title, times
        self.current, self.waiting, self.everyone = current, waiting, everyone
        self.steps, self.begun = steps, begun
        self._told = 0.0

    def __call__(self, elapsed: float, fraction: float | None) -> None:
        """Show that so many seconds have gone, and which fraction of the training is done."""
        if fraction is not None:
            # A killed run does some of its steps again.
            self.begun = min(self.begun, fraction)
        rest = self.times.left(
            self.waiting,
            self.everyone,
            current=self.current,
            elapsed=elapsed,
            fraction=fraction,
            begun=self.begun,
        )
        self.bar.update(
            self.shown,
            visible=True,
            description=self.title.replace("[", r"\["),
            total=self.steps or 1,
            completed=int((fraction or 0.0) * (self.steps or 1)),
            left=told(rest),
        )
        if self.bar.disable and elapsed - self._told >= _BETWEEN_LINES:
            self._told = elapsed
            done = "" if fraction is None else f"{fraction:.0%} trained, "
            say(f"{self.title}: {done}{told(rest)}")
