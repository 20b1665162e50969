"""The shape of a family's table: how Hugging Face names filbert's tensors, config fields and heads.

Names are of modules; a tensor adds its last part ("weight", "bias").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REQUIRED: Any = ...

# A causal encoder that no class of Hugging Face's computes goes by names of ours, before theirs, so
# that other tools refuse it: they would pool the first token, or not attend causally at all.
CAUSAL_TYPE, CAUSAL_CLASS = "filbert_causal_", "FilbertCausal"

# A layer's own modules, as every table below orders them.
LAYER_MODULES = ("attention_out", "attention_norm", "up", "down", "norm")

_LAYER_NAME = re.compile(r"encoder\.layers\.(\d+)\.(\w+)")


@dataclass(frozen=True, kw_only=True)
class PoolerSlot:
    """Where a family keeps the dense layer over the first token for one kind of head.

    Attributes:
        name: Hugging Face's module.
        activation: EncoderConfig.pooler.
        dropout_before: EncoderConfig.pooler_dropout.
        required: whether the head cannot run without it.
    """

    name: str
    activation: str
    dropout_before: bool = False
    required: bool = True


@dataclass(frozen=True, kw_only=True)
class HeadLayout:
    """One of Hugging Face's classes: which tensors its head has and which config keys it reads.

    Attributes:
        suffix: the class name without the family, "ForMaskedLM".
        modules: our module ("head.out") to theirs ("classifier").
        pooler: the pooler that goes with this head, None for none.
        tied: their tensors that repeat another of theirs.
        dropout: (config key, default) of EncoderConfig.head_dropout; a key of None, or a value of
            None, means the hidden dropout.
        activation: the only `hidden_act` with which this head is what transformers runs, None for
            any.
        must: config keys and the values this head can express; an absent key is fine.
    """

    suffix: str
    modules: dict[str, str] = field(default_factory=dict)
    pooler: PoolerSlot | None = None
    tied: dict[str, str] = field(default_factory=dict)
    dropout: tuple[str | None, float | None] = (None, None)
    activation: str | None = None
    must: dict[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family, or one dialect of it under another `model_type`.

    Attributes:
        model_type: as in config.json, and Checkpoint.family.
        class_prefix: of Hugging Face's class names.
        prefix: of the encoder's tensors in a model with a head; a bare encoder may go without.
        embeddings: our modules under "encoder.embeddings." to theirs.
        layer: their name of layer i (of parameter group i), with {} for i.
        qkv: their three modules of our fused one, or theirs where it is fused too.
        layer_modules: theirs, in the order of LAYER_MODULES.
        final_norm: their LayerNorm after the last layer, where there is one.
        keys: EncoderConfig field to (config key, default); REQUIRED for none.
        repeated: further keys that hold such a field's value again.
        flattened: takes a config.json and its path, for messages, and gives one in which `keys`
            are found, for those that are nested in newer versions; None where all are flat.
        constants: EncoderConfig fields for which there is no key.
        heads: head kind to layout; None is the bare encoder.
        written: further keys for config.json.
        must: config keys and the values that the encoder can express; an absent key is fine.
        causal_key: key whose value true makes all of the family's classes attend causally, where
            there is one.
        offset_by_pad: positions start at `pad_token_id` + 1.
        always_projects: has the projection after the tables even when they are as wide as the
            layers.
    """

    model_type: str
    class_prefix: str
    prefix: str
    embeddings: dict[str, str]
    layer: str
    qkv: tuple[str, ...]
    layer_modules: tuple[str, str, str, str, str]
    final_norm: str | None = None
    keys: dict[str, tuple[str, Any]]
    repeated: dict[str, str] = field(default_factory=dict)
    flattened: Callable[[dict[str, Any], Path], dict[str, Any]] | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    heads: dict[str | None, HeadLayout]
    written: dict[str, Any] = field(default_factory=dict)
    must: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    causal_key: str | None = None
    offset_by_pad: bool = False
    always_projects: bool = False

    def theirs(self, ours: str, kind: str | None) -> tuple[str, ...]:
        """Hugging Face's names of the tensor filbert calls `ours`: three if only ours is fused."""
        module, _, leaf = ours.rpartition(".")
        head = self.heads[kind]
        if module == "encoder.pooler":
            assert head.pooler is not None
            return (f"{head.pooler.name}.{leaf}",)
        if module == "encoder.final_norm":
            return (f"{self.final_norm}.{leaf}",)
        if module.startswith("encoder.embeddings."):
            return (f"{self.embeddings[module.removeprefix('encoder.embeddings.')]}.{leaf}",)
        if (match := _LAYER_NAME.fullmatch(module)) is None:
            return (f"{head.modules[module]}.{leaf}",)
        layer, part = self.layer.format(match[1]), match[2]
        modules = self.qkv if part == "qkv" else (self.own_module(part),)
        return tuple(f"{layer}.{name}.{leaf}" for name in modules)

    def own_module(self, part: str) -> str:
        """Their name of one of a layer's modules; the same as ours where ours is the only tool."""
        return dict(zip(LAYER_MODULES, self.layer_modules, strict=True)).get(part, part)

    def says_causal(self, kind: str | None, *, has_pooler: bool) -> bool:
        """Whether `causal_key` is enough for a model, since nothing in it reads the first token."""
        slot = self.heads[kind].pooler
        reads_first = slot is not None and (slot.required or has_pooler)
        return self.causal_key is not None and not reads_first

    def class_name(self, kind: str | None) -> str:
        """Hugging Face's class for this kind of head, as in `architectures`."""
        return self.class_prefix + self.heads[kind].suffix
