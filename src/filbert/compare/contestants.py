"""Runs one contestant with one seed, from the prepared rows to a run folder with its costs.

The child process calls `run_contestant`. Costs are measured in that process, on the test rows.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from filbert.compare.classifiers import BiGRU, fit_bigru, word_table
from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.files import write_atomically, write_json
from filbert.inference.predictor import Predictor
from filbert.tasks.base import Prediction, Task, TaskOptions, task_class, task_to_dict
from filbert.tasks.rows import read_task_rows
from filbert.text.clean import Cleaning
from filbert.train.distill import distill
from filbert.train.distill_options import DistillOptions
from filbert.train.finetune import finetune
from filbert.train.linear import FeatureExtractor, Linear, WordCounts, fit_linear, joined
from filbert.train.log import say
from filbert.train.options import FinetuneOptions, changed
from filbert.train.provenance import commit, device_name, versions
from filbert.train.run_folder import read_run

# The splits whose predictions every run writes.
PREDICTED_SPLITS = ("dev", "test")
# Rows of a timed pass, and number of passes: half a minute for a base model on two cores.
TIMED_ROWS, WARM_UP_ROWS, PASSES = 1_024, 64, 5
PASS_SECONDS, MOST_SECONDS = 10.0, 30.0
# Single texts that are timed one by one.
LATENCY_ROWS, LATENCY_WARM_UP = 200, 5

Predict = Callable[[Sequence[Row]], Iterable[Prediction]]


@dataclass(frozen=True)
class ContestantRun:
    """One contestant with one seed: all that its child process needs.

    Attributes:
        contestant: Display name of the contestant.
        kind: One of `recipe.KINDS`.
        options: Of the contestant.
        training: Options of `finetune` or `distill`, for kinds that they train.
        cleaning: As `--clean` takes it.
        seed: Of the training.
        data: Path of "train", "dev" and "test".
        labels: In order.
        positive: Positive class of two.
        out: Run folder.
        fingerprint: Hash of everything that decides the result; written to run.json.
        source: Run of the same seed whose model it starts from.
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
    source: ContestantRun | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ContestantRun:
        """Return the run of a dict that `asdict` made and JSON carried."""
        source = values["source"] and cls.from_dict(values["source"])
        return cls(**{**values, "labels": tuple(values["labels"]), "source": source})

    def write(self) -> None:
        """Write the file that the child process reads."""
        self.job_path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.job_path, asdict(self))

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.out)

    @property
    def job_path(self) -> Path:
        """The file for the child process, next to the run folder."""
        return self.folder.with_name(f"{self.folder.name}.job.json")

    @property
    def key(self) -> str:
        """Its name in study.json, such as "minilm/seed-0"."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def begun_fingerprint(self) -> str | None:
        """The fingerprint of what its folder holds, finished or not; None if there is nothing."""
        if not self.folder.exists():
            return None
        known = trained_fingerprint(self.folder)
        if known is None and self.job_path.is_file():
            known = json.loads(self.job_path.read_text(encoding="utf-8"))["fingerprint"]
        return known

    @property
    def is_trained(self) -> bool:
        """Whether the model in its folder is complete."""
        return trained_fingerprint(self.folder) == self.fingerprint

    @property
    def is_finished(self) -> bool:
        """Whether its folder has the model and its predictions."""
        return finished_fingerprint(self.folder) == self.fingerprint


def trained_fingerprint(out: Path) -> str | None:
    """Return the fingerprint of the completed run in a folder; None if there is none."""
    run = read_run(out)
    if run is None or run.get("status") not in ("done", "stopped early") or "costs" not in run:
        return None
    fingerprint = (run.get("study") or {}).get("fingerprint")
    return None if fingerprint is None else str(fingerprint)


def finished_fingerprint(out: Path) -> str | None:
    """Return the same for a run with predictions."""
    paths = (_predictions_path(out, split) for split in PREDICTED_SPLITS)
    return trained_fingerprint(out) if all(path.is_file() for path in paths) else None


@dataclass(frozen=True)
class TrainedContestant:
    """A model with predictions, before its costs are measured.

    Attributes:
        facts: Content of run.json.
        predict: Predicts rows, from text to prediction.
        model: Folder of the model.
        training_seconds: None for a model that was not trained.
    """

    facts: dict[str, Any]
    predict: Predict
    model: Path
    training_seconds: float | None = None


def run_contestant(run: ContestantRun) -> None:
    """Train, predict and measure the costs; run.json is complete at the end.

    Raises:
        FilbertError: A step failed.
        Interrupted: Ctrl-C or SIGTERM; the state that `finetune` saved remains.
    """
    is_resumed = run.folder.exists()
    outcome = _STEPS[run.kind](run)
    test = _rows(run, "test")
    costs = {
        "parameters": outcome.facts["model"]["parameters"],
        **measure(outcome.predict, test, outcome.model),
        **latency(outcome.predict, test),
    }
    if outcome.training_seconds is not None:
        costs["training_seconds"] = outcome.training_seconds
        # The memory of an earlier process is not known.
        if not is_resumed:
            costs |= peak_memory()
    if trained_fingerprint(run.folder):
        # Only the predictions were made again; the costs are those of the training.
        costs = outcome.facts.get("costs") or costs
    shutil.rmtree(run.folder / "state", ignore_errors=True)
    study = {"contestant": run.contestant, "fingerprint": run.fingerprint}
    write_json(run.folder / "run.json", outcome.facts | {"costs": costs, "study": study})


def _trained(run: ContestantRun) -> TrainedContestant:
    """Fine-tune or distill."""
    given = {"task": "classification", "out": run.out, "seed": run.seed, "resume": True, **run.data}
    if run.source is not None:
        # Labels, the positive class and cleaning are the teacher's.
        given["teacher"] = str(run.source.folder / "model")
        distilling = DistillOptions.from_keywords(run.training | given)
        facts, device = distill(distilling), distilling.run.device
    else:
        given |= {"positive": run.positive, **({"clean": run.cleaning} if run.cleaning else {})}
        # Keywords are split at commas, which a label may contain.
        options = changed(FinetuneOptions.from_keywords(run.training | given), labels=run.labels)
        facts, device = finetune(options), options.run.device
    predictor = Predictor.load(run.folder / "model", device=device)
    if not all(_predictions_path(run.folder, split).is_file() for split in PREDICTED_SPLITS):
        _predict_splits(run, predictor.predict_rows, predictor.known_task())
    parts = ("training_seconds", "train_tokenise_seconds", "features_seconds",
             "augment_seconds")  # fmt: skip
    seconds = sum(facts.get(name) or 0.0 for name in parts)
    return TrainedContestant(facts, predictor.predict_rows, run.folder / "model", seconds)


def _quantised(run: ContestantRun) -> TrainedContestant:
    """Load the model of another run in int8; nothing is trained and no model is written."""
    clock = _Clock()
    assert run.source is not None
    folder = run.source.folder / "model"
    shutil.rmtree(run.folder, ignore_errors=True)
    predictor = Predictor.load(folder, precision="int8", device="cpu")
    task, before = predictor.known_task(), read_run(run.source.folder) or {}
    facts: dict[str, Any] = {
        name: before.get(name) for name in ("task", "labels", "problem", "positive", "data")
    }
    facts |= _common_facts(
        run, task, torch.device("cpu"), _predict_splits(run, predictor.predict_rows, task)
    )
    chosen_by = (before.get("best") or {}).get("metric") or task.spec.selection_metric
    facts["best"] |= {"metric": chosen_by, "value": facts["metrics"]["dev"].get(chosen_by)}
    facts |= {
        "options": {**run.options, "seed": run.seed},
        "precision": "int8",
        "model": {**(before.get("model") or {}), "source": run.options["of"]},
    }
    return TrainedContestant(facts | clock.facts(), predictor.predict_rows, folder)


def _fitted(run: ContestantRun) -> TrainedContestant:
    """Train a linear model or a BiGRU; the facts have the shape of those of `finetune`."""
    clock = _Clock()
    rows = {name: _rows(run, name) for name in run.data}
    task = _task(run).fit(rows["train"])
    cleaning, chosen = Cleaning.parse(run.cleaning), run.options
    started = time.perf_counter()
    texts = [joined(row, cleaning) for row in rows["train"]]
    train = (texts, rows["train"])
    fitted: Linear | BiGRU
    if run.kind == "bigru":
        fitted, seconds = fit_bigru(
            task,
            chosen,
            train=train,
            dev=rows["dev"],
            seed=run.seed,
            cleaning=cleaning,
            started=started,
        )
        own: dict[str, Any] = {}
    else:
        fitted, seconds = fit_linear(
            task, _features(run, texts, rows), train=train, dev=rows["dev"], strength=chosen["C"],
            cleaning=cleaning, started=started,
        )  # fmt: skip
        own = {"C": fitted.strength}
    shutil.rmtree(run.folder, ignore_errors=True)
    fitted.save(run.folder / "model")
    metrics = _predict_splits(run, fitted.predict_rows, fitted.task)
    facts = _common_facts(run, fitted.task, torch.device("cpu"), metrics) | {
        "options": {**chosen, **own, "clean": run.cleaning, "seed": run.seed},
        "precision": "float64" if isinstance(fitted, Linear) else "float32",
        "model": {
            "source": chosen.get("model") or chosen.get("vectors"),
            "family": run.kind,
            "parameters": fitted.num_parameters,
            "trained": fitted.num_parameters,
            "notes": [],
        },
        "task": "classification",
        "labels": list(run.labels),
        "problem": "binary" if fitted.task.spec.positive else "multiclass",
        "positive": run.positive,
        "data": {name: {"path": run.data[name], "rows": len(part)} for name, part in rows.items()},
        "training_seconds": seconds,
    }
    facts["versions"] |= {"scikit-learn": version("scikit-learn")}
    if isinstance(fitted, BiGRU):
        num_words, num_known = len(fitted.words), fitted.num_with_vectors
        facts["word_vectors"] = {"words": num_words, "with_vectors": num_known}
        if chosen["vectors"] is not None:
            say(
                f"vectors: {chosen['vectors']} has {num_known:,} of the {num_words:,} words; the "
                "others are drawn at random"
            )
    model = run.folder / "model"
    return TrainedContestant(facts | clock.facts(), fitted.predict_rows, model, seconds)


def _features(
    run: ContestantRun, texts: Sequence[str], rows: Mapping[str, Sequence[Row]]
) -> FeatureExtractor:
    """Return features fitted on the cleaned training texts.

    The words of dev and test are only looked up in a file of vectors.
    """
    chosen = run.options
    if run.kind == "tfidf":
        return WordCounts(texts, ngrams=chosen["ngrams"], min_df=chosen["min_df"])
    others: list[str] = []
    if chosen["vectors"] is not None:
        cleaning = Cleaning.parse(run.cleaning)
        others = [joined(row, cleaning) for name in PREDICTED_SPLITS for row in rows[name]]
    table = word_table(texts, vectors=chosen["vectors"], model=chosen["model"], others=others)
    return table.fitted(texts)


_STEPS: dict[str, Callable[[ContestantRun], TrainedContestant]] = {
    "encoder": _trained,
    "distilled": _trained,
    "quantised": _quantised,
    "tfidf": _fitted,
    "static": _fitted,
    "bigru": _fitted,
}


def _task(run: ContestantRun) -> Task:
    options = TaskOptions(labels=run.labels, positive=run.positive)
    return task_class("classification").from_options(options, ColumnNames())


def _rows(run: ContestantRun, split: str) -> list[Row]:
    return list(read_task_rows(_task(run), run.data[split], ColumnNames()))


def _predictions_path(out: Path, split: str) -> Path:
    return out / "predictions" / f"{split}.jsonl"


def _predict_splits(run: ContestantRun, predict: Predict, task: Task) -> dict[str, Any]:
    """Write the predictions of dev and test as `finetune` does; return their metrics."""
    metrics = {}
    for split in PREDICTED_SPLITS:
        rows = _rows(run, split)
        predictions, gold = list(predict(rows)), [task.gold(row) for row in rows]
        metrics[split] = task.metrics(gold, predictions)
        lines = [
            json.dumps(
                {
                    "row": i,
                    "line": row.line,
                    "gold": task.spec.row_format.gold_json(task.spec, label),
                }
                | prediction
            )
            for i, (row, label, prediction) in enumerate(zip(rows, gold, predictions, strict=True))
        ]
        write_atomically(_predictions_path(run.folder, split), "\n".join(lines) + "\n")
    return metrics


class _Clock:
    """Measures the whole time of a run."""

    def __init__(self) -> None:
        self._started, self._clock = datetime.now(timezone.utc), time.perf_counter()

    def facts(self) -> dict[str, Any]:
        """Return started, finished and seconds for run.json."""
        return {
            "started": self._started.isoformat(timespec="seconds"),
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seconds": time.perf_counter() - self._clock,
        }


def _common_facts(
    run: ContestantRun, task: Task, device: torch.device, metrics: dict[str, Any]
) -> dict[str, Any]:
    """Return what run.json says of a model that `finetune` has not trained."""
    described, metric = task_to_dict(task), task.spec.selection_metric
    return {
        "filbert": version("filbert"),
        "commit": commit(),
        "command": "compare",
        "name": run.contestant,
        "device": {
            "name": device_name(device),
            "threads": torch.get_num_threads(),
            "processes": 1,
        },
        "versions": versions(),
        "status": "done",
        "metrics": metrics,
        "best": {"step": 0, "metric": metric, "value": metrics["dev"].get(metric)},
        "thresholds": described.get("thresholds"),
        "temperature": described.get("temperature"),
        "baselines": [],
    }


# Costs


def measure(predict: Predict, rows: Sequence[Row], model: Path) -> dict[str, Any]:
    """Measure rows a second, from text to prediction, and the size of the model's files.

    Args:
        predict: Cleans, tokenises and predicts.
        rows: Of test; at most `TIMED_ROWS`, evenly spread, are timed, fewer for a slow model.
        model: Folder of the model.

    Returns:
        rows_per_second (median of up to `PASSES` passes) and bytes_on_disk.
    """
    few = _spread(rows, WARM_UP_ROWS)
    speed = len(few) / _seconds(predict, few)
    timed = _spread(rows, max(WARM_UP_ROWS, min(TIMED_ROWS, int(speed * PASS_SECONDS))))
    speeds: list[float] = []
    spent = 0.0
    while len(speeds) < PASSES and (not speeds or spent + spent / len(speeds) <= MOST_SECONDS):
        seconds = _seconds(predict, timed)
        spent += seconds
        speeds.append(len(timed) / seconds)
    return {
        "rows_per_second": median(speeds),
        "bytes_on_disk": sum(p.stat().st_size for p in model.rglob("*") if p.is_file()),
    }


def latency(predict: Predict, rows: Sequence[Row]) -> dict[str, Any]:
    """Measure single texts, from text to prediction, of at most `LATENCY_ROWS` spread rows.

    Returns:
        latency_seconds, the median.
    """
    alone = [[row] for row in _spread(rows, LATENCY_ROWS)]
    for one in alone[:LATENCY_WARM_UP]:
        _seconds(predict, one)
    times: list[float] = []
    # Every second row first, so that the rows are spread if the time runs out.
    for one in alone[::2] + alone[1::2]:
        times.append(_seconds(predict, one))
        if sum(times) > PASS_SECONDS:
            break
    return {"latency_seconds": median(times)}


def _spread(rows: Sequence[Row], most: int) -> list[Row]:
    """Return rows at equal distances, from the first to the last."""
    at = np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)
    return [rows[i] for i in at.tolist()]


def _seconds(predict: Predict, rows: Sequence[Row]) -> float:
    started = time.perf_counter()
    list(predict(rows))
    return max(time.perf_counter() - started, 1e-9)


def peak_memory() -> dict[str, int]:
    """Return the peak memory of this process: peak_bytes, and on a GPU peak_device_bytes."""
    try:
        # Linux's getrusage includes the parent's memory at the fork; VmHWM does not.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = most if sys.platform == "darwin" else most * 1024
    if torch.cuda.is_available():
        return {"peak_bytes": peak, "peak_device_bytes": torch.cuda.max_memory_allocated()}
    return {"peak_bytes": peak}
