"""A fine-tuning run: read rows, check, load, train, measure, save.

Everything is read and checked before anything is written. Distillation on labelled rows uses the
same functions with another objective.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.examples import lengths_of
from filbert.data.loader import Loader
from filbert.data.records import Row
from filbert.files import write_atomically, write_json
from filbert.inference.forward import run_model
from filbert.model.heads import Model, SequenceHead
from filbert.model.low_rank import merge
from filbert.model.precision import Precision
from filbert.tasks.base import Objective, Prediction, Task, TaskSpec, task_to_dict
from filbert.tasks.classification import WithContrast
from filbert.tasks.doctor import check_rows
from filbert.tasks.rows import row_labels, row_texts
from filbert.text.tokenizer import Tokenizer
from filbert.train import base_model, defaults
from filbert.train.distributed import Parallel, Trainable, start
from filbert.train.linear import start_head
from filbert.train.log import say
from filbert.train.loop import Training, max_tokens_of
from filbert.train.measure import baseline_lines, measure_baselines, precision_losses
from filbert.train.model_folder import save_adapter, save_model
from filbert.train.options import FinetuneOptions, chosen_value
from filbert.train.provenance import begun, copied, ended, fingerprint
from filbert.train.run_folder import already_finished, check_out, folder_of_all, settle_precision
from filbert.train.schedule import Phase, Progress, Schedule
from filbert.train.splits import (
    Division,
    Split,
    finding_lines,
    read_splits,
    token_lines,
    tokenise_splits,
    with_columns,
)
from filbert.train.state import learned_weights
from filbert.train.step import Forward, frozen_features

if TYPE_CHECKING:
    from filbert.train.distill_options import DistillOptions

# Number of token counts per split in run.json, for the histogram of the report.
_SAMPLED_LENGTHS = 2_000
# Dev rows that are split off from one table and choose the best step; fewer choose it by chance.
FEWEST_TO_CHOOSE = 100


@dataclass(frozen=True)
class Prepared:
    """What a run on labelled rows has read and checked before its first step.

    Attributes:
        task: Decodes outputs and computes metrics; not calibrated.
        splits: train, and optionally dev and test.
        checkpoint: Description and starting weights of the model.
        model: The model that is evaluated and saved, on its device.
        fingerprint: Hash of everything that determines the result.
        division: How one file of rows was split; None for a file per part.
        took: Seconds by name, for run.json; `learn` adds those of the training.
    """

    command: str
    options: FinetuneOptions | DistillOptions
    task: Task
    splits: dict[str, Split]
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    max_length: int
    model: Model
    precision: Precision
    fingerprint: str
    division: Division | None = None
    took: dict[str, float] = field(default_factory=dict)


def finetune(options: FinetuneOptions, *, prints_findings: bool = True) -> dict[str, Any]:
    """Train, select the best step, calibrate, measure and save.

    Findings on the data and truncated texts are printed if `prints_findings`, and in run.json.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: Before anything is written.
        RunError: Training cannot continue.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    clock = time.perf_counter()
    with start(options.run.device) as parallel:
        if parallel.is_first:
            check_out(options.run)
        prepared = _prepare(options, parallel)
        finished = already_finished(options.run, prepared.fingerprint, parallel)
        if finished is not None:
            return finished
        loader = new_loader(prepared, is_lora=options.model.lora is not None)
        train_options = prepared.options.train
        schedule = Schedule([Phase(loader)], train_options)
        epoch = loader.steps_per_epoch
        schedule.interval = defaults.evaluation_interval(options.train, train_options, epoch)
        facts = opening(prepared, schedule, parallel, clock=clock, prints_findings=prints_findings)
        is_new = base_model.has_new_head(prepared.checkpoint, prepared.task)
        steps = schedule.steps if is_new else None
        for line in defaults.default_lines(options.train, train_options, steps):
            say(line)
        with folder_of_all(options.run, facts, parallel) as folder:
            if prepared.division is not None and parallel.is_first:
                write_json(folder / "split.json", asdict(prepared.division))
            progress = learn(
                prepared,
                _objective(prepared),
                schedule=schedule,
                parallel=parallel,
                folder=folder,
                forward=frozen_features(prepared.model, loader, prepared.precision, prepared.took)
                if parallel.world == 1
                else None,
            )
            if parallel.is_first:
                # With the adapters, which `merge` replaces.
                learned = learned_weights(prepared.model)
                merge(prepared.model)
                fitted, results = measure(prepared, progress, folder)
                facts |= ended(progress, schedule=schedule, clock=clock) | results
                save(prepared, fitted, facts, folder)
                if options.model.lora is not None:
                    save_adapter(folder, learned, prepared.checkpoint, options.model)
    return facts


def _prepare(options: FinetuneOptions, parallel: Parallel) -> Prepared:
    """Read and check everything."""
    options = with_columns(options)
    task, rows, division = read_splits(options)
    precision = settle_precision(options.run, parallel)
    torch.manual_seed(options.run.seed)
    base = options.model
    checkpoint, tokenizer, max_length = base_model.load_for_task(
        base, task, max_length=options.data.max_length, dropout=options.train.dropout
    )
    model = base_model.build(checkpoint, task, base.reinit_layers)
    base_model.freeze(model, options.train.freeze)
    if base.lora is not None:
        checkpoint = base_model.add_low_rank(model, checkpoint, base.lora)
    is_new = base_model.has_new_head(checkpoint, task)
    contrast = defaults.contrast_weight(
        options, task.spec, num_rows=len(rows["train"]), has_new_head=is_new
    )
    chosen = defaults.with_defaults(
        options.train,
        num_rows=len(rows["train"]),
        width=model.config.hidden_size,
        num_layers=model.config.num_hidden_layers,
        num_labels=task.spec.num_labels or 1,
        has_new_head=is_new,
        is_frozen=base_model.is_encoder_frozen(model),
        is_lora=base.lora is not None,
        is_started=contrast > 0,
    )
    options = replace(options, train=chosen, contrast=contrast)
    splits, took = tokenise_splits(rows, task, tokenizer, max_length)
    digests = {name: split.digest for name, split in splits.items()}
    return Prepared(
        command="finetune",
        options=options,
        task=task,
        splits=splits,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        max_length=max_length,
        model=model.to(parallel.device),
        precision=precision,
        fingerprint=fingerprint(options, model, digests),
        division=division,
        took=took,
    )


def new_loader(prepared: Prepared, *, is_lora: bool) -> Loader:
    """Return the batches of the training rows."""
    options = prepared.options
    return Loader(
        prepared.splits["train"].examples,
        batch_size=chosen_value(options.train.batch_size),
        max_tokens=max_tokens_of(options.train, prepared.model.device, is_lora=is_lora),
        seed=options.run.seed,
    )


# Before the first step


def opening(
    prepared: Prepared,
    schedule: Schedule,
    parallel: Parallel,
    *,
    clock: float,
    prints_findings: bool = True,
) -> dict[str, Any]:
    """Print what is known before the first step, and return run.json; {} on other ranks.

    `clock` is `time.perf_counter` when the run started.
    """
    if not parallel.is_first:
        return {}
    task, splits = prepared.task, prepared.splits
    files = {name: (split.path, split.rows) for name, split in splits.items()}
    problems = check_rows(files, task).problems
    facts = begun(prepared, prepared.model, clock=clock, parallel=parallel)
    facts |= {
        "task": facts["options"].get("task") or task.spec.name,
        "labels": list(task.spec.labels or ()),
        "problem": _problem(task.spec),
        "positive": task.spec.positive,
        "data": {name: _split_facts(split, prepared) for name, split in splits.items()},
        "fingerprint": prepared.fingerprint,
        "findings": [asdict(found) for found in problems if found.level != "note"],
    }
    for line in prepared.division.lines() if prepared.division is not None else ():
        say(line)
    sizes = ", ".join(f"{len(split.rows):,} {name}" for name, split in splits.items())
    say(f"rows: {sizes}; {schedule.length} of {schedule.options.batch_size} rows")
    for note in prepared.checkpoint.notes:
        say(f"model: {note}")
    say(f"precision: {facts['precision']} ({facts['precision_reason']})")
    if facts["device"]["processes"] > 1:
        say(f"processes: {facts['device']['processes']}")
    if "dev" not in splits:
        say("dev: none given, so no best step is chosen and no threshold is fitted")
    elif not chooses_step(prepared):
        few = len(splits["dev"].rows)
        say(f"dev: {few} rows are too few to choose the best step, so the last one is kept")
    if prints_findings:
        rule, unk_id = prepared.task.spec.on_overflow, prepared.tokenizer.unk_id
        lines = token_lines(facts["data"], splits, unk_id=unk_id, rule=rule)
        for line in (*finding_lines(facts["findings"], facts["task"]), *lines):
            say(line)
    return facts


def _split_facts(split: Split, prepared: Prepared) -> dict[str, Any]:
    """Describe one split for run.json: its file, sizes, label counts and lengths in tokens."""
    task = prepared.task
    rows = lengths_of(split.examples)
    lengths = [row["num_tokens"] for row in rows]
    num_tokens = sum(len(example.input_ids) for example in split.examples)
    every = max(1, math.ceil(len(lengths) / _SAMPLED_LENGTHS))
    classes = task.spec.labels if task.spec.labels_are_classes else None
    counts = Counter(dict.fromkeys(classes or (), 0))
    for row in split.rows:
        counts.update(row_labels(task, row))
    return {
        "path": split.path,
        "sha256": split.digest,
        "rows": len(split.rows),
        "sequences": len(split.examples),
        "label_counts": dict(counts),
        "has_pairs": any(isinstance(text, tuple) for text in row_texts(task, split.rows[0])),
        "tokens": num_tokens,
        "truncated": sum(row["truncated"] for row in rows),
        "truncated_tokens": sum(e.num_tokens for e in split.examples) - num_tokens,
        "longest": max((example.num_tokens for example in split.examples), default=0),
        "max_length": prepared.max_length,
        "lengths": lengths[::every],
    }


def _problem(spec: TaskSpec) -> str:
    if not spec.labels_are_classes:
        return spec.name
    if spec.multilabel:
        return "multilabel"
    return "multiclass" if spec.positive is None else "binary"


# Training


def _objective(prepared: Prepared) -> Objective:
    """Return what is trained: the task, or on few rows the task and a contrastive loss.

    With the contrastive loss the head is set to its start.
    """
    options, train = prepared.options, prepared.splits["train"]
    if not isinstance(options, FinetuneOptions) or not options.contrast:
        return prepared.task
    assert isinstance(prepared.model.head, SequenceHead)
    say(
        "few rows: the head starts from a logistic regression, and a contrastive loss is added "
        "(--contrast 0 for neither)"
    )
    prepared.model.head.gives_vectors = True
    start_head(prepared.model, train.examples, train.gold)
    return WithContrast(prepared.task, options.contrast)


def chooses_step(prepared: Prepared) -> bool:
    """Return whether the best step on dev is kept, instead of the last one.

    Not on a few rows that were split off: of 200 questions, 20 chose step 22 of 209, with an
    accuracy of 0.70 on 491 other questions, where the last step has 0.84 (docs/log.md).
    """
    division, dev = prepared.division, prepared.splits.get("dev")
    if division is None or dev is None or "dev" not in division.parts:
        return True
    return len(dev.rows) >= FEWEST_TO_CHOOSE or prepared.options.train.patience > 0


def learn(
    prepared: Prepared,
    objective: Objective,
    *,
    schedule: Schedule,
    parallel: Parallel,
    folder: Path,
    trained: Trainable | None = None,
    forward: Forward | None = None,
) -> Progress:
    """Train, and select the best step on dev; on the first rank the model has its weights.

    Args:
        objective: What is trained: the task itself, or the task and more.
        trained: A module around the model with the same weight names; the model if not given.
        forward: As in `Training`.
    """
    task, model, dev = prepared.task, prepared.model, prepared.splits.get("dev")

    def evaluate() -> dict[str, Any]:
        assert dev is not None
        outputs = run_model(model, dev.examples, precision=prepared.precision)
        return task.metrics(dev.gold, task.decode(outputs, dev.examples))

    progress = Training(
        model=model if trained is None else trained,
        task=objective,
        schedule=schedule,
        run=prepared.options.run,
        precision=prepared.precision,
        parallel=parallel,
        folder=folder,
        fingerprint=prepared.fingerprint,
        evaluate=None if dev is None else evaluate,
        keep_best=chooses_step(prepared),
        forward=forward,
    ).train()
    prepared.took["training_cpu_seconds"] += progress.cpu_seconds
    return progress


# After the last step


def measure(prepared: Prepared, progress: Progress, folder: Path) -> tuple[Task, dict[str, Any]]:
    """Calibrate on dev, compute the metrics of dev and test, and write their predictions.

    Returns:
        The calibrated task, and entries of run.json.
    """
    task, splits, model = prepared.task, prepared.splits, prepared.model
    # Final metrics are computed in float32, as in `predict` and `evaluate`.
    exact = Precision("float32", "final metrics")
    outputs = {
        name: run_model(model, split.examples, precision=exact)
        for name, split in splits.items()
        if name != "train"
    }
    fitted = task
    if "dev" in splits:
        fitted = task.calibrate(splits["dev"].gold, outputs["dev"], splits["dev"].examples)
    metrics: dict[str, dict[str, Any]] = {}
    predictions: dict[str, list[Prediction]] = {}
    for name, output in outputs.items():
        predictions[name] = fitted.decode(output, splits[name].examples)
        metrics[name] = fitted.metrics(splits[name].gold, predictions[name])
        path, split = folder / "predictions" / f"{name}.jsonl", splits[name]
        write_predictions(path, fitted, split.rows, split.gold, predictions[name])
    start = (prepared.checkpoint, prepared.tokenizer, prepared.max_length)
    metric = progress.selected["metric"] or task.spec.selection_metric
    baseline, baselines = None, list[dict[str, Any]]()
    if prepared.options.run.baseline:
        baseline, baselines = measure_baselines(
            task, splits, metrics, metric, start, model.device, predictions=predictions
        )
    unfitted = []
    if "dev" in outputs and task.spec.multilabel:
        unfitted = task.decode(outputs["dev"], splits["dev"].examples)
    for line in baseline_lines(baseline, unfitted):
        say(line)
    losses: dict[str, Any] = {"bf16_loss": None, "int8_loss": None}
    if "dev" in splits:
        # Nothing reads the untrained weights from here on; the copies below take memory.
        prepared.checkpoint.tensors.clear()
        losses = precision_losses(
            replace(prepared.checkpoint, tensors=model.state_dict(), filbert=None),
            fitted,
            splits["dev"],
            metrics["dev"],
            model.device,
        )
    described = task_to_dict(fitted)
    calibrated = {k: described.get(k) for k in ("thresholds", "temperature", "null_threshold")}
    return fitted, losses | calibrated | {
        "metrics": metrics,
        "best": progress.selected,
        "baseline": baseline,
        "baselines": baselines,
    }


def write_predictions(
    path: Path,
    task: Task,
    rows: Sequence[Row],
    gold: Sequence[Any],
    predictions: Sequence[Prediction],
) -> None:
    """Write one JSON object per row, and in a folder next to it the task's additional files."""
    form, lines = task.spec.row_format, []
    for number, (row, wanted, found) in enumerate(zip(rows, gold, predictions, strict=True)):
        facts = {"row": number, "line": row.line, "gold": form.gold_json(task.spec, wanted)}
        lines.append(json.dumps(facts | found) + "\n")
    write_atomically(path, "".join(lines))
    for name, content in form.official_files(gold, predictions).items():
        write_json(path.with_suffix("") / name, content)


def save(prepared: Prepared, task: Task, run: dict[str, Any], folder: Path) -> None:
    """Add the times of the run to run.json and write the model folder."""
    run |= prepared.took
    recorded = copied(run) | {"task": task_to_dict(task), "max_length": prepared.max_length}
    checkpoint = replace(prepared.checkpoint, tensors=prepared.model.state_dict())
    save_model(
        folder / "model", checkpoint, prepared.tokenizer, recorded, pooling=task.spec.pooling
    )
