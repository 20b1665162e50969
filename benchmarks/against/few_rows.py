"""Text classifiers on 50 to 1,000 rows: filbert, SetFit and transformers' Trainer, all by default.

    python benchmarks/against/few_rows.py --data DIR [--setfit PYTHON] [--sizes 50,200,1000]

All start from MiniLM, learn the same rows and answer the same test rows; TF-IDF with logistic
regression is next to them. Every run is a process of its own, one after the other, and its
result is kept: the same command continues. SetFit needs an older transformers than the tests, so
`--setfit` names the Python of an environment that has it. SetFit pairs every row with every other
by default, which takes hours above 100 rows; there it draws 20 pairs a row, its earlier default.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = ("trec_questions", "sms_spam", "sst5", "banking77")
# Of banking77 the first ten intents: 50 rows cannot show 77.
LABELS = 10
TEST_ROWS = 500
ALL_PAIRS = 100

Rows = list[dict[str, str]]


def read(path: Path) -> Rows:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        table = [{"text": row["text"], "label": row["label"]} for row in rows]
    kept = sorted({row["label"] for row in table})[:LABELS]
    return [row for row in table if row["label"] in kept]


def drawn(data: Path, name: str, size: int, seed: int) -> tuple[Rows, Rows]:
    """Training rows, at least two of each label, and test rows."""
    draw = random.Random(seed)
    train, test = (read(data / name / f"{part}.tsv.gz") for part in ("train", "dev"))
    draw.shuffle(train)
    labels = {row["label"] for row in train}
    first = [row for label in sorted(labels) for row in train if row["label"] == label]
    seen: dict[str, int] = {}
    must = []
    for row in first:
        seen[row["label"]] = seen.get(row["label"], 0) + 1
        if seen[row["label"]] <= 2:
            must.append(row)
    rest = [row for row in train if row not in must]
    rows = must + rest[: size - len(must)]
    draw.shuffle(rows)
    return rows, draw.sample(test, min(TEST_ROWS, len(test)))


def answer_filbert(model: str, train: Rows, texts: list[str], seed: int) -> list[str]:
    import filbert

    with tempfile.TemporaryDirectory() as place:
        run = filbert.finetune(
            task="classification", model=model, train=train, out=f"{place}/run", seed=seed
        )
        return [answer["label"] for answer in run.model.predict(texts)]


def answer_tfidf(model: str, train: Rows, texts: list[str], seed: int) -> list[str]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10))
    pipeline.fit([row["text"] for row in train], [row["label"] for row in train])
    return [str(label) for label in pipeline.predict(texts)]


def answer_trainer(model: str, train: Rows, texts: list[str], seed: int) -> list[str]:
    """The Trainer with its own defaults: three epochs of batches of 8 at 5e-5."""
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(seed)
    labels = sorted({row["label"] for row in train})
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(model, num_labels=len(labels))

    def encoded(rows: list[str]) -> list[dict[str, Any]]:
        return [dict(tokenizer(text, truncation=True, max_length=256)) for text in rows]

    examples = encoded([row["text"] for row in train])
    for example, row in zip(examples, train, strict=True):
        example["labels"] = labels.index(row["label"])
    with tempfile.TemporaryDirectory() as place:
        options = TrainingArguments(
            place, report_to="none", seed=seed, save_strategy="no", disable_tqdm=True
        )
        trainer = Trainer(
            network,
            options,
            train_dataset=examples,  # type: ignore[arg-type]
            processing_class=tokenizer,
        )
        trainer.train()
        logits = trainer.predict(encoded(texts)).predictions  # type: ignore[arg-type]
    return [labels[number] for number in torch.as_tensor(logits).argmax(-1).tolist()]


def answer_setfit(model: str, train: Rows, texts: list[str], seed: int) -> list[str]:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    network = SetFitModel.from_pretrained(model)
    pairs = {} if len(train) <= ALL_PAIRS else {"num_iterations": 20}
    options = TrainingArguments(seed=seed, report_to="none", save_strategy="no", **pairs)
    trainer = Trainer(model=network, args=options, train_dataset=Dataset.from_list(train))
    trainer.train()
    return [str(label) for label in network.predict(texts)]


SIDES: dict[str, Callable[[str, Rows, list[str], int], list[str]]] = {
    "tfidf": answer_tfidf,
    "filbert": answer_filbert,
    "trainer": answer_trainer,
    "setfit": answer_setfit,
}


def child(work: dict[str, Any]) -> None:
    """One run; its accuracy, macro F1 and CPU seconds are the last line on stdout."""
    train, test = drawn(Path(work["data"]), work["set"], work["size"], work["seed"])
    texts = [row["text"] for row in test]
    started = time.process_time()
    answers = SIDES[work["side"]](work["model"], train, texts, work["seed"])
    seconds = time.process_time() - started
    from sklearn.metrics import accuracy_score, f1_score

    gold = [row["label"] for row in test]
    accuracy, f1 = accuracy_score(gold, answers), f1_score(gold, answers, average="macro")
    print(json.dumps({"accuracy": accuracy, "macro_f1": f1, "cpu_seconds": seconds}))


def table(results: dict[str, dict[str, float]]) -> str:
    """Accuracy and CPU seconds by data set and number of rows, the sides in columns."""
    lines = [f"| data | rows | {' | '.join(SIDES)} |", "|---" * (len(SIDES) + 2) + "|"]
    groups: dict[tuple[str, int], dict[str, list[dict[str, float]]]] = {}
    for key, result in results.items():
        name, size, side, _seed = key.split()
        groups.setdefault((name, int(size)), {}).setdefault(side, []).append(result)
    for (name, size), sides in sorted(groups.items()):
        cells = []
        for side in SIDES:
            runs = sides.get(side, [])
            mean = {k: sum(r[k] for r in runs) / len(runs) for k in runs[0]} if runs else None
            cells.append(f"{mean['accuracy']:.3f} ({mean['cpu_seconds']:.0f} s)" if mean else "-")
        lines.append(f"| {name} | {size:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--data", type=Path)
    parser.add_argument("--setfit", help="Python of an environment with SetFit; without it, none")
    parser.add_argument("--sizes", default="50,200,1000")
    parser.add_argument("--sets", default=",".join(DATA))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/few-rows.json"))
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    import runs  # noqa: F401 (finds `sides`)

    from sides.conversion import plain_folder

    model = str(plain_folder("minilm"))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
    for seed in range(given.seeds):
        for size in map(int, given.sizes.split(",")):
            for name in given.sets.split(","):
                for side in SIDES:
                    key = f"{name} {size} {side} {seed}"
                    python = given.setfit if side == "setfit" else sys.executable
                    if key in results or python is None:
                        continue
                    work = {"data": str(given.data), "set": name, "size": size, "side": side}
                    work |= {"seed": seed, "model": model}
                    command = [python, __file__, "--child", json.dumps(work)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    if done.returncode:
                        sys.exit(f"{key} failed:\n{done.stderr[-2000:]}")
                    results[key] = json.loads(done.stdout.strip().splitlines()[-1])
                    given.out.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
                    print(key, results[key], file=sys.stderr)
    print(table(results))


if __name__ == "__main__":
    main()
