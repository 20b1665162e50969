"""Distillation on labelled rows: a student learns the outputs of a fine-tuned teacher.

It is a fine-tuning run with another objective. Everything is checked before anything is written.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.labels import listed
from filbert.data.loader import Loader
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.files import portable
from filbert.inference.predictor import Predictor
from filbert.losses.student import LayerLoss, Student, check_layer_losses, freeze_unreached
from filbert.model.config import EncoderConfig
from filbert.model.heads import Model
from filbert.tasks.base import Task, changed, task_from_dict, task_to_dict
from filbert.tasks.distillation import (
    LayerDistillation,
    SoftLabels,
    patient_losses,
    tinybert_losses,
)
from filbert.tasks.rows import read_task_rows, row_labels
from filbert.text.tokenizer import Tokenizer
from filbert.train.base_model import build, freeze, is_encoder_frozen, load_for_task
from filbert.train.distill_options import DistillOptions, LossOptions
from filbert.train.distributed import Parallel
from filbert.train.distributed import start as start_processes
from filbert.train.finetune import Prepared, learn, measure, new_loader, opening, save
from filbert.train.log import say
from filbert.train.loop import Outcome, Training
from filbert.train.options import BaseModelOptions, TrainOptions, chosen_value
from filbert.train.progress import Phase, Schedule
from filbert.train.provenance import ended, fingerprint
from filbert.train.run_folder import already_finished, check_out, folder_of_all, settle_precision
from filbert.train.splits import tokenise_splits
from filbert.train.state import digest_of

# Entries of a task that `calibrate` sets; the student is calibrated on its own dev rows.
_FITTED = ("thresholds", "temperature", "null_threshold")


class _Pair(NamedTuple):
    """Teacher, student and rows of a run, read and checked.

    Attributes:
        prepared: The run as the functions of `finetune` read it; its model is the student.
        layer_losses: Comparisons of hidden layers; () if only outputs are compared.
    """

    options: DistillOptions
    parallel: Parallel
    teacher: Predictor
    prepared: Prepared
    layer_losses: tuple[LayerLoss, ...]
    loader: Loader


def distill(options: DistillOptions) -> dict[str, Any]:
    """Train a student, select the best step, calibrate, compare with the teacher and save.

    Returns and raises as `finetune`.
    """
    clock, run, loss = time.perf_counter(), options.run, options.loss
    with start_processes(run.device) as parallel:
        if parallel.is_first:
            check_out(run)
        pair = _prepare(options, parallel)
        prepared, has_stages = pair.prepared, loss.method == "tinybert"
        share = 1.0 - loss.hidden_share if has_stages else 1.0
        schedule = Schedule([Phase(pair.loader)], _part_of(options.train, share))
        finished = already_finished(run, prepared.fingerprint, parallel)
        if finished is not None:
            return finished
        facts = opening(prepared, schedule, parallel, clock=clock)
        with folder_of_all(run, facts, parallel) as folder:
            first = _learn_layers(pair, folder / "stage-1") if has_stages else None
            layer_losses = () if has_stages else pair.layer_losses
            alpha = 0.0 if prepared.task.spec.whole_batch else loss.hard_share
            outcome = learn(
                prepared,
                SoftLabels(prepared.task, loss.soft_temperature, alpha, layer_losses),
                schedule=schedule,
                parallel=parallel,
                folder=folder,
                trained=_student(pair, layer_losses, answers=True, compares=alpha < 1),
            )
            if parallel.is_first:
                if first is not None:
                    costs = ("seconds", "cpu_seconds", "clock_before", "num_tokens")
                    sums = {n: getattr(outcome, n) + getattr(first, n) for n in costs}
                    outcome = dataclasses.replace(outcome, **sums)
                fitted, results = measure(prepared, outcome, folder)
                results |= _comparison(pair)
                facts |= ended(outcome, results.pop("metrics"), clock=clock) | results
                save(prepared, fitted, outcome, facts, folder)
    return facts


# Before the first step


def _prepare(options: DistillOptions, parallel: Parallel) -> _Pair:
    """Read and check everything."""
    device, chosen = parallel.device, options.model
    precision = settle_precision(options.run, parallel)
    teacher = Predictor.load(chosen.teacher, precision=precision.name, device=str(device))
    task = _task_of(options, teacher)
    torch.manual_seed(options.run.seed)
    checkpoint, tokenizer, max_length = _load_student(options, task, teacher)
    layer_losses = _layer_losses(options.loss, task, checkpoint.config, teacher.model.config)
    model = build(checkpoint, task)
    freeze(model, options.train.freeze)
    if layer_losses and is_encoder_frozen(model):
        raise ConfigError(
            f"--freeze {options.train.freeze} leaves nothing to learn from the layers of the "
            f"teacher, as method {options.loss.method} does."
        )
    rows = _read_rows(options, task)
    splits, took = tokenise_splits(rows, task, tokenizer, max_length)
    digests = {name: split.digest for name, split in splits.items()}
    assert teacher.checkpoint is not None
    digests["teacher"] = digest_of(teacher.checkpoint.tensors)
    prepared = Prepared(
        command="distill",
        options=options,
        source=chosen.student or chosen.teacher,
        task=task,
        splits=splits,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        max_length=max_length,
        model=model.to(device),
        precision=precision,
        fingerprint=fingerprint(options, model, digests),
        took=took,
    )
    return _Pair(
        options, parallel, teacher, prepared, layer_losses, new_loader(prepared, is_lora=False)
    )


def _load_student(
    options: DistillOptions, task: Task, teacher: Predictor
) -> tuple[Checkpoint, Tokenizer, int]:
    """Return the student with its tokenizer and the length to cut texts at."""
    chosen, data, theirs = options.model, options.data, teacher.model.config
    if chosen.student is None and chosen.keep_layers is None:
        raise ConfigError(
            "Name a smaller model with --student, or keep some of the teacher's layers with "
            "--keep-layers, such as --keep-layers 0,2,4."
        )
    base = BaseModelOptions(name=chosen.student or chosen.teacher, keep_layers=chosen.keep_layers)
    checkpoint, tokenizer, max_length = load_for_task(
        base, task, max_length=data.max_length, dropout=options.train.dropout
    )
    if data.max_length is None:
        max_length = min(max_length, teacher.max_length)
    types = (checkpoint.config.embeddings.token_types, theirs.embeddings.token_types)
    if (
        tokenizer.fingerprint != teacher.tokenizer.fingerprint
        or max_length > theirs.max_tokens_per_sequence
        # The teacher must have every token type that the tokenizer of the student writes.
        or (types[1] > 0 and (types[0] < 2) != (types[1] < 2))
    ):
        raise ConfigError(
            f"{chosen.student} has another tokenizer than its teacher {chosen.teacher}. Use a "
            "student with the teacher's vocabulary and length."
        )
    return checkpoint, tokenizer, max_length


def _task_of(options: DistillOptions, teacher: Predictor) -> Task:
    """Return the task of the teacher without its calibration; check options that depend on it."""
    name, wanted, loss = options.model.teacher, options.model.task, options.loss
    if teacher.task is None:
        raise ConfigError(
            f"The teacher {name} was trained for no task, so it has no answers to learn. Fine-tune "
            "it first, or learn from raw text with --corpus."
        )
    spec = teacher.task.spec
    if wanted not in (None, spec.name):
        raise ConfigError(
            f"The teacher {name} was trained for {spec.name}, not for {wanted}. Take another "
            "teacher, or leave --task out."
        )
    if options.train.metric not in (None, *spec.metric_names):
        raise ConfigError(f"metric {options.train.metric!r} is not one of {[*spec.metric_names]}.")
    if spec.whole_batch and loss.alpha:
        raise ConfigError(
            f"alpha is {loss.alpha}; the teacher was trained on pairs without labels, so a student "
            "can only learn its vectors. Leave alpha out."
        )
    if loss.temperature is not None and not (
        spec.labels is not None or spec.head_kind in ("choices", "spans")
    ):
        raise ConfigError(
            f"temperature is {loss.temperature}; it is for answers that choose among several, not "
            f"for {spec.name}. Leave it out."
        )
    described = {k: v for k, v in task_to_dict(teacher.task).items() if k not in _FITTED}
    return task_from_dict(type(teacher.task), described)


def _layer_losses(
    loss: LossOptions, task: Task, student: EncoderConfig, teacher: EncoderConfig
) -> tuple[LayerLoss, ...]:
    """Return the comparisons of hidden layers of the two models."""
    if task.spec.head_kind is None and student.hidden_size != teacher.hidden_size:
        raise ConfigError(
            f"The student's vectors have {student.hidden_size} numbers and the teacher's "
            f"{teacher.hidden_size}. Use a student as wide as the teacher."
        )
    if loss.method == "soft":
        return ()
    if loss.method == "tinybert":
        losses = tinybert_losses(student, teacher, loss.mapped_layers)
    else:
        losses = patient_losses(student, teacher, loss.mapped_layers, loss.beta)
        if not losses:
            raise ConfigError(
                "method pkd compares all layers but the student's last, by a weight beta above "
                "zero; here there is nothing to compare. Use method soft."
            )
    check_layer_losses(losses, student, teacher)
    return losses


def _read_rows(options: DistillOptions, task: Task) -> dict[str, list[Row]]:
    """Read train, dev and test, and check that the teacher has every label."""
    data, form = options.data, task.spec.row_format
    known = set(form.known_labels(task.spec))
    rows: dict[str, list[Row]] = {}
    for name in ("train", "dev", "test"):
        path = getattr(data, name)
        if not path:
            continue
        rows[name] = list(read_task_rows(task, path, data.columns))
        if task.spec.labels is None:
            continue
        blank = changed(task, labels=None, positive=None)
        labels = {label for row in rows[name] for label in row_labels(blank, row)}
        if unknown := sorted(labels - known):
            raise ConfigError(
                f"{path} holds the labels {listed(unknown)}, which the teacher "
                f"{options.model.teacher} does not have; it has {listed(sorted(known))}. Use a "
                "teacher for these labels, or leave such rows out."
            )
    return rows


# Training


def _student(
    pair: _Pair, layer_losses: tuple[LayerLoss, ...], *, answers: bool, compares: bool
) -> Student:
    """Combine student and teacher in the module that is trained.

    `answers`: the student's head is trained. `compares`: the head of the teacher is run too.
    """
    device = pair.parallel.device
    teacher = _model_of(pair.teacher).to(device)
    student = Student(pair.prepared.model, teacher, layer_losses, compares_outputs=compares)
    freeze_unreached(student.to(device), answers=answers)
    return student


def _model_of(teacher: Predictor) -> Model:
    assert isinstance(teacher.model, Model), "read by torch"
    return teacher.model


def _learn_layers(pair: _Pair, folder: Path) -> Outcome:
    """Train the first stage of TinyBERT: embeddings, attention and hidden states, no outputs.

    The stage has its own log and states. Source: Jiao et al. 2020, section 4.1.
    """
    loss = pair.options.loss
    options = dataclasses.replace(
        pair.options.train,
        lr=loss.hidden_lr or pair.options.train.lr,
        schedule=loss.hidden_schedule or pair.options.train.schedule,
        warmup=0.0 if loss.hidden_schedule == "constant" else pair.options.train.warmup,
        metric=None,
        patience=0,
    )
    student = _student(pair, pair.layer_losses, answers=False, compares=False)
    if pair.parallel.is_first:
        folder.mkdir(exist_ok=True)
    say("stage 1: the layers of the teacher")
    outcome = Training(
        model=student,
        task=LayerDistillation(pair.layer_losses),
        schedule=Schedule([Phase(pair.loader)], _part_of(options, loss.hidden_share)),
        run=pair.options.run,
        precision=pair.prepared.precision,
        parallel=pair.parallel,
        folder=folder,
        fingerprint=pair.prepared.fingerprint,
    ).train()
    say("stage 2: its answers")
    pair.prepared.model.requires_grad_(True)
    freeze(pair.prepared.model, pair.options.train.freeze)
    return outcome


def _part_of(options: TrainOptions, share: float) -> TrainOptions:
    """Return the options of a part of the run, by its share of the length."""
    if share == 1.0:
        return options
    seconds = options.time_seconds
    return dataclasses.replace(
        options,
        epochs=chosen_value(options.epochs) * share,
        steps=None if options.steps is None else max(1, round(options.steps * share)),
        time=None if seconds is None else f"{seconds * share:.6f}s",
    )


# The comparison of teacher and student in run.json


def _comparison(pair: _Pair) -> dict[str, Any]:
    """Return the entries of run.json that compare teacher and student."""
    chosen, task, splits = pair.options.model, pair.teacher.task, pair.prepared.splits
    assert task is not None
    metrics: dict[str, Any] = {}
    for name, split in splits.items():
        if name != "train":
            outputs = pair.teacher.outputs(split.examples)
            metrics[name] = task.metrics(split.gold, task.decode(outputs, split.examples))
    teacher = _describe(chosen.teacher, _model_of(pair.teacher))
    path = Path(chosen.teacher)
    # Of RUN/model the name of the run.
    short = path.parent.name if path.name == "model" and path.parent.name else path.name
    row = {
        "name": f"teacher ({short})",
        "metrics": metrics.get("test", metrics.get("dev", {})),
        "parameters": teacher["parameters"],
    }
    return {
        "method": pair.options.loss.method,
        "teacher": teacher | {"metrics": metrics},
        # Pairs of student and teacher layers, by the kind of comparison.
        "layer_map": {loss.kind: loss.layers for loss in pair.layer_losses},
        "student": _describe(chosen.student or "layers of the teacher", pair.prepared.model),
        "baselines": [row],
    }


def _describe(name: str, model: Model) -> dict[str, Any]:
    """Return the sizes of a model; bytes are those of its weights in float32."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    config = model.config
    return {
        "name": portable(name),
        "parameters": parameters,
        "bytes": 4 * parameters,
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
    }
