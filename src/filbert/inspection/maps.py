"""Attention maps: how much every token looked at every other, layer by layer and head by head.

T tokens in the batch, L layers, A heads, D head size, H = A * D, n tokens of one sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch, split
from filbert.errors import ConfigError
from filbert.model.attention_plan import AttentionPlan, distance
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model
from filbert.model.rotary import rotate
from filbert.model.trace import Trace, traced

# Weights of one text, all layers and heads, that are made for a look inside: 2 GiB in float32.
MOST_ENTRIES = 2**29


def attention_maps(
    model: Model,
    batch: PackedBatch,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> list[Tensor]:
    """The attention probabilities of every sequence, exactly as the model computes them.

    Hooks that are there during this call alone listen to queries and keys: whoever does not ask
    pays nothing.

    Args:
        model: a transformer, in eval mode.
        batch: on the model's device.
        layers: which layers, counted from 0; all when None.
        heads: which heads of each, counted from 0; all when None.

    Returns:
        For every sequence float32 (L, A, n, n) on the host, layers and heads in the order asked
        for. Entry [l, a, i, j] is the weight of token j in what head a of layer l gives token i;
        rows sum to one. Where a layer has lost heads, those it has left come first, and zeros
        stand for the others.

    Raises:
        ConfigError: the model has no attention, or there is no such layer or head.
    """
    wanted, chosen = numbers_of(model, layers, heads)
    return maps_in(heard(model, batch, wanted), wanted, chosen)


def heard(model: Model, batch: PackedBatch, layers: Sequence[int]) -> Trace:
    """One pass through the encoder, with the queries and keys of some layers, from 0, kept."""
    encoder = model.encoder
    # A trace counts layers from 1.
    with torch.inference_mode(), traced(encoder, (), [layer + 1 for layer in layers]) as trace:
        encoder(batch)
    return trace


def maps_in(trace: Trace, layers: Sequence[int], heads: Sequence[int]) -> list[Tensor]:
    """The maps of what was heard; see `attention_maps`."""
    with torch.inference_mode():
        found = [_maps_of(turned(trace, at), trace.plans[at + 1], heads) for at in layers]
        return [torch.stack(layer_by_layer) for layer_by_layer in zip(*found, strict=True)]


def turned(trace: Trace, layer: int) -> Tensor:
    """Queries, keys and values of a layer, from 0, with the turns of rotary positions."""
    qkv_T3AD, rotary = trace.qkv[layer + 1], trace.plans[layer + 1].rotary
    return qkv_T3AD if rotary is None else rotate(qkv_T3AD, rotary)


def check_size(config: EncoderConfig, length: int) -> None:
    """Refuse a text whose maps would fill the memory.

    Raises:
        ConfigError: all maps of so many tokens are more than MOST_ENTRIES numbers.
    """
    heads = config.num_hidden_layers * config.num_attention_heads
    if heads * length**2 > MOST_ENTRIES:
        fits = math.isqrt(MOST_ENTRIES // heads)
        raise ConfigError(
            f"{length:,} tokens before {heads} heads make {4 * heads * length**2 / 1e9:.1f} GB of "
            f"attention. Look at the first part with --max-length {fits}."
        )


def merged(maps: np.ndarray, word_of_token: np.ndarray, num_words: int | None = None) -> np.ndarray:
    """Attention between words: (..., n, n) between tokens to (..., w, w).

    To a word the weights of its tokens are summed, from a word the mean of its tokens is taken, so
    rows sum to one less what goes to tokens of no word. Source: Clark et al. 2019, section 4.1.

    Args:
        maps: float.
        word_of_token: int (n,), from 0; -1 for tokens of no word.
        num_words: w; as many as are named when not given. A word without a token gets zeros.
    """
    tokens = np.flatnonzero(word_of_token >= 0)
    count = int(word_of_token.max()) + 1 if num_words is None else num_words
    belongs = np.zeros((maps.shape[-1], count), dtype=maps.dtype)
    belongs[tokens, word_of_token[tokens]] = 1
    sizes = np.maximum(belongs.sum(0), 1)
    return np.asarray((belongs / sizes).T @ (maps @ belongs))


def numbers_of(
    model: nn.Module, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> tuple[list[int], list[int]]:
    """The layers and heads that `attention_maps` would show.

    Raises:
        ConfigError: the model has no attention, or there is no such layer or head.
    """
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, Encoder):
        raise ConfigError(
            "This model shows no attention: it is an exported graph. Use a "
            "transformer in its original folder."
        )
    config = encoder.config
    return (
        _numbers("layer", layers, config.num_hidden_layers),
        _numbers("head", heads, config.num_attention_heads),
    )


def _numbers(name: str, asked: Sequence[int] | None, count: int) -> list[int]:
    if asked is None:
        return list(range(count))
    if isinstance(asked, int | str) or not asked:
        raise ConfigError(f"{name}s is {asked!r}; give a list of whole numbers, such as [0].")
    for number in asked:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
            raise ConfigError(f"{name} {number!r} is not in 0..{count - 1}.")
    return list(asked)


def _maps_of(qkv_T3AD: Tensor, plan: AttentionPlan, heads: Sequence[int]) -> list[Tensor]:
    """One layer's map of each sequence, float32 (heads, n, n) on the host."""
    places = [at for at, head in enumerate(heads) if head < qkv_T3AD.shape[2]]
    queries, keys = qkv_T3AD[:, :2, [heads[at] for at in places]].float().unbind(1)
    found = []
    for query, key in zip(split(queries, plan.batch), split(keys, plan.batch), strict=True):
        maps = torch.zeros(len(heads), len(query), len(query))
        maps[places] = _probabilities(query, key, plan).cpu()
        found.append(maps)
    return found


def _probabilities(query_nAD: Tensor, key_nAD: Tensor, plan: AttentionPlan) -> Tensor:
    """softmax(q k / sqrt(D)) over what a token may see, (A, n, n). Vaswani et al. 2017, 3.2.1."""
    query, key = query_nAD.transpose(0, 1), key_nAD.permute(1, 2, 0)
    scores = torch.bmm(query, key) / math.sqrt(query.shape[-1])
    length = scores.shape[-1]
    if plan.reach is not None:
        scores.masked_fill_(distance(length, scores.device) > plan.reach, -torch.inf)
    if plan.causal:
        ahead = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        scores.masked_fill_(ahead, -torch.inf)
    return torch.softmax(scores, -1)
