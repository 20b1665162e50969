"""A run on labelled rows after its preparation: train, select, calibrate, measure and save."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.examples import lengths_of, rows_of
from filbert.data.loader import Loader
from filbert.files import write_atomically, write_json
from filbert.inference.forward import default_max_tokens, run_model
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.tasks.base import Objective, Task, TaskSpec, task_to_dict
from filbert.tasks.predictions import gold_json, official_files
from filbert.tasks.rows import row_labels, row_texts
from filbert.text.tokenizer import Tokenizer
from filbert.train.baseline import baseline_lines, measure_baseline
from filbert.train.course import Course
from filbert.train.distill_options import DistillOptions
from filbert.train.distributed import Parallel, Trainable, start
from filbert.train.facts import begun, ended, story_of
from filbert.train.features import MOST_BYTES, Features, compute_features, num_bytes
from filbert.train.folder import already_finished, check_out, recorded
from filbert.train.log import RunLog, progress_bar, say
from filbert.train.options import FinetuneOptions, RunOptions, TrainOptions
from filbert.train.precision_check import precision_losses
from filbert.train.prepare import Split, check_data, finding_lines
from filbert.train.save import save_model
from filbert.train.trainer import Outcome, train

# Number of token counts per split in run.json, for the histogram of the report.
_SAMPLED_LENGTHS = 2_000


@dataclass
class Job:
    """A run on labelled rows that is ready to begin.

    Attributes:
        options: All options of the run, for its record.
        train: Its hyper-parameters.
        run: Its folder, device and seed.
        command: The verb.
        source: The model to start from, as the user named it.
        task_name: As the user named it.
        task: Decodes outputs and computes metrics.
        objective: What is trained: the task itself, or the task and more.
        splits: train, and optionally dev and test.
        checkpoint: Description and starting weights of the model.
        tokenizer: Of the model.
        max_length: Texts are cut at this number of tokens.
        model: The model that is evaluated and saved.
        trained: The module that is trained: the model, or a wrapper with the same weight names.
        is_frozen: Whether the outputs of the encoder never change.
        loader: Training batches.
        course: Schedule of steps and learning rates.
        precision: Number format of the matrix products.
        fingerprint: Hash of everything that determines the result.
        tokenise_seconds: Time for reading all splits.
        took: Seconds of training outside the loop, by name, and the CPU seconds of all training.
        before: Called with the run folder before training, on all ranks. If it trains too, the
            returned costs are added to those of the run.
        more: Returns further entries of run.json after training.
        prints_findings: Whether findings on the data are printed.
    """

    options: FinetuneOptions | DistillOptions
    train: TrainOptions
    run: RunOptions
    command: str
    source: str
    task_name: str
    task: Task
    objective: Objective
    splits: dict[str, Split]
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    max_length: int
    model: Model
    trained: Trainable
    is_frozen: bool
    loader: Loader
    course: Course
    precision: Precision
    fingerprint: str
    tokenise_seconds: float
    took: dict[str, float] = field(default_factory=dict)
    before: Callable[[Path], Outcome | None] | None = None
    more: Callable[[], dict[str, Any]] | None = None
    prints_findings: bool = True


def run_task(options: RunOptions, prepare: Callable[[Parallel], Job]) -> dict[str, Any]:
    """Prepare, train, select the best step, calibrate, measure and save.

    Args:
        options: Of the run.
        prepare: Reads and checks everything; writes nothing.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: Before anything is written.
        RunError: Training cannot continue.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    started, clock = datetime.now(timezone.utc), time.perf_counter()
    with start(options.distributed, options.device) as parallel:
        if parallel.is_first:
            check_out(Path(options.out), overwrite=options.overwrite, resume=options.resume)
        job = prepare(parallel)
        finished = already_finished(options, job.fingerprint, parallel)
        if finished is not None:
            return finished if parallel.is_first else {}
        if not parallel.is_first:
            _learn(job, parallel, None)
            return {}
        run = _opening(job, started, parallel)
        for line in _announcement(job, run):
            say(line)
        with recorded(options.out, run, resume=options.resume) as folder:
            outcome, fitted, outputs = _learn(job, parallel, folder)
            metric = outcome.metric or job.task.spec.selection_metric
            metrics, run["baseline"] = _measure(job, folder, fitted, outputs, metric)
            weights = _own(job, outcome)
            rounded: dict[str, Any] = {"bf16_loss": None, "int8_loss": None}
            if "dev" in job.splits:
                rounded = precision_losses(
                    job.checkpoint,
                    weights,
                    fitted,
                    job.splits["dev"],
                    metrics["dev"],
                    parallel.device,
                )
            run |= _closing(outcome, fitted, metrics, time.perf_counter() - clock) | job.took
            run |= rounded | (job.more() if job.more is not None else {})
            story = story_of(run) | {"task": task_to_dict(fitted), "max_length": job.max_length}
            save_model(folder / "model", weights, job.tokenizer, job.checkpoint, fitted, story)
    return run


def _opening(job: Job, started: datetime, parallel: Parallel) -> dict[str, Any]:
    """Return run.json as it is before the first step."""
    labels = {name: _label_counts(split, job.task) for name, split in job.splits.items()}
    run = begun(job, job.model, out=job.run.out, started=started, parallel=parallel)
    return run | {
        "task": job.task_name,
        "labels": list(job.task.spec.labels or ()),
        "problem": _problem(job.task.spec),
        "positive": job.task.spec.positive,
        "data": {
            name: _split_facts(split, job.task, job.max_length, labels[name])
            for name, split in job.splits.items()
        },
        "tokenise_seconds": job.tokenise_seconds,
        "fingerprint": job.fingerprint,
        "findings": check_data(job.task, job.splits),
    }


def _closing(
    outcome: Outcome, task: Task, metrics: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Return the entries of run.json that are added after the last step."""
    described = task_to_dict(task)
    return ended(outcome, metrics, seconds) | {
        "best": {"step": outcome.best_step, "metric": outcome.metric, "value": outcome.best_value},
        "thresholds": described.get("thresholds"),
        "temperature": described.get("temperature"),
        "null_threshold": described.get("null_threshold"),
        "baselines": [],
    }


def _split_facts(split: Split, task: Task, max_length: int, labels: Counter[str]) -> dict[str, Any]:
    """Describe one split for run.json: its file, sizes, label counts and lengths in tokens."""
    rows = lengths_of(split.examples, rows_of(split.examples))
    lengths = [row["num_tokens"] for row in rows]
    every = max(1, math.ceil(len(lengths) / _SAMPLED_LENGTHS))
    return {
        "path": split.path,
        "sha256": split.digest,
        "rows": len(split.rows),
        "sequences": len(split.examples),
        "label_counts": dict(labels),
        "has_pairs": any(isinstance(text, tuple) for text in row_texts(task, split.rows[0])),
        "tokens": int(sum(len(example.input_ids) for example in split.examples)),
        "truncated": sum(row["truncated"] for row in rows),
        "truncated_tokens": sum(
            example.num_tokens - len(example.input_ids)
            for example in split.examples
            if example.truncated
        ),
        "longest": max((example.num_tokens for example in split.examples), default=0),
        "max_length": max_length,
        "lengths": lengths[::every],
    }


def _problem(spec: TaskSpec) -> str:
    if not spec.labels_are_classes:
        return spec.name
    if spec.multilabel:
        return "multilabel"
    return "multiclass" if spec.positive is None else "binary"


def _label_counts(split: Split, task: Task) -> Counter[str]:
    counts: Counter[str] = Counter()
    if task.spec.labels_are_classes:
        counts.update({label: 0 for label in task.spec.labels or ()})
    for row in split.rows:
        counts.update(row_labels(task, row))
    return counts


def _measure(
    job: Job, folder: Path, fitted: Task, outputs: dict[str, list[Tensor]], metric: str
) -> tuple[dict[str, dict[str, Any]], dict[str, Any] | None]:
    """Write the predictions for dev and test and return their metrics and the baseline."""
    splits, metrics = job.splits, {}
    for name, output in outputs.items():
        predictions = fitted.decode(output, splits[name].examples)
        metrics[name] = fitted.metrics(splits[name].gold, predictions)
        _write_predictions(folder / "predictions", splits[name], fitted, predictions)
    start = (job.checkpoint, job.tokenizer, job.max_length)
    baseline = measure_baseline(job.task, splits, metrics, metric, start, job.model.device)
    unfitted = []
    if "dev" in outputs and job.task.spec.multilabel:
        unfitted = job.task.decode(outputs["dev"], splits["dev"].examples)
    for line in baseline_lines(baseline, unfitted):
        say(line)
    return metrics, baseline


def _own(job: Job, outcome: Outcome) -> dict[str, Tensor]:
    """Select the weights of the saved model from those of the trained module."""
    return {name: outcome.weights[name] for name in job.model.state_dict()}


def _learn(
    job: Job, parallel: Parallel, folder: Path | None
) -> tuple[Outcome, Task, dict[str, list[Tensor]]]:
    """Train, then compute outputs for dev and test with the chosen weights and calibrate on dev.

    Returns:
        The outcome, the calibrated task and the outputs by split. Only the first rank has outputs.
    """
    options, task, splits = job.run, job.task, job.splits
    place = Path(parallel.broadcast(str(folder)))
    first = job.before(place) if job.before is not None else None
    # Under FSDP each rank holds a part of the weights, so a whole copy is used for evaluation.
    whole = copy.deepcopy(job.model) if parallel.kind == "fsdp" else job.model
    max_tokens = default_max_tokens(parallel.device)
    clock, cpu = time.perf_counter(), time.process_time()
    features = _features(job, max_tokens)
    if features is not None:
        job.took["features_seconds"] = time.perf_counter() - clock
        job.took["training_cpu_seconds"] += time.process_time() - cpu

    def outputs_of(split: Split, precision: Precision) -> list[Tensor]:
        return run_model(whole, split.examples, max_tokens=max_tokens, precision=precision)

    def evaluate(weights: dict[str, Tensor]) -> dict[str, Any]:
        if whole is not job.model:
            whole.load_state_dict({name: weights[name] for name in whole.state_dict()})
        dev = splits["dev"]
        return task.metrics(dev.gold, task.decode(outputs_of(dev, job.precision), dev.examples))

    with RunLog(
        folder,
        tensorboard=options.tensorboard,
        resume=options.resume,
        quiet=not parallel.is_first,
    ) as log:
        outcome = train(
            job.trained,
            job.objective,
            course=job.course,
            options=job.train,
            run=options,
            precision=job.precision,
            evaluate=evaluate if "dev" in splits else None,
            log=log,
            parallel=parallel,
            features=features,
            states=place / "state",
            fingerprint=job.fingerprint,
        )
    if first is not None:
        summed = ("seconds", "cpu_seconds", "clock_before", "num_tokens")
        sums = {name: getattr(outcome, name) + getattr(first, name) for name in summed}
        outcome = dataclasses.replace(outcome, **sums)
    job.took["training_cpu_seconds"] += outcome.cpu_seconds
    if not parallel.is_first:
        return outcome, task, {}
    whole.load_state_dict(_own(job, outcome))
    # Final metrics are computed in float32, as in `predict` and `evaluate`.
    exact = Precision("float32", "final figures")
    outputs = {n: outputs_of(split, exact) for n, split in splits.items() if n != "train"}
    if "dev" in splits:
        task = task.calibrate(splits["dev"].gold, outputs["dev"], splits["dev"].examples)
    return outcome, task, outputs


def _features(job: Job, max_tokens: int) -> Features | None:
    """Compute the outputs of a frozen encoder for the training rows, if they fit into memory."""
    examples = [example for row in job.loader.rows for example in row]
    if not job.is_frozen:
        return None
    size = num_bytes(job.model, examples)
    if size > MOST_BYTES:
        say(
            f"frozen encoder: its outputs would take {size / 2**30:.0f} GiB, "
            f"so it runs in every step"
        )
        return None
    clock = time.perf_counter()
    with progress_bar() as bar:
        shown = bar.add_task("features of the frozen encoder", total=len(examples))
        features = compute_features(
            job.model,
            examples,
            max_tokens=max_tokens,
            precision=job.precision,
            on_batch=lambda count: bar.update(shown, advance=count),
        )
    say(
        f"frozen encoder: outputs of {len(examples):,} sequences computed once, "
        f"{size / 2**20:.0f} MiB, {time.perf_counter() - clock:.1f} s"
    )
    return features


def _announcement(job: Job, run: dict[str, Any]) -> list[str]:
    """Return the lines that are printed before the run starts."""
    sizes = ", ".join(f"{len(split.rows):,} {name}" for name, split in job.splits.items())
    lines = [f"rows: {sizes}; {job.course.length} of {job.loader.batch_size} rows"]
    lines += [f"model: {note}" for note in job.checkpoint.notes]
    lines.append(f"precision: {run['precision']} ({run['precision_reason']})")
    if run["device"]["processes"] > 1:
        lines.append(f"processes: {run['device']['processes']} ({job.run.distributed})")
    for name, split in job.splits.items():
        facts = run["data"][name]
        if cut := facts["truncated"]:
            lines.append(
                f"truncation: {cut:,} of {len(split.rows):,} {name} rows "
                f"({cut / len(split.rows):.1%}) are longer than {job.max_length} tokens and were "
                f"cut ({job.task.spec.on_overflow}): "
                f"{facts['truncated_tokens']:,} tokens are lost, the longest has "
                f"{facts['longest']:,}"
            )
    if "dev" not in job.splits:
        lines.append("dev: none given, so no best step is chosen and no threshold is fitted")
    if job.prints_findings:
        lines += finding_lines(run["findings"], job.task_name)
    return lines


def _write_predictions(
    folder: Path, split: Split, task: Task, predictions: Sequence[dict[str, Any]]
) -> None:
    """Write one JSON object per row, and the additional files of the task."""
    lines = [
        json.dumps({"row": i, "line": row.line, "gold": gold_json(task, gold)} | prediction)
        for i, (row, gold, prediction) in enumerate(
            zip(split.rows, split.gold, predictions, strict=True)
        )
    ]
    write_atomically(folder / f"{split.name}.jsonl", "\n".join(lines) + "\n")
    for name, content in official_files(task, split.gold, predictions).items():
        write_json(folder / split.name / name, content)
