"""TensorFlow 2's object-based checkpoints of the same models, under the names of TensorFlow 1.

The Model Garden saves a tree of Keras objects: a variable's key is the path of attributes to it,
and the object graph, stored beside the variables, gives the full name that it had. Both are
understood, the full name first. Sources: tensorflow/models, official/nlp/tools
(tf1_bert_checkpoint_converter_lib.py), official/nlp/modeling (networks/bert_encoder.py,
networks/albert_encoder.py, layers/transformer_encoder_block.py, layers/masked_lm.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from filbert.errors import FormatError, printable
from filbert.formats.google_names import NameTable, is_transposed
from filbert.protobuf import Damaged, fields

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/"

# A module within a layer, by its full name or by its attributes, to ours and the part of it.
_LAYER: dict[str, tuple[str, int]] = {
    "self_attention/query": ("qkv", 0),
    "self_attention/key": ("qkv", 1),
    "self_attention/value": ("qkv", 2),
    "self_attention/attention_output": ("attention_out", 0),
    "self_attention_output": ("attention_out", 0),
    "self_attention_layer_norm": ("attention_norm", 0),
    "intermediate": ("up", 0),
    "output": ("down", 0),
    "output_layer_norm": ("norm", 0),
    "_attention_layer/_query_dense": ("qkv", 0),
    "_attention_layer/_key_dense": ("qkv", 1),
    "_attention_layer/_value_dense": ("qkv", 2),
    "_attention_layer/_output_dense": ("attention_out", 0),
    "_attention_output_dense": ("attention_out", 0),
    "_attention_layer_norm": ("attention_norm", 0),
    "_intermediate_dense": ("up", 0),
    "_output_dense": ("down", 0),
    "_output_layer_norm": ("norm", 0),
}
# Anything else, by the end of its name. The longer end goes first where two fit.
_ENDS: dict[str, str] = {
    "word_embeddings/embeddings": "encoder.embeddings.word",
    "_embedding_layer/embeddings": "encoder.embeddings.word",
    "masked_lm/embedding_table": "encoder.embeddings.word",
    "position_embedding/embeddings": "encoder.embeddings.position",
    "embedding_postprocessor/position_embeddings": "encoder.embeddings.position",
    "_position_embedding_layer/embeddings": "encoder.embeddings.position",
    "type_embeddings/embeddings": "encoder.embeddings.token_type",
    "embedding_postprocessor/type_embeddings": "encoder.embeddings.token_type",
    "_type_embedding_layer/embeddings": "encoder.embeddings.token_type",
    "embeddings/layer_norm": "encoder.embeddings.norm",
    "embedding_postprocessor/layer_norm": "encoder.embeddings.norm",
    "_embedding_norm_layer": "encoder.embeddings.norm",
    "embedding_projection": "encoder.embeddings.project",
    "_embedding_projection": "encoder.embeddings.project",
    "pooler_transform": "encoder.pooler",
    "_pooler_layer": "encoder.pooler",
    "next_sentence..pooler_dense": "encoder.pooler",
    "cls/predictions/transform/dense": "head.transform",
    "masked_lm/dense": "head.transform",
    "cls/predictions/transform/LayerNorm": "head.norm",
    "masked_lm/layer_norm": "head.norm",
    "cls/predictions/output_bias": "head",
    "masked_lm/output_bias": "head",
    "masked_lm/output_bias.S": "head",
    "predictions/transform/logits": "logits",
}
_LEAVES = {"kernel": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}
_NAMED_LAYER = re.compile(r"(?:.*/)?(?:layer_|_?transformer_layers/)(\d+)/(.+)")
_SHARED_LAYER = re.compile(r"(?:.*/)?transformer/(.+)")
_NUMBERED = re.compile(r"(?P<owner>(?:.*/)?)layer_with_weights-(?P<number>\d{1,9})/(?P<rest>.+)")
_TABLES = ("word", "position", "token_type")


@dataclass(frozen=True)
class Variable:
    """A tensor of a file, as Google's first code would have stored it.

    Attributes:
        key: in the file.
        shape: in the layout of TensorFlow 1, where attention has matrices.
        swapped: whether the file has the two axes the other way round.
        heads: number of attention heads, where the file's shape tells it.
    """

    key: str
    shape: tuple[int, ...]
    swapped: bool = False
    heads: int | None = None


def is_object_based(names: Iterable[str]) -> bool:
    """Whether a checkpoint was saved by TensorFlow 2's tf.train.Checkpoint, or Keras."""
    return any(name == GRAPH or name.endswith(_SUFFIX) for name in names)


def full_names(graph: bytes, path: Path) -> dict[str, str]:
    """A variable's full name by its key, from the serialised TrackableObjectGraph.

    Raises:
        FormatError: the message is damaged.
    """
    names: dict[str, str] = {}
    try:
        for number, node in fields(graph):
            if number != 1 or isinstance(node, int):
                continue
            for part, attribute in fields(node):
                if part != 2 or isinstance(attribute, int):
                    continue
                texts = {
                    at: value.decode("utf-8")
                    for at, value in fields(attribute)
                    if isinstance(value, bytes)
                }
                if texts.get(2) and texts.get(3):
                    names[texts[3]] = texts[2]
    except (Damaged, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: the object graph in it is damaged: {error}.") from error
    return names


def without_bookkeeping(shapes: dict[str, tuple[int, ...]]) -> tuple[list[str], dict[str, str]]:
    """The keys of a model's variables, and the reason for each of the others."""
    kept, left_out = [], {}
    for key in shapes:
        bare = key.removesuffix(_SUFFIX)
        if _SLOT in key:
            left_out[key] = "optimizer slot"
        elif bare == key or "/" not in bare:
            left_out[key] = "bookkeeping"
        elif bare.startswith(("optimizer/", "_optimizer/")):
            left_out[key] = "optimizer state"
        else:
            kept.append(key)
    return kept, left_out


def by_first_names(
    shapes: dict[str, tuple[int, ...]],
    keys: Iterable[str],
    full: dict[str, str],
    table: NameTable,
    path: Path,
) -> dict[str, Variable]:
    """The variables under the names of TensorFlow 1; those that are not known keep their keys.

    Args:
        shapes: by key.
        keys: of the model's variables.
        full: full names by key, as far as they are known.
        table: the family's names.
        path: of the index, for messages.

    Raises:
        FormatError: two variables mean the same tensor.
    """
    ours: dict[str, tuple[str, int]] = {}
    numbered: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for key in keys:
        bare = key.removesuffix(_SUFFIX)
        known = _by_name(full.get(key, "")) or _by_name(bare)
        if known is not None:
            ours[key] = known
        elif match := _NUMBERED.fullmatch(bare):
            numbered[match["owner"]][key] = (int(match["number"]), match["rest"])
    for group in numbered.values():
        ours |= _by_number(group)
    is_pretrained = any(name.startswith("head.") for name, _ in ours.values())
    found: dict[str, Variable] = {}
    for key in keys:
        name, part = ours.get(key, (key.removesuffix(_SUFFIX), 0))
        theirs, swapped = _theirs(name, part, table, is_pretrained)
        if theirs in found:
            raise FormatError(
                f"{path}: {printable(found[theirs].key, 120)} and {printable(key, 120)} both mean "
                f"{theirs}."
            )
        found[theirs] = _variable(key, shapes[key], theirs, swapped)
    return found


def _by_name(name: str) -> tuple[str, int] | None:
    """Our tensor, and the part of it, of a full name or of a path of attributes."""
    module, _, leaf = name.rpartition("/")
    for pattern in (_NAMED_LAYER, _SHARED_LAYER):
        match = pattern.fullmatch(module)
        if match is not None and match[match.lastindex or 1] in _LAYER and leaf in _LEAVES:
            part, index = _LAYER[match[match.lastindex or 1]]
            layer = match[1] if match.lastindex == 2 else "0"
            return f"encoder.layers.{layer}.{part}.{_LEAVES[leaf]}", index
    for whole, last in ((name, "weight"), (module, _LEAVES.get(leaf, ""))):
        for end, ours in _ENDS.items():
            if last and (whole == end or whole.endswith(f"/{end}")):
                return f"{ours}.{last}", 0
    # add_weight("output_bias/bias") is one attribute, whose slash is written as ".S".
    if name.endswith(("masked_lm/output_bias.Sbias", "masked_lm/bias")):
        return "head.bias", 0
    return None


def _by_number(group: dict[str, tuple[int, str]]) -> dict[str, tuple[str, int]]:
    """The same for "layer_with_weights-N": tables, LayerNorm, projection, layers, pooler in order.

    Args:
        group: key to number and the rest of the path, of the layers of one model.
    """
    layers = sorted(
        {number for number, rest in group.values() if rest.rpartition("/")[0] in _LAYER}
    )
    tables = sorted({number for number, rest in group.values() if "embeddings" in rest})
    if not layers:
        return {}
    found = {}
    for key, (number, rest) in group.items():
        module, _, leaf = rest.rpartition("/")
        if number in layers and module in _LAYER and leaf in _LEAVES:
            part, index = _LAYER[module]
            name = f"encoder.layers.{layers.index(number)}.{part}.{_LEAVES[leaf]}"
            found[key] = (name, index)
        elif number in tables[:3]:
            found[key] = (f"encoder.embeddings.{_TABLES[tables.index(number)]}.weight", 0)
        elif not module and leaf in _LEAVES:
            if leaf in ("gamma", "beta"):
                place = "encoder.embeddings.norm"
            else:
                place = "encoder.embeddings.project" if number < layers[0] else "encoder.pooler"
            found[key] = (f"{place}.{_LEAVES[leaf]}", 0)
    return found


def _theirs(ours: str, part: int, table: NameTable, is_pretrained: bool) -> tuple[str, bool]:
    """The first name of a tensor, and whether it is stored with its axes swapped."""
    if ours.startswith("logits."):
        # A dense layer over the pooled vector: the pair head beside a masked-LM head, else a
        # classifier. TensorFlow 1 had its output first.
        kind, name = ("pretraining", "head.pair.out") if is_pretrained else ("sequence", "head.out")
        ours = ours.replace("logits", name)
    else:
        kind = "masked_lm"
    try:
        theirs = table.theirs(ours, kind)[part]
    except KeyError:
        return ours, False
    return theirs, theirs.endswith("/output_weights")


def _variable(key: str, shape: tuple[int, ...], theirs: str, swapped: bool) -> Variable:
    heads = None
    in_attention = "/self/" in theirs
    if in_attention and is_transposed(theirs) and len(shape) == 3:
        heads, shape = shape[1], (shape[0], shape[1] * shape[2])
    elif in_attention and len(shape) == 2 and theirs.endswith("/bias"):
        heads, shape = shape[0], (prod(shape),)
    elif is_transposed(theirs) and len(shape) == 3:
        heads, shape = shape[0], (shape[0] * shape[1], shape[2])
    return Variable(key, shape[::-1] if swapped else shape, swapped, heads)
