"""The model that training starts from: its layers, its head, and which parts are trained."""

from __future__ import annotations

import dataclasses
import re

import torch
from torch import nn

from filbert.checkpoints import adapters
from filbert.checkpoints.checkpoint import Checkpoint, as_causal, with_layers, with_new_head
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.errors import ConfigError, InputError
from filbert.model.encoder import DENSE, initialize
from filbert.model.heads import Model
from filbert.model.low_rank import LowRankLinear
from filbert.tasks.base import Task, TaskSpec, set_vector_head
from filbert.text.tokenizer import Tokenizer
from filbert.train.distributed import Trainable
from filbert.train.log import say
from filbert.train.options import BaseModelOptions

# Where it is not the model's limit. Source: run_squad.py of google-research/bert.
_USUAL_MAX_LENGTH = {"span_qa": 384}
WORD_TABLE = "encoder.embeddings.word.weight"
# How the note of a checkpoint begins whose head is not drawn at random.
_HEAD_KEPT = "head kept"


def load_for_task(
    base: BaseModelOptions,
    task: Task,
    *,
    max_length: int | None = None,
    dropout: float | None = None,
) -> tuple[Checkpoint, Tokenizer, int]:
    """Return the model to start from with the task's head, its tokenizer, and the maximum length.

    Texts are cut at `max_length` tokens, or at the limit of the model.
    """
    place = find_model(base.name)
    tokenizer, checkpoint = read_tokenizer(place), read_checkpoint(place)
    if base.keep_layers is not None:
        layers = layers_to_keep(base.keep_layers, checkpoint.config.num_hidden_layers)
        checkpoint = with_layers(checkpoint, layers)
    checkpoint = with_dropout(as_causal(checkpoint) if base.causal else checkpoint, dropout)
    checkpoint = with_embeddings(checkpoint, tokenizer, base.embeddings)
    config = checkpoint.config
    for note in tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, place):
        say(note)
    positions = config.max_tokens_per_sequence
    usual = _USUAL_MAX_LENGTH.get(task.spec.name, positions)
    config.check_max_length(max_length)
    length = max_length or min(tokenizer.max_length or positions, positions, usual)
    return with_task_head(checkpoint, task, new_head=base.new_head), tokenizer, length


def with_embeddings(checkpoint: Checkpoint, tokenizer: Tokenizer, path: str | None) -> Checkpoint:
    """Return the checkpoint with the vectors of a file in its word table; None for its own.

    Entries without a vector keep their rows.

    Raises:
        InputError: The file cannot be read, or has a vector for no entry.
        ConfigError: Its vectors have another dimension than the table.
    """
    if path is None:
        return checkpoint
    from filbert.data.word_vectors import read_vectors

    vectors = read_vectors(path, tokenizer.backend.get_vocab(with_added_tokens=True))
    table = checkpoint.tensors[WORD_TABLE].clone()
    if not vectors.words:
        raise InputError(f"{path}: no word in it is an entry of the vocabulary.")
    width = vectors.table.shape[1]
    if width != table.shape[1]:
        raise ConfigError(
            f"{path}: vectors of {width} numbers, but the word table has {table.shape[1]} columns. "
            "Give a model of that width, or other vectors."
        )
    rows = [tokenizer.id_of(word) for word in vectors.words]
    table[rows] = torch.from_numpy(vectors.table.copy()).to(table.dtype)
    note = f"{len(rows):,} of {tokenizer.vocab_size:,} word vectors begin as in {path}."
    tensors = {**checkpoint.tensors, WORD_TABLE: table}
    return dataclasses.replace(checkpoint, tensors=tensors, notes=(*checkpoint.notes, note))


def with_dropout(checkpoint: Checkpoint, rate: float | None) -> Checkpoint:
    """Return the checkpoint with another dropout rate; None for its own."""
    if rate is None:
        return checkpoint
    return dataclasses.replace(checkpoint, config=checkpoint.config.with_dropout(rate))


def with_task_head(checkpoint: Checkpoint, task: Task, *, new_head: bool = False) -> Checkpoint:
    """Return the checkpoint with a head for a task with fitted labels.

    The head is kept if it was trained for the same task and the same labels. Labels in another
    order move its rows. Any other checkpoint, and with `new_head` every one, gets a new head, drawn
    at random.
    """
    spec = task.spec
    if new_head or not _is_for(spec, checkpoint):
        return with_new_head(
            checkpoint,
            spec.head_kind,
            num_labels=spec.num_labels,
            labels=spec.labels if spec.head_kind is not None else None,
            problem_type=spec.problem_type,
        )
    tensors, labels = checkpoint.tensors, checkpoint.labels
    if spec.labels is not None and labels is not None:
        rows = [labels.index(label) for label in spec.labels]
        tensors = {
            name: tensor[rows] if name.startswith("head.out.") else tensor
            for name, tensor in tensors.items()
        }
        labels = spec.labels
    size = f" with {spec.num_labels} outputs" if spec.num_labels else ""
    note = f"{_HEAD_KEPT}: {spec.head_kind}{size}, trained for the same task."
    return dataclasses.replace(
        checkpoint,
        tensors=tensors,
        labels=labels,
        problem_type=spec.problem_type,
        notes=(*checkpoint.notes, note),
        filbert=None,
    )


def has_new_head(checkpoint: Checkpoint, task: Task) -> bool:
    """Return whether `with_task_head` has drawn a head at random."""
    is_kept = any(note.startswith(_HEAD_KEPT) for note in checkpoint.notes)
    return task.spec.head_kind is not None and not is_kept


def _is_for(spec: TaskSpec, checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint has a head for this task and exactly its labels, in any order."""
    if spec.head_kind is None or checkpoint.head != spec.head_kind:
        return False
    # Without a problem_type in config.json, one output means regression, as in transformers.
    usual = "regression" if checkpoint.num_labels == 1 else "single_label_classification"
    if spec.problem_type not in (None, checkpoint.problem_type or usual):
        return False
    if spec.labels is None:
        return spec.num_labels == checkpoint.num_labels
    return sorted(spec.labels) == sorted(checkpoint.labels or ())


def build(checkpoint: Checkpoint, task: Task, reinit_layers: int = 0) -> Model:
    """Build the model to train, on the CPU."""
    model = checkpoint.build()
    set_vector_head(model, task)
    reinitialize_top(model, reinit_layers)
    return model


def freeze(model: Trainable, asked: str | None) -> None:
    """Freeze the parts that the user names, and a pooler that no head reads.

    Args:
        asked: Parts between commas: "embeddings", layers from 0 such as "3" or "0-7", "encoder" for
            the embeddings and all layers. The pooler and the head always learn.

    Raises:
        ConfigError: There is no such part, or nothing is left to learn.
    """
    encoder = model.encoder
    reads_pooled = model.head is not None and model.head.reads_pooled
    if encoder.pooler is not None and not reads_pooled:
        encoder.pooler.requires_grad_(False)
    frozen = _parts(asked, len(encoder.layers)) if asked else set()
    for part in frozen:
        (encoder.embeddings if part < 0 else encoder.layers[part]).requires_grad_(False)
    if len(encoder.layers) - 1 in frozen:
        encoder.final_norm.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(f"--freeze {asked} leaves nothing to train.")


def add_low_rank(model: Model, checkpoint: Checkpoint, rank: int) -> Checkpoint:
    """Freeze the encoder without its pooler, and add low-rank adapters to its dense layers.

    A and B are drawn from torch's default generator. The checkpoint that is returned has the
    model's own tensors, which saves the memory of a second encoder.

    Raises:
        ConfigError: The model cannot be the base of an adapter.
    """
    adapters.check_base(checkpoint)
    checkpoint = dataclasses.replace(checkpoint, tensors=dict(model.state_dict()))
    for name, parameter in model.encoder.named_parameters():
        if not name.startswith("pooler."):
            parameter.requires_grad_(False)
    for layer in model.encoder.layers:
        for name in DENSE:
            dense = getattr(layer, name)
            rows = adapters.rows_of_parts(checkpoint, name, dense.out_features)
            setattr(layer, name, LowRankLinear(dense, rank, rows))
    return checkpoint


def layers_to_keep(asked: str, num_layers: int) -> tuple[int, ...]:
    """Return the numbers of the layers that `keep_layers` names, from 0.

    `asked` is how many of the first, such as "3"; or numbers and spans between commas, such as
    "0,2,5" or "0-2,5".
    """
    count = re.fullmatch(r"\s*(\d{1,9})\s*", asked)
    parts = [f"0-{int(count[1]) - 1}"] if count else asked.split(",")
    spans = [_layers_in(part, num_layers) for part in parts]
    layers = [layer for span in spans for layer in span]
    if not all(spans) or layers != sorted(set(layers)):
        raise ConfigError(
            f"--keep-layers {asked!r}: give how many of the first layers to keep, 1 to "
            f"{num_layers}, or rising numbers within 0-{num_layers - 1}, such as 0,2-3."
        )
    return tuple(layers)


def _layers_in(span: str, num_layers: int) -> range:
    """Return the layers of a span such as "3" or "0-7"; empty if it is not one of this model."""
    match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", span)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    return range(first, last + 1) if last < num_layers else range(0)


def _parts(asked: str, num_layers: int) -> set[int]:
    """Return the numbers of the layers that `freeze` names, -1 for the embeddings."""
    parts: set[int] = set()
    for name in (part.strip() for part in asked.split(",")):
        known = {"encoder": range(-1, num_layers), "embeddings": range(-1, 0)}
        layers = known.get(name, _layers_in(name, num_layers))
        if not layers:
            raise ConfigError(
                f"--freeze {name!r}: give embeddings, encoder, or layers within 0-{num_layers - 1}."
            )
        parts |= set(layers)
    return parts


def reinitialize_top(model: Trainable, num_layers: int) -> None:
    """Draw new weights for the pooler and the top layers, from torch's default generator.

    The top layers of a pre-trained encoder are specialised for its own objective and start worse
    than random ones on small data sets. Source: Zhang et al. 2021, section 5.
    """
    encoder = model.encoder
    if num_layers == 0:
        return
    shared = len(encoder.layers) < encoder.config.num_hidden_layers
    if shared or num_layers > len(encoder.layers):
        why = (
            "layers share their weights" if shared else f"encoder has {len(encoder.layers)} layers"
        )
        raise ConfigError(f"--reinit-layers {num_layers}: this model's {why}.")
    parts: list[nn.Module] = [*encoder.layers[-num_layers:], encoder.final_norm]
    parts += [] if encoder.pooler is None else [encoder.pooler]
    for part in parts:
        initialize(part, encoder.config.initializer_range)


def is_encoder_frozen(model: Model) -> bool:
    """Return whether embeddings and all layers are frozen, so that their outputs never change."""
    parts = (model.encoder.embeddings, *model.encoder.layers)
    return not any(p.requires_grad for part in parts for p in part.parameters())
