"""A whole study: prepare the rows, run every contestant with every seed, judge, report."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filbert.data.records import file_digest
from filbert.errors import ConfigError, Interrupted
from filbert.formats.files import sha256_of
from filbert.study.child import run_child
from filbert.study.contestants import Job, is_finished
from filbert.study.place import guarded, read_state, write_state
from filbert.study.prepare import SPLITS, prepare
from filbert.study.recipe import Contestant, Study, chosen, finetune_options
from filbert.study.results import write_results
from filbert.study.times import Times, num_steps, told
from filbert.train.folder import read_run
from filbert.train.log import progress_bar, say
from filbert.train.signals import Stop

# What does not change the figures, so that a run stays what it is when they change.
_FREE = ("save_every", "license", "language")


@dataclass(frozen=True)
class Run:
    """One contestant with one seed."""

    contestant: Contestant
    seed: int
    job: Job
    out: Path

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
        return is_finished(self.out, self.job.fingerprint)


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
        runs = _runs(study, folder, state["data"])
        _refuse_changed(runs, state, overwrite=overwrite)
        state["options"] = study.options
        state["contestants"] = {
            c.name: {"kind": c.kind, "options": c.options, "cleaning": list(c.steps)}
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
        return write_results(
            study, folder, state, {run.key: run.out for run in runs}, show_texts=show_texts
        )


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
        changed = ", ".join(_changes(before, key))
        if not overwrite:
            raise ConfigError(
                f"{folder} holds a study of other rows ({changed}). Name another --out, or start "
                f"anew with --overwrite."
            )
        say(f"other rows than before ({changed}): everything is done anew")
        for name in ("data", "contestants", "plots"):
            shutil.rmtree(folder / name, ignore_errors=True)
        state = {}
    if state.get("data") and all(_is_whole(folder, state["data"][name]) for name in SPLITS):
        return state
    state = {"filbert": version("filbert"), "data_key": key, "runs": {}}
    write_state(folder, state)
    facts = prepare(study, folder / "data")
    state["data"] = facts
    write_state(folder, state)
    for name in SPLITS:
        counts = ", ".join(f"{label}: {n:,}" for label, n in facts[name]["label_counts"].items())
        say(f"{name}: {facts[name]['rows']:,} rows ({counts})")
    repeats = facts["near_duplicates"]
    for name in ("dev", "test"):
        if repeats.get(f"{name}_like_train"):
            say(f"{name}: {repeats[f'{name}_like_train']:,} rows nearly repeat a training row")
    return state


def _is_whole(folder: Path, facts: dict[str, Any]) -> bool:
    path = folder / facts["path"]
    return path.is_file() and sha256_of(path) == str(facts["sha256"])


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs, in words."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [
        "other files"
        if name == "files"
        else f"{name} {_shown(before, name)} -> {_shown(now, name)}"
        for name in names
    ]


def _shown(options: dict[str, Any], name: str) -> str:
    return str(options[name])[:60] if options.get(name) is not None else "not given"


def _runs(study: Study, folder: Path, data: dict[str, Any]) -> list[Run]:
    """All runs, the first seed of everybody first: a study that is cut short is still one."""
    paths = {name: str((folder / data[name]["path"]).absolute()) for name in SPLITS}
    digests = [data[name]["sha256"] for name in SPLITS]
    found = []
    most = max(len(c.seeds) for c in study.contestants)
    for at in range(most):
        for one in study.contestants:
            if at >= len(one.seeds):
                continue
            seed = one.seeds[at]
            out = (folder / "contestants" / one.folder / f"seed-{seed}").absolute()
            training = finetune_options(one) if one.kind in ("encoder", "bigru") else {}
            content = {
                "kind": one.kind,
                "options": {k: v for k, v in one.options.items() if k not in _FREE},
                "cleaning": list(one.steps),
                "seed": seed,
                "data": digests,
                "labels": data["labels"],
                "positive": data["positive"],
            }
            mark = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
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
                mark,
            )
            found.append(Run(one, seed, job, out))
    return found


def _refuse_changed(runs: Sequence[Run], state: dict[str, Any], *, overwrite: bool) -> None:
    """A contestant that has runs here, and other options now, is run anew only when asked to.

    Raises:
        ConfigError: what changed, and `overwrite` is off.
    """
    for run in runs:
        marks = state["runs"].get(run.key, {})
        if not run.out.exists() or marks.get("fingerprint") == run.job.fingerprint:
            continue
        if read_run(run.out) is not None and "fingerprint" in marks:
            told_before = state.get("contestants", {}).get(run.contestant.name, {})
            now = {**run.contestant.options, "cleaning": list(run.contestant.steps)}
            before = {**told_before.get("options", {}), "cleaning": told_before.get("cleaning")}
            changed = ", ".join(_changes(before, now)) or "its options"
            if not overwrite:
                raise ConfigError(
                    f"{run.contestant.name} has changed since it was run in {run.out.parents[2]}: "
                    f"{changed}. Give it another name, name another --out, or run it anew with "
                    f"--overwrite."
                )
            say(f"{run.contestant.name}: {changed}; it is run anew")
        shutil.rmtree(run.out)
        shutil.rmtree(run.job.start, ignore_errors=True)


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
        for at, run in enumerate(left):
            number = len(runs) - len(left) + at + 1
            waiting = [later.contestant for later in left[at + 1 :]]
            title = f"[{number} of {len(runs)}] {run.contestant.name}, seed {run.seed}"
            first = times.left([run.contestant, *waiting], everyone)
            bar.console.print(f"{title}: {told(first)}", highlight=False, markup=False)
            steps = num_steps(run.job.training, state["data"]["train"]["rows"])

            def tell(elapsed: float, fraction: float | None, run: Run = run) -> None:
                rest = times.left(
                    waiting,  # noqa: B023
                    everyone,
                    current=run.contestant,
                    elapsed=elapsed,
                    fraction=fraction,
                )
                bar.update(
                    shown,
                    visible=True,
                    description=title.replace("[", r"\["),  # noqa: B023
                    total=steps or 1,  # noqa: B023
                    completed=int((fraction or 0.0) * (steps or 1)),  # noqa: B023
                    left=told(rest),
                )

            marks = state["runs"].setdefault(run.key, {})
            marks |= {"fingerprint": run.job.fingerprint, "status": "running", "error": None}
            write_state(folder, state)
            clock = time.perf_counter()
            ended = run_child(
                run.job, run.job_path, stop=stop, lock=lock, steps=steps, on_tick=tell
            )
            bar.update(shown, visible=False)
            seconds = marks.get("seconds", 0.0) + time.perf_counter() - clock
            marks |= {"status": ended.status, "error": ended.error, "seconds": seconds}
            write_state(folder, state)
            if stop.name is not None and ended.status != "finished":
                _stop(stop, runs, folder)
            if ended.status == "finished":
                times.add(run.contestant, seconds)
                say(f"{title}: {_headline(run)}, {seconds:,.0f} s")
            else:
                say(f"{title} failed: {ended.error}")
            if stop.name is not None:
                _stop(stop, runs, folder)


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
