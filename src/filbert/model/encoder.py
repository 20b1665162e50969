"""The encoder: token ids to hidden states, for every family, packed.

T tokens in the batch, S sequences, H hidden size, E width of the embedding tables.
"""

from __future__ import annotations

from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.errors import InputError
from filbert.model.attention import attend
from filbert.model.attention_plan import AttentionPlan, plan_attention
from filbert.model.config import EncoderConfig, PositionTable, RotaryPositions
from filbert.model.dropout import dropout
from filbert.model.grouping import mean_of_sequences, standing_rows
from filbert.model.linear import activate, dense
from filbert.model.rotary import Rotary, rotary_tables


def new_norm(width: int, config: EncoderConfig) -> nn.LayerNorm:
    """A LayerNorm as all of this encoder's are."""
    return nn.LayerNorm(width, eps=config.norm.eps, bias=config.norm.bias)


class Embeddings(nn.Module):
    """Word, position and token type tables, those that there are, summed and normalised.

    Source: Devlin et al. 2019, section 3, figure 2.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.table_size
        self.word = nn.Embedding(config.vocab_size, width)
        self.position = (
            nn.Embedding(config.positions.rows, width)
            if isinstance(config.positions, PositionTable)
            else None
        )
        self.token_type = (
            nn.Embedding(config.embeddings.token_types, width)
            if config.embeddings.token_types
            else None
        )
        self.norm = new_norm(width, config)
        self.project = nn.Linear(width, config.hidden_size) if config.embeddings.width else None

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states before the first layer, (T, H)."""
        hidden = dropout(self.normed(batch), self.config.dropout.hidden, self.training)
        return hidden if self.project is None else dense(hidden, self.project)

    def normed(self, batch: PackedBatch) -> Tensor:
        """The same before dropout and projection, (T, E)."""
        sum_TE = self.word(batch.input_ids)
        if self.token_type is not None:
            sum_TE = sum_TE + self.token_type(batch.token_type_ids)
        if self.position is not None:
            sum_TE = sum_TE + self.position(batch.position_ids + self.config.positions.offset)
        return self.norm(sum_TE)  # type: ignore[no-any-return]


# The dense layers of a `Layer`, input side first.
DENSE = ("qkv", "attention_out", "up", "down")


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual and a LayerNorm.

    LayerNorm comes after the sum (post-LN), or with `norm.before` before each of the two;
    Xiong et al. 2020, figure 1.
    """

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.config = config
        width, wide = config.hidden_size, config.feed_forward.width
        bias = config.attention.bias
        self.num_heads = config.heads_of(index)
        mixed = self.num_heads * config.head_size
        # One product for query, key and value, in this order, head by head.
        self.qkv = nn.Linear(width, 3 * mixed, bias=bias)
        self.attention_out = nn.Linear(mixed, width, bias=bias)
        has_norm = index > 0 or not config.norm.before
        self.attention_norm = new_norm(width, config) if has_norm else nn.Identity()
        # One product again: what is activated, then the gate.
        bias = config.feed_forward.bias
        self.up = nn.Linear(width, 2 * wide if config.feed_forward.gated else wide, bias=bias)
        self.down = nn.Linear(wide, width, bias=bias)
        self.norm = new_norm(width, config)

    def forward(self, hidden_TH: Tensor, plan: AttentionPlan, at: Tensor | None = None) -> Tensor:
        """(T, H) to (T, H); to (K, H) for the rows `at`, int64 (K,), whom the others only serve.

        Their queries are made all the same: with their attention a tenth of a layer, which is not
        worth a second product.
        """
        residual = hidden_TH if at is None else hidden_TH[at]
        if self.config.norm.before:
            hidden = residual + self._attention(self.attention_norm(hidden_TH), plan, at)
            return hidden + self._feed_forward(self.norm(hidden))
        hidden = self.attention_norm(residual + self._attention(hidden_TH, plan, at))
        return self.norm(hidden + self._feed_forward(hidden))  # type: ignore[no-any-return]

    def _attention(self, hidden_TH: Tensor, plan: AttentionPlan, at: Tensor | None) -> Tensor:
        config = self.config
        qkv = dense(hidden_TH, self.qkv).view(-1, 3, self.num_heads, config.head_size)
        mixed = attend(qkv, plan, config.dropout.attention if self.training else 0.0).flatten(1)
        mixed = dense(mixed if at is None else mixed[at], self.attention_out)
        return dropout(mixed, config.dropout.hidden, self.training)

    def _feed_forward(self, hidden_TH: Tensor) -> Tensor:
        config = self.config
        if config.feed_forward.gated:
            value, gate = dense(hidden_TH, self.up).chunk(2, -1)
            wide = activate(value, config.feed_forward.activation) * gate
        else:
            wide = dense(hidden_TH, self.up, config.feed_forward.activation)
        return dropout(dense(wide, self.down), config.dropout.hidden, self.training)


def new_layers(config: EncoderConfig) -> nn.ModuleList:
    """All distinct sets of layer parameters."""
    return nn.ModuleList(Layer(config, index) for index in range(config.num_groups))


def run_layers(
    layers: nn.ModuleList, hidden_TH: Tensor, batch: PackedBatch, at: Tensor | None = None
) -> Tensor:
    """Hidden states through every layer in turn, (T, H) to (T, H); see `layer_of`.

    The last layer ends with the rows `at`, int64 (K,), where they are given: (K, H).
    """
    config: EncoderConfig = layers[0].config  # type: ignore[assignment]
    plans, last = _plans(batch, config), config.num_hidden_layers - 1
    for index in range(config.num_hidden_layers):
        plan, rows = plans[config.is_local(index)], at if index == last else None
        hidden_TH = layer_of(layers, index)(hidden_TH, plan, rows)
    return hidden_TH


def layer_of(layers: nn.ModuleList, index: int) -> nn.Module:
    """The parameters that layer `index` runs with; shared by several layers in ALBERT."""
    config: EncoderConfig = layers[0].config  # type: ignore[assignment]
    return layers[index * config.num_groups // config.num_hidden_layers]


def _plans(batch: PackedBatch, config: EncoderConfig) -> tuple[AttentionPlan, AttentionPlan]:
    """How layers that see everything attend, and local ones."""
    window, positions = config.attention.window, config.positions
    turns: list[Rotary | None] = [None, None]
    if isinstance(positions, RotaryPositions):
        turns = [
            rotary_tables(batch.position_ids, config.head_size, base)
            for base in (positions.base, positions.local_base or positions.base)
        ]
    far = plan_attention(batch, None, turns[0], causal=config.attention.causal)
    if window is None:
        return far, far
    return far, plan_attention(batch, window // 2, turns[1])


class Encoder(nn.Module):
    """BERT's encoder and its relatives.

    Source: Devlin et al. 2019, section 3; Lan et al. 2020 for shared layers.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = new_layers(config)
        self.final_norm = (
            new_norm(config.hidden_size, config) if config.norm.before else nn.Identity()
        )
        self.pooler = (
            nn.Linear(config.hidden_size, config.hidden_size) if config.pooling.activation else None
        )

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> Tensor:
        """Last hidden state of every token, (T, H), or only of the rows `at`, int64 (K,): (K, H).

        Where those are few, three quarters of the last layer are saved.

        Raises:
            InputError: a sequence is longer than the position table serves.
        """
        longest = self.config.max_tokens_per_sequence
        if batch.max_seqlen > longest:
            raise InputError(
                f"A sequence of {batch.max_seqlen} tokens; this model's positions end at "
                f"{longest}. Cut the text to max_length {longest}."
            )
        hidden = run_layers(self.layers, self.embeddings(batch), batch, at)
        if at is None and isinstance(batch, PackedBatch) and len(hidden) > sum(batch.lengths):
            hidden = hidden[: sum(batch.lengths)]
        return self.final_norm(hidden)  # type: ignore[no-any-return]

    def layer(self, index: int) -> nn.Module:
        """The parameters that layer `index` runs with."""
        return layer_of(self.layers, index)

    def pool(self, hidden_TH: Tensor, batch: PackedBatch) -> Tensor:
        """One vector a sequence, (S, H): one token or the mean, through the pooler if any."""
        if self.config.pooling.token == "cls":
            rows = standing_rows(batch, causal=self.config.attention.causal)
            return self.through_pooler(hidden_TH[rows])
        return self.through_pooler(mean_of_sequences(hidden_TH, batch.cu_seqlens))

    def through_pooler(self, pooled_SH: Tensor) -> Tensor:
        """The dense layer over what stands for each sequence, (S, H) to (S, H), if there is one."""
        if self.pooler is None:
            return pooled_SH
        assert self.config.pooling.activation is not None
        if self.config.pooling.dropout:
            pooled_SH = dropout(pooled_SH, self.config.dropout.head, self.training)
        return dense(pooled_SH, self.pooler, self.config.pooling.activation)


def initialize(module: nn.Module, std: float) -> None:
    """Draw new weights in place: normal cut at two deviations, biases 0, LayerNorm 1 and 0.

    Source: google-research/bert, modeling.py, create_initializer
    (truncated_normal_initializer, 0.02). A GRU's are drawn as Keras does, by their own widths:
    uniform at the input (Glorot and Bengio 2010), orthogonal within (Saxe et al. 2014).
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.GRU):
            for name, weights in part.named_parameters():
                if name.startswith("bias"):
                    nn.init.zeros_(weights)
                    continue
                draw = nn.init.orthogonal_ if "_hh_" in name else nn.init.xavier_uniform_
                for gate in weights.data.chunk(3):
                    draw(gate)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
