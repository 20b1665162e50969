"""What attention is made of: the query and the key of every token, head by head.

T tokens in the batch, L layers, A heads, D head size, n tokens of one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from filbert.batch import PackedBatch, split
from filbert.inspection.maps import heard, maps_in, numbers_of, turned
from filbert.model.heads import Model
from filbert.model.trace import Trace


def queries_and_keys(
    model: Model,
    batch: PackedBatch,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> list[Tensor]:
    """Queries and keys of every sequence, with the turns of rotary positions.

    The softmax of their products over the root of D is what `attention_maps` gives, where a head
    sees all tokens.

    Args:
        model: a transformer, in eval mode.
        batch: on the model's device.
        layers: which layers, counted from 0; all when None.
        heads: which heads of each, counted from 0; all when None.

    Returns:
        For every sequence float32 (L, 2, A, n, D) on the host, queries first. Where a layer has
        lost heads, zeros stand for them.

    Raises:
        ConfigError: the model has no attention, or there is no such layer or head.
    """
    wanted, chosen = numbers_of(model, layers, heads)
    return _vectors_in(heard(model, batch, wanted), batch, wanted, chosen)


def maps_queries_keys(model: Model, batch: PackedBatch) -> tuple[list[Tensor], list[Tensor]]:
    """What `attention_maps` and `queries_and_keys` give of all layers and heads, from one pass.

    Raises:
        ConfigError: the model has no attention.
    """
    layers, heads = numbers_of(model)
    trace = heard(model, batch, layers)
    return maps_in(trace, layers, heads), _vectors_in(trace, batch, layers, heads)


def _vectors_in(
    trace: Trace, batch: PackedBatch, layers: Sequence[int], heads: Sequence[int]
) -> list[Tensor]:
    """The queries and keys of what was heard; see `queries_and_keys`."""
    found = []
    with torch.inference_mode():
        for layer in layers:
            qkv_T3AD = turned(trace, layer)
            there = [place for place, head in enumerate(heads) if head < qkv_T3AD.shape[2]]
            which = [heads[place] for place in there]
            vectors = torch.zeros(len(qkv_T3AD), 2, len(heads), qkv_T3AD.shape[-1])
            vectors[:, :, there] = qkv_T3AD[:, :2, which].float().cpu()
            found.append(split(vectors, batch))
        by_sequence = zip(*found, strict=True)
        return [torch.stack(some).permute(0, 2, 3, 1, 4).contiguous() for some in by_sequence]
