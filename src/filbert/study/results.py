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

from filbert.errors import FilbertError
from filbert.files import write_json
from filbert.report.comparison_words import named
from filbert.report.numbers import percent
from filbert.study.contestant_options import BIGRU, TRAINED, Contestant
from filbert.study.contestants import JUDGED, finished_mark, trained_mark
from filbert.study.predictions import prepared_rows, read_predictions
from filbert.study.recipe import Study, Target, references
from filbert.train.facts import device_name
from filbert.train.folder import read_run
from filbert.train.log import say
from filbert.train.provenance import commit, versions


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


# Costs that seeds have in common; the others describe a single run.
COSTS = (
    "training_seconds", "cpu_seconds", "rows_per_second", "latency_seconds", "flops_per_row",
    "parameters", "bytes_on_disk", "weight_bytes", "peak_bytes", "peak_device_bytes",
)  # fmt: skip
# Options that decide what comes out, with the values that a run really had.
EFFECTIVE = (
    "lr", "epochs", "steps", "time", "batch_size", "max_tokens", "optimizer", "schedule", "warmup",
    "weight_decay", "clip", "dropout", "layer_decay", "freeze", "keep_layers", "reinit_layers",
    "causal", "patience", "eval_every", "metric", "on_overflow", "C", "ngrams", "min_df", "vectors",
    "model", "method", "alpha", "temperature", "beta", "layer_map", "hidden_share",
    "hidden_lr", "hidden_schedule", "new_head",
)  # fmt: skip
# The fastest pass over the slowest, above which a speed is remarked upon.
UNEVEN = 1.25


def entry_of(
    one: Contestant,
    folder: Path,
    state: Mapping[str, Any],
    marks: Mapping[str, str],
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """A contestant's entry.

    Args:
        one: the contestant.
        folder: of the study.
        state: content of study.json.
        marks: the fingerprint of every run as the recipe asks for it, by its name in study.json.
        data: facts of the prepared rows.
    """
    seeds, effective = [], []
    for seed in one.seeds:
        key = f"{one.folder}/seed-{seed}"
        place = Path("contestants") / key
        said = state["runs"].get(key, {})
        found: dict[str, Any] = {"seed": seed, "folder": place.as_posix(), "error": None}
        mark = finished_mark(folder / place)
        if mark is not None and mark == marks[key]:
            run = read_run(folder / place) or {}
            found |= {"status": "finished", "costs": run["costs"], **run["metrics"]}
            found |= {name: run.get(name) for name in ("device", "precision", "versions")}
            found["filbert"] = run.get("filbert")
            damage = _damage(f"{one.name} (seed {seed})", folder, place, data)
            if damage is not None:
                found |= {"status": "failed", "error": damage}
            else:
                effective.append(_effective(one, run))
        elif trained_mark(folder / place) not in (None, marks[key]):
            error = "The run in its folder is one with other options or rows, so it is left out."
            found |= {"status": "missing", "error": error}
        elif said.get("status") == "failed" and said.get("fingerprint") == marks[key]:
            found |= {"status": "failed", "error": said.get("error")}
        else:
            # How it ended with other options or rows says nothing of what is asked for now.
            found["status"] = "missing"
        seeds.append(found)
    statuses = [seed["status"] for seed in seeds]
    status = next((s for s in ("finished", "failed") if s in statuses), "missing")
    errors = [seed["error"] for seed in seeds if seed["error"]]
    return {
        "name": one.name,
        "kind": one.kind,
        "source": None if one.source is None else one.source.name,
        "cleaning": list(one.steps),
        "status": status,
        "error": errors[0] if errors else None,
        "options": nameless(one.options),
        # Seeds differ in nothing of it; a C that was chosen is told of the first one.
        "effective": effective[0] if effective else {},
        "seeds": seeds,
        "costs": medians([s["costs"] for s in seeds if s["status"] == "finished"]),
    }


def _damage(who: str, folder: Path, place: Path, data: Mapping[str, Any]) -> str | None:
    """Why a run's predictions cannot be judged; None where they can."""
    for split in JUDGED:
        try:
            found = read_predictions(split, {who: {0: folder / place}}, data["labels"])
            prepared_rows(folder, split, found.gold, data["labels"])
        except FilbertError as error:
            sentence = str(error).replace(f"{folder}/", "")
            file = place / "predictions" / f"{split}.jsonl"
            return f"{sentence} Delete {file.as_posix()} and give the same command again."
    return None


def _effective(one: Contestant, run: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(run.get("options") or {})
    own: dict[str, Any] = {}
    if one.kind == "bigru":
        own = {name: one.options.get(name) for name in BIGRU}
        known = run.get("word_vectors") or {}
        own["words"] = known.get("words")
        own["words_with_vectors"] = known.get("with_vectors") if own["vectors"] else None
    found = {name: options[name] for name in EFFECTIVE if options.get(name) is not None}
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
    """The same with files by their names alone: where they lay is nobody else's matter."""
    return {
        key: Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
        for key, value in values.items()
    }


def medians(costs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The median of every cost over the seeds that know it."""
    known = {name: [one[name] for one in costs if name in one] for name in COSTS}
    return {name: median(values) for name, values in known.items() if values}


def notes_of(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about runs that were not made alike, or not alone on the machine."""
    runs = [(one["name"], run) for one in entries for run in one["seeds"]
            if run["status"] == "finished"]  # fmt: skip
    notes = []
    words = {
        "filbert": "versions of filbert",
        "precision": "number formats",
        "device": "devices or numbers of threads",
        "versions": "versions of libraries",
    }
    for key, what in words.items():
        # Linear models are made by another library, in float64.
        kinds = {one["name"]: one["kind"] for one in entries}
        seen = {
            _told(run.get(key))
            for name, run in runs
            if kinds[name] in TRAINED or key in ("filbert", "device")
        } - {""}
        if len(seen) > 1:
            notes.append(f"The runs were made with different {what}: {'; '.join(sorted(seen))}.")
    busy = [
        f"{name}, seed {run['seed']}"
        for name, run in runs
        if run["costs"].get("load_start", 0.0) > run["costs"].get("machine_threads", 1e9) + 1
    ]
    if busy:
        notes.append(
            f"Other programs ran beside {len(busy)} of {len(runs)} runs when they began "
            f"({_few(busy)}): their seconds and rows a second say less than they would alone; "
            "cpu_seconds suffers less."
        )
    uneven = [
        f"{name}, seed {run['seed']}"
        for name, run in runs
        if run["costs"].get("rows_per_second_high", 0.0)
        > UNEVEN * run["costs"].get("rows_per_second_low", 1e9)
    ]
    if uneven:
        notes.append(
            f"The speed of {len(uneven)} of {len(runs)} runs changed by more than a quarter while "
            f"it was measured ({_few(uneven)}): other programs, or a machine that is not always "
            "as fast. Their rows a second are medians of passes that differ so."
        )
    return notes


def _few(names: Sequence[str]) -> str:
    return "; ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def are_alike(entries: Sequence[Mapping[str, Any]], here: Collection[str]) -> bool:
    """Whether all finished runs know the device that they ran on, and it is one of these names."""
    devices = [
        run.get("device") or {}
        for one in entries
        for run in one["seeds"]
        if run["status"] == "finished"
    ]
    return len({_told(one) for one in devices}) == 1 and devices[0].get("name") in here


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value[key]}" for key in sorted(value))
    return "" if value is None else str(value)


HEADINGS = {"pr_auc": "PR AUC", "macro_f1": "macro F1"}


def choice_of(entries: Sequence[Mapping[str, Any]], target: Target, metric: str) -> dict[str, Any]:
    """Who is chosen, and why.

    With a quality to reach it is the cheapest of those that reach it on dev: the one that answers
    most rows a second, as that is what serving a row costs. With a time alone it is the best on dev
    of those within the time. Test rows have no part in it, so that their figures stay honest.

    Args:
        entries: contestants of results.json.
        target: what must be reached.
        metric: the figure of two labels or of more.

    Returns:
        target_quality, target_latency_seconds, of, metric, chosen (a name, or None), why (sentences
        for the reader), and candidates: name, dev, dev_share, rows_per_second, latency_seconds,
        is_good and is_quick.
    """
    known = {entry["name"]: _facts(entry, metric) for entry in entries if entry.get("test")}
    reference = known.get(target.of or "")
    found = []
    for name, facts in known.items():
        if target.quality is not None and name == target.of:
            continue
        share = facts["dev"] / reference["dev"] if reference and reference["dev"] else None
        facts |= {
            "dev_share": share,
            "is_good": target.quality is None or (share is not None and share >= target.quality),
            "is_quick": _is_quick(facts["latency_seconds"], target),
        }
        found.append({"name": name, **facts})
    fitting = [one for one in found if one["is_good"] and one["is_quick"]]
    by = "dev" if target.quality is None else "rows_per_second"
    chosen = max(fitting, key=lambda one: one[by] or 0.0, default=None)
    if target.quality is not None and reference is None:
        why = f"{named(target.of)} has no finished run, so nobody's share of its quality is known."
    elif chosen is None:
        why = _none(found, target, HEADINGS[metric])
    else:
        share = next(e.get("share") for e in entries if e["name"] == chosen["name"])
        why = _chosen(chosen, len(fitting), reference, share, target, HEADINGS[metric])
    return {
        "target_quality": target.quality,
        "target_latency_seconds": target.latency_seconds,
        "of": target.of,
        "metric": metric,
        "chosen": None if chosen is None else chosen["name"],
        "why": why,
        "candidates": found,
    }


def _facts(entry: Mapping[str, Any], metric: str) -> dict[str, Any]:
    values = [(run.get("dev") or {}).get(metric) for run in entry["seeds"]
              if run["status"] == "finished"]  # fmt: skip
    numbers = [value for value in values if value is not None]
    costs = entry.get("costs") or {}
    return {
        "dev": fmean(numbers) if numbers else 0.0,
        "rows_per_second": costs.get("rows_per_second"),
        "latency_seconds": costs.get("latency_seconds"),
    }


def _is_quick(seconds: float | None, target: Target) -> bool:
    limit = target.latency_seconds
    return limit is None or (seconds is not None and seconds <= limit)


def _chosen(
    one: Mapping[str, Any],
    num_fitting: int,
    reference: Mapping[str, Any] | None,
    share: Mapping[str, Any] | None,
    target: Target,
    heading: str,
) -> str:
    what = " and ".join(_wishes(target, heading))
    if target.quality is None:
        text = f"{named(one['name'])} has the highest {heading} on dev ({one['dev']:.4f})"
    else:
        text = (
            f"{named(one['name'])} answers most rows a second ({one['rows_per_second'] or 0:,.0f})"
        )
    text += f" of the {num_fitting} that {what}" if num_fitting > 1 else f", the only one to {what}"
    if one["dev_share"] is not None and target.quality is not None:
        text += f"; it has {percent(one['dev_share'])} there"
    if target.latency_seconds is not None:
        text += f"; it takes {_time(one['latency_seconds'])}"
    text += "."
    pace = (reference or {}).get("rows_per_second")
    if pace and one["rows_per_second"] and target.quality is not None:
        text += (
            f" That is {one['rows_per_second'] / pace:.1f} times the speed of {named(target.of)}."
        )
    if share is not None and share.get("value") is not None:
        text += f" On test it has {percent(share['value'])}"
        if share.get("low") is not None:
            text += f" [{percent(share['low'])}, {percent(share['high'])}]"
        text += f" of {named(share['of'])}'s {heading}"
        if target.quality is not None and share["value"] < target.quality:
            text += ", which is less than was asked for"
        text += "."
    return text


def _none(found: Sequence[Mapping[str, Any]], target: Target, heading: str) -> str:
    wishes = _wishes(target, heading)
    text = f"None of the {len(found)} measured contestants could {' and '.join(wishes)}."
    good = [one for one in found if one["dev_share"] is not None]
    if target.quality is not None and good:
        best = max(good, key=lambda one: one["dev_share"])
        text += (
            f" The nearest in quality is {named(best['name'])} with {percent(best['dev_share'])}."
        )
    quick = [one for one in found if one["latency_seconds"] is not None]
    if target.latency_seconds is not None and quick:
        first = min(quick, key=lambda one: one["latency_seconds"])
        text += f" The quickest is {named(first['name'])} with {_time(first['latency_seconds'])}."
    return text


def _wishes(target: Target, heading: str) -> list[str]:
    found = []
    if target.quality is not None:
        found.append(f"reach {percent(target.quality)} of {named(target.of)}'s {heading} on dev")
    if target.latency_seconds is not None:
        found.append(f"answer a single text within {_time(target.latency_seconds)}")
    return found


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
