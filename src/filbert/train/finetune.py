"""One fine-tuning run, from files to a run folder.

Nothing is written before everything was read and checked.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.data.loader import Loader
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.files import write_atomically, write_json
from filbert.model.heads import Model
from filbert.speed.execution import default_max_tokens, run_model
from filbert.speed.precision import Precision
from filbert.tasks.base import Task
from filbert.text.tokenizer import Tokenizer
from filbert.train.course import Course, Phase
from filbert.train.distributed import Parallel, start
from filbert.train.facts import closing, opening
from filbert.train.features import MOST_BYTES, Features, compute_features, num_bytes
from filbert.train.folder import already_finished, check_out, recorded, settle_precision
from filbert.train.log import RunLog, progress_bar, say
from filbert.train.options import FinetuneOptions
from filbert.train.prepare import Split, build, fingerprint, load_for_task, read_splits, tokenise
from filbert.train.save import save_model
from filbert.train.story import story_of
from filbert.train.trainable import freeze
from filbert.train.trainer import Outcome, max_tokens_of, train


@dataclass
class _Job:
    """A run that is ready to begin."""

    options: FinetuneOptions
    task: Task
    splits: dict[str, Split]
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    max_length: int
    model: Model
    is_frozen: bool
    loader: Loader
    course: Course
    precision: Precision
    fingerprint: str
    # Seconds of the parts of training that the loop does not see, and the processor's of all.
    took: dict[str, float] = field(default_factory=dict)


def finetune(options: FinetuneOptions) -> dict[str, Any]:
    """Train, choose, calibrate, measure, save.

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
        job, tokenising = _prepare(options, parallel)
        finished = already_finished(
            options, options.out, options.overwrite, job.fingerprint, parallel
        )
        if finished is not None:
            return finished if parallel.is_first else {}
        if not parallel.is_first:
            _learn(job, parallel, None)
            return {}
        splits, precision = job.splits, job.precision
        run = opening(
            options,
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
        run |= {"tokenise_seconds": tokenising, "fingerprint": job.fingerprint}
        for line in _announcement(job, run):
            say(line)
        with recorded(options.out, run, resume=options.resume) as folder:
            outcome, fitted, outputs = _learn(job, parallel, folder)
            metrics = {}
            for name, output in outputs.items():
                predictions = fitted.decode(output, splits[name].examples)
                metrics[name] = fitted.metrics(splits[name].gold, predictions)
                _write_predictions(folder / "predictions", splits[name], fitted, predictions)
            run |= closing(outcome, fitted, metrics, time.perf_counter() - clock) | job.took
            story = story_of(run) | {"task": fitted.to_dict(), "max_length": job.max_length}
            save_model(
                folder / "model", outcome.weights, job.tokenizer, job.checkpoint, fitted, story
            )
    return run


def _prepare(options: FinetuneOptions, parallel: Parallel) -> tuple[_Job, float]:
    """Read and check everything; also the seconds that tokenising took."""
    task, all_rows = read_splits(options)
    precision = settle_precision(options, options.out, parallel)
    torch.manual_seed(options.seed)
    checkpoint, tokenizer, max_length = load_for_task(options, task)
    model = build(checkpoint, task, options)
    is_frozen = freeze(model, options.freeze)
    clock = time.perf_counter()
    splits, took = {}, {}
    for name, rows in all_rows.items():
        started, cpu = time.perf_counter(), time.process_time()
        splits[name] = tokenise(name, getattr(options, name), rows, task, tokenizer, max_length)
        if name == "train":
            took["train_tokenise_seconds"] = time.perf_counter() - started
            took["training_cpu_seconds"] = time.process_time() - cpu
    tokenising = time.perf_counter() - clock
    loader = Loader(
        splits["train"].examples,
        batch_size=options.batch_size,
        max_tokens=max_tokens_of(options, parallel.device),
        seed=options.seed,
    )
    mark = fingerprint(options, model, {name: split.digest for name, split in splits.items()})
    model = model.to(parallel.device)
    return _Job(
        options,
        task,
        splits,
        checkpoint,
        tokenizer,
        max_length,
        model,
        is_frozen,
        loader,
        Course([Phase(loader)], options),
        precision,
        mark,
        took,
    ), tokenising


def _learn(
    job: _Job, parallel: Parallel, folder: Path | None
) -> tuple[Outcome, Task, dict[str, list[Tensor]]]:
    """Train, then run dev and test through the chosen weights and calibrate on dev.

    The outputs by split are those of the first rank; the others only take part in training.
    """
    options, task, splits = job.options, job.task, job.splits
    states = Path(parallel.broadcast(str(folder))) / "state"
    # What evaluates and is saved in the end; a spread model cannot, since its parts are elsewhere.
    whole = copy.deepcopy(job.model) if parallel.kind == "fsdp" else job.model
    max_tokens = default_max_tokens(parallel.device)
    clock, cpu, aside = time.perf_counter(), time.process_time(), 0.0
    features = _features(job, max_tokens)
    if features is not None:
        job.took["features_seconds"] = time.perf_counter() - clock

    def outputs_of(split: Split, precision: Precision) -> list[Tensor]:
        return run_model(whole, split.examples, max_tokens=max_tokens, precision=precision)

    def evaluate(weights: dict[str, Tensor]) -> dict[str, Any]:
        nonlocal aside
        before = time.process_time()
        if whole is not job.model:
            whole.load_state_dict(weights)
        dev = splits["dev"]
        found = task.metrics(dev.gold, task.decode(outputs_of(dev, job.precision), dev.examples))
        aside += time.process_time() - before
        return found

    with RunLog(
        folder,
        tensorboard=options.tensorboard,
        resume=options.resume,
        quiet=not parallel.is_first,
    ) as log:
        outcome = train(
            job.model,
            task,
            job.course,
            options,
            precision=job.precision,
            evaluate=evaluate if "dev" in splits else None,
            log=log,
            parallel=parallel,
            features=features,
            states=states,
            fingerprint=job.fingerprint,
        )
    job.took["training_cpu_seconds"] += time.process_time() - cpu - aside
    if not parallel.is_first:
        return outcome, task, {}
    whole.load_state_dict(outcome.weights)
    # The last word is in float32, as `predict` and `evaluate` will speak.
    exact = Precision("float32", "final figures")
    outputs = {n: outputs_of(split, exact) for n, split in splits.items() if n != "train"}
    if "dev" in splits:
        task = task.calibrate(splits["dev"].gold, outputs["dev"], splits["dev"].examples)
    return outcome, task, outputs


def _features(job: _Job, max_tokens: int) -> Features | None:
    """The frozen encoder's outputs for the training rows, when it is frozen and they fit."""
    examples = job.splits["train"].examples
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


def _announcement(job: _Job, run: dict[str, Any]) -> list[str]:
    """What a user should know before a run starts."""
    sizes = ", ".join(f"{len(split.rows):,} {name}" for name, split in job.splits.items())
    lines = [f"rows: {sizes}; {job.course.length} of {job.loader.batch_size} rows"]
    lines += [f"model: {note}" for note in job.checkpoint.notes]
    lines.append(f"precision: {run['precision']} ({run['precision_reason']})")
    if run["device"]["processes"] > 1:
        lines.append(f"processes: {run['device']['processes']} ({job.options.distributed})")
    for name, split in job.splits.items():
        cut = run["data"][name]["truncated"]
        if cut:
            lines.append(
                f"truncation: {cut:,} of {len(split.rows):,} {name} rows "
                f"({cut / len(split.rows):.1%}) are longer than {job.max_length} tokens and were "
                f"cut ({job.options.on_overflow})"
            )
    if "dev" not in job.splits:
        lines.append("dev: none given, so no best step is chosen and no threshold is fitted")
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
