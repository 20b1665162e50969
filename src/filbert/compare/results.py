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

from filbert.compare.contestant_options import BIGRU, TRAINED, Contestant
from filbert.compare.contestants import JUDGED, finished_mark, trained_mark
from filbert.compare.predictions import prepared_rows, read_predictions
from filbert.compare.recipe import Study, Target, references
from filbert.errors import FilbertError
from filbert.files import write_json
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
    state: dict[str, Any],
    marks: Mapping[str, str],
    *,
    show_texts: bool = False,
) -> dict[str, Any]:
    """Write results.json, report.html, table.md and plots/ from the finished runs.

    Args:
        study: Its contestants.
        folder: Of the study.
        state: Content of study.json.
        marks: Fingerprint that the recipe requires of every run, by its name there.
        show_texts: The report shows texts.

    Returns:
        The content of results.json.
    """
    from filbert.compare.statistics import judge
    from filbert.report.comparison import write_comparison_report

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
    """Add the metrics of contestants and of their seeds to their entries."""
    by_name = {entry["name"]: entry for entry in entries}
    for figures in judged:
        entry = by_name[figures["name"]]
        runs = {seed["seed"]: seed for seed in entry["seeds"]}
        for seed in figures["seeds"]:
            runs[seed["seed"]] |= seed
        entry |= {key: value for key, value in figures.items() if key != "seeds"}


def entry_of(
    one: Contestant,
    folder: Path,
    state: Mapping[str, Any],
    marks: Mapping[str, str],
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a contestant's entry, without what depends on the predictions.

    Args:
        one: The contestant.
        folder: Of the study.
        state: Content of study.json.
        marks: Fingerprint that the recipe requires of every run, by its name in study.json.
        data: Facts of the prepared rows.
    """
    seeds, effective = [], []
    for seed in one.seeds:
        key = f"{one.folder}/seed-{seed}"
        path = Path("contestants") / key
        record = state["runs"].get(key, {})
        found: dict[str, Any] = {"seed": seed, "folder": path.as_posix(), "error": None}
        if finished_mark(folder / path) == marks[key]:
            run = read_run(folder / path) or {}
            found |= {"status": "finished", "costs": run["costs"], **run["metrics"]}
            found |= {name: run.get(name) for name in (*_MUST_AGREE, "precision")}
            damage = _damage(f"{one.name} (seed {seed})", folder, path, data)
            if damage is not None:
                found |= {"status": "failed", "error": damage}
            else:
                effective.append(_effective(one, run))
        elif trained_mark(folder / path) not in (None, marks[key]):
            error = "The run in its folder has other options or rows, so it is left out."
            found |= {"status": "missing", "error": error}
        elif record.get("status") == "failed" and record.get("fingerprint") == marks[key]:
            found |= {"status": "failed", "error": record.get("error")}
        else:
            # A failure with other options or rows says nothing about this run.
            found["status"] = "missing"
        seeds.append(found)
    statuses = [seed["status"] for seed in seeds]
    errors = [seed["error"] for seed in seeds if seed["error"]]
    return {
        "name": one.name,
        "kind": one.kind,
        "source": None if one.source is None else one.source.name,
        "cleaning": list(one.steps),
        "status": next((s for s in ("finished", "failed") if s in statuses), "missing"),
        "error": errors[0] if errors else None,
        "options": nameless(one.options),
        # The same for all seeds, except a C that was chosen on dev: that of the first seed.
        "effective": effective[0] if effective else {},
        "seeds": seeds,
        "costs": medians([s["costs"] for s in seeds if s["status"] == "finished"]),
    }


def _damage(who: str, folder: Path, path: Path, data: Mapping[str, Any]) -> str | None:
    """Return why a run's predictions cannot be used; None if they can."""
    for split in JUDGED:
        try:
            found = read_predictions(split, {who: {0: folder / path}}, data["labels"])
            prepared_rows(folder, split, found.gold, data["labels"])
        except FilbertError as error:
            message = str(error).replace(f"{folder}/", "")
            file = path / "predictions" / f"{split}.jsonl"
            return f"{message} Delete {file.as_posix()} and give the same command again."
    return None


def _effective(one: Contestant, run: Mapping[str, Any]) -> dict[str, Any]:
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
    return nameless(found)


def nameless(values: Mapping[str, Any]) -> dict[str, Any]:
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


def are_alike(entries: Sequence[Mapping[str, Any]], here: Collection[str]) -> bool:
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
    known = {entry["name"]: _choice_facts(entry, metric) for entry in entries if entry.get("test")}
    reference = known.get(target.of or "")
    candidates = []
    for name, facts in known.items():
        if target.quality is not None and name == target.of:
            continue
        share = facts["dev"] / reference["dev"] if reference and reference["dev"] else None
        seconds, limit = facts["latency_seconds"], target.latency_seconds
        is_good = target.quality is None or (share is not None and share >= target.quality)
        is_quick = limit is None or (seconds is not None and seconds <= limit)
        verdict = {"dev_share": share, "is_good": is_good, "is_quick": is_quick}
        candidates.append({"name": name, **facts, **verdict})
    fitting = [one for one in candidates if one["is_good"] and one["is_quick"]]
    by = "dev" if target.quality is None else "rows_per_second"
    best = max(fitting, key=lambda one: one[by] or 0.0, default=None)
    shares = {entry["name"]: entry.get("share") for entry in entries}
    if target.quality is not None and reference is None:
        why = f"{target.of} has no finished run, so no share of its quality is known."
    else:
        why = _why(candidates, best, shares.get(best["name"]) if best else None, target, metric)
    return {
        "target_quality": target.quality,
        "target_latency_seconds": target.latency_seconds,
        "of": target.of,
        "metric": metric,
        "chosen": None if best is None else best["name"],
        "why": why,
        "candidates": candidates,
    }


def _choice_facts(entry: Mapping[str, Any], metric: str) -> dict[str, Any]:
    values = [(run.get("dev") or {}).get(metric) for _, run in _finished([entry])]
    numbers = [value for value in values if value is not None]
    costs = entry.get("costs") or {}
    return {
        "dev": fmean(numbers) if numbers else 0.0,
        "rows_per_second": costs.get("rows_per_second"),
        "latency_seconds": costs.get("latency_seconds"),
    }


def _why(
    candidates: Sequence[Mapping[str, Any]],
    best: Mapping[str, Any] | None,
    share: Mapping[str, Any] | None,
    target: Target,
    metric: str,
) -> str:
    """Return the reason of a choice; `share` is that of the chosen contestant on test."""
    wishes = []
    if target.quality is not None:
        wishes.append(f"at least {target.quality:.1%} of {target.of}'s {HEADINGS[metric]} on dev")
    if target.latency_seconds is not None:
        wishes.append(f"at most {1e3 * target.latency_seconds:.3g} ms for a single text")
    what = " and ".join(wishes)
    if best is None:
        return f"None of the {len(candidates)} measured contestants has {what}."
    count = sum(one["is_good"] and one["is_quick"] for one in candidates)
    if target.quality is None:
        reason = f"the highest {HEADINGS[metric]} on dev ({best['dev']:.4f})"
    else:
        reason = f"the most rows a second ({best['rows_per_second'] or 0:,.0f})"
    text = f"{best['name']} has {reason} of {count} with {what}."
    if share is not None and share.get("value") is not None:
        interval = "" if share.get("low") is None else f" [{share['low']:.1%}, {share['high']:.1%}]"
        text += f" On test it has {share['value']:.1%}{interval} of {share['of']}'s."
        if target.quality is not None and share["value"] < target.quality:
            text += " That is less than the target."
    return text
