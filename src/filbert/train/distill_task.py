"""Distillation on labelled rows: a student learns the outputs of a fine-tuned teacher.

It is a fine-tuning run with another objective. Everything is checked before anything is written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from filbert.checkpoints.checkpoint import Checkpoint, with_layers
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.augment import Places, augmented
from filbert.data.examples import Example, collate
from filbert.data.loader import Loader
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.files import portable
from filbert.inference.fill import masked_lm_part
from filbert.inference.predictor import Predictor
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
from filbert.model.precision import Precision
from filbert.tasks.base import Task
from filbert.tasks.distillation import LayerDistillation, patient_losses, tinybert_losses
from filbert.tasks.soft_labels import SoftLabels
from filbert.text.masks import mask_name, mask_spans, piece_of
from filbert.text.tokenizer import Tokenizer
from filbert.train.course import Course, Phase
from filbert.train.distill_options import DistillOptions
from filbert.train.distributed import Parallel
from filbert.train.folder import settle_precision
from filbert.train.log import RunLog, progress_bar, say
from filbert.train.prepare import Split, build, fingerprint, tokenise, with_task_head
from filbert.train.state import digest_of
from filbert.train.task_run import Job, run_task
from filbert.train.teacher import (
    CachedAnswers,
    StreamedAnswers,
    TaskTeacher,
    check_cache,
    check_labels,
    exact_outputs,
    read_teacher,
    write_answers,
)
from filbert.train.trainable import freeze, layers_to_keep
from filbert.train.trainer import Outcome, max_tokens_of, train

_MEASURED = ("train", "dev", "test")
# Additional candidates, because pieces of words and punctuation are skipped.
_SPARE = 10


@dataclass(frozen=True)
class _Pair:
    """Teacher, student and rows, read and checked by `_read`.

    Attributes:
        options: Of the run.
        parallel: The group of processes.
        precision: Number format of the matrix products.
        teacher: The fine-tuned model to learn from.
        task: The task of both models.
        start: The student before its first step.
        model: The student.
        is_frozen: Whether the outputs of its encoder never change.
        layer_losses: Comparisons of hidden layers; () if only outputs are compared.
        rows: All rows of the run.
        loader: Training batches.
        answers: Outputs of the teacher for the training rows.
        teacher_digest: Hash of the weights of the teacher.
        fingerprint: Hash of everything that determines the result.
    """

    options: DistillOptions
    parallel: Parallel
    precision: Precision
    teacher: TaskTeacher
    task: Task
    start: Start
    model: Model
    is_frozen: bool
    layer_losses: tuple[LayerLoss, ...]
    rows: Rows
    loader: Loader
    answers: StreamedAnswers
    teacher_digest: str
    fingerprint: str


def distill_task(options: DistillOptions) -> dict[str, Any]:
    """Train a student, select the best step, calibrate, compare with the teacher and save.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: Before anything is written.
        RunError: Training cannot continue.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    return run_task(options, lambda parallel: _job(_read(options, parallel)))


def _read(options: DistillOptions, parallel: Parallel) -> _Pair:
    """Read and check everything."""
    precision = settle_precision(options, parallel)
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
    layer_losses = layer_losses_of(options, start.checkpoint.config, teacher.model.config)
    model = build(start.checkpoint, task)
    is_frozen = freeze(model, options.freeze)
    if is_frozen and layer_losses:
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
        layer_losses=layer_losses,
        rows=rows,
        loader=loader,
        answers=StreamedAnswers(teacher.predictor, task, rows.own),
        teacher_digest=teacher_digest,
        fingerprint=fingerprint(options, model, rows.digests | {"teacher": teacher_digest}),
    )


def _check_weights(options: DistillOptions, task: Task) -> None:
    """Check that alpha and temperature apply to this task.

    Raises:
        ConfigError: They do not.
    """
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


def layer_losses_of(
    options: DistillOptions, student: EncoderConfig, teacher: EncoderConfig
) -> tuple[LayerLoss, ...]:
    """Return the comparisons of hidden layers of the two models.

    Raises:
        ConfigError: The method cannot compare these models.
    """
    configs = (student, teacher)
    if options.method == "soft":
        return ()
    if options.method == "pkd":
        layer_losses = patient_losses(*configs, options.mapped_layers, options.beta)
        if not layer_losses:
            raise ConfigError(
                "method pkd compares all layers but the student's last, by a weight beta above "
                "zero; here there is nothing to compare. Take method soft."
            )
    else:
        layer_losses = tinybert_losses(*configs, options.mapped_layers)
    check_layer_losses(layer_losses, *configs)
    return layer_losses


def _job(pair: _Pair) -> Job:
    """Create the job of the run."""
    options, model = pair.options, pair.model.to(pair.parallel.device)
    trains_both = options.method == "pkd"
    if options.cache:
        check_cache(Path(options.cache), _answers_key(pair), pair.rows.examples)
        # No rank writes to the folder before all ranks have checked it.
        pair.parallel.barrier()
    share = options.hidden_share if options.method == "tinybert" else 0.0
    return Job(
        options=options,
        train=options,
        run=options,
        command="distill",
        source=options.student or options.teacher,
        task_name=pair.task.name,
        task=pair.task,
        objective=_objective(pair, trains_both),
        splits=pair.rows.splits,
        checkpoint=pair.start.checkpoint,
        tokenizer=pair.start.tokenizer,
        max_length=pair.start.max_length,
        model=model,
        trained=_student_with_teacher(pair, answers=True) if trains_both else model,
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


def _objective(pair: _Pair, trains_both: bool) -> SoftLabels:
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
        None if trains_both else cached or pair.answers,
        temperature=options.soft_temperature,
        alpha=0.0 if pair.task.whole_batch else options.hard_share,
        by_cosine=by_cosine,
        layer_losses=pair.layer_losses if trains_both else (),
    )


def _student_with_teacher(pair: _Pair, *, answers: bool) -> Student:
    """Combine student and teacher in the module that is trained."""
    device = pair.parallel.device
    teacher = Teacher(pair.teacher.model, device)
    student = Student(pair.model, teacher, pair.layer_losses, compares_outputs=answers).to(device)
    freeze_unreached(student, collate(pair.loader.stand_in), answers=answers)
    return student


def _before(pair: _Pair, folder: Path) -> Outcome | None:
    """Write the cache of teacher outputs, and train the first stage of TinyBERT, if asked for.

    Returns:
        The outcome of the first stage, if there is one.
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
    """Return a SHA-256 of everything that the outputs of the teacher depend on."""
    own = [example for row in (pair.rows.own or {}).values() for example in row]
    tokens = digest_of_tokens(pair.rows.examples) + digest_of_tokens(own)
    content = f"{pair.teacher_digest} {pair.precision.name} {pair.task.to_dict()} {tokens}"
    return hashlib.sha256(content.encode()).hexdigest()


def _learn_inside(pair: _Pair, folder: Path) -> Outcome:
    """Train the first stage of TinyBERT: embeddings, attention and hidden states, no outputs.

    The stage has its own log and states. Source: Jiao et al. 2020, section 4.1.
    """
    options, parallel = _inside(pair.options), pair.parallel
    student = _student_with_teacher(pair, answers=False)
    if parallel.is_first:
        folder.mkdir(exist_ok=True)
    with RunLog(
        folder if parallel.is_first else None, resume=options.resume, quiet=not parallel.is_first
    ) as log:
        log.say("stage 1: the inside of the teacher")
        outcome = train(
            student,
            LayerDistillation(pair.layer_losses),
            course=Course([Phase(pair.loader)], _part_of(options, options.hidden_share)),
            options=options,
            run=options,
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
    """Return the options of the first stage."""
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
    """Return the options of a part of the run, by its share of the length."""
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
    """Return the entries of run.json that compare teacher and student."""
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
        # Pairs of student and teacher layers, by the kind of comparison.
        "layer_map": {one.kind: one.layers for one in pair.layer_losses},
        "student": _facts(pair.options.student or "layers of the teacher", pair.model),
        "extra_rows": len(pair.loader.rows) - len(pair.rows.splits["train"].rows),
        "baselines": [row],
    }


def _short(name: str) -> str:
    """Return the last part of a model name; for RUN/model the name of the run."""
    path = Path(name)
    return path.parent.name if path.name == "model" and path.parent.name else path.name


def _facts(name: str, model: Model) -> dict[str, Any]:
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


class Start(NamedTuple):
    """A student before its first step.

    Attributes:
        checkpoint: With the head of the task; see `with_task_head`.
        tokenizer: Of the student.
        max_length: Texts are cut at this number of tokens.
        shares_tokens: Whether teacher and student read the same tokens.
    """

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    max_length: int
    shares_tokens: bool


def read_student(options: DistillOptions, teacher: TaskTeacher) -> Start:
    """Read the named student, or take layers of the teacher.

    Raises:
        ConfigError: Neither option is given, or the method cannot compare the two models.
        InputError, FormatError: The model does not exist or is damaged.
    """
    if options.student is None and options.keep_layers is None:
        raise ConfigError(
            "Name a smaller model with --student, or keep some of the teacher's layers with "
            "--keep-layers, such as --keep-layers 0,2,4."
        )
    folder = find_model(options.student or options.teacher)
    tokenizer, checkpoint = read_tokenizer(folder), read_checkpoint(folder)
    config = checkpoint.config
    for note in tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, folder):
        say(note)
    if options.keep_layers is not None:
        layers = layers_to_keep(options.keep_layers, config.num_hidden_layers)
        checkpoint = with_layers(checkpoint, layers)
    if options.dropout is not None:
        changed = checkpoint.config.with_dropout(options.dropout)
        checkpoint = dataclasses.replace(checkpoint, config=changed)
    checkpoint = with_task_head(checkpoint, teacher.task)
    theirs = teacher.predictor
    limit = config.max_tokens_per_sequence
    max_length = check_max_length(options.max_length, config) or min(theirs.max_length, limit)
    shares = _shares_tokens(tokenizer, config.embeddings.token_types, max_length, teacher)
    if not shares and (options.method != "soft" or teacher.task.head_kind == "spans"):
        what = f"method {options.method}" if options.method != "soft" else teacher.task.name
        raise ConfigError(
            f"{what} compares teacher and student token by token, but {options.student} reads "
            f"other tokens than {options.teacher}. Take a student with the teacher's vocabulary"
            f"{'' if options.method == 'soft' else ', or method soft'}."
        )
    return Start(checkpoint, tokenizer, max_length, shares)


def _shares_tokens(
    tokenizer: Tokenizer, num_types: int, max_length: int, teacher: TaskTeacher
) -> bool:
    theirs = teacher.predictor
    config = theirs.model.config
    return (
        tokenizer.fingerprint == theirs.tokenizer.fingerprint
        and max_length <= config.max_tokens_per_sequence
        # The teacher must know every token type that the tokenizer of the student writes.
        and (
            config.embeddings.token_types == 0
            or (num_types < 2) == (config.embeddings.token_types < 2)
        )
    )


@dataclass
class Rows:
    """All rows of a run.

    Attributes:
        splits: train, and optionally dev and test, in tokens of the student.
        examples: Training examples: the rows of train, then rows without labels.
        own: Examples of these rows in tokens of the teacher, by row number; None if both models
            read the same tokens.
        own_splits: Examples of every split in tokens of the teacher.
        digests: SHA-256 of the files, and of the tokens of rows without labels.
        tokenise_seconds: For all rows.
        took: Seconds for the training rows, by name.
    """

    splits: dict[str, Split]
    examples: list[Example]
    own: dict[int, list[Example]] | None
    own_splits: dict[str, list[Example]]
    digests: dict[str, str]
    tokenise_seconds: float
    took: dict[str, float] = field(default_factory=dict)


def read_rows(
    options: DistillOptions, task: Task, start: Start, teacher: TaskTeacher, device: torch.device
) -> Rows:
    """Read all files, augment the training rows if asked for, and tokenise.

    Raises:
        InputError: A row is wrong; the message names file and line.
        ConfigError: The teacher does not know a label, or the rows cannot be augmented.
    """
    assert options.train is not None
    rows: dict[str, list[Row]] = {}
    for name in _MEASURED:
        if path := getattr(options, name):
            rows[name] = list(task.read(path, options))
            check_labels(teacher, path, rows[name])
    extra = list(task.read(options.extra, options, labelled=False)) if options.extra else []
    splits, own_splits = {}, {}
    # Preparing the training rows counts as training time.
    took = {"augment_seconds": 0.0, "train_tokenise_seconds": 0.0, "training_cpu_seconds": 0.0}
    if options.augment_with is not None:
        began, cpu = time.perf_counter(), time.process_time()
        extra += augmented_rows(rows["train"], task, options, device)
        took["augment_seconds"] = time.perf_counter() - began
        took["training_cpu_seconds"] = time.process_time() - cpu
    clock = time.perf_counter()
    theirs = teacher.predictor
    for name, found in (rows | ({"extra": extra} if extra else {})).items():
        began, cpu = time.perf_counter(), time.process_time()
        labelled = name in _MEASURED
        path = getattr(options, name) or options.train
        split = tokenise(
            name, path, found, task, start.tokenizer, start.max_length, labelled=labelled
        )
        splits[name], own_splits[name] = split, split.examples
        if not start.shares_tokens:
            own_splits[name] = tokenise(
                f"{name} for the teacher",
                path,
                found,
                task,
                theirs.tokenizer,
                theirs.max_length,
                labelled=False,
            ).examples
        if name in ("train", "extra"):
            took["train_tokenise_seconds"] += time.perf_counter() - began
            took["training_cpu_seconds"] += time.process_time() - cpu
    unlabelled = splits.pop("extra", None)
    digests = {name: split.digest for name, split in splits.items()}
    if unlabelled is not None:
        # A hash of the tokens, because augmented rows are in no file.
        digests["extra"] = digest_of_tokens(unlabelled.examples)
    own = None
    if not start.shares_tokens:
        own = _by_row(_counted_on(own_splits["train"], own_splits.get("extra", [])))
    return Rows(
        splits,
        _counted_on(splits["train"].examples, unlabelled.examples if unlabelled else []),
        own,
        own_splits,
        digests,
        time.perf_counter() - clock,
        took,
    )


def digest_of_tokens(examples: Sequence[Example]) -> str:
    """Return a SHA-256 of the tokens of all rows, in order, and of the words they belong to."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(f"{example.row} {len(example.input_ids)} ".encode())
        digest.update(example.input_ids.astype("<i8").tobytes())
        digest.update(example.token_type_ids.astype("<i8").tobytes())
        # In tagging, the same tokens can belong to other words, which have other outputs.
        for name in ("words", "rows", "leaders"):
            if (found := getattr(example.source, name, None)) is not None:
                digest.update(np.asarray(found).astype("<i8").tobytes())
    return digest.hexdigest()


def _counted_on(first: list[Example], second: list[Example]) -> list[Example]:
    """Join two lists of examples; row numbers of the second continue those of the first."""
    num_rows = first[-1].row + 1
    return first + [dataclasses.replace(e, row=e.row + num_rows) for e in second]


def _by_row(examples: Sequence[Example]) -> dict[int, list[Example]]:
    found: dict[int, list[Example]] = {}
    for example in examples:
        found.setdefault(example.row, []).append(example)
    return found


def augmented_rows(
    rows: Sequence[Row], task: Task, options: DistillOptions, device: torch.device
) -> list[Row]:
    """Make up to `augment_copies` rows without labels from each row.

    A masked language model proposes the replacements of words.

    Raises:
        ConfigError: Rows of the task are not texts or pairs, or the model fills no masks.
        InputError, FormatError: The model does not exist or is damaged.
    """
    assert options.augment_with is not None
    if task.name not in ("classification", "regression"):
        raise ConfigError(
            f"--augment-with changes words of texts and pairs; rows of {task.name} hold places in "
            "their texts, or belong together. Leave it out."
        )
    filler = _Filler(options.augment_with, options.augment_candidates, device)
    with progress_bar() as bar:
        shown = bar.add_task("augment", total=len(rows))

        def counted() -> Iterator[Row]:
            for row in rows:
                yield row
                bar.update(shown, advance=1)

        made = list(
            augmented(
                counted(),
                filler.words,
                copies=options.augment_copies,
                rate=options.augment_rate,
                seed=options.seed,
            )
        )
    say(f"augmentation: {len(made):,} rows out of {len(rows):,}")
    return made


class _Filler:
    """Proposes words for places of a text with a masked language model."""

    def __init__(self, name: str, most: int, device: torch.device) -> None:
        self.predictor = Predictor.load(name, device=str(device))
        masked_lm_part(self.predictor.model)  # type: ignore[arg-type]
        self.most = most

    def words(self, texts: Sequence[str], places: Sequence[Places]) -> list[list[list[str]]]:
        """Return up to `most` whole words for each place, likeliest first, other than its own.

        A text that contains mask tokens gets none.
        """
        tokenizer = self.predictor.tokenizer
        mask = mask_name(tokenizer)
        asked = [
            (number, start, end)
            for number, (text, own) in enumerate(zip(texts, places, strict=True))
            if not mask_spans(text, tokenizer)
            for start, end in own
        ]
        filled = self.predictor.fill_texts(
            [texts[n][:start] + mask + texts[n][end:] for n, start, end in asked],
            top=min(self.most + _SPARE, tokenizer.vocab_size),
        )
        found: list[list[list[str]]] = [[[] for _ in own] for own in places]
        at = {(n, *place): i for n, own in enumerate(places) for i, place in enumerate(own)}
        for (number, start, end), answer in zip(asked, filled, strict=True):
            words = [
                piece.text
                for entry in answer["candidates"][0]
                for piece in [piece_of(entry["id"], tokenizer)]
                if not piece.joins
                and piece.text.isalnum()
                and self._read(piece.text) != self._read(texts[number][start:end])
            ]
            found[number][at[number, start, end]] = words[: self.most]
        return found

    def _read(self, word: str) -> str:
        """Return a word as the tokenizer normalises it, such as in lower case."""
        normalizer = self.predictor.tokenizer.backend.normalizer
        return word if normalizer is None else str(normalizer.normalize_str(word))
