"""Checkpoints made ready to be pre-trained further: heads kept or drawn, vocabularies grown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from filbert.errors import ConfigError
from filbert.formats.checkpoint import Checkpoint, with_new_head
from filbert.formats.fresh import PRETRAINING_HEADS

# Where each kind of head keeps its parts.
_PARTS = {
    "masked_lm": {"masked_lm": "head."},
    "pair": {"pair": "head."},
    "pretraining": {"masked_lm": "head.masked_lm.", "pair": "head.pair."},
    "discriminator": {"discriminator": "head."},
}

_WORDS = "encoder.embeddings.word.weight"
_BIASES = ("head.bias", "head.masked_lm.bias")


def for_pretraining(checkpoint: Checkpoint, head: str) -> Checkpoint:
    """The checkpoint with the head of an objective; what it has of that head is kept.

    What has to be drawn comes from torch's default generator, and one note says so; another note
    says what is left out.

    Args:
        checkpoint: stays as it is; the result shares its tensors.
        head: masked_lm, pretraining or discriminator.

    Raises:
        ConfigError: no such objective, or the family has no such head.
    """
    if head not in PRETRAINING_HEADS:
        raise ConfigError(f"head {head!r} is not one of {', '.join(PRETRAINING_HEADS)}.")
    if checkpoint.head == head:
        return checkpoint
    drawn = with_new_head(checkpoint, head)
    old, new = _PARTS.get(checkpoint.head or "", {}), _PARTS[head]
    tensors = dict(drawn.tensors)
    for part in old.keys() & new.keys():
        for name, tensor in checkpoint.tensors.items():
            if name.startswith(old[part]):
                tensors[new[part] + name.removeprefix(old[part])] = tensor
    # The last of the notes is about the head as a whole, which is not all new here.
    notes = list(drawn.notes[:-1])
    has = f"the checkpoint has {'a ' + checkpoint.head if checkpoint.head else 'no'} head"
    notes += [f"new head: {part}, drawn at random: {has}." for part in new if part not in old]
    left = [part for part in old if part not in new]
    if checkpoint.head is not None and not old:
        left = [checkpoint.head]
    notes += [f"head left out: {part}." for part in left]
    return replace(drawn, tensors=tensors, notes=tuple(notes))


def grow_vocabulary(
    checkpoint: Checkpoint, vocab_size: int, rows_from: Mapping[int, Sequence[int]]
) -> Checkpoint:
    """The checkpoint with rows for new vocabulary entries, in the word table and masked-LM bias.

    The row of a new entry is the mean of the rows of the pieces that its text was cut into before;
    with no such pieces, of all rows. Source: Gee et al. 2022 ("Fast Vocabulary Transfer"),
    section 3, for the pieces; Hewitt 2021 ("Initializing New Word Embeddings for Pretrained
    Language Models") for all rows. That the bias is treated alike is our own choice.

    Args:
        checkpoint: stays as it is; the result shares the other tensors.
        vocab_size: entries of the new vocabulary. A table that is longer already keeps its length.
        rows_from: id of a new entry, which may have belonged to an unused one, to ids of the old
            vocabulary.

    Raises:
        ValueError: an id outside the tables; a mistake of the caller's.
    """
    old_size = checkpoint.config.vocab_size
    size = max(vocab_size, old_size)
    sources = dict.fromkeys(range(old_size, size), ()) | {
        row: tuple(pieces) for row, pieces in rows_from.items()
    }
    if any(not 0 <= row < size for row in sources):
        raise ValueError(f"rows {sorted(sources)[:1]}..{sorted(sources)[-1:]} of {size}")
    if any(not 0 <= piece < old_size for pieces in sources.values() for piece in pieces):
        raise ValueError(f"a piece is not one of the {old_size} old entries")
    if not sources:
        return checkpoint
    tensors = dict(checkpoint.tensors)
    for name in (_WORDS, *_BIASES):
        if name in tensors:
            tensors[name] = _grown(tensors[name], size, sources)
    config = replace(checkpoint.config, vocab_size=size)
    return replace(checkpoint, config=config, tensors=tensors, filbert=None)


def _grown(old: Tensor, size: int, sources: Mapping[int, tuple[int, ...]]) -> Tensor:
    values = old.detach().float()
    new = torch.empty((size, *old.shape[1:]), dtype=old.dtype)
    new[: len(old)] = old
    mean = values.mean(0)
    for row, pieces in sources.items():
        new[row] = (values[list(pieces)].mean(0) if pieces else mean).to(old.dtype)
    return new
