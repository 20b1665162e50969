"""What results.json says of a contestant before anybody looks at its predictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from filbert.errors import FilbertError
from filbert.study.contestant_options import BIGRU
from filbert.study.contestants import JUDGED, finished_mark, trained_mark
from filbert.study.predictions import prepared_rows, read_predictions
from filbert.study.recipe import TRAINED, Contestant
from filbert.train.folder import read_run

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
