"""The way of every run on labelled rows, once it is prepared: train, choose, calibrate, save."""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.loader import Loader
from filbert.files import write_atomically, write_json
from filbert.model.heads import Model
from filbert.speed.execution import default_max_tokens, run_model
from filbert.speed.precision import Precision
from filbert.tasks.base import Objective, Task
from filbert.text.tokenizer import Tokenizer
from filbert.train.baseline import baseline_lines, measure_baseline
from filbert.train.course import Course
from filbert.train.distill_options import DistillOptions
from filbert.train.distributed import Parallel, Trainable, start
from filbert.train.facts import closing, opening, story_of
from filbert.train.features import MOST_BYTES, Features, compute_features, num_bytes
from filbert.train.folder import already_finished, check_out, recorded
from filbert.train.log import RunLog, progress_bar, say
from filbert.train.options import FinetuneOptions
from filbert.train.precision_check import precision_losses
from filbert.train.prepare import Split, check_data, finding_lines
from filbert.train.save import save_model
from filbert.train.trainer import Outcome, train


@dataclass
class Job:
    """A run that is ready to begin.

    Attributes:
        command: the verb.
        source: the model that it starts from, as the user named it.
        task_name: as the user called it.
        task: what the model answers; it decodes and measures.
        objective: what is learnt: the task itself, or more than it.
        splits: train, and maybe dev and test.
        model: what is measured and saved.
        trained: what learns: the model, or something around it whose state has the same names.
        is_frozen: whether the encoder's outputs never change.
        tokenise_seconds: that reading all splits took.
        took: seconds of the parts of training that the loop does not see, and the processor's of
            all.
        before: done before the training itself, by all ranks; gets the run folder, which the first
            rank alone knows. What it came to, if it trains too: its costs are the run's.
        more: facts of its own for run.json, found when the training is over.
        prints_findings: Whether findings on the data are printed.
    """

    options: FinetuneOptions | DistillOptions
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


def run_task(
    options: FinetuneOptions | DistillOptions, prepare: Callable[[Parallel], Job]
) -> dict[str, Any]:
    """Prepare, train, choose, calibrate, measure, save.

    Args:
        options: of the run.
        prepare: reads and checks everything; writes nothing.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: before anything is written.
        RunError: training could not go on.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    started, clock = datetime.now(timezone.utc), time.perf_counter()
    with start(options.distributed, options.device) as parallel:
        if parallel.is_first:
            check_out(Path(options.out), overwrite=options.overwrite, resume=options.resume)
        job = prepare(parallel)
        finished = already_finished(options, options.out, job.fingerprint, parallel)
        if finished is not None:
            return finished if parallel.is_first else {}
        if not parallel.is_first:
            _learn(job, parallel, None)
            return {}
        splits, precision = job.splits, job.precision
        run = opening(
            job.command,
            options,
            options.out,
            job.source,
            job.task_name,
            job.task,
            job.checkpoint,
            job.tokenizer,
            job.model,
            splits,
            job.max_length,
            started,
            precision,
            parallel,
        )
        run |= {"tokenise_seconds": job.tokenise_seconds, "fingerprint": job.fingerprint}
        run["findings"] = check_data(job.task, splits)
        for line in _announcement(job, run):
            say(line)
        with recorded(options.out, run, resume=options.resume) as folder:
            outcome, fitted, outputs = _learn(job, parallel, folder)
            metric = outcome.metric or job.task.selection_metric
            metrics, run["baseline"] = _measure(job, folder, fitted, outputs, metric)
            own = _own(job, outcome)
            rounded: dict[str, Any] = {"bf16_loss": None, "int8_loss": None}
            if "dev" in splits:
                dev, exact = splits["dev"], metrics["dev"]
                rounded = precision_losses(job.checkpoint, own, fitted, dev, exact, parallel.device)
            run |= closing(outcome, fitted, metrics, time.perf_counter() - clock) | job.took
            run |= rounded | (job.more() if job.more is not None else {})
            story = story_of(run) | {"task": fitted.to_dict(), "max_length": job.max_length}
            save_model(folder / "model", own, job.tokenizer, job.checkpoint, fitted, story)
    return run


def _measure(
    job: Job, folder: Path, fitted: Task, outputs: dict[str, list[Tensor]], metric: str
) -> tuple[dict[str, dict[str, Any]], dict[str, Any] | None]:
    """Write the predictions of dev and test; return their metrics and the baseline of the run."""
    splits, metrics = job.splits, {}
    for name, output in outputs.items():
        predictions = fitted.decode(output, splits[name].examples)
        metrics[name] = fitted.metrics(splits[name].gold, predictions)
        _write_predictions(folder / "predictions", splits[name], fitted, predictions)
    start = (job.checkpoint, job.tokenizer, job.max_length)
    baseline = measure_baseline(job.task, splits, metrics, metric, start, job.model.device)
    unfitted = []
    if "dev" in outputs and getattr(job.task, "multilabel", False):
        unfitted = job.task.decode(outputs["dev"], splits["dev"].examples)
    for line in baseline_lines(baseline, unfitted):
        say(line)
    return metrics, baseline


def _own(job: Job, outcome: Outcome) -> dict[str, Tensor]:
    """The weights of the model itself, by the names of its state."""
    return {name: outcome.weights[name] for name in job.model.state_dict()}


def _learn(
    job: Job, parallel: Parallel, folder: Path | None
) -> tuple[Outcome, Task, dict[str, list[Tensor]]]:
    """Train, then run dev and test through the chosen weights and calibrate on dev.

    The outputs by split are those of the first rank; the others only take part in training.
    """
    options, task, splits = job.options, job.task, job.splits
    place = Path(parallel.broadcast(str(folder)))
    first = job.before(place) if job.before is not None else None
    # What evaluates and is saved in the end; a spread model cannot, since its parts are elsewhere.
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
            options=options,
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
    # The last word is in float32, as `predict` and `evaluate` will speak.
    exact = Precision("float32", "final figures")
    outputs = {n: outputs_of(split, exact) for n, split in splits.items() if n != "train"}
    if "dev" in splits:
        task = task.calibrate(splits["dev"].gold, outputs["dev"], splits["dev"].examples)
    return outcome, task, outputs


def _features(job: Job, max_tokens: int) -> Features | None:
    """The frozen encoder's outputs for the training rows, when it is frozen and they fit."""
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
    """What a user should know before a run starts."""
    sizes = ", ".join(f"{len(split.rows):,} {name}" for name, split in job.splits.items())
    lines = [f"rows: {sizes}; {job.course.length} of {job.loader.batch_size} rows"]
    lines += [f"model: {note}" for note in job.checkpoint.notes]
    lines.append(f"precision: {run['precision']} ({run['precision_reason']})")
    if run["device"]["processes"] > 1:
        lines.append(f"processes: {run['device']['processes']} ({job.options.distributed})")
    for name, split in job.splits.items():
        facts = run["data"][name]
        if cut := facts["truncated"]:
            lines.append(
                f"truncation: {cut:,} of {len(split.rows):,} {name} rows "
                f"({cut / len(split.rows):.1%}) are longer than {job.max_length} tokens and were "
                f"cut ({getattr(job.task, 'on_overflow', 'truncate')}): "
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
    """One JSON object a row, and what else the task writes."""
    lines = [
        json.dumps({"row": i, "line": row.line, "gold": task.gold_json(gold)} | prediction)
        for i, (row, gold, prediction) in enumerate(
            zip(split.rows, split.gold, predictions, strict=True)
        )
    ]
    write_atomically(folder / f"{split.name}.jsonl", "\n".join(lines) + "\n")
    for name, content in task.files(split.gold, predictions).items():
        write_json(folder / split.name / name, content)
