"""Writes results.json, the outcome of a study by contestant, and the files made of it."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from filbert.compare.contestants import PREDICTED_SPLITS, ContestantRun, trained_fingerprint
from filbert.compare.predictions import prepared_rows, read_predictions
from filbert.compare.recipe import BIGRU, TRAINED, Contestant, Study, Target, references
from filbert.compare.statistics import compute_statistics
from filbert.errors import FilbertError
from filbert.files import write_json
from filbert.report.comparison import write_comparison_report
from filbert.train.log import say
from filbert.train.provenance import commit, device_name, versions
from filbert.train.run_folder import read_run

# Costs with a median over seeds; the others describe a single run.
COSTS = (
    "training_seconds", "cpu_seconds", "rows_per_second", "latency_seconds", "flops_per_row",
    "parameters", "bytes_on_disk", "weight_bytes", "peak_bytes", "peak_device_bytes",
)  # fmt: skip
# Options that decide the result, shown with the values that a run had.
EFFECTIVE = (
    "lr", "epochs", "steps", "time", "batch_size", "max_tokens", "optimizer", "schedule", "warmup",
    "weight_decay", "clip", "dropout", "layer_decay", "freeze", "keep_layers", "reinit_layers",
    "causal", "patience", "eval_every", "metric", "on_overflow", "C", "ngrams", "min_df", "vectors",
    "model", "method", "alpha", "temperature", "beta", "layer_map", "hidden_share",
    "hidden_lr", "hidden_schedule", "new_head",
)  # fmt: skip
# Ratio of the fastest to the slowest pass above which a speed gets a note.
UNEVEN = 1.25
# Facts of a run that should be the same for all runs, with their names in a note.
_MUST_AGREE = {
    "filbert": "versions of filbert",
    "device": "devices or numbers of threads",
    "versions": "versions of libraries",
}
HEADINGS = {"pr_auc": "PR AUC", "macro_f1": "macro F1"}


def write_results(
    study: Study,
    folder: Path,
    state: Mapping[str, Any],
    runs: Sequence[ContestantRun],
    *,
    show_texts: bool = False,
) -> dict[str, Any]:
    """Write results.json, report.html, table.md and plots/ from the finished runs.

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
        "machine": _machine(entries),
        "notes": notes_of(entries),
        "contestants": entries,
        "pairs": [],
        "agreement": {"names": [], "matrix": []},
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


def _machine(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    device = device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    cpu = device_name(torch.device("cpu"))
    return {
        "device": device,
        "processor": cpu,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(terse=True),
        "versions": versions() | {"scikit-learn": version("scikit-learn")},
        "commit": commit(),
        "same_for_all_runs": ran_in_same_environment(entries, (device, cpu)),
    }


def _statistics(
    study: Study, folder: Path, entries: list[dict[str, Any]], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Add metrics and shares to the entries of finished runs; return the other statistics."""
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
        slices=study.keep_columns,
        references=references(study.contestants, study.target),
        resamples=study.resamples,
    )
    measured = {one["name"]: one for one in statistics.pop("contestants")}
    shares = statistics.pop("shares")
    for entry in entries:
        entry["share"] = shares.get(entry["name"])
        if entry["name"] not in measured:
            continue
        one = measured[entry["name"]]
        runs = {seed["seed"]: seed for seed in entry["seeds"]}
        for seed in one.pop("seeds"):
            runs[seed["seed"]] |= seed
        entry |= one
    if study.target is not None:
        metric = "pr_auc" if data["positive"] is not None else "macro_f1"
        statistics["choice"] = choice_of(entries, study.target, metric)
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
    seeds = []
    effective: dict[str, Any] = {}
    for run in runs:
        if run.contestant != one.name:
            continue
        seed, facts = _seed_entry(run, folder, state)
        # The same for all seeds, except a C that was chosen on dev: that of the first seed.
        effective = effective or _effective(one, facts)
        seeds.append(seed)
    statuses = [seed["status"] for seed in seeds]
    errors = [seed["error"] for seed in seeds if seed["error"]]
    return {
        "name": one.name,
        "kind": one.kind,
        "source": None if one.source is None else one.source.name,
        "cleaning": list(one.steps),
        "status": next((s for s in ("finished", "failed") if s in statuses), "missing"),
        "error": errors[0] if errors else None,
        "options": without_folders(one.options),
        "effective": effective,
        "seeds": seeds,
        "costs": medians([s["costs"] for s in seeds if s["status"] == "finished"]),
    }


def _seed_entry(
    run: ContestantRun, folder: Path, state: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the entry of a run, and the content of its run.json if it is finished."""
    record, path = state["runs"].get(run.key, {}), Path("contestants") / run.key
    entry: dict[str, Any] = {"seed": run.seed, "folder": path.as_posix(), "error": None}
    if run.is_finished:
        facts = read_run(run.folder) or {}
        entry |= {"status": "finished", "costs": facts["costs"], **facts["metrics"]}
        entry |= {name: facts.get(name) for name in (*_MUST_AGREE, "precision")}
        damage = _damage(run, folder)
        if damage is None:
            return entry, facts
        entry |= {"status": "failed", "error": damage}
    elif trained_fingerprint(run.folder) not in (None, run.fingerprint):
        error = "The run in its folder has other options or rows, so it is left out."
        entry |= {"status": "missing", "error": error}
    elif record.get("status") == "failed" and record.get("fingerprint") == run.fingerprint:
        entry |= {"status": "failed", "error": record.get("error")}
    else:
        # A failure with other options or rows says nothing about this run.
        entry["status"] = "missing"
    return entry, {}


def _damage(run: ContestantRun, folder: Path) -> str | None:
    """Return why a run's predictions cannot be used; None if they can."""
    who = f"{run.contestant} (seed {run.seed})"
    for split in PREDICTED_SPLITS:
        try:
            found = read_predictions(split, {who: {run.seed: run.folder}}, run.labels)
            prepared_rows(folder, split, found.gold, run.labels)
        except FilbertError as error:
            message = str(error).replace(f"{folder.absolute()}/", "").replace(f"{folder}/", "")
            file = f"contestants/{run.key}/predictions/{split}.jsonl"
            return f"{message} Delete {file} and give the same command again."
    return None


def _effective(one: Contestant, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that decided a run's result, with the values that it had."""
    if not run:
        return {}
    options = run.get("options") or {}
    found = {name: options[name] for name in EFFECTIVE if options.get(name) is not None}
    if one.kind == "bigru":
        words = run.get("word_vectors") or {}
        own = {name: one.options.get(name) for name in BIGRU} | {"words": words.get("words")}
        own["words_with_vectors"] = words.get("with_vectors") if own["vectors"] else None
        found |= {name: value for name, value in own.items() if value is not None}
    found["precision"] = run.get("precision")
    data = run.get("data") or {}
    test = data.get("test") or {}
    if (data.get("train") or {}).get("max_length"):
        found["max_length"] = data["train"]["max_length"]
    if test.get("truncated") is not None and test.get("rows"):
        found["truncated_test_share"] = test["truncated"] / test["rows"]
    return without_folders(found)


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
    """Return sentences about runs with different software or hardware, or on a busy machine."""
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
    for condition, consequence in (
        (_was_busy, "started while other programs were running: their times are too long"),
        (_was_uneven, "changed by more than a quarter in rows a second between timed passes"),
    ):
        names = [f"{e['name']}, seed {run['seed']}" for e, run in runs if condition(run["costs"])]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            which = "; ".join(names[:3]) + more
            notes.append(f"{len(names)} of {len(runs)} runs ({which}) {consequence}.")
    return notes


def _was_busy(costs: Mapping[str, Any]) -> bool:
    return bool(costs.get("load_start", 0.0) > costs.get("machine_threads", 1e9) + 1)


def _was_uneven(costs: Mapping[str, Any]) -> bool:
    low, high = costs.get("rows_per_second_low", 1e9), costs.get("rows_per_second_high", 0.0)
    return bool(high > UNEVEN * low)


def ran_in_same_environment(entries: Sequence[Mapping[str, Any]], here: Collection[str]) -> bool:
    """Return whether all finished runs have the same device, and it is one of these names."""
    devices = [run.get("device") or {} for _, run in _finished(entries)]
    return len({_in_words(one) for one in devices}) == 1 and devices[0].get("name") in here


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value[key]}" for key in sorted(value))
    return "" if value is None else str(value)


def choice_of(entries: Sequence[Mapping[str, Any]], target: Target, metric: str) -> dict[str, Any]:
    """Choose the contestant that the target asks for, on dev.

    With a quality it is the fastest (rows a second) of those that reach it; with a time alone it is
    the best of those within the time. Test rows are not used, so their metrics stay unbiased.

    Args:
        entries: Contestants of results.json.
        target: What must be reached.
        metric: pr_auc or macro_f1.

    Returns:
        target_quality, target_latency_seconds, of, metric, chosen (a name, or None), why (a
        sentence), and candidates: name, dev, dev_share, rows_per_second, latency_seconds, is_good
        and is_quick.
    """
    known = {entry["name"]: entry for entry in entries if entry.get("test")}
    dev = {name: _mean_on_dev(entry, metric) for name, entry in known.items()}
    candidates = []
    for name, entry in known.items():
        if target.quality is not None and name == target.of:
            continue
        share = dev[name] / dev[target.of] if target.of and dev.get(target.of) else None
        costs, limit = entry.get("costs") or {}, target.latency_seconds
        seconds = costs.get("latency_seconds")
        candidates.append(
            {
                "name": name,
                "dev": dev[name],
                "rows_per_second": costs.get("rows_per_second"),
                "latency_seconds": seconds,
                "dev_share": share,
                "is_good": target.quality is None or (share or 0.0) >= target.quality,
                "is_quick": limit is None or (seconds is not None and seconds <= limit),
            }
        )
    fitting = [one for one in candidates if one["is_good"] and one["is_quick"]]
    by = "dev" if target.quality is None else "rows_per_second"
    best = max(fitting, key=lambda one: one[by] or 0.0, default=None)
    if target.quality is not None and target.of not in known:
        why = f"{target.of} has no finished run, so no share of its quality is known."
    elif best is None:
        wanted = _requirements(target, metric)
        why = f"None of the {len(candidates)} measured contestants has {wanted}."
    else:
        reason = f"the most rows a second ({best['rows_per_second'] or 0:,.0f})"
        if target.quality is None:
            reason = f"the highest {HEADINGS[metric]} on dev ({best['dev']:.4f})"
        why = f"{best['name']} has {reason} of {len(fitting)} with {_requirements(target, metric)}."
        why += _share_on_test(known[best["name"]].get("share"), target)
    return {
        "target_quality": target.quality,
        "target_latency_seconds": target.latency_seconds,
        "of": target.of,
        "metric": metric,
        "chosen": None if best is None else best["name"],
        "why": why,
        "candidates": candidates,
    }


def _mean_on_dev(entry: Mapping[str, Any], metric: str) -> float:
    values = [(run.get("dev") or {}).get(metric) for _, run in _finished([entry])]
    return fmean([value for value in values if value is not None] or [0.0])


def _requirements(target: Target, metric: str) -> str:
    requirements = []
    if target.quality is not None:
        requirements.append(
            f"at least {target.quality:.1%} of {target.of}'s {HEADINGS[metric]} on dev"
        )
    if target.latency_seconds is not None:
        requirements.append(f"at most {1e3 * target.latency_seconds:.3g} ms for a single text")
    return " and ".join(requirements)


def _share_on_test(share: Mapping[str, Any] | None, target: Target) -> str:
    if share is None or share.get("value") is None:
        return ""
    interval = "" if share.get("low") is None else f" [{share['low']:.1%}, {share['high']:.1%}]"
    text = f" On test it has {share['value']:.1%}{interval} of {share['of']}'s."
    is_missed = target.quality is not None and share["value"] < target.quality
    return text + (" That is less than the target." if is_missed else "")
