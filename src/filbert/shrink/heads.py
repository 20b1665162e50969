"""Fewer attention heads: which ones, and the checkpoint without the others.

L layers, A heads, D head size, H hidden size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig

_ASKED = re.compile(r"(\d{1,4}):(\d{1,4}(?:,\d{1,4})*)")
Kept = tuple[tuple[int, ...], ...]


def most_important(importance: Tensor, count: int) -> Kept:
    """Which heads to keep of every layer, so that `count` are left in all.

    Importance is compared after each layer's is brought to length 1, since gradients differ in size
    from layer to layer (Michel et al. 2019, section 4.1). The best head of a layer always stays.

    Args:
        importance: (L, A), as `importance.head_importance` gives it.
        count: heads left in the whole model.

    Raises:
        ConfigError: fewer than one a layer, or more than there are.
    """
    layers, total = len(importance), int((~importance.isnan()).sum())
    if not layers <= count <= total:
        raise ConfigError(
            f"heads {count}: this model has {total} heads in {layers} layers, and each layer keeps "
            f"one, so give {layers} to {total}."
        )
    values = importance.nan_to_num(-1.0)
    shares = values / importance.nan_to_num(0.0).norm(dim=1, keepdim=True).clamp_min(1e-30)
    first = [(layer, int(values[layer].argmax())) for layer in range(layers)]
    others = [
        (layer, head)
        for layer in range(layers)
        for head in range(importance.shape[1])
        if not importance[layer, head].isnan() and (layer, head) not in first
    ]
    others.sort(key=lambda place: (-float(shares[place]), place))
    chosen = [*first, *others[: count - layers]]
    return tuple(tuple(sorted(h for at, h in chosen if at == layer)) for layer in range(layers))


def named_heads(asked: Sequence[str], config: EncoderConfig) -> Kept:
    """Which heads to keep of every layer, as the user wrote it: "0:1,3" for two heads of layer 0.

    Layers that are not named keep all of theirs.

    Raises:
        ConfigError: it cannot be read, or there is no such layer or head.
    """
    kept = {
        layer: tuple(range(config.heads_of(layer))) for layer in range(config.num_hidden_layers)
    }
    named: set[int] = set()
    for text in asked:
        match = _ASKED.fullmatch(text.replace(" ", ""))
        layer = int(match[1]) if match else -1
        heads = sorted(set(map(int, match[2].split(",")))) if match else []
        if layer not in kept or layer in named or heads[-1] >= config.heads_of(layer):
            raise ConfigError(
                f"--keep-heads {text}: write layer:head,head once a layer, such as 0:1,3. The "
                f"layers are 0 to {len(kept) - 1}, each with heads from 0 to "
                f"{min(map(config.heads_of, kept)) - 1}."
            )
        named.add(layer)
        kept[layer] = tuple(heads)
    return tuple(kept.values())


def prune_heads(checkpoint: Checkpoint, kept: Kept) -> Checkpoint:
    """The checkpoint without the other heads: what it computes with them masked, at less cost.

    Layers may be left with unequal numbers of heads, as ranking over the whole model asks for:
    since a head keeps its size, a count per layer is all that the encoder has to know.

    Args:
        checkpoint: stays as it is; the result shares the other tensors.
        kept: heads that stay, by layer, rising; at least one each.

    Raises:
        ConfigError: the layers have no heads, or share them.
    """
    config = checkpoint.config
    if config.num_groups < config.num_hidden_layers:
        raise ConfigError(
            "heads: only layers with heads of their own can lose some, and this model's "
            "share their weights."
        )
    counts = tuple(map(len, kept))
    if counts == tuple(map(config.heads_of, range(config.num_hidden_layers))):
        return checkpoint
    tensors = dict(checkpoint.tensors)
    size = config.head_size
    for layer, heads in enumerate(kept):
        name, index = f"encoder.layers.{layer}.", torch.tensor(heads)
        for part in ("qkv.weight", "qkv.bias"):
            if (tensor := tensors.get(name + part)) is not None:
                split = tensor.view(3, config.heads_of(layer), size, *tensor.shape[1:])
                tensors[name + part] = split[:, index].flatten(0, 2)
        tensor = tensors[name + "attention_out.weight"]
        split = tensor.view(len(tensor), config.heads_of(layer), size)
        tensors[name + "attention_out.weight"] = split[:, index].flatten(1)
    left = f"heads left: {sum(counts)}, by layer {', '.join(map(str, counts))}."
    return replace(
        checkpoint,
        config=replace(config, heads_per_layer=counts),
        tensors=tensors,
        notes=(*checkpoint.notes, left),
        filbert=None,
    )
