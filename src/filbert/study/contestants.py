"""One contestant with one seed, from the prepared rows to a finished run folder.

This is what the child process does; `carry_out` is a function, so that it can also be called.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.formats.files import write_atomically, write_json
from filbert.study.costs import measure, peak_memory
from filbert.study.linear import Features, Linear, WordCounts, fit_linear, joined
from filbert.tasks.base import TaskOptions
from filbert.tasks.classification import Classification
from filbert.text.clean import Cleaning
from filbert.train.facts import device_name
from filbert.train.folder import read_run
from filbert.train.options import FinetuneOptions
from filbert.train.provenance import commit, versions


@dataclass(frozen=True)
class Job:
    """What the child process is told.

    Attributes:
        contestant: its name.
        kind: of `recipe.KINDS`.
        options: of the kind itself.
        training: of `finetune`, where the kind is trained by it.
        cleaning: as `--clean` takes it.
        seed: of the training.
        data: path of "train", "dev" and "test".
        labels: in order.
        positive: the positive class of two.
        out: the run folder.
        fingerprint: of all that decides what comes out; goes into run.json.
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

    @classmethod
    def read(cls, path: Path) -> Job:
        """From the JSON file that `write` made."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**content, "labels": tuple(content["labels"])})

    def write(self, path: Path) -> None:
        """To a JSON file."""
        write_json(path, asdict(self))

    @property
    def start(self) -> Path:
        """Where the word vectors lie that a network without pre-training starts from."""
        return Path(self.out).with_name(f"{Path(self.out).name}.start")


def is_finished(out: Path, fingerprint: str) -> bool:
    """Whether a run folder holds this very run, with its costs."""
    run = read_run(out)
    return (
        run is not None
        and run.get("status") in ("done", "stopped early")
        and (run.get("study") or {}).get("fingerprint") == fingerprint
        and "costs" in run
    )


def carry_out(job: Job) -> None:
    """Train, predict, measure the costs; run.json is complete at the end.

    Raises:
        FilbertError: it cannot be done.
        Interrupted: Ctrl-C or SIGTERM; what `finetune` has saved is there.
    """
    out = Path(job.out)
    task = Classification.from_options(
        TaskOptions(labels=job.labels, positive=job.positive), ColumnNames()
    )
    if job.kind in ("tfidf", "static"):
        facts, seconds, predict = _linear(job, task)
    else:
        facts, seconds, predict = _finetuned(job)
    test = list(task.read(job.data["test"], ColumnNames()))
    costs = {
        "training_seconds": seconds,
        "parameters": facts["model"]["parameters"],
        **measure(predict, test, out / "model"),
        **peak_memory(),
    }
    shutil.rmtree(out / "state", ignore_errors=True)
    shutil.rmtree(job.start, ignore_errors=True)
    story = {"contestant": job.contestant, "fingerprint": job.fingerprint}
    write_json(out / "run.json", facts | {"costs": costs, "study": story})


def _finetuned(job: Job) -> tuple[dict[str, Any], float, Any]:
    from filbert.predict import Predictor
    from filbert.train.finetune import finetune

    given = {"model": str(job.start)} if job.kind == "bigru" else {}
    if job.kind == "bigru":
        _write_start(job)
    if job.cleaning is not None:
        given["clean"] = job.cleaning
    options = FinetuneOptions.from_keywords(
        job.training
        | given
        | job.data
        | {
            "task": "classification",
            "labels": job.labels,
            "positive": job.positive,
            "out": job.out,
            "seed": job.seed,
            "resume": True,
        }
    )
    facts = finetune(options)
    predictor = Predictor.load(Path(job.out) / "model", device=options.device)
    seconds = facts["training_seconds"] + facts.get("tokenise_seconds", 0.0)
    return facts, seconds, lambda rows: list(predictor.predict_rows(rows))


def _write_start(job: Job) -> None:
    """The folder that a BiGRU's training begins with: words of the training rows, their vectors."""
    from filbert.data.word_vectors import read_vectors
    from filbert.formats.bigru_start import write_bigru_start
    from filbert.text.words import known_words, learn_words

    if (job.start / "config.json").is_file():
        return
    chosen = job.options
    cleaning = Cleaning.parse(job.cleaning)
    texts = [joined(row, cleaning) for row in _rows(job, "train")]
    words = learn_words(texts, size=chosen["max_words"], min_count=chosen["min_count"])
    vectors = None
    if chosen["vectors"] is not None:
        vectors = read_vectors(Path(chosen["vectors"]), known_words(words))
    write_bigru_start(
        job.start,
        words,
        vectors,
        dim=chosen["dim"],
        hidden=chosen["hidden"],
        dropout=chosen["dropout"],
        pooling=chosen["pooling"],
        seed=job.seed,
    )


def _rows(job: Job, split: str) -> list[Row]:
    task = Classification.from_options(TaskOptions(labels=job.labels), ColumnNames())
    return list(task.read(job.data[split], ColumnNames()))


def _linear(job: Job, task: Classification) -> tuple[dict[str, Any], float, Any]:
    """Fit, write the run folder; facts in the shape of finetune's."""
    started, clock = datetime.now(timezone.utc), time.perf_counter()
    rows = {name: list(task.read(path, ColumnNames())) for name, path in job.data.items()}
    task = task.fit_labels(rows["train"])
    cleaning = Cleaning.parse(job.cleaning)
    clock_training = time.perf_counter()
    fitted = fit_linear(
        task,
        _features(job, [joined(row, cleaning) for row in rows["train"]]),
        rows["train"],
        rows["dev"],
        strength=job.options["C"],
        cleaning=cleaning,
    )
    seconds = time.perf_counter() - clock_training
    out = Path(job.out)
    shutil.rmtree(out, ignore_errors=True)
    fitted.save(out / "model")
    metrics = {}
    for name in ("dev", "test"):
        gold = [fitted.task.gold(row) for row in rows[name]]
        predictions = fitted.predict_rows(rows[name])
        metrics[name] = fitted.task.metrics(gold, predictions)
        lines = [
            json.dumps({"row": i, "line": row.line, "gold": fitted.task.gold_json(wanted)} | found)
            for i, (row, wanted, found) in enumerate(
                zip(rows[name], gold, predictions, strict=True)
            )
        ]
        write_atomically(out / "predictions" / f"{name}.jsonl", "\n".join(lines) + "\n")
    facts = _linear_facts(job, fitted, rows, metrics) | {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - clock,
        "training_seconds": seconds,
    }
    return facts, seconds, fitted.predict_rows


def _features(job: Job, texts: Sequence[str]) -> Features:
    """What the classifier looks at, learned from the cleaned training texts."""
    chosen = job.options
    if job.kind == "tfidf":
        return WordCounts(texts, ngrams=chosen["ngrams"], min_df=chosen["min_df"])

    from filbert.study.static_words import word_table

    return word_table(texts, vectors=chosen["vectors"], model=chosen["model"]).fitted(texts)


def _linear_facts(
    job: Job, fitted: Linear, rows: dict[str, list[Row]], metrics: dict[str, Any]
) -> dict[str, Any]:
    task = fitted.task
    described = task.to_dict()
    dev = metrics["dev"][task.selection_metric]
    return {
        "filbert": version("filbert"),
        "commit": commit(),
        "command": "compare",
        "name": job.contestant,
        "options": {**job.options, "C": fitted.strength, "clean": job.cleaning, "seed": job.seed},
        "versions": versions() | {"scikit-learn": version("scikit-learn")},
        "device": {
            "name": device_name(torch.device("cpu")),
            "threads": torch.get_num_threads(),
            "processes": 1,
        },
        "precision": "float64",
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
        "status": "done",
        "metrics": metrics,
        "best": {"step": 0, "metric": task.selection_metric, "value": dev},
        "thresholds": described.get("thresholds"),
        "temperature": described.get("temperature"),
        "baselines": [],
    }
