"""One contestant with one seed, in a process of its own: from the prepared rows to a run folder.

A process of its own measures its memory separately, and a crash or a kill ends only this run.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from filbert.compare.recipe import NETWORKS, TRAINED, Contestant
from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.errors import FilbertError
from filbert.files import read_json, write_json
from filbert.inference.predictor import Predictor
from filbert.lineage.classifier import NetworkClassifier, fit_network
from filbert.lineage.words import word_means
from filbert.model.cpu import float32_by_onednn
from filbert.tasks.base import Prediction, Task, TaskOptions, task_class, task_to_dict
from filbert.tasks.rows import read_task_rows
from filbert.text.clean import Cleaning
from filbert.train.distill import distill
from filbert.train.distill_options import DistillOptions
from filbert.train.finetune import finetune, write_predictions
from filbert.train.linear import FeatureExtractor, Linear, WordCounts, fit_linear, joined
from filbert.train.log import say
from filbert.train.loop import Stop
from filbert.train.options import FinetuneOptions, changed
from filbert.train.provenance import commit, device_name, now, versions
from filbert.train.run_folder import read_run

# Rows of a timed pass, number of passes, and single texts that are timed one by one. No new pass
# begins after MOST_SECONDS, no new text after a third of them.
TIMED_ROWS, WARM_UP_ROWS, PASSES, LATENCY_ROWS, MOST_SECONDS = 1_024, 64, 5, 200, 30.0
_TICK = 0.25
# Seconds that a child gets after a second signal before it is killed.
_PATIENCE = 5.0

Predict = Callable[[Sequence[Row]], Iterable[Prediction]]
# The content of run.json, whose costs are the bytes (of an ensemble, those of all members) and the
# seconds of a training, and how the model predicts rows from their texts.
Trained = tuple[dict[str, Any], Predict]


@dataclass(frozen=True)
class ContestantRun:
    """One contestant with one seed: all that its child process needs.

    Attributes:
        data: Path of "train", "dev" and "test".
        labels, positive: All labels in order, and the positive class of two.
        fingerprint: Hash of everything that decides the result.
        sources: Run of the same seed whose model it starts from; of an ensemble all its members.
    """

    contestant: Contestant
    seed: int
    data: dict[str, str]
    labels: tuple[str, ...]
    positive: str | None
    out: str
    fingerprint: str
    sources: tuple[ContestantRun, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ContestantRun:
        """Return the run with the content of a job file."""
        own = {field.name: values[field.name] for field in fields(cls)}
        own["contestant"] = Contestant(**values["contestant"])
        own["sources"] = tuple(cls.of(one) for one in values["sources"])
        return cls(**own | {"labels": tuple(values["labels"])})

    def write(self, status: str = "running", error: str | None = None) -> None:
        """Write the job file: the child reads what to do, and the study what was done.

        The status is running, finished, failed or interrupted, `error` says why it failed.
        """
        self.job_path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.job_path, asdict(self) | {"status": status, "error": error})

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.out)

    @property
    def job_path(self) -> Path:
        """The job file, next to the run folder."""
        return self.folder.with_name(f"{self.folder.name}.job.json")

    @property
    def outcome(self) -> tuple[str, str | None]:
        """The recorded status and error.

        It is "changed" if a run of other rows or options is finished, else "missing" without a run
        of these.
        """
        last = read_json(self.job_path) if self.job_path.is_file() else {}
        if last.get("fingerprint") != self.fingerprint:
            return ("changed" if last.get("status") == "finished" else "missing"), None
        return last["status"], last["error"]


# The parent


def run_child(run: ContestantRun, *, stop: Stop, lock: int) -> tuple[str, str | None]:
    """Run a contestant in a child process, wait for it, and return its status and error.

    The child's output goes to a log next to the run folder.

    Args:
        stop: Received signals; the child then gets SIGTERM and saves its state.
        lock: Descriptor of the lock on the study's folder; the child holds it too.

    Raises:
        KeyboardInterrupt: A second signal was received; the child has ended.
    """
    log_path, is_signalled = run.folder.with_name(f"{run.folder.name}.log"), False
    run.write()
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "filbert.compare.contestants", str(run.job_path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # Signals of a terminal reach the parent only, which forwards them.
            start_new_session=True,
            pass_fds=(lock,),
        )
        try:
            while child.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_TICK)
                if stop.name is not None and not is_signalled:
                    is_signalled = True
                    name = run.contestant.name
                    say(f"{stop.name}: {name} saves its state; a second signal kills it")
                    child.send_signal(signal.SIGTERM)
        except BaseException:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE)
            child.kill()
            raise
        finally:
            child.communicate()
    status, error = run.outcome
    if status != "running":
        return status, error
    if stop.name is not None:
        return "interrupted", None
    code = child.returncode
    if code == -signal.SIGKILL:
        return "failed", "The process was killed (SIGKILL), probably because memory ran out."
    return "failed", f"The process ended with status {code}. Its log: {log_path.name}"


# The child


def main(job: Path) -> None:
    """Run a contestant in the child and write the outcome to its job file."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run = ContestantRun.of(read_json(job))
    try:
        run_contestant(run)
        run.write("finished")
    except FilbertError as error:
        run.write("failed", str(error))
    except KeyboardInterrupt:
        run.write("interrupted")
    except MemoryError:
        run.write("failed", "There was not enough memory.")
    except Exception as error:
        traceback.print_exc()
        # Only the type of an unexpected error: its message may contain texts of the data.
        run.write("failed", f"{type(error).__name__}; see the log.")


def _end_with_parent() -> None:
    """Send SIGTERM to this process when standard input ends, as when the parent was killed."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def run_contestant(run: ContestantRun) -> None:
    """Train, predict and measure the costs; run.json is complete at the end.

    After Ctrl-C or SIGTERM it raises Interrupted, and the state that `finetune` saved remains.
    """
    is_resumed, meter = run.folder.exists(), EnergyMeter()
    kind = run.contestant.kind
    train = _trained if kind in TRAINED else _derived if run.sources else _fitted
    facts, predict = train(run)
    joules = meter.read()
    costs = {
        "parameters": facts["model"]["parameters"],
        **facts["costs"],
        **measure(predict, _rows(run, "test")),
    }
    # Memory and energy of the processes before this one are not known.
    if "training_seconds" in costs and not (is_resumed or kind == "ensemble"):
        costs |= peak_memory() | ({"training_joules": joules} if joules else {})
    shutil.rmtree(run.folder / "state", ignore_errors=True)
    write_json(run.folder / "run.json", facts | {"costs": costs})


def _trained(run: ContestantRun) -> Trained:
    """Fine-tune or distill."""
    own, cleaning = run.contestant.options, Cleaning.parse(run.contestant.cleaning)
    given = {"task": "classification", "out": run.out, "seed": run.seed, "resume": True, **run.data}
    if run.sources:
        # Labels, the positive class and cleaning are the teacher's.
        given["teacher"] = str(run.sources[0].folder / "model")
        distilling = DistillOptions.from_keywords(own | given)
        facts, device = distill(distilling), distilling.run.device
    else:
        given |= {"positive": run.positive, "baseline": False}
        given |= {"clean": str(cleaning)} if cleaning else {}
        # Keywords are split at commas, which a label may contain.
        options = changed(FinetuneOptions.from_keywords(own | given), labels=run.labels)
        facts, device = finetune(options), options.run.device
    predictor = Predictor.load(run.folder / "model", device=device)
    parts = ("training_seconds", "train_tokenise_seconds", "features_seconds")
    seconds = sum(facts.get(name) or 0.0 for name in parts)
    costs = {"bytes_on_disk": _size_of(run.folder / "model"), "training_seconds": seconds}
    return facts | {"costs": costs}, predictor.predict_rows


def _derived(run: ContestantRun) -> Trained:
    """Load the model of another run in int8, or several as one; none is trained or written."""
    started, is_ensemble = now(), run.contestant.kind == "ensemble"
    before = [read_run(one.folder) or {} for one in run.sources]
    folders = [one.folder / "model" for one in run.sources]
    if is_ensemble:
        predictor = Predictor.load([str(folder) for folder in folders])
    else:
        predictor = Predictor.load(folders[0], precision="int8", device="cpu")
    parameters = sum(facts["model"]["parameters"] for facts in before)
    model = before[0]["model"] | {"source": run.contestant.source, "parameters": parameters}
    precision = before[0]["precision"] if is_ensemble else "int8"
    costs: dict[str, float] = {"bytes_on_disk": sum(map(_size_of, folders))}
    if is_ensemble:
        seconds = [facts["costs"].get("training_seconds", 0.0) for facts in before]
        costs["training_seconds"] = sum(seconds)
    facts = _facts(run, predictor, started=started, precision=precision, model=model, costs=costs)
    return facts, predictor.predict_rows


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _fitted(run: ContestantRun) -> Trained:
    """Train a linear model or a network without attention."""
    started, clock = now(), time.perf_counter()
    rows = {name: _rows(run, name) for name in run.data}
    task, kind, chosen = _task(run).fit(rows["train"]), run.contestant.kind, run.contestant.options
    cleaning = Cleaning.parse(run.contestant.cleaning)
    texts = {name: [joined(row, cleaning) for row in part] for name, part in rows.items()}
    given: dict[str, Any] = {
        "train": (texts["train"], rows["train"]), "dev": rows["dev"], "cleaning": cleaning,
    }  # fmt: skip
    features = None if kind in NETWORKS else _features(run, texts)
    preparing = time.perf_counter() - clock
    fitted: Linear | NetworkClassifier
    if features is None:
        with float32_by_onednn():
            fitted, seconds = fit_network(kind, task, chosen, seed=run.seed, **given)
    else:
        fitted, seconds = fit_linear(task, features, strength=chosen["C"], **given)
        chosen = chosen | {"C": fitted.strength}
    shutil.rmtree(run.folder, ignore_errors=True)
    facts = _facts(
        run,
        fitted,
        started=started,
        options={**chosen, "clean": cleaning and str(cleaning), "seed": run.seed},
        precision="float32" if kind in NETWORKS else "float64",
        model={
            "source": chosen.get("model") or chosen.get("vectors"),
            "family": kind,
            "parameters": fitted.size.parameters,
        },
        costs={"bytes_on_disk": fitted.size.num_bytes, "training_seconds": preparing + seconds},
    )
    return facts, fitted.predict_rows


def _features(run: ContestantRun, texts: Mapping[str, Sequence[str]]) -> FeatureExtractor:
    """Return the features of a linear model, fitted on the training texts."""
    options = run.contestant.options
    if run.contestant.kind == "tfidf":
        return WordCounts(texts["train"], ngrams=options["ngrams"], min_df=options["min_df"])
    # The words of dev and test are only looked up in a file of vectors.
    every = [text for part in texts.values() for text in part]
    vectors, model = options["vectors"], options["model"]
    return word_means(texts["train"], every, vectors=vectors, model=model, seed=run.seed)


def _task(run: ContestantRun) -> Task:
    options = TaskOptions(labels=run.labels, positive=run.positive)
    return task_class("classification").from_options(options, ColumnNames())


def _rows(run: ContestantRun, split: str) -> list[Row]:
    return list(read_task_rows(_task(run), run.data[split], ColumnNames()))


def _facts(
    run: ContestantRun, fitted: Predictor | Linear | NetworkClassifier, **own: Any
) -> dict[str, Any]:
    """Write the predictions and return run.json for a model that `finetune` has not trained.

    `own` are entries that depend on the kind.
    """
    task, metrics, data = fitted.task, {}, {}
    assert task is not None
    described, spec = task_to_dict(task), task.spec
    for split in ("dev", "test"):
        rows = _rows(run, split)
        predictions, gold = list(fitted.predict_rows(rows)), [task.gold(row) for row in rows]
        metrics[split] = task.metrics(gold, predictions)
        data[split] = {"path": run.data[split], "rows": len(rows)}
        path = run.folder / "predictions" / f"{split}.jsonl"
        write_predictions(path, task, rows, gold, predictions)
    chosen_by = spec.selection_metric
    return {
        "filbert": version("filbert"),
        "commit": commit(),
        "command": "compare",
        "name": run.contestant.name,
        "task": "classification",
        "labels": list(run.labels),
        "problem": "binary" if spec.positive else "multiclass",
        "positive": run.positive,
        "finished": now(),
        "status": "done",
        "device": {
            "name": device_name(torch.device("cpu")),
            "threads": torch.get_num_threads(),
            "processes": 1,
        },
        "versions": versions(),
        "options": {**run.contestant.options, "seed": run.seed},
        "data": data,
        "metrics": metrics,
        "best": {"step": 0, "metric": chosen_by, "value": metrics["dev"].get(chosen_by)},
        "thresholds": described.get("thresholds"),
        "temperature": described.get("temperature"),
        **own,
    }


# Costs


def measure(predict: Predict, rows: Sequence[Row]) -> dict[str, float]:
    """Measure a model from text to prediction on evenly spread rows, after a warm-up.

    rows_per_second is the median of the passes, latency_seconds the median of single texts.
    """
    timed = _spread(rows, TIMED_ROWS)
    alone = [[row] for row in _spread(rows, LATENCY_ROWS)]
    _timed(predict, [_spread(rows, WARM_UP_ROWS)], math.inf)
    seconds = _timed(predict, [timed] * PASSES, MOST_SECONDS)
    # Every second row first, so that the rows are spread if the time runs out.
    latencies = _timed(predict, alone[::2] + alone[1::2], MOST_SECONDS / 3)
    return {
        "rows_per_second": len(timed) / median(seconds),
        "latency_seconds": median(latencies),
    }


class EnergyMeter(threading.Thread):
    """Sums the energy that the CPUs have used since it began, for all programs on the machine.

    Linux counts it on most x86 machines, often for the superuser only. Tested with such files.
    """

    def __init__(self, place: str = "/sys/class/powercap") -> None:
        super().__init__(daemon=True)
        # One for each socket; those of its parts have a second colon.
        self._sockets = sorted(Path(place).glob("intel-rapl:?"))
        self._joules, self._last = 0.0, dict[Path, int]()
        self.read()
        if self._last:
            self.start()

    def run(self) -> None:
        """Read often enough to see each time when a counter begins again."""
        while True:
            time.sleep(60)
            self.read()

    def read(self) -> float:
        """Return the joules; 0 where the machine does not count them."""
        with suppress(OSError):
            for socket in self._sockets:
                now, most = (
                    int((socket / name).read_text())
                    for name in ("energy_uj", "max_energy_range_uj")
                )
                self._joules += (now - self._last.get(socket, now)) % most / 1e6
                self._last[socket] = now
        return self._joules


def _timed(predict: Predict, batches: Sequence[Sequence[Row]], most: float) -> list[float]:
    """Return the seconds of each batch; no batch begins after `most` seconds."""
    times: list[float] = []
    for batch in batches:
        if sum(times) < most:
            started = time.perf_counter()
            list(predict(batch))
            times.append(max(time.perf_counter() - started, 1e-9))
    return times


def _spread(rows: Sequence[Row], most: int) -> list[Row]:
    """Return rows at equal distances, from the first to the last."""
    at = np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)
    return [rows[i] for i in at.tolist()]


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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
