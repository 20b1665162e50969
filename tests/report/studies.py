"""Folders of comparison studies with invented scores and texts, as `compare` leaves them."""

from __future__ import annotations

import gzip
import hashlib
import json
from itertools import combinations
from pathlib import Path

import numpy as np

from filbert.metrics.calibration import expected_calibration_error
from filbert.metrics.classification import binary_metrics, multiclass_metrics
from filbert.metrics.ranking import best_f1_threshold, cuts

# Stands in every text of the data, so that no page may hold it without being asked.
CANARY = "zebra<script>alert('&')</script>"
STEPS = ["lowercase", "contractions", "emojis", "urls", "stop-words", "non-alphanumerics"]
# name, kind, skill, what cleaning adds to it, training seconds, rows a second, parameters, bytes
CONTESTANTS = (
    ("minilm", "encoder", 2.05, -0.20, 1510.0, 410.0, 22_713_986, 90_868_370),
    ("filbert-mini", "encoder", 1.45, -0.08, 310.0, 2350.0, 4_386_178, 17_547_312),
    ("minilm-3", "encoder", 1.92, -0.15, 830.0, 790.0, 17_391_746, 69_570_000),
    ("causal", "encoder", 1.70, -0.12, 1490.0, 415.0, 22_713_986, 90_868_370),
    ("bigru", "bigru", 1.88, 0.02, 260.0, 1900.0, 9_412_866, 37_652_000),
    ("tfidf", "tfidf", 1.50, 0.06, 4.2, 31_000.0, 48_211, 1_402_331),
    ("static", "static", 1.05, 0.04, 2.1, 52_000.0, 385, 46_902_000),
)
WORDS = ["river", "bank", "walk", "green", "tea", "window", "slow", "train", "paper", "lamp"]


def write_lines(path: Path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_rows(path: Path, labels, gold, seed: int) -> None:
    """Prepared rows with texts, in the order of `gold`."""
    draw = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    words = draw.choice(WORDS, (len(gold), 6))
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for number, (label, some) in enumerate(zip(gold, words, strict=True)):
            text = f"row {number} {' '.join(some)} {CANARY}"
            file.write(json.dumps({"text": text, "label": labels[label]}) + "\n")


def softmax(logits):
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def scores_of(gold, hardness, skill, name: str, seed: int, num_labels: int):
    """Probabilities (N, C): a part that all share, a part of its own, one of the seed."""
    own = np.random.default_rng(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
    chance = np.random.default_rng([seed, len(name)])
    weights = [0.9, 0.1] if num_labels == 2 else np.full(num_labels, 1 / num_labels)
    noise = 0.62 * own.normal(size=(len(gold), num_labels))
    noise += 0.3 * chance.normal(size=(len(gold), num_labels)) + 0.72 * hardness
    strength = 1.22 * (skill + 0.03 * chance.normal())
    return softmax(1.35 * (noise + np.log(weights) + strength * np.eye(num_labels)[gold]))


def measured(gold, shares, threshold, labels) -> dict:
    if len(labels) > 2:
        metrics = multiclass_metrics(gold, shares, labels=labels)
        del metrics["per_label"]
        chosen = shares.argmax(1)
        return metrics | {"ece": expected_calibration_error(chosen == gold, shares.max(1))}
    positive, scores = gold == 1, shares[:, 1]
    metrics = binary_metrics(positive, scores, threshold)
    metrics["f1_at_half"] = binary_metrics(positive, scores, 0.5)["f1"]
    table = cuts(positive, scores)
    for recall in (50, 80, 90, 95):
        reached = table.hits >= recall / 100 * table.num_positives
        metrics[f"precision_at_recall_{recall}"] = float(
            (table.hits / table.flagged)[reached].max()
        )
    metrics["ece"] = expected_calibration_error(positive, scores)
    return metrics | {"brier": float(np.mean((scores - positive) ** 2))}


def facts(name: str, labels, gold) -> dict:
    counts = np.bincount(gold, minlength=len(labels))
    digest = hashlib.sha256(name.encode()).hexdigest()
    counted = dict(zip(labels, counts.tolist(), strict=True))
    return {"rows": len(gold), "sha256": digest, "label_counts": counted}


def write_study(
    folder: Path,
    *,
    labels=("ok", "malicious"),
    contestants=CONTESTANTS,
    seeds: int = 3,
    num_rows: int = 2000,
    with_cleaning: bool = True,
    failed: bool = True,
    missing_seeds: bool = False,
    every_prediction: bool = False,
) -> dict:
    """A whole study; gives the content of results.json.

    The figures are plausible stand-ins: widths and p values are invented, not computed. Predictions
    are written for the seed that is best on dev only, unless `every_prediction`.
    """
    labels = list(labels)
    draw = np.random.default_rng(7)
    weights = [0.9, 0.1] if len(labels) == 2 else np.full(len(labels), 1 / len(labels))
    gold = {
        split: draw.choice(len(labels), rows, p=weights)
        for split, rows in (("train", 4 * num_rows), ("dev", num_rows), ("test", num_rows))
    }
    for number, (split, values) in enumerate(gold.items()):
        write_rows(folder / "data" / f"{split}.jsonl.gz", labels, values, number)
    hardness = {s: draw.normal(size=(num_rows, len(labels))) for s in ("dev", "test")}
    lengths = draw.lognormal(4, 1, num_rows).astype(int) + 3
    entries, kept = [], {}
    for name, kind, skill, gain, seconds, pace, parameters, size in contestants:
        for cleaned in (False, True)[: 1 + with_cleaning]:
            full = f"{name}, cleaned" if cleaned else name
            runs = []
            for seed in range(seeds):
                place = f"contestants/{full.replace(', ', '-')}/seed-{seed}"
                if missing_seeds and (seed == seeds - 1 or full == contestants[-1][0]):
                    runs.append({"seed": seed, "folder": place, "status": "missing"})
                    continue
                shares = {
                    split: scores_of(
                        gold[split],
                        hardness[split],
                        skill + gain * cleaned,
                        full,
                        seed,
                        len(labels),
                    )
                    for split in ("dev", "test")
                }
                threshold = 0.5
                if len(labels) == 2:
                    threshold = best_f1_threshold(gold["dev"] == 1, shares["dev"][:, 1])
                run = {
                    "seed": seed,
                    "folder": place,
                    "status": "finished",
                    "error": None,
                    "costs": {
                        "training_seconds": seconds * (0.82 if cleaned else 1) * (1 + 0.01 * seed),
                        "rows_per_second": pace * (1.1 if cleaned else 1),
                        "parameters": parameters,
                        "bytes_on_disk": size,
                        "peak_bytes": int(4e8 + 40 * parameters),
                    },
                }
                for split in ("dev", "test"):
                    run[split] = measured(gold[split], shares[split], threshold, labels)
                    called = shares[split].argmax(1)
                    if len(labels) == 2:
                        called = (shares[split][:, 1] >= threshold).astype(int)
                    kept[full, seed, split] = called, shares[split]
                runs.append(run)
            entry = _entry(full, kind, STEPS if cleaned else [], runs, num_rows)
            entries.append(entry)
            for run in runs:
                if run["status"] == "finished" and (
                    every_prediction or run["seed"] == entry["best_seed"]
                ):
                    for split in ("dev", "test") if every_prediction else ("test",):
                        _write_predictions(
                            folder / run["folder"] / "predictions" / f"{split}.jsonl",
                            labels, gold[split], *kept[full, run["seed"], split], lengths,
                        )  # fmt: skip
    results = {
        "filbert": "0.1.0",
        "name": "toxic-study",
        "finished": None if missing_seeds else "2026-11-21T14:05:00Z",
        "task": "classification",
        "positive": labels[1] if len(labels) == 2 else None,
        "labels": labels,
        "data": {split: facts(split, labels, values) for split, values in gold.items()}
        | {
            "source": [{"path": "train.csv.gz", "sha256": "ab" * 32, "rows": 6 * num_rows}],
            "near_duplicates": {"threshold": 0.8, "clusters": 12, "rows": 31, "between_splits": 0},
        },
        "options": {"split": [0.7, 0.15, 0.15], "seed": 0, "seeds": seeds,
                    "cleaning": ["none", "study"][: 1 + with_cleaning]},
        "machine": {"device": "cpu", "processor": "some processor", "cores": 2, "python": "3.11.2"},
        "contestants": entries,
    }  # fmt: skip
    if failed:
        entries.append(
            {"name": "albert", "kind": "encoder", "cleaning": [], "status": "failed",
             "error": "The gradient is not finite at step 12; use a lower --lr.",
             "options": {"model": "albert", "lr": 1.0},
             "seeds": [{"seed": 0, "folder": "contestants/albert/seed-0", "status": "failed",
                        "error": "The gradient is not finite at step 12; use a lower --lr."}],
             "best_seed": None, "test": {}, "costs": {}}
        )  # fmt: skip
    shown = [e for e in entries if e["test"]]
    calls = {e["name"]: kept[e["name"], e["best_seed"], "test"] for e in shown}
    results["pairs"] = _pairs(shown, calls, gold["test"], num_rows)
    results["agreement"] = {
        "names": list(calls),
        "matrix": [[float((a == b).mean()) for b, _ in calls.values()] for a, _ in calls.values()],
    }
    results["slices"] = _slices(calls, gold["test"], lengths, labels)
    save(folder, results)
    return results


def _write_predictions(path, labels, gold, called, shares, lengths) -> None:
    write_lines(
        path,
        (
            {
                "row": row,
                "line": row + 1,
                "gold": labels[gold[row]],
                "label": labels[called[row]],
                "score": float(shares[row, called[row]]),
                "scores": dict(zip(labels, shares[row].tolist(), strict=True)),
                "num_tokens": int(lengths[row]),
                "truncated": bool(lengths[row] > 128),
            }
            for row in range(len(gold))
        ),
    )


def save(folder: Path, results: dict) -> None:
    text = json.dumps(results, indent=2)
    (folder / "results.json").write_text(text, encoding="utf-8")


def _entry(name, kind, cleaning, runs, num_rows) -> dict:
    done = [run for run in runs if run["status"] == "finished"]
    entry = {"name": name, "kind": kind, "cleaning": cleaning, "error": None, "seeds": runs,
             "options": {"model": name, "max_length": 128, "epochs": 2}, "test": {}, "costs": {},
             "status": "finished" if done else "missing", "best_seed": None}  # fmt: skip
    if not done:
        return entry
    key = "pr_auc" if "pr_auc" in done[0]["dev"] else "macro_f1"
    best = max(done, key=lambda run: run["dev"][key])
    entry["best_seed"] = best["seed"]
    for metric, found in best["test"].items():
        values = [run["test"][metric] for run in done]
        half = 1.3 / num_rows**0.5 * (0.4 if metric in ("roc_auc", "accuracy") else 1)
        entry["test"][metric] = {
            "value": float(np.mean(values)),
            "low": max(found - half, 0.0),
            "high": min(found + half, 1.0),
            "interval_of": found,
            "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
            "seeds": values,
        }
    entry["costs"] = {
        cost: float(np.mean([run["costs"][cost] for run in done])) for cost in done[0]["costs"]
    }
    return entry


def _pairs(shown, calls, gold, num_rows) -> list[dict]:
    metrics = ["pr_auc", "roc_auc", "f1"]
    if shown and "macro_f1" in shown[0]["test"]:
        metrics = ["macro_f1", "accuracy"]
    found = []
    for one, other in combinations(shown, 2):
        pair = {"one": one["name"], "other": other["name"]}
        for metric in metrics:
            difference = one["test"][metric]["interval_of"] - other["test"][metric]["interval_of"]
            half = 0.9 / num_rows**0.5 * (0.4 if metric in ("roc_auc", "accuracy") else 1)
            p = float(np.exp(-1.4 * (1.6 * difference / half) ** 2))
            ends = {"low": difference - half, "high": difference + half}
            pair[metric] = {"difference": difference, **ends, "p": p, "p_holm": min(30 * p, 1.0)}
        right = [calls[e["name"]][0] == gold for e in (one, other)]
        only = [int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())]
        p = float(np.exp(-((only[0] - only[1]) ** 2) / (2 * max(sum(only), 1))))
        pair["mcnemar"] = {"p": p, "p_holm": min(30 * p, 1.0),
                           "only_one": only[0], "only_other": only[1]}  # fmt: skip
        found.append(pair)
    return found


def _slices(calls, gold, lengths, labels) -> list[dict]:
    group = np.random.default_rng(5).integers(3, size=len(gold))
    cut = [("tokens", f"{a}–{b - 1}", (lengths >= a) & (lengths < b))
           for a, b in ((1, 32), (32, 64), (64, 128), (128, 256), (256, 100_000))]  # fmt: skip
    cut += [("mentions", name, group == n) for n, name in enumerate(["none", "a city", "a river"])]
    found = []
    for by, name, chosen in cut:
        rows = {n: measured(gold[chosen], s[chosen], 0.5, labels) for n, (_, s) in calls.items()}
        positives = int((gold[chosen] == 1).sum()) if len(labels) == 2 else None
        found.append({"by": by, "slice": name, "rows": int(chosen.sum()), "positives": positives,
                      "contestants": rows})  # fmt: skip
    return found
