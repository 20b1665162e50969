"""Distillation on raw text: the student learns from a teacher in a pre-training run.

Everything is read and checked before the run folder is made. Only the token shards of a text
corpus are written earlier.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from filbert.batch import pack
from filbert.checkpoints.checkpoint import Checkpoint, with_layers, with_new_head
from filbert.checkpoints.fresh import check_scores_words, for_pretraining, student_checkpoint
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.examples import Example
from filbert.data.instances import PretrainLoader, fixed_examples
from filbert.data.loader import by_length
from filbert.data.shards import Corpus
from filbert.errors import ConfigError, InputError
from filbert.inference.forward import default_max_tokens
from filbert.inference.masked_text import measure
from filbert.losses.student import (
    SoftWords,
    Student,
    StudentOutput,
    Teacher,
    check_layer_losses,
    freeze_unreached,
)
from filbert.model.config import EncoderConfig
from filbert.model.precision import Precision
from filbert.tasks.distillation import (
    LayerDistillation,
    cosine_losses,
    even_map,
    minilm_losses,
    spread,
    tinybert_losses,
)
from filbert.tasks.pretraining import Pretraining
from filbert.text.tokenizer import Tokenizer
from filbert.train.course import Phase
from filbert.train.distill_options import DistillOptions
from filbert.train.distributed import Parallel, Trainable, start
from filbert.train.folder import check_out, settle_precision
from filbert.train.log import say
from filbert.train.options import names_of
from filbert.train.prepare import fingerprint
from filbert.train.pretrain import Job, Sources, carry_out, check_paths, course_of, open_corpus
from filbert.train.state import digest_of
from filbert.train.step import model_forward
from filbert.train.trainable import freeze, layers_to_keep
from filbert.train.trainer import max_tokens_of

# The only method that also learns word scores; the others compare layers.
_WORDS = "distilbert"


def distill_pretraining(options: DistillOptions) -> dict[str, Any]:
    """Learn from a teacher on raw text, evaluate on held-out text and save the student.

    Returns:
        The content of run.json, with the metrics of the teacher under "teacher". Under torchrun on
        the first process; {} on the others.

    Raises:
        InputError, ConfigError, FormatError: Before training begins.
        RunError: Training cannot continue.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    started = datetime.now(timezone.utc), time.perf_counter()
    with start(options.distributed, options.device) as parallel:
        if parallel.is_first:
            check_out(Path(options.out), overwrite=options.overwrite, resume=options.resume)
        return carry_out(_prepare(options, parallel), parallel, started)


def _prepare(options: DistillOptions, parallel: Parallel) -> Job:
    """Read and check everything.

    Raises:
        InputError, ConfigError, FormatError: An input or an option is wrong.
    """
    held_out = names_of(options.dev or "")
    check_paths(*(options.corpus or ()), *held_out)
    precision = settle_precision(options, parallel)
    torch.manual_seed(options.seed)
    place = find_model(options.teacher)
    tokenizer = read_tokenizer(place)
    whole = read_checkpoint(place)
    checkpoint = _student(options, whole, tokenizer)
    task = _task(options, checkpoint, whole)
    check_layer_losses(task.layer_losses, checkpoint.config, whole.config)
    config = checkpoint.config
    for note in tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, place):
        say(note)
    _check_length(options.objective.max_length, teacher=whole.config, student=config)
    student = _pair(options, task, checkpoint, whole, precision, parallel.device)
    corpus = open_corpus("train", options.corpus or (), tokenizer, options.out, parallel)
    held = open_corpus("dev", held_out, tokenizer, options.out, parallel) if held_out else None
    sources = Sources(tokenizer, corpus, held, checkpoint)
    loader = PretrainLoader(
        corpus,
        tokenizer,
        options.objective,
        batch_size=options.batch_size,
        max_tokens=max_tokens_of(options, parallel.device),
        seed=options.seed,
    )
    dev = [] if held is None else _held_out(held, tokenizer, options)
    teacher = student.teacher.model
    digests = sources.digests | {"teacher": digest_of(teacher.state_dict())}
    most = default_max_tokens(parallel.device)
    learns_words = checkpoint.head is not None

    def figures(model: Trainable, precision: Precision) -> dict[str, float]:
        assert isinstance(model, Student)
        found = mean_losses(model, task, dev, max_tokens=most, precision=precision)
        if learns_words:
            found |= measure(model.model, Pretraining(), dev, max_tokens=most, precision=precision)
        return found

    def facts() -> dict[str, Any]:
        found: dict[str, Any] = {
            "family": whole.family,
            "parameters": sum(p.numel() for p in teacher.parameters()),
            "layers": [list(loss.layers) for loss in task.layer_losses],
        }
        if dev and learns_words:
            plain = Precision("float32", "final figures")
            exact = for_pretraining(whole, "masked_lm").build().to(parallel.device)
            metrics = measure(exact, Pretraining(), dev, max_tokens=most, precision=plain)
            found["metrics"] = {"dev": metrics}
        return {"teacher": found, "method": options.method}

    phases = [Phase(loader)]
    return Job(
        options,
        sources,
        task,
        student,
        phases,
        course_of(phases, options),
        dev,
        precision,
        fingerprint(options, student, digests),
        figures,
        command="distill",
        source=options.teacher,
        facts=facts,
    )


def _check_length(max_length: int, **configs: EncoderConfig) -> None:
    """Check that both models can read sequences of this length.

    Raises:
        ConfigError: A position table is shorter.
    """
    for name, config in configs.items():
        if max_length > config.max_tokens_per_sequence:
            raise ConfigError(
                f"Sequences of {max_length} tokens; the {name}'s position table ends at "
                f"{config.max_tokens_per_sequence}. Lower max_length."
            )


def _held_out(corpus: Corpus, tokenizer: Tokenizer, options: DistillOptions) -> list[Example]:
    """Return held-out sequences with masks that are the same in every evaluation.

    Raises:
        InputError: No token of the text can be masked.
    """
    even = dataclasses.replace(options.objective, mask_rarity=0.0)
    dev = fixed_examples(corpus, tokenizer, even, limit=options.dev_rows)
    if not any(len(example.target.labels) for example in dev):
        raise InputError(
            f"{options.dev}: nothing in the held-out rows can be masked. Give more text, or a "
            f"higher --mask-rate."
        )
    return dev


def _student(options: DistillOptions, teacher: Checkpoint, tokenizer: Tokenizer) -> Checkpoint:
    """Create the student before its first step."""
    head = "masked_lm" if options.method == _WORDS else None
    if options.student is not None:
        checkpoint = _named(options, teacher, tokenizer, head)
    else:
        checkpoint = student_checkpoint(
            teacher,
            layers=_kept(options, teacher.config.num_hidden_layers),
            head=head,
            token_types=options.method != _WORDS,
            hidden_size=options.hidden_size,
            num_attention_heads=options.heads,
            intermediate_size=options.intermediate_size,
        )
    if options.dropout is not None:
        changed = checkpoint.config.with_dropout(options.dropout)
        checkpoint = dataclasses.replace(checkpoint, config=changed)
    return checkpoint


def _named(
    options: DistillOptions, teacher: Checkpoint, tokenizer: Tokenizer, head: str | None
) -> Checkpoint:
    """Read the student that the user named."""
    assert options.student is not None
    sizes = ("layers", "hidden_size", "heads", "intermediate_size")
    given = [name for name in sizes if getattr(options, name) is not None]
    if given:
        raise ConfigError(
            f"{', '.join(given)} describe a new student, but {options.student} is named. Leave out "
            "one or the other."
        )
    place = find_model(options.student)
    checkpoint = read_checkpoint(place)
    if read_tokenizer(place).fingerprint != tokenizer.fingerprint:
        raise ConfigError(
            f"{options.student} has another vocabulary than {options.teacher}; from raw text both "
            "read the same tokens. Take another student, or method soft on rows."
        )
    if head is not None:
        check_scores_words(teacher)
        ours, theirs = checkpoint.config.vocab_size, teacher.config.vocab_size
        if ours != theirs:
            raise ConfigError(
                f"{options.student} scores {ours:,} words and {options.teacher} {theirs:,}; method "
                f"{options.method} compares score by score. Take another student, or method "
                "tinybert or minilm."
            )
    if options.keep_layers is not None:
        there = checkpoint.config.num_hidden_layers
        checkpoint = with_layers(checkpoint, layers_to_keep(options.keep_layers, there))
    return with_new_head(checkpoint, None) if head is None else for_pretraining(checkpoint, head)


def _kept(options: DistillOptions, there: int) -> tuple[int, ...]:
    """Return the teacher layers that the student layers are copied from, from 0."""
    asked = options.layers
    if options.keep_layers is not None:
        kept = layers_to_keep(options.keep_layers, there)
        if asked not in (None, len(kept)):
            raise ConfigError(
                f"keep_layers names {len(kept)} layers and layers is {asked}; give one of them."
            )
        return kept
    if (asked or 1) > there:
        raise ConfigError(f"layers is {asked}; the teacher has {there}.")
    if options.method == _WORDS:
        return spread(asked or max(1, there // 2), there)
    # Each layer starts as the layer that it learns from.
    return tuple(number - 1 for number in even_map(asked or there, there))


def _task(
    options: DistillOptions, checkpoint: Checkpoint, teacher: Checkpoint
) -> LayerDistillation:
    """Create the objective."""
    configs = checkpoint.config, teacher.config
    if options.method == "tinybert":
        return LayerDistillation(tinybert_losses(*configs, options.mapped_layers))
    if options.method == "minilm":
        return LayerDistillation(
            minilm_losses(*configs, options.teacher_layer, options.relation_heads)
        )
    if not options.soft_weight and not options.mlm_weight and not options.cosine_weight:
        raise ConfigError(
            "soft_weight, mlm_weight and cosine_weight are all 0, so there is nothing to learn."
        )
    return LayerDistillation(
        cosine_losses(*configs, options.cosine_weight),
        soft_weight=options.soft_weight,
        soft_at_masked=options.soft_on == "masked",
        masked_weight=options.mlm_weight,
    )


def _pair(
    options: DistillOptions,
    task: LayerDistillation,
    checkpoint: Checkpoint,
    whole: Checkpoint,
    precision: Precision,
    device: torch.device,
) -> Student:
    """Build student and teacher on the device and freeze what no loss reaches."""
    head = checkpoint.head
    whole = with_new_head(whole, None) if head is None else for_pretraining(whole, head)
    words = None
    if task.soft_weight:
        words = SoftWords(options.soft_temperature, masked_only=task.soft_at_masked)
    student = Student(
        checkpoint.build(),
        Teacher(whole.build(dtype=precision.dtype), device),
        task.layer_losses,
        words=words,
    ).to(device)
    mine = student.encoder.embeddings.position
    theirs = whole.tensors.get("encoder.embeddings.position.weight")
    if options.method == _WORDS and options.student is None and isinstance(mine, nn.Embedding):
        # Position embeddings that were copied from the teacher stay fixed.
        mine.requires_grad_(theirs is None or mine.weight.shape != theirs.shape)
    freeze(student, options.freeze)
    learns_words = bool(task.soft_weight or task.masked_weight)
    unreached = freeze_unreached(student, pack([[0, 0]]), answers=learns_words)
    if unreached:
        say(f"student: {unreached:,} parameters are reached by no loss and stay as they begin")
    return student


def mean_losses(
    model: Student,
    task: LayerDistillation,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    precision: Precision,
) -> dict[str, float]:
    """Compute the losses of a student on held-out sequences, without dropout.

    Returns:
        `loss`, the weighted sum that is trained, and the unweighted mean of each loss by name.
    """
    device = next(model.parameters()).device
    forward = model_forward(model, device)
    was_training = model.training
    model.eval()
    sums, counts = [0.0] * len(task.weights), [0.0] * len(task.weights)
    for indices in by_length([len(e.input_ids) for e in examples], max_tokens):
        batch = [examples[i] for i in indices]
        targets = task.targets(batch).to(device)
        with torch.no_grad(), precision.autocast(device):
            losses = task.loss(cast("StudentOutput", forward(batch, targets)), targets).tolist()
        sums = [a + b for a, b in zip(sums, losses, strict=True)]
        counts = [a + b for a, b in zip(counts, task.count(targets), strict=True)]
    model.train(was_training)
    means = [value / (count or 1.0) for value, count in zip(sums, counts, strict=True)]
    kinds = zip(task.loss_names, means, task.weights, strict=True)
    return {"loss": sum(means)} | {name: mean / weight for name, mean, weight in kinds}
