"""Runs one contestant with one seed, from the prepared rows to a finished run folder.

The child process calls `carry_out`.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from filbert.compare.bigru import BiGRU, fit_bigru
from filbert.compare.costs import (
    Effort,
    Watch,
    flops_per_row,
    latency,
    load_average,
    measure,
    peak_memory,
    weight_bytes,
)
from filbert.compare.linear import Features, Linear, WordCounts, fit_linear, joined
from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.export import export_onnx
from filbert.files import write_atomically, write_json
from filbert.inference.predictor import Predictor
from filbert.tasks.base import Prediction, Task, TaskOptions
from filbert.tasks.classification import Classification
from filbert.text.clean import Cleaning
from filbert.train.facts import commit, device_name, versions
from filbert.train.folder import read_run
from filbert.train.log import say
from filbert.train.options import FinetuneOptions, changed

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor

# The splits whose predictions every run writes.
JUDGED = ("dev", "test")


@dataclass(frozen=True)
class Job:
    """The task of a child process.

    Attributes:
        contestant: Its name.
        kind: One of `contestant_options.KINDS`.
        options: Of the contestant.
        training: Options of `finetune` or `distill`, for kinds that they train.
        cleaning: As `--clean` takes it.
        seed: Of the training.
        data: Path of "train", "dev" and "test".
        labels: In order.
        positive: Positive class of two.
        out: Run folder.
        fingerprint: Of everything that decides the result; written to run.json.
        source: Run folder of the contestant that it is made from.
    """

    contestant: str
    kind: str
    options: dict[str, Any]
    training: dict[str, Any]
    cleaning: str | None
    seed: int
    data: dict[str, str]
    labels: tuple[str, ...]
    positive: str | None
    out: str
    fingerprint: str
    source: str | None = None

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read the JSON file of `write`."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**content, "labels": tuple(content["labels"])})

    def write(self, path: Path) -> None:
        """Write a JSON file."""
        write_json(path, asdict(self))

    @property
    def source_model(self) -> Path:
        """The model folder of the contestant that it is made from."""
        assert self.source is not None
        return Path(self.source) / "model"


def trained_mark(out: Path) -> str | None:
    """Return the fingerprint of the completed run in a folder; None if there is none."""
    run = read_run(out)
    if run is None or run.get("status") not in ("done", "stopped early") or "costs" not in run:
        return None
    mark = (run.get("study") or {}).get("fingerprint")
    return None if mark is None else str(mark)


def finished_mark(out: Path) -> str | None:
    """Return the same for a run with predictions."""
    answers = (out / "predictions" / f"{split}.jsonl" for split in JUDGED)
    return trained_mark(out) if all(path.is_file() for path in answers) else None


def carry_out(job: Job) -> None:
    """Train, predict and measure the costs; run.json is complete at the end.

    Raises:
        FilbertError: The job cannot be done.
        Interrupted: Ctrl-C or SIGTERM; the state that `finetune` saved is kept.
    """
    out = Path(job.out)
    task = Classification.from_options(
        TaskOptions(labels=job.labels, positive=job.positive), ColumnNames()
    )
    load, is_resumed = load_average("load_start"), out.exists()
    made = _WAYS.get(job.kind, _trained)(job, task)
    test = list(task.read(job.data["test"], ColumnNames()))
    costs = {
        "parameters": made.facts["model"]["parameters"],
        **measure(made.predict, test, made.model),
        **latency(made.predict, test),
    }
    if made.effort is not None:
        costs["training_seconds"] = made.effort.seconds
        # CPU time and memory of an earlier process are not known.
        if not is_resumed:
            costs |= peak_memory()
            if not math.isnan(made.effort.cpu_seconds):
                costs["cpu_seconds"] = made.effort.cpu_seconds
    if made.weight_bytes is not None:
        costs["weight_bytes"] = made.weight_bytes
    if made.predictor is not None:
        costs["flops_per_row"] = flops_per_row(made.predictor, test)
    costs |= {**load, **load_average("load_end"), "machine_threads": os.cpu_count()}
    if trained_mark(out):
        # Only the predictions were made again; the costs are those of the training.
        costs = made.facts.get("costs") or costs
    shutil.rmtree(out / "state", ignore_errors=True)
    origin = {"contestant": job.contestant, "fingerprint": job.fingerprint}
    write_json(out / "run.json", made.facts | {"costs": costs, "study": origin})


@dataclass(frozen=True)
class Made:
    """The result of a job.

    Attributes:
        facts: Content of run.json.
        effort: Of its training; None for a model that was not trained.
        predict: Predicts rows.
        model: Folder of the model.
        weight_bytes: Of the loaded weights, if known.
        predictor: The loaded model; None for a linear model or a BiGRU.
    """

    facts: dict[str, Any]
    effort: Effort | None
    predict: Callable[[Sequence[Row]], list[Prediction]]
    model: Path
    weight_bytes: int | None = None
    predictor: Predictor | None = None


def _trained(job: Job, task: Classification) -> Made:
    """Fine-tuned or distilled."""
    from filbert.inference.predictor import Predictor
    from filbert.train.distill import distill
    from filbert.train.distill_options import DistillOptions
    from filbert.train.finetune import finetune

    is_student = job.kind == "distilled"
    given: dict[str, Any] = {}
    if is_student:
        # Labels, the positive one and cleaning are the teacher's.
        given["teacher"] = str(job.source_model)
    else:
        given["positive"] = job.positive
        if job.cleaning is not None:
            given["clean"] = job.cleaning
    before = (read_run(Path(job.out)) or {}).get("options") or {}
    if before.get("precision") == "auto":
        # It goes on as it began: "auto" takes what the interrupted part had.
        given["precision"] = "auto"
    given |= {"task": "classification", "out": job.out, "seed": job.seed, "resume": True}
    given = job.training | given | job.data
    if is_student:
        learning = DistillOptions.from_keywords(given)
        facts, device = distill(learning), learning.run.device
    else:
        # Keywords take names apart at commas, and a label may hold one.
        options = changed(FinetuneOptions.from_keywords(given), labels=job.labels)
        facts, device = finetune(options), options.run.device
    model = Path(job.out) / "model"
    predictor = Predictor.load(model, device=device)

    def predict(rows: Sequence[Row]) -> list[Prediction]:
        return list(predictor.predict_rows(rows))

    for split in JUDGED:
        # Deleted since: the model is still there, and says it again.
        if not (Path(job.out) / "predictions" / f"{split}.jsonl").is_file():
            rows = _rows(job, split)
            _write_predictions(job, split, rows, predict(rows))
    # Runs made before these were measured apart have the tokenising of all splits only.
    tokenising = facts.get("train_tokenise_seconds", facts.get("tokenise_seconds", 0.0))
    seconds = facts["training_seconds"] + tokenising + facts.get("features_seconds", 0.0)
    seconds += facts.get("answers_seconds", 0.0) + facts.get("augment_seconds", 0.0)
    cpu = facts.get("training_cpu_seconds")
    effort = Effort(seconds, math.nan if cpu is None else cpu)
    return Made(facts, effort, predict, model, weight_bytes(predictor.model), predictor)


def _rows(job: Job, split: str) -> list[Row]:
    task = Classification.from_options(TaskOptions(labels=job.labels), ColumnNames())
    return list(task.read(job.data[split], ColumnNames()))


def _quantised(job: Job, task: Classification) -> Made:
    """The model of another run in another number format; nothing is trained."""
    started, clock = datetime.now(timezone.utc), time.perf_counter()
    predictor, folder = _load_requantised(job)

    def predict(rows: Sequence[Row]) -> list[Prediction]:
        return list(predictor.predict_rows(rows))

    metrics = {}
    for name in JUDGED:
        rows = _rows(job, name)
        predictions = predict(rows)
        known = predictor.known_task()
        metrics[name] = known.metrics([known.gold(row) for row in rows], predictions)
        _write_predictions(job, name, rows, predictions)
    facts = requantised_facts(job, predictor, metrics) | {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - clock,
    }
    # A session keeps its weights to itself.
    size = weight_bytes(predictor.model) if job.options["backend"] == "torch" else None
    return Made(facts, None, predict, folder, size, predictor)


def _fitted(job: Job, task: Classification) -> Made:
    """Train a linear model or a BiGRU; facts in the shape of finetune's."""
    started, clock = datetime.now(timezone.utc), time.perf_counter()
    rows = {name: list(task.read(path, ColumnNames())) for name, path in job.data.items()}
    task = task.fit_labels(rows["train"])
    cleaning = Cleaning.parse(job.cleaning)
    others: list[str] = []
    if job.kind == "static" and job.options["vectors"] is not None:
        others = [joined(row, cleaning) for name in JUDGED for row in rows[name]]
    watch = Watch()
    texts = [joined(row, cleaning) for row in rows["train"]]
    train = (texts, rows["train"])
    fitted: Linear | BiGRU
    if job.kind == "bigru":
        fitted, fitting = fit_bigru(
            task, job.options, train, rows["dev"], seed=job.seed, cleaning=cleaning, watch=watch
        )
    else:
        fitted, fitting = fit_linear(
            task,
            _features(job, texts, others),
            train,
            rows["dev"],
            strength=job.options["C"],
            cleaning=cleaning,
            watch=watch,
        )
    out = Path(job.out)
    shutil.rmtree(out, ignore_errors=True)
    fitted.save(out / "model")
    metrics = {}
    for name in JUDGED:
        gold = [fitted.task.gold(row) for row in rows[name]]
        predictions = fitted.predict_rows(rows[name])
        metrics[name] = fitted.task.metrics(gold, predictions)
        _write_predictions(job, name, rows[name], predictions)
    facts = fitted_facts(job, fitted, rows, metrics) | {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - clock,
        "training_seconds": fitting.seconds,
    }
    if isinstance(fitted, BiGRU):
        known = {"words": len(fitted.words), "with_vectors": fitted.num_with_vectors}
        facts["word_vectors"] = known
        if job.options["vectors"] is not None:
            say(
                f"vectors: {job.options['vectors']} has {fitted.num_with_vectors:,} of the "
                f"{len(fitted.words):,} words; the others are drawn at random"
            )
    return Made(facts, fitting, fitted.predict_rows, out / "model")


def _write_predictions(
    job: Job, split: str, rows: Sequence[Row], predictions: Sequence[Prediction]
) -> None:
    """predictions/SPLIT.jsonl, as `finetune` writes it."""
    task = Classification.from_options(TaskOptions(labels=job.labels), ColumnNames())
    lines = [
        json.dumps({"row": i, "line": row.line, "gold": task.gold_json(task.gold(row))} | found)
        for i, (row, found) in enumerate(zip(rows, predictions, strict=True))
    ]
    place = Path(job.out) / "predictions" / f"{split}.jsonl"
    write_atomically(place, "\n".join(lines) + "\n")


def _features(job: Job, texts: Sequence[str], others: Sequence[str]) -> Features:
    """What the classifier looks at, learned from the cleaned training texts.

    Of the other texts only words are looked up, in a file of vectors.
    """
    chosen = job.options
    if job.kind == "tfidf":
        return WordCounts(texts, ngrams=chosen["ngrams"], min_df=chosen["min_df"])

    from filbert.compare.linear import word_table

    table = word_table(texts, vectors=chosen["vectors"], model=chosen["model"], others=others)
    return table.fitted(texts)


# By kind; all others take optimiser steps.
_WAYS: dict[str, Callable[[Job, Classification], Made]] = {
    "tfidf": _fitted,
    "static": _fitted,
    "bigru": _fitted,
    "quantised": _quantised,
}


def fitted_facts(
    job: Job, fitted: Linear | BiGRU, rows: dict[str, list[Row]], metrics: dict[str, Any]
) -> dict[str, Any]:
    """Facts of a linear model or a BiGRU.

    Args:
        job: what was asked for.
        fitted: the model.
        rows: of each split.
        metrics: of dev and test.
    """
    task = fitted.task
    own = {"C": fitted.strength} if isinstance(fitted, Linear) else {}
    common = _common(job, task, torch.device("cpu"), metrics, task.selection_metric)
    return common | {
        "options": {**job.options, **own, "clean": job.cleaning, "seed": job.seed},
        "versions": versions() | {"scikit-learn": version("scikit-learn")},
        "precision": "float64" if isinstance(fitted, Linear) else "float32",
        "model": {
            "source": job.options.get("model") or job.options.get("vectors"),
            "family": job.kind,
            "parameters": fitted.num_parameters,
            "trained": fitted.num_parameters,
            "notes": [],
        },
        "task": "classification",
        "labels": list(job.labels),
        "problem": "binary" if task.is_binary else "multiclass",
        "positive": job.positive,
        "data": {name: {"path": job.data[name], "rows": len(part)} for name, part in rows.items()},
    }


def requantised_facts(job: Job, predictor: Predictor, metrics: dict[str, Any]) -> dict[str, Any]:
    """Of another run's model in another number format; rows and labels are as that run says."""
    assert job.source is not None
    source = read_run(Path(job.source)) or {}
    device = torch.device("cpu")
    if job.options["backend"] == "torch":
        device = next(predictor.model.parameters()).device
    chosen_by = (source.get("best") or {}).get("metric") or predictor.known_task().selection_metric
    kept = ("task", "labels", "problem", "positive", "data")
    return _common(job, predictor.known_task(), device, metrics, chosen_by) | {
        "options": {**job.options, "seed": job.seed},
        "versions": versions(),
        "precision": job.options["precision"],
        "model": {**(source.get("model") or {}), "source": job.options["of"]},
        **{name: source.get(name) for name in kept},
    }


def _common(
    job: Job, task: Task, device: torch.device, metrics: dict[str, Any], chosen_by: str
) -> dict[str, Any]:
    described = task.to_dict()
    return {
        "filbert": version("filbert"),
        "commit": commit(),
        "command": "compare",
        "name": job.contestant,
        "device": {
            "name": device_name(device),
            "threads": torch.get_num_threads(),
            "processes": 1,
        },
        "status": "done",
        "metrics": metrics,
        "best": {"step": 0, "metric": chosen_by, "value": metrics["dev"].get(chosen_by)},
        "thresholds": described.get("thresholds"),
        "temperature": described.get("temperature"),
        "baselines": [],
    }


def _load_requantised(job: Job) -> tuple[Predictor, Path]:
    """The model, and the folder that it takes on disk.

    Torch makes its formats out of the original's folder when it loads that, so nothing smaller lies
    on disk; for onnxruntime one is exported.

    Raises:
        ConfigError: the model or the device cannot do it, or a package is not here.
    """
    out = Path(job.out)
    shutil.rmtree(out, ignore_errors=True)
    chosen = job.options
    if chosen["backend"] == "torch":
        is_int8 = chosen["precision"] == "int8"
        device = chosen.get("device") or ("cpu" if is_int8 else None)
        predictor = Predictor.load(job.source_model, precision=chosen["precision"], device=device)
        return predictor, job.source_model
    out.mkdir(parents=True)
    export_onnx(str(job.source_model), out / "model", int8=chosen["precision"] == "int8")
    return Predictor.load(out / "model", backend="onnxruntime"), out / "model"
