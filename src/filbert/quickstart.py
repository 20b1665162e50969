"""The toxic-comment experiment in miniature, on data and weights that need no network."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from filbert import samples
from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.data.columns import ColumnNames
from filbert.data.doctor import Report, check
from filbert.data.records import Row
from filbert.files import write_json
from filbert.report.run import write_run_report
from filbert.tasks.base import Prediction, TaskOptions, task_class
from filbert.tasks.rows import read_task_rows, row_check
from filbert.train.finetune import finetune
from filbert.train.linear import TFIDF, USUAL_STRENGTH, WordCounts, fit_linear, joined
from filbert.train.log import say
from filbert.train.measure import differences
from filbert.train.options import FinetuneOptions

# Two passes at 128 tokens: a few minutes on two cores.
OPTIONS: dict[str, Any] = {"epochs": 2.0, "max_length": 128, "lr": 1e-4}

SPLITS = {n: samples.path(f"toxic_{n}.csv.gz") for n in ("train", "dev", "test")}


def check_sample(model: str) -> Report:
    """Return the data doctor's findings on the sample, counted in the model's tokens."""
    tokenizer = read_tokenizer(find_model(model))
    task = task_class("classification").from_options(TaskOptions(), ColumnNames())
    return check(
        list(SPLITS.items()),
        row_check(task),
        ColumnNames(),
        tokenizer=tokenizer,
        max_length=OPTIONS["max_length"],
    )


def quickstart(
    out: Path, *, overwrite: bool, model: str, seed: int, steps: int | None = None
) -> dict[str, Any]:
    """Fine-tune on the sample, compare with TF-IDF on its test rows, write the report.

    Args:
        out: The run folder.
        overwrite: Replace an earlier run there.
        model: The model to fine-tune.
        seed: For the new head, shuffling and dropout.
        steps: Stop after this many optimiser steps; for a trial.

    Returns:
        The content of run.json, with the baseline in it.
    """
    paths: dict[str, Any] = {name: str(path) for name, path in SPLITS.items()}
    given = {
        "task": "classification",
        "model": model,
        "out": out,
        "overwrite": overwrite,
        "positive": "toxic",
        "seed": seed,
        "steps": steps,
    }
    options = FinetuneOptions.from_keywords(given | paths | OPTIONS)
    # `check_sample` has printed the findings.
    facts = finetune(options, prints_findings=False)
    say(f"baseline: {TFIDF} on the same rows")
    rows, baseline, predictions = _baseline(options)
    scores = Path("predictions") / "test.tfidf.jsonl"
    _write_scores(out / scores, rows, predictions)
    lines = (out / "predictions" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    task = task_class("classification").from_options(
        TaskOptions(labels=tuple(facts["labels"]), positive=facts["positive"]), ColumnNames()
    )
    gold, answers = [task.gold(row) for row in rows], [json.loads(line) for line in lines]
    baseline |= {"predictions": scores.as_posix()}
    facts["baselines"] = [baseline | {"differences": differences(task, gold, answers, predictions)}]
    write_json(out / "run.json", facts)
    write_run_report(out)
    return facts


def _baseline(options: FinetuneOptions) -> tuple[list[Row], dict[str, Any], list[Prediction]]:
    """Return the test rows, the baseline's entry for run.json, and its predictions."""
    columns = options.data.columns
    task = task_class("classification").from_options(options.task.options, columns)
    rows = {name: list(read_task_rows(task, path, columns)) for name, path in SPLITS.items()}
    task = task.fit(rows["train"])
    started = time.perf_counter()
    texts = [joined(row) for row in rows["train"]]
    fitted, seconds = fit_linear(
        task,
        WordCounts(texts),
        train=(texts, rows["train"]),
        dev=rows["dev"],
        strength=USUAL_STRENGTH,
        started=started,
    )
    predictions = fitted.predict_rows(rows["test"])
    gold = [task.gold(row) for row in rows["test"]]
    facts = {
        "name": TFIDF,
        "metrics": fitted.task.metrics(gold, predictions),
        "seconds": seconds,
        "parameters": fitted.num_parameters,
    }
    return rows["test"], facts, predictions


def _write_scores(path: Path, rows: list[Row], predictions: list[Prediction]) -> None:
    lines = [
        json.dumps({"row": i, "line": row.line, "gold": row.values["label"]} | prediction)
        for i, (row, prediction) in enumerate(zip(rows, predictions, strict=True))
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
