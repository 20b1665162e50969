"""Checkpoint: the weights and configuration of a model in memory, in filbert's own names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from filbert.checkpoints.config_json import LABELLED, check_head
from filbert.checkpoints.families import FAMILIES, Family
from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import HEADS, Model, new_head

_POOLER = "encoder.pooler."
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
# The dense layer and LayerNorm with which every head of some families begins.
_TRANSFORM = ("head.transform.", "head.norm.")


def meta_model(config: EncoderConfig, kind: str | None, num_labels: int | None = None) -> Model:
    """Build a model on the meta device: names and shapes without values.

    Only the kinds "sequence" and "tokens" have `num_labels` outputs.
    """
    with torch.device("meta"):
        encoder = Encoder(config)
        if kind is None:
            return Model(encoder)
        arguments = (config, num_labels) if kind in LABELLED else (config,)
        return Model(encoder, HEADS[kind](*arguments))


@dataclass
class Checkpoint:
    """The weights and configuration of a model.

    Attributes:
        config: Configuration of the encoder.
        family: `model_type` of config.json, a key of FAMILIES.
        tensors: Tensors by the names of Model.state_dict(), "encoder...." and "head....".
        head: A key of HEADS, or None for an encoder without a head.
        labels: Names by id, for the heads "sequence" and "tokens".
        problem_type: "regression", "single_label_classification",
            "multi_label_classification" or None.
        source: The folder it was read from, which also holds the tokenizer's files.
        notes: Sentences about decisions that were made while it was read or built.
        filbert: Content of filbert.json, if there is one.
        extra: Entries of config.json about the tokenizer, which are written back unchanged.
    """

    config: EncoderConfig
    family: str
    tensors: dict[str, Tensor]
    head: str | None = None
    labels: tuple[str, ...] | None = None
    problem_type: str | None = None
    source: Path | None = None
    notes: tuple[str, ...] = ()
    filbert: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def num_labels(self) -> int | None:
        """Number of outputs of the heads "sequence" and "tokens"; None for other heads."""
        return int(self.tensors["head.out.weight"].shape[0]) if self.head in LABELLED else None

    def check(self) -> Model:
        """Return the model over the checkpoint's own tensors.

        Raises:
            RuntimeError: A missing, unexpected or mis-shaped tensor, which is a programming error.
        """
        model = meta_model(self.config, self.head, self.num_labels)
        model.load_state_dict(self.tensors, strict=True, assign=True)
        return model

    def build(self, *, dtype: torch.dtype = torch.float32, copy: bool = True) -> Model:
        """Build the model in eval mode, with its own copy of the tensors in `dtype`.

        Without `copy` it shares the tensors that are in `dtype` already, so nothing may change it.
        """
        copies = {
            name: tensor.detach().to("cpu", dtype, copy=copy)
            for name, tensor in self.tensors.items()
        }
        return replace(self, tensors=copies).check().eval()


def with_new_head(
    checkpoint: Checkpoint,
    kind: str | None,
    num_labels: int | None = None,
    *,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
) -> Checkpoint:
    """Replace the head by a randomly initialised one, or by none.

    The family's table decides about the pooler: it is kept if old and new head have the same one,
    initialised if only the new head requires one, and removed if the new head reads none. The
    dense layer and LayerNorm that begin all heads of a ModernBERT are kept. New weights are drawn
    from torch's default generator.

    Args:
        checkpoint: Not changed; the result shares its encoder's tensors.
        kind: A key of HEADS, or None for no head.
        num_labels: For the kinds "sequence" and "tokens"; by default the number of `labels`.

    Raises:
        ConfigError: The family has no such head, or one with another activation.
    """
    family = FAMILIES[checkpoint.family]
    count = num_labels if labels is None else len(labels)
    check_head(family, kind)
    activation, own = family.heads[kind].activation, checkpoint.config.feed_forward.activation
    if activation not in (None, own):
        raise ConfigError(
            f"A {family.class_name(kind)} has {activation} in its head. Over an encoder with "
            f"{own}, transformers would compute other outputs."
        )
    assert (kind in LABELLED) == bool(count), f"{count} labels for the head {kind}"
    config, tensors, notes = _with_pooler_for(checkpoint, family, kind)
    if kind is not None:
        head = new_head(kind, config, count)
        tensors |= {f"head.{name}": value for name, value in head.state_dict().items()}
        old = {n: t for n, t in checkpoint.tensors.items() if n.startswith(_TRANSFORM)}
        if config.head_transform.everywhere and old:
            tensors |= {name: tensor for name, tensor in old.items() if name in tensors}
            notes.append("kept: the dense layer and LayerNorm of the old head.")
        size = f" with {count} output{'s' * (count > 1)}" if count else ""
        notes.append(f"new head: {kind}{size}.")
    elif checkpoint.head is not None:
        notes.append(f"head left out: {checkpoint.head}.")
    return replace(
        checkpoint,
        config=config,
        tensors=tensors,
        head=kind,
        labels=None if labels is None else tuple(labels),
        problem_type=problem_type,
        notes=checkpoint.notes + tuple(notes),
        filbert=None,
    )


def _with_pooler_for(
    checkpoint: Checkpoint, family: Family, kind: str | None
) -> tuple[EncoderConfig, dict[str, Tensor], list[str]]:
    """Return configuration, tensors and notes of the encoder with the pooler of a head's kind."""
    old = checkpoint.config
    notes: list[str] = []
    slot = family.pooler_of(kind)
    old_slot = family.pooler_of(checkpoint.head) if old.pooling.activation else None
    old_name = old_slot.name if old_slot else None
    # Training would not reach an optional pooler that the head does not read, and in a causal
    # encoder other tools would apply it to the first token.
    if slot is None or slot.name != old_name or kind is not None or old.attention.causal:
        slot = family.required_pooler(kind)
    config = old.changed(
        pooler=slot.activation if slot else None,
        pooler_dropout=slot is not None and slot.dropout_before,
        head_dropout=old.dropout.head if family.dropout_key(kind).name else old.dropout.hidden,
    )
    tensors = {n: tensor for n, tensor in checkpoint.tensors.items() if n.startswith("encoder.")}
    if slot is not None and slot.name == old_name:
        return config, tensors, notes
    tensors = {n: tensor for n, tensor in tensors.items() if not n.startswith(_POOLER)}
    if old.pooling.activation is not None:
        why = f"a {family.class_name(kind)} has no place for the old one"
        if kind is None and old.attention.causal:
            why = "it reads the first token, which attends to no other in a causal encoder"
        notes.append(f"pooler left out: {why}.")
    if slot is not None:
        pooler = nn.Linear(config.hidden_size, config.hidden_size)
        initialize(pooler, config.initializer_range)
        tensors |= {f"{_POOLER}{name}": value for name, value in pooler.state_dict().items()}
        notes.append(f"new pooler: {slot.name} ({slot.activation}), drawn at random.")
    return config, tensors, notes


def as_causal(checkpoint: Checkpoint) -> Checkpoint:
    """Return the same weights with causal attention, or raise a ConfigError for local attention."""
    if checkpoint.config.attention.causal:
        return checkpoint
    config = checkpoint.config.changed(causal=True)
    note = "causal: tokens attend to earlier positions only; the last represents the sequence."
    return replace(checkpoint, config=config, notes=(*checkpoint.notes, note), filbert=None)


def with_layers(checkpoint: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """Return a model with some of the layers only, by ascending indices; it shares the tensors.

    Raises:
        ConfigError: There is no such layer, the layers share their weights, or a layer's attention
            would change with its position.
    """
    config = checkpoint.config
    count = config.num_hidden_layers
    if config.num_groups < count:
        raise ConfigError(
            f"keep_layers: the {count} layers of this model share their weights, so none can be "
            "removed. Choose another model."
        )
    asked = list(layers)
    if not asked or asked != sorted(set(asked) & set(range(count))):
        raise ConfigError(
            f"keep_layers is {asked}; this model has layers 0 to {count - 1}, and they must be "
            "given in ascending order."
        )
    if len(layers) == count:
        return checkpoint
    moved = [old for new, old in enumerate(layers) if config.is_local(old) != config.is_local(new)]
    # The first layer of some pre-norm encoders has no norm before its attention.
    if moved or (config.pre_norm and config.embeddings.normed and asked[0] != 0):
        raise ConfigError(
            f"keep_layers is {asked}; in this model the position of a layer decides between local "
            "and global attention. Give a number to keep the first layers."
        )
    places = {old: new for new, old in enumerate(layers)}
    tensors = {}
    for name, tensor in checkpoint.tensors.items():
        match = _LAYER.match(name)
        if match is None:
            tensors[name] = tensor
        elif int(match[1]) in places:
            new = places[int(match[1])]
            tensors[f"encoder.layers.{new}.{name[match.end() :]}"] = tensor
    groups = None if config.layer_groups is None else len(layers)
    heads = config.attention.heads_per_layer and tuple(config.heads_of(layer) for layer in layers)
    config = config.changed(
        num_hidden_layers=len(layers), num_hidden_groups=groups, heads_per_layer=heads
    )
    note = f"layers kept: {', '.join(map(str, layers))} of 0 to {count - 1}."
    notes = (*checkpoint.notes, note)
    return replace(checkpoint, config=config, tensors=tensors, notes=notes, filbert=None)
