"""results.json: what came out of a study, contestant by contestant, and the files made of it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from filbert.formats.files import write_json
from filbert.study.contestants import is_finished
from filbert.study.recipe import Contestant, Study
from filbert.train.facts import device_name
from filbert.train.folder import read_run
from filbert.train.log import say
from filbert.train.provenance import commit, versions


def write_results(
    study: Study,
    folder: Path,
    state: dict[str, Any],
    runs: Mapping[str, Path],
    *,
    show_texts: bool = False,
) -> dict[str, Any]:
    """Judge what is finished; write results.json, report.html, table.md and plots/.

    Args:
        study: who takes part.
        folder: of the study.
        state: content of study.json.
        runs: the run folder of every run, by its name there.
        show_texts: the report shows texts.

    Returns:
        The content of results.json.
    """
    from filbert.report.comparison import write_comparison_report
    from filbert.study.statistics import judge

    entries = [_entry(one, folder, state) for one in study.contestants]
    finished = {
        entry["name"]: {
            seed["seed"]: folder / seed["folder"]
            for seed in entry["seeds"]
            if seed["status"] == "finished"
        }
        for entry in entries
    }
    finished = {name: seeds for name, seeds in finished.items() if seeds}
    data = state["data"]
    results: dict[str, Any] = {
        "filbert": version("filbert"),
        "name": study.name,
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "task": "classification",
        "positive": data["positive"],
        "labels": data["labels"],
        "data": {k: v for k, v in data.items() if k not in ("positive", "labels")},
        "options": study.options,
        "machine": {
            "device": device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
            "processor": device_name(torch.device("cpu")),
            "threads": torch.get_num_threads(),
            "platform": platform.platform(terse=True),
            "versions": versions() | {"scikit-learn": version("scikit-learn")},
            "commit": commit(),
        },
        "contestants": entries,
        "pairs": [],
        "agreement": {"names": [], "matrix": []},
        "slices": [],
    }
    if finished:
        judged = judge(
            folder,
            finished,
            labels=data["labels"],
            positive=data["positive"],
            slices=study.keep_columns,
            resamples=study.resamples,
        )
        _join(entries, judged.pop("contestants"))
        results |= judged
    write_json(folder / "results.json", results)
    if finished:
        write_comparison_report(folder, show_texts=show_texts)
    for entry in entries:
        if entry["status"] == "failed":
            say(f"{entry['name']} failed: {entry['error']}")
    return results


def _join(entries: list[dict[str, Any]], judged: list[dict[str, Any]]) -> None:
    """Put the figures of contestants and of their seeds to what is known of them already."""
    by_name = {entry["name"]: entry for entry in entries}
    for figures in judged:
        entry = by_name[figures["name"]]
        runs = {seed["seed"]: seed for seed in entry["seeds"]}
        for seed in figures["seeds"]:
            runs[seed["seed"]] |= seed
        entry |= {key: value for key, value in figures.items() if key != "seeds"}


def _entry(one: Contestant, folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """What is known of a contestant without looking at its predictions."""
    seeds = []
    for seed in one.seeds:
        place = Path("contestants") / one.folder / f"seed-{seed}"
        marks = state["runs"].get(f"{one.folder}/seed-{seed}", {})
        found: dict[str, Any] = {"seed": seed, "folder": place.as_posix(), "error": None}
        if is_finished(folder / place, marks.get("fingerprint", "")):
            run = read_run(folder / place) or {}
            found |= {"status": "finished", "costs": run["costs"], **run["metrics"]}
        else:
            status = "failed" if marks.get("status") == "failed" else "missing"
            found |= {"status": status, "error": marks.get("error")}
        seeds.append(found)
    statuses = [seed["status"] for seed in seeds]
    status = next((s for s in ("finished", "failed") if s in statuses), "missing")
    errors = [seed["error"] for seed in seeds if seed["error"]]
    return {
        "name": one.name,
        "kind": one.kind,
        "cleaning": list(one.steps),
        "status": status,
        "error": errors[0] if errors else None,
        "options": one.options,
        "seeds": seeds,
        "costs": _mean([seed["costs"] for seed in seeds if "costs" in seed]),
    }


def _mean(costs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of every cost that all seeds have."""
    names = set.intersection(*(set(one) for one in costs)) if costs else set()
    return {name: fmean(one[name] for one in costs) for name in sorted(names)}
