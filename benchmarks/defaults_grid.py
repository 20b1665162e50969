"""Compare learning rates and epochs of fine-tuning on small data sets with TF-IDF.

python benchmarks/defaults_grid.py ../shared/data --out benchmarks/results/defaults_grid.json

Each data set is cut to 50, 200 and 1,000 training rows. A model is trained with each setting and
without dev rows, then measured on up to 400 dev rows. Finished entries of the result file are kept,
so that the script can be stopped and started again.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import filbert

DATA = ("trec_questions", "sms_spam", "sst5", "banking77")
SIZES = (50, 200, 1000)
# None is the rule of train/defaults.py.
SETTINGS: dict[str, dict[str, Any]] = {
    "lr 5e-5, 3 epochs": {"lr": 5e-5, "epochs": 3.0, "batch_size": 32},
    "rule": {"lr": None, "epochs": None, "batch_size": None},
    "rule, lr 5e-5": {"lr": 5e-5, "epochs": None, "batch_size": None},
    "rule, lr 3e-4": {"lr": 3e-4, "epochs": None, "batch_size": None},
    "rule, twice the epochs": {"lr": None, "epochs": 14.0, "batch_size": None},
}
TEST_ROWS = 400

Rows = list[tuple[str, str]]


def read(path: Path) -> Rows:
    """Return text and label of every row, shuffled."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["label"]) for row in csv.DictReader(file, delimiter="\t")]
    random.Random(0).shuffle(rows)
    return rows


def write(path: Path, rows: Rows) -> str:
    """Write JSON Lines."""
    lines = (json.dumps({"text": text, "label": label}) for text, label in rows)
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def tfidf(train: Rows, test: Rows) -> dict[str, float]:
    """Measure TF-IDF of words and word pairs with logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10, max_iter=1000),
    )
    started = time.perf_counter()
    model.fit(*map(list, zip(*train, strict=True)))
    texts, labels = map(list, zip(*test, strict=True))
    accuracy = accuracy_score(labels, model.predict(texts))
    return {"accuracy": float(accuracy), "seconds": time.perf_counter() - started}


def finetuned(train: Rows, test: Rows, model: str, options: dict[str, Any]) -> dict[str, float]:
    """Measure a fine-tuned model."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        run = filbert.finetune(
            task="classification",
            model=model,
            train=write(place / "train.jsonl", train),
            test=write(place / "test.jsonl", test),
            out=str(place / "run"),
            max_length=64,
            seed=0,
            save_every=0,
            precision="float32",
            device="cpu",
            **{key: value for key, value in options.items() if value is not None},
        )
    facts, metrics = run.facts, run.metrics["test"]
    return {
        "accuracy": metrics["accuracy"],
        "steps": facts["steps"],
        "lr": facts["options"]["lr"],
        "epochs": facts["options"]["epochs"],
        "batch_size": facts["options"]["batch_size"],
        "seconds": facts["training_seconds"],
    }


def main() -> None:
    """Fill the result file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--only", default="", help="entries whose name contains this")
    given = parser.parse_args()
    results = json.loads(given.out.read_text()) if given.out.exists() else {}
    for size in SIZES:
        for name in DATA:
            train = read(given.data / name / "train.tsv.gz")[:size]
            known = {label for _, label in train}
            test = [row for row in read(given.data / name / "dev.tsv.gz") if row[1] in known]
            for setting, options in {"TF-IDF": {}, **SETTINGS}.items():
                key = f"{name}, {size} rows, {setting}"
                if key in results or given.only not in key:
                    continue
                results[key] = (
                    finetuned(train, test[:TEST_ROWS], given.model, options)
                    if options
                    else tfidf(train, test[:TEST_ROWS])
                )
                print(key, results[key], flush=True)
                given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
