"""One distillation from labelled rows: a student learns the answers of a fine-tuned teacher.

It is a fine-tuning run with another objective; nothing is written before everything was checked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from filbert.data.examples import collate
from filbert.data.loader import Loader
from filbert.errors import ConfigError
from filbert.files import portable
from filbert.model.config import EncoderConfig
from filbert.model.heads import Model
from filbert.model.lessons import Lesson, check_lessons
from filbert.model.student import Student, Teacher, freeze_unreached
from filbert.speed.precision import Precision
from filbert.tasks.base import Task
from filbert.tasks.distillation import patient_lessons, tinybert_lessons
from filbert.tasks.soft_labels import Inside, SoftLabels
from filbert.train.course import Course, Phase
from filbert.train.distill_options import DistillOptions
from filbert.train.distill_rows import Rows, digest_of_tokens, read_rows
from filbert.train.distill_student import Start, read_student
from filbert.train.distributed import Parallel
from filbert.train.folder import settle_precision
from filbert.train.log import RunLog, say
from filbert.train.prepare import build, fingerprint
from filbert.train.state import digest_of
from filbert.train.task_run import Job, run_task
from filbert.train.teacher import StreamedAnswers, TaskTeacher, exact_outputs, read_teacher
from filbert.train.teacher_cache import CachedAnswers, check_cache, write_answers
from filbert.train.trainable import freeze
from filbert.train.trainer import Outcome, max_tokens_of, train


@dataclass(frozen=True)
class _Pair:
    """Teacher and student, read and checked.

    Attributes:
        task: of both.
        start: what the student begins as.
        model: the student.
        is_frozen: whether its encoder's outputs never change.
        lessons: what is compared inside the two; () for answers alone.
        answers: the teacher's, to the rows that are learnt from.
        teacher_digest: of its weights.
        fingerprint: of the run.
    """

    options: DistillOptions
    parallel: Parallel
    precision: Precision
    teacher: TaskTeacher
    task: Task
    start: Start
    model: Model
    is_frozen: bool
    lessons: tuple[Lesson, ...]
    rows: Rows
    loader: Loader
    answers: StreamedAnswers
    teacher_digest: str
    fingerprint: str


def distill_task(options: DistillOptions) -> dict[str, Any]:
    """Train a student, choose, calibrate, measure beside the teacher, save.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: before anything is written.
        RunError: training could not go on.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    return run_task(options, lambda parallel: _job(_read(options, parallel)))


def _read(options: DistillOptions, parallel: Parallel) -> _Pair:
    """Read and check everything."""
    precision = settle_precision(options, options.out, parallel)
    device = parallel.device
    teacher = read_teacher(
        options.teacher, task=options.task, precision=precision.name, device=str(device)
    )
    task = teacher.task.reading(options)
    if options.metric is not None and options.metric not in task.metric_names:
        raise ConfigError(f"metric {options.metric!r} is not one of {list(task.metric_names)}.")
    _check_weights(options, task)
    torch.manual_seed(options.seed)
    start = read_student(options, teacher)
    lessons = lessons_of(options, start.checkpoint.config, teacher.model.config)
    model = build(start.checkpoint, task, options)
    is_frozen = freeze(model, options.freeze)
    if is_frozen and lessons:
        raise ConfigError(
            f"--freeze {options.freeze} leaves nothing to learn from the inside of the teacher, as "
            f"method {options.method} does."
        )
    rows = read_rows(options, task, start, teacher, device)
    loader = Loader(
        rows.examples,
        batch_size=options.batch_size,
        max_tokens=max_tokens_of(options, device),
        seed=options.seed,
    )
    assert teacher.predictor.checkpoint is not None
    teacher_digest = digest_of(teacher.predictor.checkpoint.tensors)
    return _Pair(
        options=options,
        parallel=parallel,
        precision=precision,
        teacher=teacher,
        task=task,
        start=start,
        model=model,
        is_frozen=is_frozen,
        lessons=lessons,
        rows=rows,
        loader=loader,
        answers=StreamedAnswers(teacher.predictor, task, rows.own),
        teacher_digest=teacher_digest,
        fingerprint=fingerprint(options, model, rows.digests | {"teacher": teacher_digest}),
    )


def _check_weights(options: DistillOptions, task: Task) -> None:
    """Refuse weights and temperatures that this task has no place for."""
    if task.whole_batch and options.alpha:
        raise ConfigError(
            f"alpha is {options.alpha}; the teacher learnt from pairs without labels, so only its "
            "vectors can be learnt. Leave it out."
        )
    chooses = task.labels is not None or task.head_kind in ("choices", "spans")
    if options.temperature is not None and not chooses:
        raise ConfigError(
            f"temperature is {options.temperature}; it is for answers that choose among several, "
            f"not for {task.name}. Leave it out."
        )


def lessons_of(
    options: DistillOptions, student: EncoderConfig, teacher: EncoderConfig
) -> tuple[Lesson, ...]:
    """What is compared inside the two models.

    Raises:
        ConfigError: they cannot be compared so.
    """
    configs = (student, teacher)
    if options.method == "soft":
        return ()
    if options.method == "pkd":
        lessons = patient_lessons(*configs, options.mapped_layers, options.beta)
        if not lessons:
            raise ConfigError(
                "method pkd compares all layers but the student's last, by a weight beta above "
                "zero; here there is nothing to compare. Take method soft."
            )
    else:
        lessons = tinybert_lessons(*configs, options.mapped_layers)
    check_lessons(lessons, *configs)
    return lessons


def _job(pair: _Pair) -> Job:
    """The run, ready to begin."""
    options, model = pair.options, pair.model.to(pair.parallel.device)
    is_beside = options.method == "pkd"
    if options.cache:
        check_cache(Path(options.cache), _answers_key(pair), pair.rows.examples)
        # Nobody writes there before all have looked.
        pair.parallel.barrier()
    share = options.hidden_share if options.method == "tinybert" else 0.0
    return Job(
        options=options,
        command="distill",
        source=options.student or options.teacher,
        task_name=pair.task.name,
        task=pair.task,
        objective=_objective(pair, is_beside),
        splits=pair.rows.splits,
        checkpoint=pair.start.checkpoint,
        tokenizer=pair.start.tokenizer,
        max_length=pair.start.max_length,
        model=model,
        trained=_beside(pair, answers=True) if is_beside else model,
        is_frozen=pair.is_frozen,
        loader=pair.loader,
        course=Course([Phase(pair.loader)], _part_of(options, 1.0 - share)),
        precision=pair.precision,
        fingerprint=pair.fingerprint,
        tokenise_seconds=pair.rows.tokenise_seconds,
        took=pair.rows.took,
        before=partial(_before, pair),
        more=partial(_more, pair),
    )


def _objective(pair: _Pair, is_beside: bool) -> SoftLabels:
    options = pair.options
    ours, theirs = pair.model.config.hidden_size, pair.teacher.model.config.hidden_size
    by_cosine = pair.task.head_kind is None and ours != theirs
    if by_cosine and any(len(row) != 2 for row in pair.loader.rows):
        raise ConfigError(
            f"The student's vectors have {ours} numbers and the teacher's {theirs}, so pairs of "
            "texts are compared by their cosine, and a row of one text has none. Give pairs, or a "
            "student as wide as the teacher."
        )
    cached = CachedAnswers(Path(options.cache)) if options.cache else None
    return SoftLabels(
        pair.task,
        None if is_beside else cached or pair.answers,
        temperature=options.soft_temperature,
        alpha=0.0 if pair.task.whole_batch else options.hard_share,
        by_cosine=by_cosine,
        lessons=pair.lessons if is_beside else (),
    )


def _beside(pair: _Pair, *, answers: bool) -> Student:
    """The student with the teacher at its side, as it is trained."""
    device = pair.parallel.device
    teacher = Teacher(pair.teacher.model, device)
    student = Student(pair.model, teacher, pair.lessons, compares_outputs=answers).to(device)
    freeze_unreached(student, collate(pair.loader.stand_in), answers=answers)
    return student


def _before(pair: _Pair, folder: Path) -> Outcome | None:
    """Write the teacher's answers, and learn its inside, as far as that is asked for.

    Gives what the learning came to.
    """
    options, parallel = pair.options, pair.parallel
    if parallel.is_first:
        size = sum(parameter.numel() for parameter in pair.teacher.model.parameters())
        say(f"teacher: {options.teacher}, {size:,} parameters; method {options.method}")
    if options.cache:
        if parallel.is_first:
            place = Path(options.cache)
            clock, cpu = time.perf_counter(), time.process_time()
            write_answers(place, _answers_key(pair), pair.rows.examples, pair.answers)
            pair.rows.took["answers_seconds"] = time.perf_counter() - clock
            pair.rows.took["training_cpu_seconds"] += time.process_time() - cpu
        parallel.barrier()
    if options.method == "tinybert":
        return _learn_inside(pair, folder / "stage-1")
    return None


def _answers_key(pair: _Pair) -> str:
    """sha256 of all that the teacher's answers hang on."""
    own = [example for row in (pair.rows.own or {}).values() for example in row]
    tokens = digest_of_tokens(pair.rows.examples) + digest_of_tokens(own)
    content = f"{pair.teacher_digest} {pair.precision.name} {pair.task.to_dict()} {tokens}"
    return hashlib.sha256(content.encode()).hexdigest()


def _learn_inside(pair: _Pair, folder: Path) -> Outcome:
    """TinyBERT's first stage on rows: embeddings, attention and hidden states, no answer.

    A training of its own, with its own log and states. Source: Jiao et al. 2020, section 4.1.
    """
    options, parallel = _inside(pair.options), pair.parallel
    student = _beside(pair, answers=False)
    if parallel.is_first:
        folder.mkdir(exist_ok=True)
    with RunLog(
        folder if parallel.is_first else None, resume=options.resume, quiet=not parallel.is_first
    ) as log:
        log.say("stage 1: the inside of the teacher")
        outcome = train(
            student,
            Inside(pair.lessons),
            Course([Phase(pair.loader)], _part_of(options, options.hidden_share)),
            options,
            precision=pair.precision,
            evaluate=None,
            log=log,
            parallel=parallel,
            states=folder / "state",
            fingerprint=pair.fingerprint,
        )
        log.say("stage 2: its answers")
    pair.model.requires_grad_(True)
    freeze(pair.model, options.freeze)
    return outcome


def _inside(options: DistillOptions) -> DistillOptions:
    """The options of the first stage."""
    schedule = options.hidden_schedule or options.schedule
    return dataclasses.replace(
        options,
        lr=options.hidden_lr or options.lr,
        schedule=schedule,
        warmup=0.0 if options.hidden_schedule == "constant" else options.warmup,
        metric=None,
        patience=0,
    )


def _part_of(options: DistillOptions, share: float) -> DistillOptions:
    """The same over a share of the run's length."""
    if share == 1.0:
        return options
    seconds = options.time_seconds
    return dataclasses.replace(
        options,
        epochs=options.epochs * share,
        steps=None if options.steps is None else max(1, round(options.steps * share)),
        time=None if seconds is None else f"{seconds * share:.6f}s",
    )


def _more(pair: _Pair) -> dict[str, Any]:
    """Teacher and student side by side, for run.json."""
    task = pair.teacher.predictor.task
    assert task is not None
    metrics: dict[str, Any] = {}
    for name, split in pair.rows.splits.items():
        if name != "train":
            examples = pair.rows.own_splits[name]
            outputs = exact_outputs(pair.teacher.predictor, examples)
            metrics[name] = task.metrics(split.gold, task.decode(outputs, examples))
    teacher = _facts(pair.options.teacher, pair.teacher.model)
    row = {
        "name": f"teacher ({_short(pair.options.teacher)})",
        "metrics": metrics.get("test", metrics.get("dev", {})),
        "parameters": teacher["parameters"],
    }
    return {
        "method": pair.options.method,
        "teacher": teacher | {"metrics": metrics},
        # Pairs of a student's and a teacher's layer, by what is compared there.
        "layer_map": {one.kind: one.layers for one in pair.lessons},
        "student": _facts(pair.options.student or "layers of the teacher", pair.model),
        "extra_rows": len(pair.loader.rows) - len(pair.rows.splits["train"].rows),
        "baselines": [row],
    }


def _short(name: str) -> str:
    """A model's name; of a run's model the run's."""
    path = Path(name)
    return path.parent.name if path.name == "model" and path.parent.name else path.name


def _facts(name: str, model: Model) -> dict[str, Any]:
    """How large a model is; bytes are those of its weights in float32."""
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
