"""Scores by distance: biases and position vectors that attention adds for pairs of tokens.

A heads, n sequences (`count`) of L queries and K keys each, B = n * A, D head size. `ahead` is the
position of the first key less that of the first query. Values by distance have P = 2 M - 1 columns,
M at least the longest sequence: column M - 1 + d belongs to a key d positions after the query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.batch import onto
from filbert.model.config import Alibi, Buckets, Disentangled, EncoderConfig, RelativeSinusoid
from filbert.model.cpu import dense, mkl_is_slow, powers_of_two, products

# Queries, or keys, that are multiplied with one range of position vectors: a range is as many
# columns longer than the sequence.
_STRIPE = 64


class PositionVectors(NamedTuple):
    """Vectors of one layer by distance, (A, D, P) each, times the scale of the scores.

    Attributes:
        keys_ADP: Queries are multiplied with them.
        queries_ADP: Keys are; in the reverse order of columns. None for no such scores.
    """

    keys_ADP: Tensor
    queries_ADP: Tensor | None = None


# Values by distance


def bucket_of(ahead_P: Tensor, count: int, max_distance: int) -> Tensor:
    """Return the bucket, of `count`, of each distance of a key from its query, int64 (P,).

    Half of the buckets are for keys after the query. Of each half, the first half are distances of
    their own, and the others grow logarithmically up to `max_distance`.

    Source: Raffel et al. 2020, section 2.1, and mesh_tensorflow, transformer_layers.py.
    """
    half, exact = count // 2, count // 4
    apart = ahead_P.abs()
    growth = torch.log(apart.float() / exact) / math.log(max_distance / exact)
    # The logarithm of distance 0 is infinite; that distance has its own bucket.
    far = exact + (growth * (half - exact)).clamp(0, half).long()
    return torch.where(apart < exact, apart, far.clamp(max=half - 1)) + half * (ahead_P > 0)


def sinusoids(behind_P: Tensor, width: int) -> Tensor:
    """Compute the sines, then the cosines, of each distance times each frequency, float32 (P, H).

    Args:
        behind_P: Position of the query less that of the key, int64.

    Source: Vaswani et al. 2017, section 3.5, in the order of kimiyoung/transformer-xl.
    """
    pairs = torch.arange(0, width, 2, device=behind_P.device).float()
    angles = behind_P.float()[:, None] * (1 / torch.pow(10_000, pairs / width))
    return torch.cat((angles.sin(), angles.cos()), 1)


def row_of_distance(behind_P: Tensor, count: int, max_distance: int) -> Tensor:
    """Return the row of each distance of a query from its key in a table of 2 `count` rows.

    Row `count` is distance 0. Distances up to half of `count` have rows of their own, and the
    others grow logarithmically up to `max_distance`.

    Source: He et al. 2023 (DeBERTaV3), and microsoft/DeBERTa, da_utils.py, make_log_bucket_dict.
    """
    middle = count // 2
    apart = behind_P.abs().clamp(min=middle)
    growth = torch.log(apart / middle) / torch.log(torch.tensor((max_distance - 1) / middle))
    far = (torch.ceil(growth * (middle - 1)) + middle) * behind_P.sign()
    rows = torch.where(behind_P.abs() <= middle, behind_P.float(), far).long() + count
    return rows.clamp(0, 2 * count - 1)


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the fall of the scores per token of distance for each head.

    A geometric series from 2 ** (-8 / n) for n heads, a power of two. Further heads have every
    second value of the series for 2 n.

    Source: Press et al. 2022, section 3, and ofirpress/attention_with_linear_biases.
    """
    power = 1 << (num_heads.bit_length() - 1)
    first = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    further = [2.0 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return (first + further)[:num_heads]


# Scores of pairs


def _columns(num_columns: int, num_queries: int, num_keys: int, ahead: int) -> slice:
    """Return the columns, of P, of the distances between neighbouring queries and keys."""
    start = (num_columns + 1) // 2 + ahead - num_queries
    return slice(start, start + num_queries + num_keys - 1)


def square(values_AP: Tensor, length: int, num_keys: int, ahead: int) -> Tensor:
    """Lay out values by distance as scores (A, L, K)."""
    band = values_AP[:, _columns(values_AP.shape[1], length, num_keys, ahead)]
    # The first window belongs to the last query.
    return band.unfold(1, num_keys, 1).flip(1)


def _skewed(columns_AnLW: Tensor, num_keys: int) -> Tensor:
    """View columns by distance, W = L + K - 1 for neighbouring queries, as scores (A, n, L, K).

    The distances of a query begin one column before those of the query above it, so that rows of
    W - 1 elements bring each key into a column. No index is needed.
    """
    heads, count, length, width = columns_AnLW.shape
    strides = (count * length * width, length * width, width - 1, 1)
    return columns_AnLW.as_strided((heads, count, length, num_keys), strides, length - 1)


class Stripe(NamedTuple):
    """Neighbouring queries that are multiplied with the position vectors of their keys; or keys.

    Attributes:
        at: Which ones: an index into (A, n, L, ...).
        rows_AmD: Themselves, (A, m, D); m of all sequences.
        columns: Of the position vectors, W.
        shape: (A, sequences, each, W), the shape of the products.
    """

    at: tuple[slice, slice, slice]
    rows_AmD: Tensor
    columns: slice
    shape: tuple[int, int, int, int]


def stripes(
    rows_BLD: Tensor, others: int, *, count: int, num_columns: int, ahead: int
) -> Iterator[Stripe]:
    """Cut the queries of a group, `rows_BLD`, into stripes for `others` keys; or its keys."""
    length, size = rows_BLD.shape[1:]
    grid = rows_BLD.view(count, -1, length, size).transpose(0, 1)
    # The products of several sequences have few shapes, see `products`.
    step = _STRIPE if count == 1 else length
    for sequences in powers_of_two(count):
        for first in range(0, length, step):
            each = min(step, length - first)
            at = (slice(None), sequences, slice(first, first + each))
            rows = grid[at].reshape(len(grid), -1, size)
            shape = (len(grid), rows.shape[1] // each, each, each + others - 1)
            yield Stripe(at, rows, _columns(num_columns, each, others, ahead - first), shape)


def scores_by_position(
    query_BLD: Tensor, key_BKD: Tensor, vectors: PositionVectors, *, count: int, ahead: int
) -> Tensor:
    """Compute queries times the vectors of their keys' distances, and the reverse: (n, A, L, K).

    Source: He et al. 2021 (DeBERTa), equation 4: content to position and position to content.
    """
    keys_ADP, queries_ADP = vectors
    num_columns, length, num_keys = keys_ADP.shape[-1], query_BLD.shape[1], key_BKD.shape[1]
    scores_nALK = query_BLD.new_empty((count, len(keys_ADP), length, num_keys))
    scores = scores_nALK.transpose(0, 1)
    # oneDNN copies every range of vectors: 32 ms for 12 heads of 512 tokens, and MKL 14, on a Xeon.
    multiply = products if mkl_is_slow() else torch.bmm
    common = {"count": count, "num_columns": num_columns}
    if queries_ADP is None:
        scores.zero_()
    else:
        for stripe in stripes(key_BKD, length, ahead=-ahead, **common):
            wide = multiply(stripe.rows_AmD, queries_ADP[..., stripe.columns])
            scores.transpose(2, 3)[stripe.at] = _skewed(wide.view(stripe.shape), length)
    for stripe in stripes(query_BLD, num_keys, ahead=ahead, **common):
        wide = multiply(stripe.rows_AmD, keys_ADP[..., stripe.columns])
        # `scores[...] += ...` would copy the sum onto itself.
        scores[stripe.at].add_(_skewed(wide.view(stripe.shape), num_keys))
    return scores_nALK


def add_position_gradients(
    grad_AnLK: Tensor, stripe: Stripe, vectors_ADP: Tensor, grads: tuple[Tensor, Tensor]
) -> None:
    """Add the gradients of a stripe's rows, (B, L, D), and of the vectors, (A, D, P)."""
    rows_BLD, table_ADP = grads
    part = grad_AnLK[stripe.at]
    wide = grad_AnLK.new_zeros(stripe.shape)
    _skewed(wide, part.shape[-1]).copy_(part)
    wide_AmW = wide.view(len(wide), -1, wide.shape[-1])
    of_rows = torch.bmm(wide_AmW, vectors_ADP[..., stripe.columns].transpose(1, 2))
    heads, count = grad_AnLK.shape[:2]
    grid = rows_BLD.view(count, heads, *rows_BLD.shape[1:]).transpose(0, 1)
    grid[stripe.at].add_(of_rows.view(*stripe.shape[:3], -1))
    table_ADP[..., stripe.columns].add_(torch.bmm(stripe.rows_AmD.transpose(1, 2), wide_AmW))


def add_bias_gradient(grad_AnLK: Tensor, grad_AP: Tensor, *, ahead: int) -> None:
    """Add the gradient of the bias by distance, (A, P), through the scores of a group."""
    heads, _, length, num_keys = grad_AnLK.shape
    columns = _columns(grad_AP.shape[1], length, num_keys, ahead)
    wide = grad_AnLK.new_zeros((heads, 1, length, length + num_keys - 1))
    _skewed(wide, num_keys).copy_(grad_AnLK.sum(1, keepdim=True))
    grad_AP[:, columns] += wide.sum((1, 2))


def weights_state(module: nn.Module) -> tuple[Any, ...]:
    """Return values that change when the weights of a module do."""
    # Tensors that were created in inference mode have no version.
    parts = ((p.data_ptr(), 0 if p.is_inference() else p._version) for p in module.parameters())
    return (id(module), *parts)


class Distances(nn.Module):
    """What attention adds to the scores by the distance of two tokens: a learned table, or none.

    Created by `Encoder` for positions of these kinds, with a norm for the table of DeBERTa.
    """

    def __init__(self, config: EncoderConfig, norm: nn.Module) -> None:
        super().__init__()
        self.config = config
        positions, self.table = config.positions, None
        self.norm = norm if isinstance(positions, Disentangled) else nn.Identity()
        self._kept: tuple[tuple[Any, ...], tuple[Tensor, Tensor]] | None = None
        if isinstance(positions, Buckets):
            self.table = nn.Embedding(positions.count, config.attention.heads)
        if isinstance(positions, Disentangled):
            self.table = nn.Embedding(2 * positions.count, config.hidden_size)

    def forward(self, longest: int, like: Tensor) -> dict[str, Any]:
        """Compute `bias_AP` or `position_rows` of a plan for at most `longest` tokens each."""
        positions = self.config.positions
        ahead_P = torch.arange(1 - longest, longest, device=like.device)
        if isinstance(positions, Alibi):
            slopes = onto(like.device, torch.tensor(alibi_slopes(self.config.attention.heads)))
            return {"bias_AP": -slopes[:, None] * ahead_P.abs()}
        if isinstance(positions, Buckets):
            assert self.table is not None
            buckets = bucket_of(ahead_P, positions.count, positions.max_distance)
            return {"bias_AP": self.table(buckets).T.contiguous()}
        if torch.is_grad_enabled():
            return {"position_rows": self._position_rows(longest, like)}
        # One tensor for all batches, so that the layers keep what they compute from it.
        state = (like.dtype, like.device, *weights_state(self))
        if self._kept is None or self._kept[0] != state:
            longest = self.config.max_tokens_per_sequence
            self._kept = (state, self._position_rows(longest, like))
        return {"position_rows": self._kept[1]}

    def _position_rows(self, longest: int, like: Tensor) -> tuple[Tensor, Tensor]:
        positions, table = self.config.positions, self.table
        behind_P = torch.arange(longest - 1, -longest, -1)
        if isinstance(positions, RelativeSinusoid):
            rows = sinusoids(onto(like.device, behind_P), self.config.hidden_size).to(like.dtype)
            return rows, torch.arange(len(rows), device=like.device)
        assert isinstance(positions, Disentangled) and table is not None
        # On the host, which would have to wait for the numbers of a GPU.
        rows_P = row_of_distance(behind_P, positions.count, positions.max_distance)
        first, last = int(rows_P[-1]), int(rows_P[0])
        return self.norm(table.weight[first : last + 1]), onto(like.device, rows_P - first)


class RelativeTerms(nn.Module):
    """Scores by the distance and by equal token types, as further elements of queries and keys.

    The score of a query q and a key k at a distance with the projected sinusoids r is
    (q + u) k + (q + v) r, and (q + w) (s0 - s1) more if both tokens are of one type: biases u, v
    and w of each head, and its vectors s0 of equal and s1 of different types. A query gets one
    element for each type and one for (v - u) r, so that all of it is products of vectors.

    Source: Yang et al. 2019 (XLNet), section 2.5. What is the same for all keys of a query, here
    (q + w) s1, does not change the probabilities.
    """

    def __init__(self, config: EncoderConfig, num_heads: int) -> None:
        super().__init__()
        shape = (num_heads, config.head_size)
        self.num_types = config.embeddings.token_types
        self.project = nn.Linear(config.hidden_size, num_heads * config.head_size, bias=False)
        self.content_bias, self.position_bias, self.type_bias = (
            nn.Parameter(torch.zeros(shape)) for _ in range(3)
        )
        self.type_vectors = nn.Parameter(torch.zeros(2, *shape))

    def extended(self, qkv_T3AD: Tensor, types_T: Tensor) -> Tensor:
        """Append the elements to queries, keys and, as zeros, values: (T, 3, A, D + types + 1)."""
        query, key, value = qkv_T3AD.unbind(1)
        content_AD, type_AD = self.content_bias.to(query), self.type_bias.to(query)
        equal_AD = (self.type_vectors[0] - self.type_vectors[1]).to(query)
        equal_TA1 = ((query + type_AD) * equal_AD).sum(-1, keepdim=True)
        one_hot = F.one_hot(types_T, self.num_types)[:, None].to(query)
        one_hot_TAN = one_hot.expand(-1, query.shape[1], -1)
        query = torch.cat((query + content_AD, equal_TA1 * one_hot_TAN), -1)
        key = torch.cat((key, one_hot_TAN), -1)
        rows = (F.pad(query, (0, 1), value=1.0), F.pad(key, (0, 1)))
        return torch.stack((*rows, F.pad(value, (0, self.num_types + 1))), 1)

    def vectors(self, sinusoids_PH: Tensor) -> Tensor:
        """Project sinusoids to what extended queries are multiplied with, (A, D + types + 1, P)."""
        by_head_PAD = dense(sinusoids_PH, self.project).view(-1, *self.position_bias.shape)
        more_AD = (self.position_bias - self.content_bias).to(by_head_PAD)
        more_PA1 = (by_head_PAD * more_AD).sum(-1, keepdim=True)
        padded = F.pad(by_head_PAD, (0, self.num_types))
        return torch.cat((padded, more_PA1), -1).permute(1, 2, 0)
