"""Distillation on raw text: a pre-training run in which the student learns from a teacher."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.checkpoints.fresh import for_pretraining, student_checkpoint
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.examples import Example
from filbert.data.instances import PretrainLoader
from filbert.errors import ConfigError
from filbert.inference.forward import forward
from filbert.inference.masked_text import measure
from filbert.losses.student import Student, freeze_unreached
from filbert.model.precision import Precision
from filbert.tasks.distillation import LayerDistillation
from filbert.tasks.pretraining import Pretraining
from filbert.train.base_model import freeze, layers_to_keep, with_dropout
from filbert.train.distill import even_map, layer_losses, spread
from filbert.train.distill_options import DistillOptions
from filbert.train.distributed import Parallel
from filbert.train.log import say
from filbert.train.loop import max_tokens_of
from filbert.train.options import chosen_value, names_of
from filbert.train.pretrain import TextRun, check_paths, held_out, open_corpora, run_on_text
from filbert.train.provenance import fingerprint
from filbert.train.run_folder import settle_precision
from filbert.train.schedule import Phase
from filbert.train.state import digest_of

# The only method that also learns word scores; the others compare layers.
_WORDS = "distilbert"


def distill_text(options: DistillOptions) -> dict[str, Any]:
    """Learn from a teacher on raw text, evaluate on held-out text and save the student.

    Returns and raises as `finetune`; the metrics of the teacher are under "teacher".
    """
    return run_on_text(options.run, partial(_prepare, options))


def _prepare(options: DistillOptions, parallel: Parallel) -> TextRun:
    """Read and check everything."""
    data, objective, device = options.data, options.objective, parallel.device
    method = options.loss.method
    dev_paths = names_of(data.dev or "")
    check_paths(*(data.corpus or ()), *dev_paths)
    precision = settle_precision(options.run, parallel)
    torch.manual_seed(options.run.seed)
    place = find_model(options.model.teacher)
    tokenizer, whole = read_tokenizer(place), read_checkpoint(place)
    checkpoint = _student_start(options, whole)
    config = checkpoint.config
    losses = layer_losses(options.loss, config, whole.config)
    task = LayerDistillation(losses, options.loss.mlm_weight if method == _WORDS else 0.0)
    if not task.weights:
        raise ConfigError(
            "soft_weight, mlm_weight and cosine_weight are all 0, so there is nothing to learn."
        )
    for note in tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, place):
        say(note)
    for one in (whole.config, config):
        one.check_max_length(objective.max_length)
    student = _student(options, task, checkpoint, whole, precision, device)
    corpora = open_corpora(data.corpus, dev_paths, tokenizer, options.run.out, parallel)
    loader = PretrainLoader(
        corpora["train"],
        tokenizer,
        objective,
        batch_size=chosen_value(options.train.batch_size),
        max_tokens=max_tokens_of(options.train, device),
        seed=options.run.seed,
    )
    dev = held_out(corpora, tokenizer, objective, data.dev_rows)
    digests = {name: corpus.digest for name, corpus in corpora.items()}
    digests["teacher"] = digest_of(student.teacher.state_dict())
    return TextRun(
        command="distill",
        options=options,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        corpora=corpora,
        task=task,
        model=student,
        phases=[Phase(loader)],
        precision=precision,
        fingerprint=fingerprint(options, student, digests),
        measure=partial(_measure, student, task, dev) if dev else None,
        more={"teacher": _describe_teacher(student, whole.family, dev), "method": method},
    )


def _measure(
    student: Student, task: LayerDistillation, dev: list[Example], precision: Precision
) -> dict[str, float]:
    """Compute the losses on held-out sequences, and masked-LM metrics if the student scores words.

    Returns:
        `loss`, the weighted sum that is trained, the unweighted mean of each loss, and metrics.
    """

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        targets = task.targets(chosen).to(student.teacher.device)
        losses = task.loss(student(batch, targets.at), targets).double()
        return (torch.stack([losses, losses.new_tensor(task.count(targets))]),)

    # Layers are read by hooks.
    outputs = forward(student, dev, read, precision=precision, one_at_a_time=True)
    sums, counts = torch.stack([both for _, (both,) in outputs]).sum(0).tolist()
    means = [value / (count or 1.0) for value, count in zip(sums, counts, strict=True)]
    kinds = zip(task.spec.loss_names, means, task.weights, strict=True)
    metrics = {"loss": sum(means)} | {name: mean / weight for name, mean, weight in kinds}
    if student.head is not None:
        metrics |= measure(student.model, Pretraining(), dev, precision=precision)
    return metrics


def _describe_teacher(student: Student, family: str, dev: list[Example]) -> dict[str, Any]:
    """Return the entry of run.json about the teacher; its metrics if it scores words."""
    teacher = student.teacher
    entry: dict[str, Any] = {
        "family": family,
        "parameters": sum(p.numel() for p in teacher.parameters()),
        "layers": [list(loss.layers) for loss in student.losses if loss.layers],
    }
    if dev and student.head is not None:
        exact = Precision("float32", "final metrics")
        metrics = measure(teacher, Pretraining(), dev, precision=exact)
        entry["metrics"] = {"dev": metrics}
    return entry


def _student_start(options: DistillOptions, teacher: Checkpoint) -> Checkpoint:
    """Create the student before its first step: layers of the teacher, or drawn ones."""
    chosen, learns_words = options.model, options.loss.method == _WORDS
    count, wanted = teacher.config.num_hidden_layers, options.model.layers
    if chosen.keep_layers is not None:
        layers = layers_to_keep(chosen.keep_layers, count)
        if wanted not in (None, len(layers)):
            raise ConfigError(
                f"keep_layers names {len(layers)} layers and layers is {wanted}; give one of them."
            )
    elif (wanted or 1) > count:
        raise ConfigError(f"layers is {wanted}; the teacher has {count}.")
    elif learns_words:
        layers = spread(wanted or max(1, count // 2), count)
    else:
        # Each layer starts as the layer that it learns from.
        layers = tuple(number - 1 for number in even_map(wanted or count, count))
    checkpoint = student_checkpoint(
        teacher,
        layers=layers,
        head="masked_lm" if learns_words else None,
        token_types=not learns_words,
        hidden_size=chosen.hidden_size,
        num_attention_heads=chosen.heads,
        intermediate_size=chosen.intermediate_size,
    )
    return with_dropout(checkpoint, options.train.dropout)


def _student(
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
    student = Student(
        checkpoint.build(),
        whole.build(dtype=precision.dtype).to(device),
        task.layer_losses,
    ).to(device)
    mine = student.encoder.embeddings.position
    theirs = whole.tensors.get("encoder.embeddings.position.weight")
    if options.loss.method == _WORDS and isinstance(mine, nn.Embedding):
        # Position embeddings that were copied from the teacher stay fixed.
        mine.requires_grad_(theirs is None or mine.weight.shape != theirs.shape)
    freeze(student, options.train.freeze)
    unreached = freeze_unreached(student, answers=task.reads_words)
    if unreached:
        say(f"student: {unreached:,} parameters are not trained, because no loss depends on them")
    return student
