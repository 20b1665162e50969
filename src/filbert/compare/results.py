"""Writes results.json, the outcome of a study by contestant, and the files made of it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from filbert.compare.contestants import PREDICTED_SPLITS, ContestantRun, trained_fingerprint
from filbert.compare.recipe import TRAINED, Contestant, Study
from filbert.compare.statistics import compute_statistics
from filbert.errors import FilbertError
from filbert.files import write_json
from filbert.report.comparison import write_comparison_report
from filbert.report.folder import read_scores
from filbert.train.log import say
from filbert.train.provenance import commit, device_name, versions
from filbert.train.run_folder import read_run

# Costs with a median over seeds; the others describe a single run.
COSTS = (
    "training_seconds", "rows_per_second", "latency_seconds", "parameters", "bytes_on_disk",
    "peak_bytes", "peak_device_bytes",
)  # fmt: skip
# Facts of a run that should be the same for all runs, with their names in a note.
_MUST_AGREE = {
    "filbert": "versions of filbert",
    "device": "devices or numbers of threads",
    "versions": "versions of libraries",
}


def write_results(
    study: Study,
    folder: Path,
    state: Mapping[str, Any],
    runs: Sequence[ContestantRun],
    *,
    show_texts: bool = False,
) -> dict[str, Any]:
    """Write results.json, report.html and plots/ from the finished runs.

    Args:
        study: Its contestants.
        folder: Of the study.
        state: Content of study.json.
        runs: All runs of the study, finished or not.
        show_texts: The report shows texts.

    Returns:
        The content of results.json.
    """
    data = state["data"]
    entries = [entry_of(one, folder, state, runs) for one in study.contestants]
    source = [
        {**one, "of": name, "path": Path(one["path"]).name}
        for name, one in zip(study.sources, data["source"], strict=True)
    ]
    results: dict[str, Any] = {
        "filbert": version("filbert"),
        "name": study.name,
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "task": "classification",
        "positive": data["positive"],
        "labels": data["labels"],
        "data": {k: v for k, v in data.items() if k not in ("positive", "labels")}
        | {"source": source},
        "options": without_folders(study.options),
        "machine": _machine(),
        "notes": notes_of(entries),
        "contestants": entries,
        "pairs": [],
        "slices": [],
    }
    results |= _statistics(study, folder, entries, data)
    write_json(folder / "results.json", results)
    write_comparison_report(folder, show_texts=show_texts)
    for entry in entries:
        for seed in entry["seeds"]:
            if seed["status"] == "failed":
                say(f"{entry['name']}, seed {seed['seed']} failed: {seed['error']}")
    return results


def _machine() -> dict[str, Any]:
    return {
        "device": device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
        "processor": device_name(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(terse=True),
        "versions": versions() | {"scikit-learn": version("scikit-learn")},
        "commit": commit(),
    }


def _statistics(
    study: Study, folder: Path, entries: list[dict[str, Any]], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Add metrics to the entries of finished runs; return the other statistics."""
    finished = {
        entry["name"]: {
            seed["seed"]: folder / seed["folder"]
            for seed in entry["seeds"]
            if seed["status"] == "finished"
        }
        for entry in entries
    }
    finished = {name: seeds for name, seeds in finished.items() if seeds}
    if not finished:
        return {}
    statistics = compute_statistics(
        folder,
        finished,
        labels=data["labels"],
        positive=data["positive"],
        slice_column=study.slice_column,
        resamples=study.resamples,
    )
    measured = {one["name"]: one for one in statistics.pop("contestants")}
    for entry in entries:
        if entry["name"] not in measured:
            continue
        one = measured[entry["name"]]
        runs = {seed["seed"]: seed for seed in entry["seeds"]}
        for seed in one.pop("seeds"):
            runs[seed["seed"]] |= seed
        entry |= one
    return statistics


def entry_of(
    one: Contestant, folder: Path, state: Mapping[str, Any], runs: Sequence[ContestantRun]
) -> dict[str, Any]:
    """Return a contestant's entry, without what depends on the predictions.

    Args:
        one: The contestant.
        folder: Of the study.
        state: Content of study.json.
        runs: Of all contestants.
    """
    seeds = [_seed_entry(run, folder, state) for run in runs if run.contestant == one.name]
    statuses = [seed["status"] for seed in seeds]
    errors = [seed["error"] for seed in seeds if seed["error"]]
    return {
        "name": one.name,
        "kind": one.kind,
        "source": None if one.source is None else one.source.name,
        "cleaning": one.steps,
        "status": next((s for s in ("finished", "failed") if s in statuses), "missing"),
        "error": errors[0] if errors else None,
        "options": without_folders(one.options),
        "seeds": seeds,
        "costs": medians([s["costs"] for s in seeds if s["status"] == "finished"]),
    }


def _seed_entry(run: ContestantRun, folder: Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a run."""
    record, path = state["runs"].get(run.key, {}), Path("contestants") / run.key
    entry: dict[str, Any] = {"seed": run.seed, "folder": path.as_posix(), "error": None}
    if run.is_finished:
        facts = read_run(run.folder) or {}
        entry |= {"status": "finished", "costs": facts["costs"], **facts["metrics"]}
        entry |= {name: facts.get(name) for name in (*_MUST_AGREE, "precision")}
        entry["truncated_test_rows"] = ((facts.get("data") or {}).get("test") or {}).get(
            "truncated"
        )
        damage = _damage(run, folder)
        if damage is None:
            return entry
        entry |= {"status": "failed", "error": damage}
    elif trained_fingerprint(run.folder) not in (None, run.fingerprint):
        error = "The run in its folder has other options or rows, so it is left out."
        entry |= {"status": "missing", "error": error}
    elif record.get("status") == "failed" and record.get("fingerprint") == run.fingerprint:
        entry |= {"status": "failed", "error": record.get("error")}
    else:
        # A failure with other options or rows says nothing about this run.
        entry["status"] = "missing"
    return entry


def _damage(run: ContestantRun, folder: Path) -> str | None:
    """Return why a run's predictions cannot be used; None if they can."""
    for split in PREDICTED_SPLITS:
        path = run.folder / "predictions" / f"{split}.jsonl"
        try:
            read_scores(path, run.labels)
        except FilbertError as error:
            message = str(error).replace(f"{folder.absolute()}/", "")
            file = f"contestants/{run.key}/predictions/{split}.jsonl"
            return f"{message} Delete {file} and give the same command again."
    return None


def without_folders(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace absolute paths by file names, because results.json is read on other machines."""
    return {
        key: Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
        for key, value in values.items()
    }


def medians(costs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of every cost over the seeds that have it."""
    known = {name: [one[name] for one in costs if name in one] for name in COSTS}
    return {name: median(values) for name, values in known.items() if values}


def _finished(entries: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Any]]:
    return [(e, run) for e in entries for run in e["seeds"] if run["status"] == "finished"]


def notes_of(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences about runs with different software, hardware or number formats."""
    runs = _finished(entries)
    notes = []
    for key, what in (_MUST_AGREE | {"precision": "number formats"}).items():
        # Linear models are trained by another library, in float64.
        values = {
            _in_words(run.get(key))
            for entry, run in runs
            if entry["kind"] in TRAINED or key in ("filbert", "device")
        } - {""}
        if len(values) > 1:
            notes.append(f"The runs were made with different {what}: {'; '.join(sorted(values))}.")
    return notes


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value[key]}" for key in sorted(value))
    return "" if value is None else str(value)
