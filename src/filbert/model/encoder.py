"""The encoder: token ids to hidden states, for every family, packed.

T tokens in the batch, S sequences, H hidden size, E width of the embedding tables, K rows asked
for, A heads, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.batch import PackedBatch
from filbert.errors import InputError
from filbert.model.attention import AttentionPlan, attend
from filbert.model.config import (
    Alibi,
    Buckets,
    Disentangled,
    EncoderConfig,
    LayerNorm,
    RelativeSinusoid,
    RotaryPositions,
)
from filbert.model.cpu import activate, cut, dense, dropout, fill_up
from filbert.model.distances import Distances, PositionVectors, RelativeTerms, weights_state
from filbert.model.pooling import mean_of_sequences, row_read
from filbert.model.positions import rotary_angles


class RMSNormFromOne(nn.RMSNorm):
    """An RMSNorm whose weights are differences from 1, so that weight decay draws them to 1."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute the normalised rows, (..., H)."""
        return F.rms_norm(x, self.normalized_shape, 1 + self.weight, self.eps)


def new_norm(width: int, config: EncoderConfig) -> nn.Module:
    """Create a norm of the encoder."""
    norm = config.norm
    if isinstance(norm, LayerNorm):
        return nn.LayerNorm(width, eps=norm.eps, bias=norm.bias)
    return (RMSNormFromOne if norm.from_one else nn.RMSNorm)(width, eps=norm.eps)


class InputEmbeddings(nn.Module):
    """Word, position and token type tables, as far as the model has them, summed and normalised.

    Source: Devlin et al. 2019, section 3, figure 2.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width, positions, types = config.table_size, config.positions, config.embeddings.token_types
        self.word = nn.Embedding(config.vocab_size, width)
        self.position = nn.Embedding(positions.rows, width) if positions.absolute else None
        compared = isinstance(positions, RelativeSinusoid)
        self.token_type = nn.Embedding(types, width) if types and not compared else None
        self.norm = new_norm(width, config) if config.embeddings.normed else nn.Identity()
        self.project = nn.Linear(width, config.hidden_size) if config.embeddings.width else None
        if compared:
            # Only XLNet's pre-training uses it; it is part of the files.
            self.register_buffer("unseen", torch.zeros(1, 1, width))

    def forward(self, batch: PackedBatch) -> Tensor:
        """Compute the hidden states before the first layer, (T, H)."""
        hidden = dropout(self.normed(batch), self.config.dropout.hidden, self.training)
        return hidden if self.project is None else dense(hidden, self.project)

    def normed(self, batch: PackedBatch) -> Tensor:
        """Compute the same before dropout and projection, (T, E)."""
        sum_TE = self.word(batch.input_ids)
        if self.config.embeddings.scaled:
            # Rounded to the dtype of the weights first, as in pre-training.
            sum_TE = sum_TE * torch.tensor(math.sqrt(self.config.hidden_size)).to(sum_TE.dtype)
        if self.token_type is not None:
            sum_TE = sum_TE + self.token_type(batch.token_type_ids)
        if self.position is not None:
            sum_TE = sum_TE + self.position(batch.position_ids + self.config.positions.offset)
        return self.norm(sum_TE)  # type: ignore[no-any-return]


# The dense layers of a `Layer`, input side first.
DENSE = ("qkv", "attention_out", "up", "down")


class Heads(nn.Module):
    """Queries, keys and values as a layer's product gives them, laid out by heads.

    The heads of keys and values are repeated where several heads of queries share them: attention
    is a tenth of a layer, and its other parts support one layout.
    """

    def __init__(self, config: EncoderConfig, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.size = num_heads, config.head_size
        self.num_shared = config.attention.key_value_heads or num_heads
        normed = config.attention.normed
        self.query_norm = new_norm(self.size, config) if normed else None
        self.key_norm = new_norm(self.size, config) if normed else None

    def forward(self, qkv_TN: Tensor) -> Tensor:
        """Lay out rows as (T, 3, A, D), and normalise the queries and keys of each head."""
        if self.query_norm is None and self.num_shared == self.num_heads:
            return qkv_TN.view(-1, 3, self.num_heads, self.size)
        heads = qkv_TN.view(len(qkv_TN), -1, self.size)
        widths = [self.num_heads, self.num_shared, self.num_shared]
        query, key, value = torch.split(heads, widths, 1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        each = self.num_heads // self.num_shared
        repeated = (part.repeat_interleave(each, 1) for part in (key, value))
        return torch.stack((query, *repeated), 1)


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection and a norm.

    The norm comes after the sum (post-norm), before each of the two, or on both sides of them.
    Source: Xiong et al. 2020, figure 1.
    """

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.config = config
        attention, feed_forward = config.attention, config.feed_forward
        width, wide = config.hidden_size, feed_forward.width
        self.num_heads = config.heads_of(index)
        mixed = self.num_heads * config.head_size
        self.heads = Heads(config, self.num_heads)
        relative = isinstance(config.positions, RelativeSinusoid)
        self.relative = RelativeTerms(config, self.num_heads) if relative else None
        # One product for query, key and value, in this order, head by head.
        shared = self.heads.num_shared * config.head_size
        self.qkv = nn.Linear(width, mixed + 2 * shared, bias=attention.bias)
        self.attention_out = nn.Linear(mixed, width, bias=attention.bias)
        has_norm = index > 0 or not (config.pre_norm and config.embeddings.normed)
        self.attention_norm = new_norm(width, config) if has_norm else nn.Identity()
        # One product too: the activated half, then the gate.
        up_width = 2 * wide if feed_forward.gated else wide
        self.up = nn.Linear(width, up_width, bias=feed_forward.up_bias)
        self.down = nn.Linear(wide, width, bias=feed_forward.bias)
        self.norm = new_norm(width, config)
        both = config.norm.place == "both"
        self.attention_norm_after = new_norm(width, config) if both else nn.Identity()
        self.norm_after = new_norm(width, config) if both else nn.Identity()
        self._kept: tuple[tuple[Any, ...], PositionVectors] | None = None

    def forward(self, hidden_TH: Tensor, plan: AttentionPlan, at: Tensor | None = None) -> Tensor:
        """Compute the layer's output, (T, H), or only its rows `at`, int64 (K,): (K, H).

        The other rows are needed as keys and values. Their queries are computed too: with the
        attention a tenth of a layer, which does not pay for a second product.
        """
        residual = hidden_TH if at is None else hidden_TH[at]
        if self.config.pre_norm:
            mixed = self._attention(self.attention_norm(hidden_TH), plan, at)
            hidden = residual + self.attention_norm_after(mixed)
            return hidden + self.norm_after(self._feed_forward(self.norm(hidden)))  # type: ignore[no-any-return]
        hidden = self.attention_norm(residual + self._attention(hidden_TH, plan, at))
        return self.norm(hidden + self._feed_forward(hidden))  # type: ignore[no-any-return]

    def _attention(self, hidden_TH: Tensor, plan: AttentionPlan, at: Tensor | None) -> Tensor:
        rates = self.config.dropout
        qkv = self.operands(self.heads(dense(hidden_TH, self.qkv)), plan)
        rate = rates.attention if self.training else 0.0
        mixed = attend(qkv, plan, rate, vectors=self.position_vectors(plan))
        # Without the condition, autograd would copy the gradient of every slice.
        mixed = (mixed if self.relative is None else mixed[..., : self.heads.size]).flatten(1)
        mixed = dense(mixed if at is None else mixed[at], self.attention_out)
        return dropout(mixed, rates.hidden, self.training)

    def operands(self, qkv_T3AD: Tensor, plan: AttentionPlan) -> Tensor:
        """Return queries, keys and values with the elements that attention needs further."""
        if self.relative is None:
            return qkv_T3AD
        types_T = plan.batch.token_type_ids
        missing = len(qkv_T3AD) - len(types_T)
        return self.relative.extended(qkv_T3AD, F.pad(types_T, (0, missing)))

    def position_vectors(self, plan: AttentionPlan) -> PositionVectors | None:
        """Compute the vectors of distances from the plan's embeddings; None if it has none."""
        if plan.position_rows is None:
            return None
        assert plan.scale is not None
        if torch.is_grad_enabled():
            return self._position_vectors(*plan.position_rows, plan.scale)
        # For the same embeddings, weights and dtype of products they are the same in every batch.
        rows = plan.position_rows[0]
        is_cast = torch.is_autocast_enabled(rows.device.type)
        state = (id(rows), is_cast, *weights_state(self.relative or self.qkv))
        if self._kept is None or self._kept[0] != state:
            self._kept = (state, self._position_vectors(*plan.position_rows, plan.scale))
        return self._kept[1]

    def _position_vectors(self, rows: Tensor, columns: Tensor, scale: float) -> PositionVectors:
        rows = dropout(rows, self.config.dropout.hidden, self.training)
        if self.relative is not None:
            return PositionVectors((self.relative.vectors(rows) * scale).contiguous())
        # The part of the values is computed too, because an int8 product has no parts.
        qkv_R3AD = dense(rows, self.qkv).view(len(rows), 3, self.num_heads, -1) * scale
        keys = qkv_R3AD[:, 1].index_select(0, columns).permute(1, 2, 0)
        queries = qkv_R3AD[:, 0].index_select(0, columns.flip(0)).permute(1, 2, 0)
        return PositionVectors(keys.contiguous(), queries.contiguous())

    def _feed_forward(self, hidden_TH: Tensor) -> Tensor:
        feed_forward = self.config.feed_forward
        if feed_forward.gated:
            value, gate = dense(hidden_TH, self.up).chunk(2, -1)
            wide = activate(value, feed_forward.activation) * gate
        else:
            wide = dense(hidden_TH, self.up, feed_forward.activation)
        return dropout(dense(wide, self.down), self.config.dropout.hidden, self.training)


def new_layers(config: EncoderConfig) -> nn.ModuleList:
    """Create all distinct sets of layer parameters."""
    return nn.ModuleList(Layer(config, index) for index in range(config.num_groups))


def layer_of(layers: nn.ModuleList, index: int) -> nn.Module:
    """Return the parameters of layer `index`; several layers share them in ALBERT."""
    config: EncoderConfig = layers[0].config  # type: ignore[assignment]
    return layers[index * config.num_groups // config.num_hidden_layers]


def run_layers(
    layers: nn.ModuleList,
    hidden_TH: Tensor,
    batch: PackedBatch,
    at: Tensor | None = None,
    *,
    distances: Distances | None = None,
) -> Tensor:
    """Run hidden states through all layers: (T, H), or (K, H) for the rows `at`, int64 (K,).

    Only the last layer is limited to the rows `at`.
    """
    if not layers:
        return hidden_TH if at is None else hidden_TH[at]
    config: EncoderConfig = layers[0].config  # type: ignore[assignment]
    by_distance = {} if distances is None else distances(batch.max_seqlen, hidden_TH)
    plans, last = _plans(batch, config, by_distance), config.num_hidden_layers - 1
    num_rows = len(hidden_TH) if at is None else len(at)
    # Filled up once here, so that no product has to.
    hidden_TH, at = fill_up(hidden_TH), None if at is None else fill_up(at)
    for index in range(config.num_hidden_layers):
        plan, rows = plans[config.is_local(index)], at if index == last else None
        hidden_TH = layer_of(layers, index)(hidden_TH, plan, rows)
    return cut(hidden_TH, num_rows)


def _plans(
    batch: PackedBatch, config: EncoderConfig, by_distance: dict[str, Any]
) -> tuple[AttentionPlan, AttentionPlan]:
    """Plan the attention of global layers and of local ones."""
    window, positions, causal = config.attention.window, config.positions, config.attention.causal
    far_angles = near_angles = None
    if isinstance(positions, RotaryPositions):
        ids_T, size = fill_up(batch.position_ids), config.head_size
        scaling = positions.scaling
        far_angles = near_angles = rotary_angles(ids_T, size, positions.base, scaling)
        if window is not None and positions.local_base is not None:
            near_angles = rotary_angles(ids_T, size, positions.local_base, scaling)
    scale = config.score_scale
    far = AttentionPlan(batch, None, far_angles, causal, scale, **by_distance)
    if window is None:
        return far, far
    return far, AttentionPlan(batch, window // 2, near_angles, scale=scale, **by_distance)


class Encoder(nn.Module):
    """BERT's encoder and its relatives.

    Source: Devlin et al. 2019, section 3; Lan et al. 2020 for shared layers.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.embeddings = InputEmbeddings(config)
        self.layers = new_layers(config)
        kinds = Buckets | Alibi | Disentangled | RelativeSinusoid
        norm = new_norm(config.hidden_size, config)
        self.distances = Distances(config, norm) if isinstance(config.positions, kinds) else None
        self.final_norm = new_norm(width, config) if config.pre_norm else nn.Identity()
        self.pooler = nn.Linear(width, width) if config.pooling.activation else None

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> Tensor:
        """Compute the last hidden states, (T, H), or only the rows `at`, int64 (K,): (K, H).

        For a few rows, three quarters of the last layer are saved.

        Raises:
            InputError: A sequence is longer than the positions.
        """
        longest = self.config.max_tokens_per_sequence
        if batch.max_seqlen > longest:
            raise InputError(
                f"A sequence of {batch.max_seqlen} tokens; this model's positions end at "
                f"{longest}. Cut the text to max_length {longest}."
            )
        hidden = self.embeddings(batch)
        hidden = run_layers(self.layers, hidden, batch, at, distances=self.distances)
        return self.final_norm(hidden)  # type: ignore[no-any-return]

    def layer(self, index: int) -> nn.Module:
        """Return the parameters of layer `index`."""
        return layer_of(self.layers, index)

    def pool(self, hidden_TH: Tensor, batch: PackedBatch) -> Tensor:
        """Compute one vector per sequence, (S, H): a token or the mean, then the pooler if any."""
        token = self.config.pooling.token
        if token == "late":
            return mean_of_sequences(self.through_pooler(hidden_TH), batch.cu_seqlens)
        rows = row_read(batch, token, causal=self.config.attention.causal)
        if rows is not None:
            return self.through_pooler(hidden_TH[rows])
        return self.through_pooler(mean_of_sequences(hidden_TH, batch.cu_seqlens))

    def through_pooler(self, pooled_SH: Tensor) -> Tensor:
        """Apply the pooler, (S, H) to (S, H), if there is one."""
        if self.pooler is None:
            return pooled_SH
        if self.config.pooling.dropout:
            pooled_SH = dropout(pooled_SH, self.config.dropout.head, self.training)
        return dense(pooled_SH, self.pooler, self.config.pooling.activation)


def initialize(module: nn.Module, std: float) -> None:
    """Draw new weights in place: normal cut at two deviations, biases 0, norms 1 and 0.

    Source: google-research/bert, modeling.py, create_initializer
    (truncated_normal_initializer, 0.02).
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm | nn.RMSNorm):
            (nn.init.zeros_ if isinstance(part, RMSNormFromOne) else nn.init.ones_)(part.weight)
        if isinstance(part, nn.LayerNorm) and part.bias is not None:
            nn.init.zeros_(part.bias)


# Inner states, by hooks: the forward pass itself has no code for them.


@dataclass
class Trace:
    """Inner states of one forward pass, by layer: 0 is the embeddings, i the i-th layer.

    Attributes:
        hidden: Outputs of the layers, (T, H).
        qkv: Queries, keys and values, (T, 3, A, D), normalised where the model does so, before the
            rotation of rotary positions.
        plans: The attention plans.
    """

    hidden: dict[int, Tensor] = field(default_factory=dict)
    qkv: dict[int, Tensor] = field(default_factory=dict)
    plans: dict[int, AttentionPlan] = field(default_factory=dict)


@contextmanager
def traced(encoder: Encoder, hidden: Collection[int], qkv: Collection[int]) -> Iterator[Trace]:
    """Record the forward passes of an encoder within the block; the trace holds the last one.

    Args:
        hidden: Layers, 0 to L, whose outputs are recorded.
        qkv: Layers, 1 to L, whose queries, keys and values are recorded.
    """
    trace = Trace()
    # Several layers may share their parameters, so layers are counted as they run.
    number = num_tokens = 0

    def embedded(module: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal number, num_tokens
        number, num_tokens = 0, len(output)
        ended(module, inputs, output)

    def begun(module: nn.Module, inputs: Any) -> None:
        nonlocal number
        number += 1
        trace.plans[number] = inputs[1]

    def projected(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if number in qkv:
            trace.qkv[number] = cut(output, num_tokens)

    def ended(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if number in hidden:
            trace.hidden[number] = cut(output, num_tokens)

    with ExitStack() as hooks:
        hooks.callback(encoder.embeddings.register_forward_hook(embedded).remove)
        for layer in encoder.layers:
            hooks.callback(layer.register_forward_pre_hook(begun).remove)
            hooks.callback(layer.register_forward_hook(ended).remove)
            if qkv:
                heads: Any = layer.heads
                hooks.callback(heads.register_forward_hook(projected).remove)
        yield trace


def hidden_states(encoder: Encoder, batch: PackedBatch, layers: tuple[int, ...]) -> Tensor:
    """Return the outputs of the chosen layers next to each other, (T, H * len(layers)).

    The output of the last layer is the encoder's, through the LayerNorm that may follow.
    """
    last = encoder.config.num_hidden_layers
    with traced(encoder, layers, ()) as trace:
        trace.hidden[last] = encoder(batch)
    return torch.cat([trace.hidden[layer] for layer in layers], -1)
