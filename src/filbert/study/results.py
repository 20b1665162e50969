"""results.json: what came out of a study, contestant by contestant, and the files made of it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from filbert.files import write_json
from filbert.study.choice import choice_of
from filbert.study.entries import are_alike, entry_of, nameless, notes_of
from filbert.study.recipe import Study
from filbert.study.target import references
from filbert.train.facts import commit, device_name, versions
from filbert.train.log import say


def write_results(
    study: Study,
    folder: Path,
    state: dict[str, Any],
    marks: Mapping[str, str],
    *,
    show_texts: bool = False,
) -> dict[str, Any]:
    """Judge what is finished; write results.json, report.html, table.md and plots/.

    Args:
        study: who takes part.
        folder: of the study.
        state: content of study.json.
        marks: the fingerprint of every run as it is asked for, by its name there.
        show_texts: the report shows texts.

    Returns:
        The content of results.json.
    """
    from filbert.report.comparison import write_comparison_report
    from filbert.study.statistics import judge

    data = state["data"]
    entries = [entry_of(one, folder, state, marks, data) for one in study.contestants]
    finished = {
        entry["name"]: {
            seed["seed"]: folder / seed["folder"]
            for seed in entry["seeds"]
            if seed["status"] == "finished"
        }
        for entry in entries
    }
    finished = {name: seeds for name, seeds in finished.items() if seeds}
    source = [
        {**one, "of": name, "path": Path(one["path"]).name}
        for name, one in zip(study.sources, data["source"], strict=True)
    ]
    device = device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    processor = device_name(torch.device("cpu"))
    results: dict[str, Any] = {
        "filbert": version("filbert"),
        "name": study.name,
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "task": "classification",
        "positive": data["positive"],
        "labels": data["labels"],
        "data": {k: v for k, v in data.items() if k not in ("positive", "labels")}
        | {"source": source},
        "options": nameless(study.options),
        "machine": {
            "device": device,
            "processor": processor,
            "threads": torch.get_num_threads(),
            "platform": platform.platform(terse=True),
            "versions": versions() | {"scikit-learn": version("scikit-learn")},
            "commit": commit(),
            "same_for_all_runs": are_alike(entries, (device, processor)),
        },
        "notes": notes_of(entries),
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
            references=references(study.contestants, study.target),
            resamples=study.resamples,
        )
        _join(entries, judged.pop("contestants"))
        for entry in entries:
            entry["share"] = judged["shares"].get(entry["name"])
        del judged["shares"]
        results |= judged
        if study.target is not None:
            metric = "pr_auc" if data["positive"] is not None else "macro_f1"
            results["choice"] = choice_of(entries, study.target, metric)
    write_json(folder / "results.json", results)
    write_comparison_report(folder, show_texts=show_texts)
    for entry in entries:
        for seed in entry["seeds"]:
            if seed["status"] == "failed":
                say(f"{entry['name']}, seed {seed['seed']} failed: {seed['error']}")
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
