"""Folders of comparison studies with invented scores and texts, as `compare` leaves them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from scipy.special import softmax
from tests.report.folders import write_lines

from filbert.compare.statistics import compute_statistics

# name, kind, skill, training seconds, rows a second, parameters, bytes
CONTESTANTS = (
    ("minilm", "encoder", 2.05, 1510.0, 410.0, 22_713_986, 90_868_370),
    ("filbert-mini", "encoder", 1.45, 310.0, 2350.0, 4_386_178, 17_547_312),
    ("minilm-3", "encoder", 1.92, 830.0, 790.0, 17_391_746, 69_570_000),
    ("causal", "encoder", 1.70, 1490.0, 415.0, 22_713_986, 90_868_370),
    ("bigru", "bigru", 1.88, 260.0, 1900.0, 9_412_866, 37_652_000),
    ("tfidf", "tfidf", 1.50, 4.2, 31_000.0, 48_211, 1_402_331),
    ("static", "static", 1.05, 2.1, 52_000.0, 385, 46_902_000),
)


def scores_of(gold, hardness, skill, name: str, seed: int, num_labels: int):
    """Probabilities (N, C): a part that all share, a part of its own, one of the seed."""
    own = np.random.default_rng(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
    chance = np.random.default_rng([seed, len(name)])
    weights = [0.9, 0.1] if num_labels == 2 else np.full(num_labels, 1 / num_labels)
    noise = 0.62 * own.normal(size=(len(gold), num_labels))
    noise += 0.3 * chance.normal(size=(len(gold), num_labels)) + 0.72 * hardness
    strength = 1.22 * (skill + 0.03 * chance.normal())
    return softmax(1.35 * (noise + np.log(weights) + strength * np.eye(num_labels)[gold]), 1)


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
    num_rows: int = 150,
    missing_seeds: bool = False,
) -> dict:
    """A study with invented scores and costs; returns the content of results.json."""
    labels = list(labels)
    draw = np.random.default_rng(7)
    weights = [0.9, 0.1] if len(labels) == 2 else np.full(len(labels), 1 / len(labels))
    sizes = {"train": 4 * num_rows, "dev": num_rows, "test": num_rows}
    gold = {split: draw.choice(len(labels), rows, p=weights) for split, rows in sizes.items()}
    hardness = {s: draw.normal(size=(num_rows, len(labels))) for s in ("dev", "test")}
    entries = []
    for name, kind, skill, seconds, speed, parameters, size in contestants:
        runs = []
        for seed in range(seeds):
            run = {"seed": seed, "folder": f"contestants/{name}/seed-{seed}"}
            runs.append(run)
            if missing_seeds and (seed == seeds - 1 or name == contestants[-1][0]):
                run |= {"status": "missing"}
                continue
            for split in ("dev", "test"):
                scores = scores_of(gold[split], hardness[split], skill, name, seed, len(labels))
                path = folder / run["folder"] / "predictions" / f"{split}.jsonl"
                write_lines(path, predictions(labels, gold[split], scores))
            run |= {
                "status": "finished",
                "error": None,
                "costs": {
                    "training_seconds": seconds * (1 + 0.01 * seed),
                    "rows_per_second": speed,
                    "parameters": parameters,
                    "bytes_on_disk": size,
                    "peak_bytes": int(4e8 + 40 * parameters),
                },
            }
        costs = [run["costs"] for run in runs if "costs" in run]
        entries.append({
            "name": name, "kind": kind, "cleaning": [], "error": None,
            "seeds": runs, "options": {"model": name, "max_length": 128, "epochs": 2},
            "test": {}, "costs": costs[0] if costs else {}, "best_seed": None,
            "status": "finished" if costs else "missing",
        })  # fmt: skip
    error = "The gradient is not finite at step 12; use a lower --lr."
    runs = [{"seed": 0, "folder": "contestants/albert/seed-0", "status": "failed",
             "error": error}]  # fmt: skip
    entries.append({
        "name": "albert", "kind": "encoder", "cleaning": [], "status": "failed",
        "error": error, "options": {"model": "albert", "lr": 1.0}, "seeds": runs,
        "best_seed": None, "test": {}, "costs": {},
    })  # fmt: skip
    positive = labels[1] if len(labels) == 2 else None
    judged = compute_statistics(entries, folder, labels=labels, positive=positive, resamples=99)
    results = {
        "filbert": "0.1.0",
        "name": "toxic-study",
        "finished": None if missing_seeds else "2026-11-21T14:05:00Z",
        "task": "classification",
        "positive": positive,
        "labels": labels,
        "data": {split: facts(split, labels, values) for split, values in gold.items()}
        | {
            "source": [{"path": "train.csv.gz", "sha256": "ab" * 32, "rows": 6 * num_rows}],
            "near_duplicates": {"dev_like_train": 12, "test_like_train": 3},
        },
        "options": {"split": [0.7, 0.15, 0.15], "seed": 0, "seeds": seeds},
        "machine": {"device": "cpu", "cpu": "some CPU", "python": "3.11.2"},
        **judged,
    }
    save(folder, results)
    return results


def predictions(labels, gold, scores):
    """Lines of predictions, as `finetune` writes them."""
    for row, (true, shares) in enumerate(zip(gold, scores, strict=True)):
        best = int(shares.argmax())
        yield {
            "row": row,
            "line": row + 1,
            "gold": labels[true],
            "label": labels[best],
            "score": float(shares[best]),
            "scores": dict(zip(labels, shares.tolist(), strict=True)),
            "num_tokens": 20,
            "truncated": False,
        }


def save(folder: Path, results: dict) -> None:
    text = json.dumps(results, indent=2)
    (folder / "results.json").write_text(text, encoding="utf-8")
