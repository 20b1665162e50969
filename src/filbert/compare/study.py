"""Runs a study: prepares the rows, runs every contestant with every seed, writes the results."""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from filbert.compare.contestants import ContestantRun, run_child
from filbert.compare.recipe import TRAINED, Contestant, Study
from filbert.compare.statistics import compute_statistics
from filbert.data.records import Row, file_digest
from filbert.data.splitting import SPLITS, between, near_duplicates
from filbert.errors import ConfigError, InputError, Interrupted
from filbert.files import locked, portable, read_json, sha256_of, write_atomically, write_json
from filbert.model.precision import choose_device, choose_precision
from filbert.report.comparison import write_comparison_report
from filbert.report.run import label_counts
from filbert.tasks.base import Task
from filbert.tasks.rows import row_labels
from filbert.train.linear import joined
from filbert.train.log import say
from filbert.train.loop import Stop
from filbert.train.options import check_choice
from filbert.train.provenance import commit, device_name, now, versions
from filbert.train.run_folder import read_run
from filbert.train.splits import read_splits, values_of_column, with_columns

# Pairs of splits that should have no rows in common.
_LATER_AND_EARLIER = (("dev", "train"), ("test", "train"), ("test", "dev"))
# Options that do not change the result, so that they are no part of the fingerprint.
_FREE = ("save_every", "license", "language")
# Facts of a run that should be the same for all runs, with their names in a note.
_MUST_AGREE = {
    "filbert": "versions of filbert",
    "device": "devices or numbers of threads",
    "precision": "number formats",
}


def run_study(
    study: Study,
    out: str | Path,
    *,
    only: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Run the missing runs of a study, then write and return the results of all finished ones.

    Args:
        out: Its folder; finished runs of the same rows and options are not run again.
        only: Contestants to run now; the others are included in the results if they are finished.
        overwrite: Replace finished runs of other rows or options.

    Raises:
        InputError, ConfigError: Data or recipe is wrong; nothing was trained.
        Interrupted: Ctrl-C or SIGTERM; the message says how to resume.
    """
    for name in only:
        check_choice("only", name, [one.name for one in study.contestants])
    folder = Path(out)
    path = folder / "study.json"
    is_empty = not folder.is_dir() or all(one.name == ".data" for one in folder.iterdir())
    if not is_empty and not path.is_file():
        raise ConfigError(f"{folder} is not empty and holds no study; name another with --out.")
    # A child inherits the lock, so no second comparison starts while it runs without its parent.
    with locked(folder) as lock:
        state = read_json(path) if path.exists() else {}
        if "precision" not in state:
            # "auto" depends on a measurement, so it is chosen once for a study.
            device = choose_device(study.options.common.device)
            state["precision"] = choose_precision("auto", device).name
        is_new = _prepare(study, folder, state)
        runs = runs_of(study, folder, state["data"], state["precision"])
        wanted = [run for run in runs if not only or run.contestant.name in only]
        _check_changed(wanted, folder, overwrite=overwrite)
        if is_new:
            shutil.rmtree(folder / "data", ignore_errors=True)
            (folder / ".data").rename(folder / "data")
        write_json(path, state)
        left = [run for run in wanted if run.outcome[0] != "finished"]
        if not left:
            say(f"all {len(wanted)} requested runs are finished; only the results are computed")
        with Stop() as stop:
            for number, run in enumerate(left, start=1):
                title = f"[{number} of {len(left)}] {run.contestant.name}, seed {run.seed}"
                _run(run, title, folder=folder, stop=stop, lock=lock)
        say("computing metrics, intervals and tests")
        results = results_of(study, folder, state, runs)
        write_json(folder / "results.json", results)
        write_comparison_report(folder)
        return results


def _run(run: ContestantRun, title: str, *, folder: Path, stop: Stop, lock: int) -> None:
    """Run one run in a child process and record its outcome; Interrupted after a signal."""
    say(title)
    clock = time.perf_counter()
    if run.outcome[0] in ("missing", "changed"):
        shutil.rmtree(run.folder, ignore_errors=True)
    missing = next((one for one in run.sources if one.outcome[0] != "finished"), None)
    if missing is None:
        status, error = run_child(run, stop=stop, lock=lock)
    else:
        status = "failed"
        error = (
            f"It needs a finished run of {missing.contestant.name} with seed {missing.seed}. Run "
            "or fix that one first, then give the same command again."
        )
    # Messages are shown on other machines, which have other folders.
    run.write(status, error and error.replace(f"{folder.absolute()}/", ""))
    if status == "finished":
        best = (read_run(run.folder) or {}).get("best") or {}
        metric = f"dev {best.get('metric')} {best.get('value') or 0.0:.4f}"
        say(f"{title}: {metric}, {time.perf_counter() - clock:,.0f} s")
    else:
        say(f"{title} {status}: {error}")
    if stop.name is not None:
        raise Interrupted(
            f"{stop.name}: stopped. Finished runs and the saved state of the current run are kept; "
            f"the same command with --out {folder} continues."
        )


# Rows


def _prepare(study: Study, folder: Path, state: dict[str, Any]) -> bool:
    """Add the facts of the rows to `state`; return whether they were prepared now, in .data."""
    rows = study.options.rows
    key = asdict(rows) | {"seed": study.options.seed or 0}
    key |= {name: file_digest(path) for name, path in rows.files.items()}
    key = json.loads(json.dumps(key))
    if state.get("data_key") == key and all(
        (folder / state["data"][name]["path"]).is_file() for name in SPLITS
    ):
        return False
    shutil.rmtree(folder / ".data", ignore_errors=True)
    facts = prepare(study, folder / ".data")
    state |= {"data_key": key, "data": facts}
    for name in SPLITS:
        say(f"{name}: {facts[name]['rows']:,} rows: {label_counts(facts[name]['label_counts'])}")
    if facts["positive"] is not None and rows.positive is None and rows.merge_as is None:
        say(f"positive: {facts['positive']!r}, the second label; --positive names the other one")
    for name, earlier in _LATER_AND_EARLIER:
        if count := facts["near_duplicates"][f"{name}_like_{earlier}"]:
            say(f"{name}: {count:,} rows nearly repeat a row of {earlier}")
    return True


def prepare(study: Study, folder: Path) -> dict[str, Any]:
    """Read and split the rows as `finetune` does, and write folder/{train,dev,test}.jsonl.gz.

    Returns:
        {"train"|"dev"|"test": {path, rows, sha256, label_counts}, "source": [{of, path, sha256}],
        "labels", "positive", "near_duplicates": {...}}.

    Raises:
        InputError: A row is wrong (with file and line), or dev or test has one of two classes only.
        ConfigError: Columns or labels that are not there, or rows with several labels.
    """
    options = study.options.rows
    task, rows, division = read_splits(with_columns(options.reading(study.options.seed or 0)))
    if task.spec.multilabel:
        raise ConfigError("A study compares classifiers of one label a row; give one label a row.")
    labels = list(task.spec.labels or ())
    for line in division.lines() if division else ():
        say(line)
    facts: dict[str, Any] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in SPLITS:
        # A label that train does not have is refused, with file and line.
        counts = Counter(labels[task.gold(row)] for row in rows[name])
        missing = [label for label in labels if not counts[label]]
        if missing and len(labels) == 2:
            raise InputError(
                f"No row of {name} has the label {missing[0]!r}. Give more rows, other shares "
                "(split) or another seed."
            )
        facts[name] = _write_rows(task, rows[name], folder / f"{name}.jsonl.gz")
        if name == "test" and options.slice_column is not None:
            path = options.files.get("test") or options.files["data"]
            columns = options.reading(0).data.columns
            slices = values_of_column(rows[name], path, options.slice_column, columns)
            write_json(folder / "slices.json", {"values": slices})
        facts[name]["label_counts"] = {label: counts[label] for label in labels}
    return facts | {
        "source": [
            {"of": name, "path": Path(path).name, "sha256": file_digest(path)}
            for name, path in options.files.items()
        ],
        "labels": labels,
        "positive": task.spec.positive,
        "near_duplicates": _repeats(rows),
    }


def _write_rows(task: Task, rows: Sequence[Row], path: Path) -> dict[str, Any]:
    """Write text, perhaps text_pair, and label of each row; return path, rows and sha256."""
    lines = ""
    for row in rows:
        texts = {k: row.values[k] for k in ("text", "text_pair") if row.values.get(k) is not None}
        content = texts | {"label": row_labels(task, row)[0]}
        lines += json.dumps(content, ensure_ascii=False) + "\n"
    # Half a surrogate pair stays an escape. Without a time, the same rows give the same bytes.
    data = lines.encode("utf-8", "backslashreplace")
    write_atomically(path, gzip.compress(data, mtime=0))
    return {"path": f"data/{path.name}", "rows": len(rows), "sha256": sha256_of(path)}


def _repeats(splits: Mapping[str, list[Row]]) -> dict[str, int]:
    """Count rows that nearly repeat one of an earlier split.

    Dev against test counts too, because thresholds and steps are chosen on dev.
    """
    counts = [len(part) for part in splits.values()]
    rows = [row for part in splits.values() for row in part]
    split_of = np.repeat(list(splits), counts)
    near = near_duplicates([joined(row) for row in rows], parts=counts)
    return {
        f"{name}_like_{earlier}": len(between(near, split_of == earlier, split_of == name)[0])
        for name, earlier in _LATER_AND_EARLIER
    }


# Runs and their fingerprints


def runs_of(
    study: Study, folder: Path, data: Mapping[str, Any], precision: str
) -> list[ContestantRun]:
    """Return all runs: the first seed of all contestants first, in the order of the recipe.

    An interrupted study can then be reported. Ensembles come last, since they need all seeds.
    `data` are the facts of the prepared rows, `precision` is the meaning of "auto".
    """
    paths = {name: str((folder / data[name]["path"]).absolute()) for name in SPLITS}
    runs: list[ContestantRun] = []
    order = [(at, seed, one) for one in study.contestants for at, seed in enumerate(one.seeds)]
    order.sort(key=lambda entry: (entry[2].kind == "ensemble", entry[0]))
    for _, seed, one in order:
        sources = tuple(
            run
            for run in runs
            if run.contestant.name == one.source and (run.seed == seed or one.kind == "ensemble")
        )
        is_auto = one.kind in TRAINED and one.options.get("precision", "auto") == "auto"
        options = one.options | ({"precision": precision} if is_auto else {})
        run = ContestantRun(
            contestant=replace(one, options=options),
            seed=seed,
            data=paths,
            labels=tuple(data["labels"]),
            positive=data["positive"],
            out=str((folder / "contestants" / one.name / f"seed-{seed}").absolute()),
            fingerprint=_fingerprint(one, seed, data, [run.fingerprint for run in sources]),
            sources=sources,
        )
        runs.append(run)
    return runs


def _fingerprint(
    one: Contestant, seed: int, data: Mapping[str, Any], sources: Sequence[str]
) -> str:
    """Return the sha256 of everything that decides the result of a run.

    Files of the user count by their content; built-in and Hub models count by name. `sources` are
    the fingerprints of the runs whose models it starts from.
    """
    content = {
        "kind": one.kind,
        "options": {k: v for k, v in one.options.items() if k not in _FREE},
        "cleaning": list(one.cleaning),
        "seed": seed,
        "data": [data[name]["sha256"] for name in SPLITS],
        "labels": data["labels"],
        "positive": data["positive"],
    }
    files = {
        f"{name}: {relative}": _digest(path.absolute(), path.stat().st_mtime_ns)
        for name in ("vectors", "model", "student")
        for relative, path in _files_of(one.options.get(name)).items()
    }
    if files:
        content["files"] = files
    if sources:
        content["source"] = list(sources) if one.kind == "ensemble" else sources[0]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _files_of(place: str | None) -> dict[str, Path]:
    """Return the files of a local model, or a file of rows; empty for a name that is no path."""
    path = Path(str(place)).expanduser()
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
    else:
        # A prefix names a TensorFlow checkpoint.
        is_prefix = Path(f"{path}.index").is_file()
        files = [path] if path.is_file() else [*path.parent.glob(f"{path.name}.*")] * is_prefix
    # README.md and filbert.json hold times; the other files decide what the model computes.
    return {
        str(file.relative_to(path.parent)): file
        for file in files
        if file.name not in ("README.md", "filbert.json")
    }


@cache
def _digest(path: Path, changed: int) -> str:
    """Return the sha256; a large file that several contestants share is read once."""
    return sha256_of(path)


def _check_changed(runs: Sequence[ContestantRun], folder: Path, *, overwrite: bool) -> None:
    """Name finished runs of other rows or options; without `overwrite` they are a ConfigError."""
    changed = [run for run in runs if run.outcome[0] == "changed"]
    if changed and not overwrite:
        names = ", ".join(dict.fromkeys(run.contestant.name for run in changed))
        raise ConfigError(
            f"{folder} has finished runs of {names} with other rows or options. Give the "
            "contestant another name, name another --out, or run it again with --overwrite."
        )
    for run in changed:
        say(f"{run.contestant.name}, seed {run.seed}: its rows or options changed; it is run again")


# Results


def _machine() -> dict[str, Any]:
    """Describe the machine and the versions that the runs were made with."""
    cpu = device_name(torch.device("cpu"))
    return {
        "device": device_name(torch.device("cuda")) if torch.cuda.is_available() else cpu,
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(terse=True),
        "versions": versions() | {"scikit-learn": version("scikit-learn")},
        "commit": commit(),
    }


def results_of(
    study: Study, folder: Path, state: Mapping[str, Any], runs: Sequence[ContestantRun]
) -> dict[str, Any]:
    """Return results.json: metrics, tests and costs of those of the `runs` that are finished.

    `state` is the content of study.json. Paths are file names: other machines read the results.
    """
    data = state["data"]
    entries = [_entry(one, folder, runs) for one in study.contestants]
    results: dict[str, Any] = {
        "filbert": version("filbert"),
        "name": study.name,
        "finished": now(),
        "task": "classification",
        "positive": data["positive"],
        "labels": data["labels"],
        "data": {k: v for k, v in data.items() if k not in ("positive", "labels")},
        "options": portable(study.options.given()),
        "machine": _machine(),
        "notes": notes_of(entries),
        "contestants": entries,
        "pairs": [],
    }
    if all(entry["status"] != "finished" for entry in entries):
        return results
    column = study.options.rows.slice_column
    return results | compute_statistics(
        entries,
        folder,
        labels=data["labels"],
        positive=data["positive"],
        slices=None if column is None else read_json(folder / "data" / "slices.json")["values"],
        resamples=study.options.resamples or 2000,
    )


def _entry(one: Contestant, folder: Path, runs: Sequence[ContestantRun]) -> dict[str, Any]:
    """Return a contestant's entry, without what depends on the predictions."""
    seeds = [_seed_entry(run, folder) for run in runs if run.contestant.name == one.name]
    statuses = [seed["status"] for seed in seeds]
    costs = [seed["costs"] for seed in seeds if seed["status"] == "finished"]
    names = dict.fromkeys(name for cost in costs for name in cost)
    return {
        "name": one.name,
        "kind": one.kind,
        "source": one.source,
        "cleaning": list(one.cleaning),
        "status": next((s for s in ("finished", "failed") if s in statuses), "missing"),
        "error": next((seed["error"] for seed in seeds if seed["error"]), None),
        "options": portable(one.options),
        "seeds": seeds,
        "costs": {name: median(cost[name] for cost in costs if name in cost) for name in names},
    }


def _seed_entry(run: ContestantRun, folder: Path) -> dict[str, Any]:
    """Return the entry of a run."""
    status, error = run.outcome
    entry = {"seed": run.seed, "folder": str(run.folder.relative_to(folder.absolute()))}
    if status in ("changed", "interrupted"):
        return entry | {"status": "missing", "error": None}
    entry |= {"status": status, "error": error}
    if status == "finished":
        facts = read_json(run.folder / "run.json")
        entry |= {"costs": facts["costs"]} | {name: facts.get(name) for name in _MUST_AGREE}
        entry["truncated_test_rows"] = facts["data"]["test"].get("truncated")
    return entry


def notes_of(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences about runs with different software, hardware or number formats."""
    notes = []
    for key, what in _MUST_AGREE.items():
        # Linear models are fitted in float64.
        values = {
            json.dumps(seed[key], sort_keys=True).strip('"')
            for entry in entries
            for seed in entry["seeds"]
            if seed["status"] == "finished" and (entry["kind"] in TRAINED or key != "precision")
        }
        if len(values) > 1:
            notes.append(f"The runs were made with different {what}: {'; '.join(sorted(values))}.")
    return notes
