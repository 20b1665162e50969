"""XLNet's pre-training: a permuted order of prediction, and attention in two streams.

S rows of T tokens, K of them targets, H hidden size, A heads of size D, V vocabulary.

Source: Yang et al. 2019, sections 2.2 and 2.3; zihangdai/xlnet, data_utils.py and modeling.py.
Rows are of one length, one segment and without memory: token types change nothing then, because a
score that is the same for all keys does not change the probabilities.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.model.cpu import activate
from filbert.model.distances import sinusoids
from filbert.model.encoder import Encoder, Layer

# One of six tokens is predicted, in spans of one to five tokens: sections 2.3 and 3.1.
SHARE, LONGEST_SPAN = 1 / 6, 5


def draw_order(is_special: Sequence[bool], draw: random.Random) -> list[int]:
    """Return the place of each token in the order of prediction; -1 for those that are not.

    A sixth of the tokens is predicted, in spans, and in a random order of the tokens. Special
    tokens are context of all. The authors' code has them in the order, and draws each span from a
    window of six times its length.
    """
    wanted = max(1, round(len(is_special) * SHARE))
    targets: set[int] = set()
    candidates = [at for at, special in enumerate(is_special) if not special]
    while len(targets) < min(wanted, len(candidates)):
        first, length = draw.choice(candidates), draw.randint(1, LONGEST_SPAN)
        span = [at for at in range(first, first + length) if at in candidates]
        targets.update(span[: wanted - len(targets)])
    places = [-1] * len(is_special)
    for place, at in enumerate(draw.sample(sorted(targets), len(targets))):
        places[at] = place
    return places


def unseen_keys(places_ST: Tensor) -> Tensor:
    """Return which keys a query must not see, bool (S, T, T), from the order of prediction.

    Nothing that is not predicted sees a target. A target sees those before it in the order, and in
    the query stream not itself.
    """
    keys = places_ST[:, None, :]
    return (keys >= 0) & (keys >= places_ST[:, :, None])


class TwoStreams(nn.Module):
    """An encoder of the XLNet family that predicts the targets of permuted orders.

    The encoder's word table is the output's too.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.start = nn.Parameter(cast("Tensor", encoder.embeddings.unseen).clone())
        self.bias = nn.Parameter(torch.zeros(encoder.config.vocab_size))

    def forward(self, ids_ST: Tensor, unseen_STT: Tensor, targets_SK: Tensor) -> Tensor:
        """Return the scores of the targets, (S, K, V); see `unseen_keys` for `unseen_STT`."""
        config, length = self.encoder.config, ids_ST.shape[1]
        rows = torch.arange(len(ids_ST))[:, None]
        behind = torch.arange(length)[:, None] - torch.arange(length)
        # A token attends to itself in the stream of contents, but not in that of queries.
        content_unseen = unseen_STT & (behind != 0)
        drop = nn.Dropout(config.dropout.hidden).train(self.training)
        content = drop(self.encoder.embeddings.word(ids_ST))
        query = drop(self.start.expand(*targets_SK.shape, -1))
        distances = torch.arange(length - 1, -length, -1)
        sines_PH = drop(sinusoids(distances, config.hidden_size).to(content.dtype))
        columns = length - 1 - behind
        for index in range(config.num_hidden_layers):
            layer = self.encoder.layer(index)
            assert isinstance(layer, Layer)
            key, value = (_heads(layer, content, part) for part in (1, 2))
            mixed = _attend(
                layer, _heads(layer, query, 0), key, value, sines_PH,
                columns[targets_SK], unseen_STT[rows, targets_SK],
            )  # fmt: skip
            query = _rest(layer, query, mixed, drop)
            everywhere = columns.expand(len(ids_ST), -1, -1)
            own = _heads(layer, content, 0)
            mixed = _attend(layer, own, key, value, sines_PH, everywhere, content_unseen)
            content = _rest(layer, content, mixed, drop)
        return F.linear(drop(query), self.encoder.embeddings.word.weight, self.bias)


def _heads(layer: Layer, hidden_SLH: Tensor, part: int) -> Tensor:
    """Return queries (part 0), keys (1) or values (2), (S, A, L, D)."""
    rows = F.linear(hidden_SLH, layer.qkv.weight.chunk(3)[part])
    return rows.view(*rows.shape[:2], layer.num_heads, -1).transpose(1, 2)


def _attend(
    layer: Layer,
    query_SALD: Tensor,
    key_SATD: Tensor,
    value_SATD: Tensor,
    sines_PH: Tensor,
    columns_SLT: Tensor,
    unseen_SLT: Tensor,
) -> Tensor:
    """Return the mixed values of all heads, (S, L, A D)."""
    relative, size = layer.relative, query_SALD.shape[-1]
    assert relative is not None
    by_distance = relative.project(sines_PH).view(-1, layer.num_heads, size).permute(1, 2, 0)
    scores = (query_SALD + relative.content_bias[:, None]) @ key_SATD.mT
    wide = (query_SALD + relative.position_bias[:, None]) @ by_distance
    scores = scores + wide.gather(-1, columns_SLT[:, None].expand_as(scores))
    scores = (scores / math.sqrt(size)).masked_fill(unseen_SLT[:, None], -1e30)
    weights = F.dropout(scores.softmax(-1), layer.config.dropout.attention, layer.training)
    return (weights @ value_SATD).transpose(1, 2).flatten(2)


def _rest(layer: Layer, hidden_SLH: Tensor, mixed_SLN: Tensor, drop: nn.Module) -> Tensor:
    """Return the layer's output for the mixed values of its attention."""
    hidden = layer.attention_norm(hidden_SLH + drop(layer.attention_out(mixed_SLN)))
    wide = drop(activate(layer.up(hidden), layer.config.feed_forward.activation))
    return layer.norm(hidden + drop(layer.down(wide)))  # type: ignore[no-any-return]


def target_loss(logits_SKV: Tensor, ids_ST: Tensor, targets_SK: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the targets: equation 3."""
    return F.cross_entropy(logits_SKV.mT, ids_ST.gather(1, targets_SK))
