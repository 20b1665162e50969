"""Compare the defaults of fine-tuning on few rows with a grid of settings, and with TF-IDF.

    python benchmarks/defaults_grid.py --data DIR [--cells "trec 50,stsb 200"] [--settings A,B]
    python benchmarks/defaults_grid.py --table

A cell is a data set that is cut to a number of training rows. MiniLM is trained on all of them with
each setting, and measured on up to 600 other rows: 200 as a dev set, to choose a setting by, and
400 as a test set. Every result is kept in benchmarks/results/defaults_grid.json as soon as it is
known, so that the same command continues. `--table` prints what was measured.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from filbert.train.defaults import with_defaults
from filbert.train.options import TrainOptions

RESULTS = Path(__file__).parent / "results" / "defaults_grid.json"
# Folder, task, and the columns of text, second text and label: names, or numbers without a header.
SETS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "trec": ("trec_questions", "classification", ("text", None, "label")),
    "banking77": ("banking77", "classification", ("text", None, "label")),
    "polarity": ("sentence_polarity", "classification", ("sentence", None, "label")),
    "sms": ("sms_spam", "classification", ("text", None, "label")),
    "stsb": ("glue/STS-B", "regression", ("sentence1", "sentence2", "score")),
    "sst5": ("sst5", "classification", ("text", None, "label")),
    "cola": ("glue/CoLA", "classification", (3, None, 1)),
    "ag_news": ("ag_news_small", "classification", ("text", None, "label")),
    "clinc150": ("clinc150", "classification", ("text", None, "label")),
    "mrpc": ("glue/MRPC", "classification", ("#1 String", "#2 String", "Quality")),
}
SIZES = (50, 200, 100, 500, 1_000, 5_000)
# Learning rate, and its share from layer to layer: 0.75 falls to a tenth at the embeddings.
RATES = {
    "1e-3 falling": (1e-3, 0.75),
    "5e-4 falling": (5e-4, 0.75),
    "2e-4": (2e-4, 1.0),
    "1e-4": (1e-4, 1.0),
}
# Optimizer steps, as a share of those of the defaults.
LENGTHS = (1.0, 0.5, 2.0)
GRID = [f"{rate} x{length:g}" for length, rate in product(LENGTHS, RATES)]
DEFAULTS, TFIDF = "defaults", "TF-IDF"
WIDTH, LAYERS = 384, 6
DEV_ROWS, TEST_ROWS = 200, 400

Row = dict[str, Any]


def read(folder: Path, part: str, columns: tuple[Any, ...]) -> list[Row]:
    """Return the rows of a file, shuffled: text, label and, of pairs, text_pair."""
    with gzip.open(folder / f"{part}.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    first, second, label = columns
    if isinstance(first, str):
        header = lines.pop(0)
        first, second, label = (None if c is None else header.index(c) for c in columns)
    rows = []
    for line in lines:
        pair = {} if second is None else {"text_pair": line[second]}
        rows.append({"text": line[first], **pair, "label": line[label]})
    random.Random(0).shuffle(rows)
    return rows


def rows_of(data: Path, name: str, size: int) -> tuple[list[Row], list[Row]]:
    """Return training rows, and the dev rows followed by the test rows."""
    folder, task, columns = SETS[name]
    train = read(data / folder, "train", columns)[:size]
    known = {row["label"] for row in train}
    held = read(data / folder, "dev", columns)
    if task == "classification":
        held = [row for row in held if row["label"] in known]
    else:
        for row in (*train, *held):
            row["label"] = float(row["label"])
    return train, held[: DEV_ROWS + TEST_ROWS]


def score(gold: list[Any], answers: list[Any]) -> float:
    """Return the accuracy, or of numbers Spearman's correlation."""
    if isinstance(gold[0], float):
        from scipy.stats import spearmanr

        value = float(spearmanr(gold, answers).statistic)
        return 0.0 if value != value else value
    return sum(g == a for g, a in zip(gold, answers, strict=True)) / len(gold)


def tfidf(train: list[Row], held: list[Row]) -> list[Any]:
    """Return the answers of TF-IDF with logistic or ridge regression, as in a run's baseline."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    is_number = isinstance(train[0]["label"], float)
    reader = Ridge() if is_number else LogisticRegression(C=10, max_iter=1000)
    model = make_pipeline(TfidfVectorizer(sublinear_tf=True, strip_accents="unicode"), reader)
    texts = [[row["text"] + " " + row.get("text_pair", "") for row in p] for p in (train, held)]
    model.fit(texts[0], [row["label"] for row in train])
    return list(model.predict(texts[1]))


def options_of(setting: str, train: list[Row]) -> dict[str, Any]:
    """Return the options of a setting; none are needed for the defaults."""
    if setting == DEFAULTS:
        return {}
    labels = {row["label"] for row in train}
    chosen = with_defaults(
        TrainOptions(),
        num_rows=len(train),
        width=WIDTH,
        num_layers=LAYERS,
        num_labels=1 if isinstance(train[0]["label"], float) else len(labels),
    )
    rate, _, length = setting.rpartition(" x")
    lr, layer_decay = RATES[rate]
    return {
        "lr": lr,
        "layer_decay": layer_decay,
        "epochs": float(chosen.epochs or 0) * float(length),
        "batch_size": chosen.batch_size,
    }


def finetuned(
    name: str, train: list[Row], held: list[Row], options: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the answers of a fine-tuned model, and the options that it used."""
    import filbert

    with tempfile.TemporaryDirectory() as place:
        run = filbert.finetune(
            task=SETS[name][1], model="minilm", train=train, test=held, out=f"{place}/run",
            max_length=96, seed=0, save_every=0, device="cpu",
            baseline=False, **options,
        )  # fmt: skip
        lines = Path(place, "run/predictions/test.jsonl").read_text("utf-8").splitlines()
    answers = [json.loads(line) for line in lines]
    used = {key: run.facts["options"][key] for key in ("lr", "layer_decay", "batch_size")}
    used |= {"steps": run.facts["steps"]}
    return [a["label"] if "label" in a else a["value"] for a in answers], used


def measured(data: Path, cell: str, setting: str) -> dict[str, Any]:
    """Train and measure one setting."""
    name, size = cell.split()
    train, held = rows_of(data, name, int(size))
    started, used = time.process_time(), dict[str, Any]()
    if setting == TFIDF:
        answers = tfidf(train, held)
    else:
        answers, used = finetuned(name, train, held, options_of(setting, train))
    gold = [row["label"] for row in held]
    parts = {"dev": slice(0, DEV_ROWS), "test": slice(DEV_ROWS, None)}
    scores = {part: round(score(gold[at], answers[at]), 4) for part, at in parts.items()}
    return {**scores, "cpu_seconds": round(time.process_time() - started, 1), **used}


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the table of all cells in which the defaults were measured."""
    lines = [
        "| data | rows | TF-IDF | defaults | best of the grid on test | chosen on dev | settings |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, size in product(SETS, sorted(SIZES)):
        of = results.get(f"{name} {size}", {})
        grid = {setting: of[setting] for setting in GRID if setting in of}
        if DEFAULTS not in of or not grid:
            continue
        best = max(grid, key=lambda setting: grid[setting]["test"])
        chosen = max(grid, key=lambda setting: grid[setting]["dev"])
        cells = [f"{of[TFIDF]['test']:.3f}" if TFIDF in of else "", f"{of[DEFAULTS]['test']:.3f}"]
        cells += [f"{grid[one]['test']:.3f} ({one})" for one in (best, chosen)]
        lines.append(f"| {name} | {size:,} | {' | '.join(cells)} | {len(grid)} |")
    return "\n".join(lines)


def main() -> None:
    """Fill the result file, or print the table."""
    every = [f"{name} {size}" for size, name in product(SIZES, SETS)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cells", default=",".join(every))
    parser.add_argument("--settings", default=",".join([TFIDF, DEFAULTS, *GRID]))
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    if given.table:
        print(table(results))
        return
    for cell, setting in product(given.cells.split(","), given.settings.split(",")):
        if setting in results.get(cell, {}):
            continue
        results.setdefault(cell, {})[setting] = measured(given.data, cell, setting)
        print(cell, setting, results[cell][setting], flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
