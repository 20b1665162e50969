"""Distillation on labelled rows: a student learns the outputs of a fine-tuned teacher.

It is a fine-tuning run with another objective. Everything is checked before anything is written.
"""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.splitting import SPLITS
from filbert.errors import ConfigError
from filbert.files import portable
from filbert.inference.predictor import Predictor
from filbert.losses.student import LayerLoss, Student, check_layer_losses, freeze_unreached
from filbert.model.config import EncoderConfig
from filbert.model.heads import Model
from filbert.tasks.base import Task, task_from_dict, task_to_dict
from filbert.tasks.distillation import LayerDistillation, SoftLabels
from filbert.tasks.rows import read_task_rows
from filbert.text.tokenizer import Tokenizer
from filbert.train.base_model import build, freeze, is_encoder_frozen, load_for_task
from filbert.train.distill_options import DistillOptions, LossOptions
from filbert.train.distributed import Parallel
from filbert.train.distributed import start as start_processes
from filbert.train.finetune import Prepared, learn, measure, new_loader, opening, save
from filbert.train.log import say
from filbert.train.options import BaseModelOptions, TrainOptions, chosen_value
from filbert.train.provenance import ended, fingerprint
from filbert.train.run_folder import already_finished, check_out, folder_of_all, settle_precision
from filbert.train.schedule import Phase, Schedule
from filbert.train.splits import tokenise_splits
from filbert.train.state import digest_of

# Entries of a task that `calibrate` sets; the student is calibrated on its own dev rows.
_FITTED = ("thresholds", "temperature", "null_threshold")


def distill(options: DistillOptions) -> dict[str, Any]:
    """Train a student, select the best step, calibrate, compare with the teacher and save.

    TinyBERT has two stages: first the layers (Jiao et al. 2020, section 4.1), with a log and states
    of their own, then the answers. Returns and raises as `finetune`.
    """
    clock, run, loss = time.perf_counter(), options.run, options.loss
    with start_processes(run.device) as parallel:
        if parallel.is_first:
            check_out(run)
        teacher, prepared, losses = _prepare(options, parallel)
        finished = already_finished(run, prepared.fingerprint, parallel)
        if finished is not None:
            return finished
        loader, has_stages = new_loader(prepared, is_lora=False), loss.method == "tinybert"
        share = 1.0 - loss.hidden_share if has_stages else 1.0
        schedule = Schedule([Phase(loader)], _part_of(options.train, share))
        facts = opening(prepared, schedule, parallel, clock=clock)
        student = partial(_student, prepared.model, _model_of(teacher))
        with folder_of_all(run, facts, parallel) as folder:
            stages = []
            if has_stages:
                say("stage 1: the layers of the teacher")
                first = learn(
                    dataclasses.replace(prepared, splits={"train": prepared.splits["train"]}),
                    LayerDistillation(losses),
                    schedule=Schedule([Phase(loader)], _first_stage(options)),
                    parallel=parallel,
                    folder=folder / "stage-1",
                    trained=student(losses, answers=False, compares=False),
                )
                stages.append(first)
                say("stage 2: its answers")
                prepared.model.requires_grad_(True)
                freeze(prepared.model, options.train.freeze)
            layers = () if has_stages else losses
            alpha = 0.0 if prepared.task.spec.whole_batch else loss.hard_share
            progress = learn(
                prepared,
                SoftLabels(prepared.task, loss.soft_temperature, alpha, layers),
                schedule=schedule,
                parallel=parallel,
                folder=folder,
                trained=student(layers, answers=True, compares=alpha < 1),
            )
            if parallel.is_first:
                fitted, results = measure(prepared, progress, folder)
                results |= _comparison(prepared, teacher, losses, options)
                facts |= ended(*stages, progress, schedule=schedule, clock=clock) | results
                save(prepared, fitted, facts, folder)
    return facts


# Before the first step


def _prepare(
    options: DistillOptions, parallel: Parallel
) -> tuple[Predictor, Prepared, tuple[LayerLoss, ...]]:
    """Read and check everything; return teacher, run of the student, and losses of layers."""
    device, chosen = parallel.device, options.model
    precision = settle_precision(options.run, parallel)
    teacher = Predictor.load(chosen.teacher, precision=precision.name, device=str(device))
    task = _task_of(options, teacher)
    torch.manual_seed(options.run.seed)
    checkpoint, tokenizer, max_length = _load_student(options, task, teacher)
    widths = (checkpoint.config.hidden_size, teacher.model.config.hidden_size)
    if task.spec.head_kind is None and widths[0] != widths[1]:
        raise ConfigError(
            f"The student's vectors have {widths[0]} numbers and the teacher's {widths[1]}. Use a "
            "student as wide as the teacher."
        )
    losses = layer_losses(options.loss, checkpoint.config, teacher.model.config)
    model = build(checkpoint, task)
    freeze(model, options.train.freeze)
    if losses and is_encoder_frozen(model):
        raise ConfigError(
            f"--freeze {options.train.freeze} leaves nothing to learn from the layers of the "
            f"teacher, as method {options.loss.method} does."
        )
    paths = {name: getattr(options.data, name) for name in SPLITS}
    columns = options.data.columns
    rows = {n: list(read_task_rows(task, path, columns)) for n, path in paths.items() if path}
    splits, took = tokenise_splits(rows, task, tokenizer, max_length)
    digests = {name: split.digest for name, split in splits.items()}
    digests["teacher"] = digest_of(teacher.checkpoint.tensors)
    prepared = Prepared(
        command="distill",
        options=options,
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
    return teacher, prepared, losses


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
    base = BaseModelOptions(name=chosen.name, keep_layers=chosen.keep_layers)
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


# Training


def _student(
    model: Model,
    teacher: Model,
    losses: tuple[LayerLoss, ...],
    *,
    answers: bool,
    compares: bool,
) -> Student:
    """Combine student and teacher in the module that is trained.

    `answers`: the student's head is trained. `compares`: the head of the teacher is run too.
    """
    device = model.device
    student = Student(model, teacher.to(device), losses, compares_outputs=compares).to(device)
    freeze_unreached(student, answers=answers)
    return student


def _model_of(teacher: Predictor) -> Model:
    assert isinstance(teacher.model, Model), "read by torch"
    return teacher.model


def _first_stage(options: DistillOptions) -> TrainOptions:
    """Return the options of TinyBERT's first stage, which has no dev metrics."""
    train, loss = options.train, options.loss
    first = dataclasses.replace(
        train,
        lr=loss.hidden_lr or train.lr,
        schedule=loss.hidden_schedule or train.schedule,
        warmup=0.0 if loss.hidden_schedule == "constant" else train.warmup,
        metric=None,
        patience=0,
    )
    return _part_of(first, loss.hidden_share)


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


# Layers of the teacher for the layers of the student


def spread(num_kept: int, num_layers: int) -> tuple[int, ...]:
    """Return layers to start a smaller model from, from 0: first, last and evenly between.

    Six of twelve are 0, 2, 4, 7, 9, 11, as in Sanh et al. 2019.
    """
    if num_kept == 1:
        return (0,)
    return tuple(round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept))


def even_map(num_student: int, num_teacher: int) -> tuple[int, ...]:
    """Return the teacher layer of each student layer, from 1: evenly, up to the last.

    Source: Jiao et al. 2020, section 4.1.
    """
    return tuple(max(1, round(i * num_teacher / num_student)) for i in range(1, num_student + 1))


def layer_losses(
    loss: LossOptions, student: EncoderConfig, teacher: EncoderConfig
) -> tuple[LayerLoss, ...]:
    """Return what a method compares inside the two models; losses of weight 0 are left out.

    Raises:
        ConfigError: There is nothing to compare, or the models cannot be compared.

    Sources: Sun et al. 2019, section 3.2, "skip" (pkd); Jiao et al. 2020, section 3.1 (tinybert);
    Sanh et al. 2019, section 3 (distilbert); Wang et al. 2021, section 3 (minilm).
    """
    last = (student.num_hidden_layers, teacher.num_hidden_layers)
    losses: list[LayerLoss] = []
    if loss.method == "tinybert":
        pairs = _layer_pairs(loss, *last)
        losses = [LayerLoss("embeddings", ((0, 0),))]
        losses += [LayerLoss("hidden", pairs), LayerLoss("scores", pairs)]
    elif loss.method == "pkd":
        pairs = _layer_pairs(loss, *last)[:-1]
        if not pairs or not loss.beta:
            raise ConfigError(
                "method pkd compares all layers but the student's last, by a weight beta above "
                "zero; here there is nothing to compare. Use method soft."
            )
        # The weight is that of the mean over layers, as in the code of the paper.
        losses = [LayerLoss("patient", pairs, loss.beta / len(pairs))]
    elif loss.method == "minilm":
        # The paper uses the last layer of base models and layer 20 of BERT-large's 24.
        theirs = last[1] if loss.teacher_layer is None else loss.teacher_layer + 1
        usual = 64 if teacher.hidden_size >= 1024 else 48  # section 4.1
        divides = not student.hidden_size % usual and not teacher.hidden_size % usual
        heads = loss.relation_heads or (usual if divides else teacher.attention.heads)
        losses = [LayerLoss("relations", ((last[0], theirs),), heads=heads)]
    elif loss.method != "soft":
        # distilbert, which compares words; soft compares only the answers.
        soft = LayerLoss(
            "soft",
            weight=loss.soft_weight,
            temperature=loss.soft_temperature,
            masked_only=loss.soft_on == "masked",
        )
        losses = [LayerLoss("cosine", (last,), loss.cosine_weight), soft]
    chosen = tuple(one for one in losses if one.weight)
    check_layer_losses(chosen, student, teacher)
    return chosen


def _layer_pairs(loss: LossOptions, layers: int, there: int) -> tuple[tuple[int, int], ...]:
    """Return pairs of a student's and a teacher's layer, from 1, by `layer_map` or `even_map`."""
    if loss.layer_map is None:
        return tuple(enumerate(even_map(layers, there), 1))
    chosen = [int(number) for number in loss.layer_map.split(",")]
    if len(chosen) != layers:
        raise ConfigError(
            f"layer_map names {len(chosen)} of the teacher's layers; the student has {layers} "
            "and needs one for each."
        )
    if wrong := [number for number in chosen if not 0 <= number < there]:
        raise ConfigError(f"layer_map names layer {wrong[0]}; the teacher has 0 to {there - 1}.")
    return tuple(enumerate((number + 1 for number in chosen), 1))


# The comparison of teacher and student in run.json


def _comparison(
    prepared: Prepared,
    teacher: Predictor,
    losses: tuple[LayerLoss, ...],
    options: DistillOptions,
) -> dict[str, Any]:
    """Return the entries of run.json that compare teacher and student."""
    chosen, task = options.model, teacher.task
    assert task is not None
    metrics: dict[str, Any] = {}
    for name, split in prepared.splits.items():
        if name != "train":
            outputs = teacher.outputs(split.examples)
            metrics[name] = task.metrics(split.gold, task.decode(outputs, split.examples))
    sizes = _describe(chosen.teacher, _model_of(teacher))
    path = Path(chosen.teacher)
    # Of RUN/model the name of the run.
    short = path.parent.name if path.name == "model" and path.parent.name else path.name
    row = {
        "name": f"teacher ({short})",
        "metrics": metrics.get("test", metrics.get("dev", {})),
        "parameters": sizes["parameters"],
    }
    return {
        "method": options.loss.method,
        "teacher": sizes | {"metrics": metrics},
        # Pairs of student and teacher layers, by the kind of comparison.
        "layer_map": {loss.kind: loss.layers for loss in losses},
        "student": _describe(chosen.student or "layers of the teacher", prepared.model),
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
