r"""Fine-tune MiniLM on toxic comments, filbert and transformers' Trainer: same rows, same settings.

    python benchmarks/against/finetune_toxic.py --data DIR/jigsaw_toxic_binary/train.csv.gz \
        [--seeds 3]

8,000 training rows and 1,500 unseen rows drawn with a fixed seed, sequence length 256, batch 32, lr
5e-5, linear schedule with 10 % warm-up, weight decay 0.01, dropout 0.1, one epoch. Every run is a
process of its own, the two sides take turns, and each prints one JSON line: seconds (tokenising and
training; loading and evaluation are not counted) and ROC AUC on the unseen rows. The peer pads each
batch to its longest row (its default collator). At the end each side is compared with the first:
the ratio of seconds, and the difference of ROC AUC with its interval over 1,000 draws of the rows.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from runs import add_results_options, append

SETTINGS = {
    "max_length": 256,
    "batch_size": 32,
    "lr": 5e-5,
    "epochs": 1,
    "warmup": 0.1,
    "weight_decay": 0.01,
}


def split(source: Path, folder: Path, num_train: int, num_test: int) -> None:
    csv.field_size_limit(2**30)
    with gzip.open(source, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    random.Random(0).shuffle(rows)
    for name, part in (
        ("train", rows[:num_train]),
        ("test", rows[num_train : num_train + num_test]),
    ):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows((row["comment_text"], row["toxic"]) for row in part)


def read(path: Path) -> tuple[list[str], list[int]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [int(row["label"]) for row in rows]


def run_filbert(folder: Path, seed: int, precision: str) -> dict[str, Any]:
    import filbert

    started = time.perf_counter()
    out = folder / f"filbert-{precision}-{seed}"
    run = filbert.finetune(
        task="classification",
        model="minilm",
        train=str(folder / "train.csv"),
        test=str(folder / "test.csv"),
        out=str(out),
        seed=seed,
        precision=precision,
        **SETTINGS,
    )
    facts = run.facts
    answers = (out / "predictions" / "test.jsonl").read_text("utf-8").splitlines()
    return {
        "seconds": facts["training_seconds"] + facts["tokenise_seconds"],
        "whole_seconds": time.perf_counter() - started,
        "roc_auc": run.metrics["test"]["roc_auc"],
        "precision": facts["precision"],
        "scores": [json.loads(answer)["scores"]["1"] for answer in answers],
    }


def run_transformers(folder: Path, seed: int, bf16: bool) -> dict[str, Any]:
    import numpy as np
    import torch
    from sklearn.metrics import roc_auc_score
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    from sides.conversion import plain_folder

    set_seed(seed)
    source = str(plain_folder("minilm"))
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=2)
    started = time.perf_counter()

    class Rows(torch.utils.data.Dataset):
        def __init__(self, path: Path) -> None:
            texts, self.labels = read(path)
            self.encoded = tokenizer(texts, truncation=True, max_length=SETTINGS["max_length"])

        def __len__(self) -> int:
            return len(self.labels)

        def __getitem__(self, i: int) -> dict[str, object]:
            return {k: v[i] for k, v in self.encoded.items()} | {"labels": self.labels[i]}

    arguments = TrainingArguments(
        output_dir=str(folder / f"hf-{seed}"),
        per_device_train_batch_size=SETTINGS["batch_size"],
        per_device_eval_batch_size=64,
        learning_rate=SETTINGS["lr"],
        num_train_epochs=SETTINGS["epochs"],
        warmup_steps=SETTINGS["warmup"],
        weight_decay=SETTINGS["weight_decay"],
        lr_scheduler_type="linear",
        save_strategy="no",
        report_to=[],
        seed=seed,
        use_cpu=True,
        bf16=bf16,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Rows(folder / "train.csv"),
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    trainer.train()
    seconds = time.perf_counter() - started
    test = Rows(folder / "test.csv")
    logits = trainer.predict(test).predictions
    margin = logits[:, 1] - logits[:, 0]
    return {
        "seconds": seconds,
        "roc_auc": float(roc_auc_score(np.array(test.labels), margin)),
        "precision": "bf16" if bf16 else "float32",
        "scores": [round(float(value), 6) for value in margin],
    }


def interval_of_difference(
    labels: list[int], ours: list[list[float]], theirs: list[list[float]]
) -> tuple[float, float, float]:
    """Return the mean difference of ROC AUC over the seeds, and its 95 % interval over the rows."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    gold, sides = np.array(labels), (np.array(ours), np.array(theirs))

    def difference(rows: Any) -> float:
        means = [np.mean([roc_auc_score(gold[rows], s[rows]) for s in side]) for side in sides]
        return float(means[0] - means[1])

    draw = np.random.default_rng(0)
    draws = [difference(draw.integers(0, len(gold), len(gold))) for _ in range(1000)]
    low, high = np.quantile(draws, [0.025, 0.975])
    return difference(np.arange(len(gold))), float(low), float(high)


def child(side: str, folder: Path, seed: int) -> None:
    runners = {
        "filbert": lambda: run_filbert(folder, seed, "auto"),
        "filbert-float32": lambda: run_filbert(folder, seed, "float32"),
        "transformers": lambda: run_transformers(folder, seed, False),
        "transformers-bf16": lambda: run_transformers(folder, seed, True),
    }
    print("RESULT " + json.dumps({"side": side, "seed": seed, **runners[side]()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--test-rows", type=int, default=1500)
    parser.add_argument("--sides", nargs="+", default=["filbert", "transformers"])
    add_results_options(parser, "finetune_toxic")
    parser.add_argument("--child", nargs=3, metavar=("SIDE", "FOLDER", "SEED"))
    given = parser.parse_args()
    if given.child:
        child(given.child[0], Path(given.child[1]), int(given.child[2]))
        return
    results: dict[str, list[dict[str, Any]]] = {side: [] for side in given.sides}
    scores: dict[str, list[list[float]]] = {side: [] for side in given.sides}
    with tempfile.TemporaryDirectory() as name:
        split(given.data, Path(name), given.rows, given.test_rows)
        labels = read(Path(name) / "test.csv")[1]
        for seed in range(given.seeds):
            for side in given.sides:
                command = [sys.executable, __file__, "--data", str(given.data)]
                command += ["--child", side, name, str(seed)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                line = next(x for x in done.stdout.splitlines() if x.startswith("RESULT "))
                result = json.loads(line.removeprefix("RESULT "))
                scores[side].append(result.pop("scores"))
                results[side].append(result)
                stamp = {
                    "rows": given.rows,
                    "machine": platform.processor(),
                    "time": time.strftime("%F %T"),
                }
                print(json.dumps(result), flush=True)
                append(given.results, result | stamp)
    print(f"\n{'side':20} {'seconds (median)':>17} {'ROC AUC (mean)':>15}  spread of seconds")
    for side, runs in results.items():
        seconds = [run["seconds"] for run in runs]
        auc = statistics.mean(run["roc_auc"] for run in runs)
        spread = f"{min(seconds):.1f}-{max(seconds):.1f}"
        print(f"{side:20} {statistics.median(seconds):17.1f} {auc:15.4f}  {spread}")
    first, *others = given.sides
    for other in others:
        ratios = [
            b["seconds"] / a["seconds"] for a, b in zip(results[first], results[other], strict=True)
        ]
        print(
            f"{first} is {statistics.median(ratios):.2f} times as fast as {other} "
            f"({min(ratios):.2f}-{max(ratios):.2f})"
        )
        difference, low, high = interval_of_difference(labels, scores[first], scores[other])
        print(f"  ROC AUC {difference:+.4f} [{low:+.4f}, {high:+.4f}]")


if __name__ == "__main__":
    main()
