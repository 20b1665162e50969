"""Distillation on labelled rows: a student learns the outputs of a fine-tuned teacher.

It is a fine-tuning run with another objective. Everything is checked before anything is written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from filbert.checkpoints.checkpoint import Checkpoint, with_layers
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.examples import Example, collate
from filbert.data.loader import Loader
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.files import portable
from filbert.inference.stored_task import check_max_length
from filbert.losses.student import (
    LayerLoss,
    Student,
    Teacher,
    check_layer_losses,
    freeze_unreached,
)
from filbert.model.config import EncoderConfig
from filbert.model.heads import Model
from filbert.tasks.base import Task
from filbert.tasks.distillation import LayerDistillation, patient_losses, tinybert_losses
from filbert.tasks.rows import read_task_rows
from filbert.tasks.soft_labels import SoftLabels
from filbert.text.tokenizer import Tokenizer
from filbert.train.augment import augmented_rows
from filbert.train.base_model import build, freeze, layers_to_keep, with_task_head
from filbert.train.distill_options import DistillOptions, LossOptions
from filbert.train.distributed import Parallel
from filbert.train.distributed import start as start_processes
from filbert.train.features import frozen_features
from filbert.train.finetune import Prepared, announce, learn, measure, opening, save
from filbert.train.log import RunLog, say
from filbert.train.loop import Outcome, max_tokens_of, train
from filbert.train.options import TrainOptions
from filbert.train.progress import Phase, Schedule
from filbert.train.provenance import ended, fingerprint
from filbert.train.run_folder import (
    already_finished,
    check_out,
    folder_of_all,
    settle_precision,
)
from filbert.train.splits import Split, tokenise
from filbert.train.state import digest_of
from filbert.train.teacher import (
    TaskTeacher,
    check_labels,
    exact_outputs,
    read_teacher,
    teacher_answers,
)

_MEASURED = ("train", "dev", "test")


def distill(options: DistillOptions) -> dict[str, Any]:
    """Train a student, select the best step, calibrate, compare with the teacher and save.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: Before anything is written.
        RunError: Training cannot continue.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    started, run, method = time.perf_counter(), options.run, options.loss.method
    with start_processes(run.distributed, run.device) as parallel:
        if parallel.is_first:
            check_out(Path(run.out), overwrite=run.overwrite, resume=run.resume)
        pair = _prepare(options, parallel)
        prepared = pair.prepared
        share = options.loss.hidden_share if method == "tinybert" else 0.0
        schedule = Schedule([Phase(pair.loader)], _part_of(options.train, 1.0 - share))
        objective = _objective(pair)
        trained = _student_with_teacher(pair, answers=True) if method == "pkd" else None
        finished = already_finished(run, prepared.fingerprint, parallel)
        if finished is not None:
            return finished if parallel.is_first else {}
        facts = opening(prepared, parallel, started=started)
        announce(prepared, facts, schedule)
        with folder_of_all(run, facts, parallel) as folder:
            first = _before(pair, folder)
            outcome, model = learn(
                prepared,
                objective,
                schedule=schedule,
                parallel=parallel,
                folder=folder,
                trained=trained,
                features=frozen_features(
                    prepared.model, pair.loader, prepared.precision, prepared.took
                ),
            )
            if parallel.is_first:
                outcome = _with_first_stage(outcome, first)
                fitted, results = measure(prepared, outcome, model, folder)
                seconds = time.perf_counter() - started
                results |= _comparison(pair)
                facts |= ended(outcome, results.pop("metrics"), seconds) | results
                save(prepared, fitted, outcome, facts, folder)
    return facts


def _with_first_stage(outcome: Outcome, first: Outcome | None) -> Outcome:
    """Add the costs of the first stage to those of the second one."""
    if first is None:
        return outcome
    summed = ("seconds", "cpu_seconds", "clock_before", "num_tokens")
    sums = {name: getattr(outcome, name) + getattr(first, name) for name in summed}
    return dataclasses.replace(outcome, **sums)


class _Pair(NamedTuple):
    """Teacher, student and rows of a run, read and checked.

    Attributes:
        options: Of the run.
        parallel: The group of processes.
        prepared: The run as the functions of `finetune` read it; its model is the student.
        teacher: The fine-tuned model to learn from.
        layer_losses: Comparisons of hidden layers; () if only outputs are compared.
        rows: All rows of the run.
        loader: Training batches.
    """

    options: DistillOptions
    parallel: Parallel
    prepared: Prepared
    teacher: TaskTeacher
    layer_losses: tuple[LayerLoss, ...]
    rows: Rows
    loader: Loader


def _prepare(options: DistillOptions, parallel: Parallel) -> _Pair:
    """Read and check everything."""
    device = parallel.device
    precision = settle_precision(options.run, parallel)
    teacher = read_teacher(options.model, precision=precision.name, device=str(device))
    task = teacher.task
    _check_options(options, task)
    torch.manual_seed(options.run.seed)
    begin = read_student(options, teacher)
    ours, theirs = begin.checkpoint.config, teacher.model.config
    if task.spec.head_kind is None and ours.hidden_size != theirs.hidden_size:
        raise ConfigError(
            f"The student's vectors have {ours.hidden_size} numbers and the teacher's "
            f"{theirs.hidden_size}. Use a student as wide as the teacher."
        )
    layer_losses = layer_losses_of(options.loss, ours, theirs)
    model = build(begin.checkpoint, task)
    is_frozen = freeze(model, options.train.freeze)
    if is_frozen and layer_losses:
        raise ConfigError(
            f"--freeze {options.train.freeze} leaves nothing to learn from the layers of the "
            f"teacher, as method {options.loss.method} does."
        )
    rows = read_rows(options, task, begin, teacher, device)
    loader = Loader(
        rows.examples,
        batch_size=options.train.rows_per_step,
        max_tokens=max_tokens_of(options.train, device),
        seed=options.run.seed,
    )
    assert teacher.predictor.checkpoint is not None
    digest = digest_of(teacher.predictor.checkpoint.tensors)
    mark = fingerprint(options, model, rows.digests | {"teacher": digest})
    prepared = Prepared(
        command="distill",
        options=options,
        source=options.model.student or options.model.teacher,
        task=task,
        splits=rows.splits,
        checkpoint=begin.checkpoint,
        tokenizer=begin.tokenizer,
        max_length=begin.max_length,
        model=model.to(device),
        precision=precision,
        fingerprint=mark,
        took=rows.took | {"tokenise_seconds": rows.tokenise_seconds},
    )
    return _Pair(options, parallel, prepared, teacher, layer_losses, rows, loader)


def _objective(pair: _Pair) -> SoftLabels:
    task, loss = pair.prepared.task, pair.options.loss
    trains_both = loss.method == "pkd"
    return SoftLabels(
        task,
        None if trains_both else partial(teacher_answers, pair.teacher.predictor, task),
        temperature=loss.soft_temperature,
        alpha=0.0 if task.spec.whole_batch else loss.hard_share,
        layer_losses=pair.layer_losses if trains_both else (),
    )


def _before(pair: _Pair, folder: Path) -> Outcome | None:
    """Train the first stage of TinyBERT, if there is one."""
    method = pair.options.loss.method
    if pair.parallel.is_first:
        size = sum(parameter.numel() for parameter in pair.teacher.model.parameters())
        say(f"teacher: {pair.teacher.name}, {size:,} parameters; method {method}")
    return _learn_layers(pair, folder / "stage-1") if method == "tinybert" else None


def _check_options(options: DistillOptions, task: Task) -> None:
    """Check that metric, alpha and temperature apply to this task.

    Raises:
        ConfigError: They do not.
    """
    metric, alpha, temperature = options.train.metric, options.loss.alpha, options.loss.temperature
    metrics = task.spec.metric_names
    if metric is not None and metric not in metrics:
        raise ConfigError(f"metric {metric!r} is not one of {list(metrics)}.")
    if task.spec.whole_batch and alpha:
        raise ConfigError(
            f"alpha is {alpha}; the teacher was trained on pairs without labels, so a student "
            "can only learn its vectors. Leave alpha out."
        )
    chooses = task.spec.labels is not None or task.spec.head_kind in ("choices", "spans")
    if temperature is not None and not chooses:
        raise ConfigError(
            f"temperature is {temperature}; it is for answers that choose among several, not for "
            f"{task.spec.name}. Leave it out."
        )


def layer_losses_of(
    loss: LossOptions, student: EncoderConfig, teacher: EncoderConfig
) -> tuple[LayerLoss, ...]:
    """Return the comparisons of hidden layers of the two models.

    Raises:
        ConfigError: The method cannot compare these models.
    """
    if loss.method == "soft":
        return ()
    if loss.method == "pkd":
        losses = patient_losses(student, teacher, loss.mapped_layers, loss.beta)
        if not losses:
            raise ConfigError(
                "method pkd compares all layers but the student's last, by a weight beta above "
                "zero; here there is nothing to compare. Use method soft."
            )
    else:
        losses = tinybert_losses(student, teacher, loss.mapped_layers)
    check_layer_losses(losses, student, teacher)
    return losses


def _student_with_teacher(pair: _Pair, *, answers: bool) -> Student:
    """Combine student and teacher in the module that is trained."""
    device = pair.parallel.device
    teacher = Teacher(pair.teacher.model, device)
    student = Student(pair.prepared.model, teacher, pair.layer_losses, compares_outputs=answers).to(
        device
    )
    freeze_unreached(student, collate(pair.loader.stand_in), answers=answers)
    return student


def _learn_layers(pair: _Pair, folder: Path) -> Outcome:
    """Train the first stage of TinyBERT: embeddings, attention and hidden states, no outputs.

    The stage has its own log and states. Source: Jiao et al. 2020, section 4.1.
    """
    loss, run, parallel = pair.options.loss, pair.options.run, pair.parallel
    options = dataclasses.replace(
        pair.options.train,
        lr=loss.hidden_lr or pair.options.train.peak_lr,
        schedule=loss.hidden_schedule or pair.options.train.schedule,
        warmup=0.0 if loss.hidden_schedule == "constant" else pair.options.train.warmup,
        metric=None,
        patience=0,
    )
    student = _student_with_teacher(pair, answers=False)
    if parallel.is_first:
        folder.mkdir(exist_ok=True)
    with RunLog(
        folder if parallel.is_first else None, resume=run.resume, quiet=not parallel.is_first
    ) as log:
        log.say("stage 1: the layers of the teacher")
        outcome = train(
            student,
            LayerDistillation(pair.layer_losses),
            schedule=Schedule([Phase(pair.loader)], _part_of(options, loss.hidden_share)),
            options=options,
            run=run,
            precision=pair.prepared.precision,
            evaluate=None,
            log=log,
            parallel=parallel,
            states=folder / "state",
            fingerprint=pair.prepared.fingerprint,
        )
        log.say("stage 2: its answers")
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
        epochs=options.num_epochs * share,
        steps=None if options.steps is None else max(1, round(options.steps * share)),
        time=None if seconds is None else f"{seconds * share:.6f}s",
    )


# The comparison of teacher and student in run.json


def _comparison(pair: _Pair) -> dict[str, Any]:
    """Return the entries of run.json that compare teacher and student."""
    chosen, task, rows = pair.options.model, pair.teacher.predictor.task, pair.rows
    assert task is not None
    metrics: dict[str, Any] = {}
    for name, split in rows.splits.items():
        if name != "train":
            outputs = exact_outputs(pair.teacher.predictor, split.examples)
            metrics[name] = task.metrics(split.gold, task.decode(outputs, split.examples))
    teacher = _describe(chosen.teacher, pair.teacher.model)
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
        "extra_rows": len(pair.loader.rows) - len(rows.splits["train"].rows),
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


# The student and the rows


class Start(NamedTuple):
    """A student before its first step.

    Attributes:
        checkpoint: With the head of the task; see `with_task_head`.
        tokenizer: Of the student.
        max_length: Texts are cut at this number of tokens.
    """

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    max_length: int


def read_student(options: DistillOptions, teacher: TaskTeacher) -> Start:
    """Read the named student, or take layers of the teacher.

    Raises:
        ConfigError: Neither option is given, or the two models read different tokens.
        InputError, FormatError: The model does not exist or is damaged.
    """
    chosen = options.model
    if chosen.student is None and chosen.keep_layers is None:
        raise ConfigError(
            "Name a smaller model with --student, or keep some of the teacher's layers with "
            "--keep-layers, such as --keep-layers 0,2,4."
        )
    folder = find_model(chosen.student or chosen.teacher)
    tokenizer, checkpoint = read_tokenizer(folder), read_checkpoint(folder)
    config = checkpoint.config
    for note in tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, folder):
        say(note)
    if chosen.keep_layers is not None:
        layers = layers_to_keep(chosen.keep_layers, config.num_hidden_layers)
        checkpoint = with_layers(checkpoint, layers)
    if options.train.dropout is not None:
        changed = checkpoint.config.with_dropout(options.train.dropout)
        checkpoint = dataclasses.replace(checkpoint, config=changed)
    checkpoint = with_task_head(checkpoint, teacher.task)
    theirs, limit = teacher.predictor, config.max_tokens_per_sequence
    max_length = check_max_length(options.data.max_length, config) or min(theirs.max_length, limit)
    ours_types = config.embeddings.token_types
    their_types = theirs.model.config.embeddings.token_types
    if not (
        tokenizer.fingerprint == theirs.tokenizer.fingerprint
        and max_length <= theirs.model.config.max_tokens_per_sequence
        # The teacher must know every token type that the tokenizer of the student writes.
        and (their_types == 0 or (ours_types < 2) == (their_types < 2))
    ):
        raise ConfigError(
            f"{chosen.student} reads other tokens than its teacher {chosen.teacher}. Use a student "
            "with the teacher's vocabulary and length."
        )
    return Start(checkpoint, tokenizer, max_length)


@dataclass(frozen=True)
class Rows:
    """All rows of a run.

    Attributes:
        splits: train, and optionally dev and test.
        examples: Training examples: the rows of train, then rows without labels.
        digests: SHA-256 of the files, and of the tokens of rows without labels.
        tokenise_seconds: For all rows.
        took: Seconds for the training rows, by name.
    """

    splits: dict[str, Split]
    examples: list[Example]
    digests: dict[str, str]
    tokenise_seconds: float
    took: dict[str, float]


def read_rows(
    options: DistillOptions, task: Task, begin: Start, teacher: TaskTeacher, device: torch.device
) -> Rows:
    """Read all files, augment the training rows if asked for, and tokenise.

    Raises:
        InputError: A row is wrong; the message names file and line.
        ConfigError: The teacher does not know a label, or the rows cannot be augmented.
    """
    data = options.data
    assert data.train is not None
    rows = {}
    for name in _MEASURED:
        if path := getattr(data, name):
            rows[name] = list(read_task_rows(task, path, data.columns))
            check_labels(teacher, path, rows[name])
    extra: list[Row] = []
    # Preparing the training rows counts as training time.
    took = {"augment_seconds": 0.0, "train_tokenise_seconds": 0.0, "training_cpu_seconds": 0.0}
    if options.augment.augment_with is not None:
        clock, cpu = time.perf_counter(), time.process_time()
        extra = augmented_rows(rows["train"], task, options.augment, options.run.seed, device)
        took["augment_seconds"] = time.perf_counter() - clock
        took["training_cpu_seconds"] += time.process_time() - cpu
    if extra:
        rows["extra"] = extra
    start = time.perf_counter()
    splits = {}
    for name, some in rows.items():
        clock, cpu = time.perf_counter(), time.process_time()
        is_labelled = name in _MEASURED
        path = data.train if name == "extra" else getattr(data, name)
        place = (begin.tokenizer, begin.max_length)
        splits[name] = tokenise(name, path, some, task, *place, labelled=is_labelled)
        if name in ("train", "extra"):
            took["train_tokenise_seconds"] += time.perf_counter() - clock
            took["training_cpu_seconds"] += time.process_time() - cpu
    unlabelled = splits.pop("extra").examples if extra else []
    digests = {name: split.digest for name, split in splits.items()}
    if extra:
        # A hash of the tokens, because augmented rows are in no file.
        digests["extra"] = digest_of_tokens(unlabelled)
    return Rows(
        splits,
        _joined(splits["train"].examples, unlabelled),
        digests,
        time.perf_counter() - start,
        took,
    )


def digest_of_tokens(examples: Sequence[Example]) -> str:
    """Return a SHA-256 of the tokens of all rows, in order, and of the words they belong to."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(f"{example.row} {len(example.input_ids)} ".encode())
        arrays: list[Any] = [example.input_ids, example.token_type_ids]
        # In tagging, the same tokens can belong to other words, which have other outputs.
        arrays += [getattr(example.source, name, None) for name in ("words", "rows", "leaders")]
        for array in arrays:
            if array is not None:
                digest.update(np.asarray(array).astype("<i8").tobytes())
    return digest.hexdigest()


def _joined(first: list[Example], second: list[Example]) -> list[Example]:
    """Join two lists of examples; row numbers of the second continue those of the first."""
    num_rows = first[-1].row + 1
    return first + [dataclasses.replace(e, row=e.row + num_rows) for e in second]
