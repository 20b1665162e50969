"""Checkpoint: a model at rest, in filbert's own names, whatever file it came from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from filbert.checkpoints.config_json import LABELLED, PROBLEM_TYPES, check_head
from filbert.checkpoints.families import FAMILIES
from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import HEADS, Model, new_head

_POOLER = ("encoder.pooler.weight", "encoder.pooler.bias")
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
_TRANSFORM = (
    "head.transform.weight",
    "head.transform.bias",
    "head.norm.weight",
    "head.norm.bias",
)


def meta_model(config: EncoderConfig, kind: str | None, num_labels: int | None = None) -> Model:
    """The model of a config without its numbers, so any size costs nothing.

    Args:
        config: of the encoder.
        kind: of the head, a key of HEADS; None for none.
        num_labels: outputs of the kinds "sequence" and "tokens".
    """
    with torch.device("meta"):
        encoder = Encoder(config)
        if kind is None:
            return Model(encoder)
        arguments = (config, num_labels) if kind in LABELLED else (config,)
        return Model(encoder, HEADS[kind](*arguments))


@dataclass
class Checkpoint:
    """A model at rest.

    Attributes:
        config: of the encoder.
        family: as config.json's `model_type`, a key of FAMILIES.
        tensors: by the names of Model.state_dict(), "encoder...." and "head....".
        head: a key of HEADS, or None for a bare encoder.
        labels: by id, for the heads "sequence" and "tokens".
        problem_type: "regression", "single_label_classification",
            "multi_label_classification" or None.
        source: the folder it came from; the tokenizer's files lie there.
        notes: sentences on what reading or building it did beyond the plain.
        filbert: content of filbert.json, when there is one.
        extra: config.json's entries that concern the tokenizer; written back as they were.
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
        """Outputs of the heads "sequence" and "tokens"; None for the others."""
        return int(self.tensors["head.out.weight"].shape[0]) if self.head in LABELLED else None

    def check(self) -> Model:
        """The model without its numbers, after making sure that the tensors are exactly its own.

        Raises:
            ValueError: a missing, unexpected or mis-shaped tensor; a mistake of the caller's.
        """
        model = meta_model(self.config, self.head, self.num_labels)
        wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
        found = {name: tensor.shape for name, tensor in self.tensors.items()}
        odd = sorted(
            name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
        )
        if odd:
            raise ValueError(f"missing, unexpected or mis-shaped tensors: {', '.join(odd)}")
        return model

    def build(self, *, dtype: torch.dtype = torch.float32) -> Model:
        """The model in eval mode, with its own copy of the tensors.

        Args:
            dtype: of the weights.

        Raises:
            ValueError: as `check`.
        """
        model = self.check()
        copies = {
            name: tensor.detach().to("cpu", dtype, copy=True)
            for name, tensor in self.tensors.items()
        }
        model.load_state_dict(copies, strict=True, assign=True)
        return model.eval()


def with_new_head(
    checkpoint: Checkpoint,
    kind: str | None,
    num_labels: int | None = None,
    labels: Sequence[str] | None = None,
    problem_type: str | None = None,
) -> Checkpoint:
    """The same encoder under a freshly drawn head, or under none.

    The pooler follows the family's custom for this kind of head: it is kept where the old one has
    the same place, drawn anew where the head needs one and there is none, and dropped where the
    head reads none. So is the transform that all heads of some families begin with. Everything new
    is drawn from torch's default generator.

    Args:
        checkpoint: stays as it is; the result shares its encoder's tensors.
        kind: a key of HEADS, or None for the bare encoder.
        num_labels: for the kinds "sequence" and "tokens"; the number of `labels` when given.
        labels: names by id, for the same kinds.
        problem_type: for the kind "sequence".

    Raises:
        ConfigError: the family has no such head, or the labels do not fit.
    """
    family = FAMILIES[checkpoint.family]
    check_head(family, kind)
    if labels is not None and num_labels not in (None, len(labels)):
        raise ConfigError(f"{len(labels)} labels for {num_labels} outputs.")
    count = num_labels if labels is None else len(labels)
    if (kind in LABELLED) != (count is not None) or count == 0:
        needs = "needs at least one label" if kind in LABELLED else "takes no labels"
        raise ConfigError(f"The head {kind!r} {needs}.")
    if problem_type is not None and problem_type not in PROBLEM_TYPES:
        raise ConfigError(f"problem_type {problem_type!r} is not one of {list(PROBLEM_TYPES)}.")
    layout, old_slot = family.heads[kind], family.heads[checkpoint.head].pooler
    if layout.activation not in (None, checkpoint.config.hidden_act):
        raise ConfigError(
            f"A {family.class_name(kind)} has {layout.activation} in its head; over an encoder "
            f"with {checkpoint.config.hidden_act} no other tool would compute the same."
        )

    tensors = {
        name: value for name, value in checkpoint.tensors.items() if name.startswith("encoder.")
    }
    notes = []
    slot = layout.pooler
    had_pooler = checkpoint.config.pooler is not None
    keeps = had_pooler and slot is not None and old_slot is not None and slot.name == old_slot.name
    # An optional pooler beside a head that does not read it would only be dead weight in training,
    # and beside a causal encoder other tools would put it on the first token.
    reads = not checkpoint.config.causal if kind is None else HEADS[kind].reads_pooled
    has_pooler = slot is not None and reads and (keeps or slot.required)
    config = replace(
        checkpoint.config,
        pooler=slot.activation if slot and has_pooler else None,
        pooler_dropout=bool(slot and has_pooler and slot.dropout_before),
        head_dropout=checkpoint.config.head_dropout
        if layout.dropout[0]
        else checkpoint.config.hidden_dropout,
    )
    if not (has_pooler and keeps):
        for name in _POOLER:
            tensors.pop(name, None)
        if had_pooler:
            why = f"a {family.class_name(kind)} has no place for the old one"
            if kind is None and checkpoint.config.causal:
                why = "it reads the first token, which sees no other in a causal encoder"
            notes.append(f"pooler left out: {why}.")
    if has_pooler and not keeps:
        assert slot is not None
        pooler = nn.Linear(config.hidden_size, config.hidden_size)
        initialize(pooler, config.initializer_range)
        tensors |= {f"encoder.pooler.{name}": value for name, value in pooler.state_dict().items()}
        notes.append(f"new pooler: {slot.name} ({slot.activation}), drawn at random.")
    if kind is not None:
        head = new_head(kind, config, count)
        tensors |= {f"head.{name}": value for name, value in head.state_dict().items()}
        if config.head_transform and any(name in checkpoint.tensors for name in _TRANSFORM):
            # All heads of such a family have it, and what the masked-LM head's learnt serves them.
            tensors |= {name: checkpoint.tensors[name] for name in _TRANSFORM if name in tensors}
            notes.append("kept: the dense layer and LayerNorm that the old head began with.")
        size = f" with {count} outputs" if count else ""
        notes.append(f"new head: {kind}{size}, drawn at random.")
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


def as_causal(checkpoint: Checkpoint) -> Checkpoint:
    """The same weights with attention from left to right: a token sees no later one.

    What stands for a sequence is then its last token, in place of the first.

    Raises:
        ConfigError: some of its layers see only a window, to both sides.
    """
    if checkpoint.config.causal:
        return checkpoint
    try:
        config = replace(checkpoint.config, causal=True)
    except ConfigError as error:
        raise ConfigError(f"This model cannot be made causal: {error}") from error
    note = "causal: every token sees itself and those before it; the last stands for its sequence."
    return replace(checkpoint, config=config, notes=(*checkpoint.notes, note), filbert=None)


def with_layers(checkpoint: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """The same model with some of its layers alone, as a smaller one to start from.

    Args:
        checkpoint: stays as it is; the result shares its tensors.
        layers: numbers from 0, rising.

    Raises:
        ConfigError: there is no such layer, the layers share their weights, or one would see more
            or less of a text in its new place.
    """
    config = checkpoint.config
    count = config.num_hidden_layers
    if config.num_groups < count:
        raise ConfigError(
            f"keep_layers: this model's {count} layers share their weights, so none can be left "
            "out. Take another model."
        )
    asked = list(layers)
    if not asked or asked != sorted(set(asked) & set(range(count))):
        raise ConfigError(
            f"keep_layers asks for layers {asked}; this model has 0 to {count - 1}, and they stay "
            "in their order."
        )
    if len(layers) == count:
        return checkpoint
    moved = [old for new, old in enumerate(layers) if config.is_local(old) != config.is_local(new)]
    # The first layer of a pre-norm encoder has a LayerNorm less than the others.
    if moved or (config.pre_norm and asked[0] != 0):
        raise ConfigError(
            f"keep_layers asks for layers {asked}; in this model a layer's place decides what it "
            "sees. Keep the first ones, by their number."
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
    groups = None if config.num_hidden_groups is None else len(layers)
    heads = config.heads_per_layer and tuple(config.heads_of(layer) for layer in layers)
    kept = ", ".join(map(str, layers))
    return replace(
        checkpoint,
        config=replace(
            config,
            num_hidden_layers=len(layers),
            num_hidden_groups=groups,
            heads_per_layer=heads,
        ),
        tensors=tensors,
        notes=(*checkpoint.notes, f"layers kept: {kept} of 0 to {count - 1}."),
        filbert=None,
    )
