"""What Google's TensorFlow code calls each of filbert's tensors.

A dense layer's `kernel` has its input first, so it is filbert's `weight` transposed; the
`output_weights` of the hand-written heads have their output first, as here. Sources:
google-research/bert (modeling.py, run_pretraining.py, run_classifier.py, run_squad.py),
google-research/albert (modeling.py, run_pretraining.py, run_squad_v1.py), google-research/electra
(model/modeling.py, run_pretraining.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

# A kind of module: the last part of our tensor's name to what Google appends to the module's.
DENSE = {"weight": "/kernel", "bias": "/bias"}
NORM = {"weight": "/gamma", "bias": "/beta"}
TABLE = {"weight": ""}
OUTPUT = {"weight": "/output_weights", "bias": "/output_bias"}
BIAS = {"bias": "/output_bias"}

Module = tuple[str, dict[str, str]]

_LAYER_NAME = re.compile(r"encoder\.layers\.(\d+)\.(\w+)")


@dataclass(frozen=True, kw_only=True)
class NameTable:
    """One family, or one of ELECTRA's two models.

    Attributes:
        scopes: all that lies below these belongs to the encoder.
        embeddings: our modules under "encoder.embeddings." to theirs.
        layer: their name of layer i (of parameter group i), with {} for i.
        qkv: their three modules of our fused one.
        layer_modules: our other modules of a layer to theirs.
        pooler: theirs, None for a family without one.
        heads: head kind to (our module to theirs); None is the bare encoder.
    """

    scopes: tuple[str, ...]
    embeddings: dict[str, Module]
    layer: str
    qkv: tuple[str, str, str]
    layer_modules: dict[str, Module]
    pooler: str | None = None
    heads: dict[str | None, dict[str, Module]]

    def theirs(self, ours: str, kind: str | None) -> tuple[str, ...]:
        """Google's names of the tensor filbert calls `ours`: three for the fused one.

        Raises:
            KeyError: the table has no such tensor.
        """
        module, _, leaf = ours.rpartition(".")
        if module == "encoder.pooler":
            if self.pooler is None:
                raise KeyError(ours)
            return (self.pooler + DENSE[leaf],)
        if module.startswith("encoder.embeddings."):
            name, leaves = self.embeddings[module.removeprefix("encoder.embeddings.")]
            return (name + leaves[leaf],)
        if (match := _LAYER_NAME.fullmatch(module)) is None:
            name, leaves = self.heads[kind][module]
            return ((name + leaves[leaf]).lstrip("/"),)
        layer = self.layer.format(match[1])
        if match[2] == "qkv":
            return tuple(f"{layer}/{name}{DENSE[leaf]}" for name in self.qkv)
        name, leaves = self.layer_modules[match[2]]
        return (f"{layer}/{name}{leaves[leaf]}",)

    def head_tensors(self, kind: str | None) -> dict[str, str]:
        """Our tensors of a head to Google's."""
        return {
            f"{module}.{leaf}": (name + theirs).lstrip("/")
            for module, (name, leaves) in self.heads[kind].items()
            for leaf, theirs in leaves.items()
        }


def is_transposed(theirs: str) -> bool:
    """Whether Google's tensor of this name has its axes the other way round."""
    return theirs.endswith("/kernel")


def _tables(scope: str, projection: Module | None = None) -> dict[str, Module]:
    tables: dict[str, Module] = {
        "word": (f"{scope}/word_embeddings", TABLE),
        "position": (f"{scope}/position_embeddings", TABLE),
        "token_type": (f"{scope}/token_type_embeddings", TABLE),
        "norm": (f"{scope}/LayerNorm", NORM),
    }
    return tables if projection is None else {**tables, "project": projection}


_QKV = ("attention/self/query", "attention/self/key", "attention/self/value")
_LAYER: dict[str, Module] = {
    "attention_out": ("attention/output/dense", DENSE),
    "attention_norm": ("attention/output/LayerNorm", NORM),
    "up": ("intermediate/dense", DENSE),
    "down": ("output/dense", DENSE),
    "norm": ("output/LayerNorm", NORM),
}
_ALBERT_LAYER: dict[str, Module] = {
    "attention_out": ("attention_1/output/dense", DENSE),
    "attention_norm": ("LayerNorm", NORM),
    "up": ("ffn_1/intermediate/dense", DENSE),
    "down": ("ffn_1/intermediate/output/dense", DENSE),
    "norm": ("LayerNorm_1", NORM),
}


def _masked_lm(head: str) -> dict[str, Module]:
    return {
        head: ("cls/predictions", BIAS),
        f"{head}.transform": ("cls/predictions/transform/dense", DENSE),
        f"{head}.norm": ("cls/predictions/transform/LayerNorm", NORM),
    }


_PAIR: Module = ("cls/seq_relationship", OUTPUT)
_HEADS: dict[str | None, dict[str, Module]] = {
    None: {},
    "spans": {"head.out": ("cls/squad", OUTPUT)},
    "sequence": {"head.out": ("", OUTPUT)},
    "pretraining": {**_masked_lm("head.masked_lm"), "head.pair.out": _PAIR},
    "masked_lm": _masked_lm("head"),
    "pair": {"head.out": _PAIR},
}

_BERT = NameTable(
    scopes=("bert/",),
    embeddings=_tables("bert/embeddings"),
    layer="bert/encoder/layer_{}",
    qkv=_QKV,
    layer_modules=_LAYER,
    pooler="bert/pooler/dense",
    heads=_HEADS,
)
_ALBERT = NameTable(
    scopes=("bert/",),
    embeddings=_tables("bert/embeddings", ("bert/encoder/embedding_hidden_mapping_in", DENSE)),
    layer="bert/encoder/transformer/group_{}/inner_group_0",
    qkv=("attention_1/self/query", "attention_1/self/key", "attention_1/self/value"),
    layer_modules=_ALBERT_LAYER,
    pooler="bert/pooler/dense",
    heads={kind: head for kind, head in _HEADS.items() if kind != "pair"},
)
_DISCRIMINATOR = NameTable(
    scopes=("electra/",),
    embeddings=_tables("electra/embeddings", ("electra/embeddings_project", DENSE)),
    layer="electra/encoder/layer_{}",
    qkv=_QKV,
    layer_modules=_LAYER,
    heads={
        None: {},
        "discriminator": {
            "head.dense": ("discriminator_predictions/dense", DENSE),
            "head.out": ("discriminator_predictions/dense_1", DENSE),
        },
    },
)
# Its tables are the discriminator's, unless it was trained with its own.
_GENERATOR = replace(
    _DISCRIMINATOR,
    scopes=("electra/embeddings/", "generator/"),
    embeddings=_tables("electra/embeddings", ("generator/embeddings_project", DENSE)),
    layer="generator/encoder/layer_{}",
    heads={
        None: {},
        "masked_lm": {
            "head": ("generator_predictions", BIAS),
            "head.transform": ("generator_predictions/dense", DENSE),
            "head.norm": ("generator_predictions/LayerNorm", NORM),
        },
    },
)
_OWN_TABLES = replace(
    _GENERATOR,
    scopes=("generator/",),
    embeddings=_tables("generator/embeddings", ("generator/embeddings_project", DENSE)),
)

# Families of which Google has published checkpoints.
FAMILY_NAMES = ("bert", "albert", "electra")
PARTS = ("discriminator", "generator")


def name_table(family: str, *, generator: bool = False, own_tables: bool = False) -> NameTable:
    """The table of a family.

    Args:
        family: one of FAMILY_NAMES.
        generator: ELECTRA's small model, whose head is "masked_lm".
        own_tables: whether the generator has embedding tables of its own.
    """
    if family == "electra":
        if not generator:
            return _DISCRIMINATOR
        return _OWN_TABLES if own_tables else _GENERATOR
    return {"bert": _BERT, "albert": _ALBERT}[family]
