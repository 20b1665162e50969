"""The encoder: token ids to hidden states, for every family, packed.

T tokens in the batch, S sequences, H hidden size, E width of the embedding tables.
"""

from __future__ import annotations

from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.errors import InputError
from filbert.model.attention import AttentionPlan, attend, plan_attention
from filbert.model.config import EncoderConfig
from filbert.model.dropout import dropout
from filbert.model.linear import dense


class Embeddings(nn.Module):
    """Word, position and token type tables, summed and normalised.

    Source: Devlin et al. 2019, section 3, figure 2.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.table_size
        self.word = nn.Embedding(config.vocab_size, width)
        self.position = nn.Embedding(config.max_position_embeddings, width)
        self.token_type = (
            nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        )
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.project = nn.Linear(width, config.hidden_size) if config.embedding_size else None

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states before the first layer, (T, H)."""
        sum_TE = self.word(batch.input_ids)
        if self.token_type is not None:
            sum_TE = sum_TE + self.token_type(batch.token_type_ids)
        sum_TE = sum_TE + self.position(batch.position_ids + self.config.position_offset)
        hidden = dropout(self.norm(sum_TE), self.config.hidden_dropout, self.training)
        return hidden if self.project is None else dense(hidden, self.project)


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual, then LayerNorm (post-LN)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        # One product for query, key and value: rows 0..H-1, H..2H-1 and 2H..3H-1 of the weight.
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.up = nn.Linear(width, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, width)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, hidden_TH: Tensor, plan: AttentionPlan) -> Tensor:
        """(T, H) to (T, H)."""
        config = self.config
        qkv = dense(hidden_TH, self.qkv).view(-1, 3, config.num_attention_heads, config.head_size)
        mixed = attend(qkv, plan, config.attention_dropout if self.training else 0.0)
        mixed = dense(mixed.reshape(-1, config.hidden_size), self.attention_out)
        mixed = dropout(mixed, config.hidden_dropout, self.training)
        hidden_TH = self.attention_norm(hidden_TH + mixed)
        wide = dense(hidden_TH, self.up, config.hidden_act)
        narrow = dropout(dense(wide, self.down), config.hidden_dropout, self.training)
        return self.norm(hidden_TH + narrow)  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """BERT's encoder and its relatives.

    Source: Devlin et al. 2019, section 3; Lan et al. 2020 for shared layers.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_groups))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if config.pooler else None

    def forward(self, batch: PackedBatch) -> Tensor:
        """Last hidden state of every token, (T, H).

        Raises:
            InputError: a sequence is longer than the position table serves.
        """
        longest = self.config.max_tokens_per_sequence
        if batch.max_seqlen > longest:
            raise InputError(
                f"A sequence of {batch.max_seqlen} tokens; this model's position table ends at "
                f"{longest}. Cut the text to max_length {longest}."
            )
        hidden = self.embeddings(batch)
        plan = plan_attention(batch)
        for index in range(self.config.num_hidden_layers):
            hidden = self.layer(index)(hidden, plan)
        return hidden  # type: ignore[no-any-return]

    def layer(self, index: int) -> nn.Module:
        """The parameters that layer `index` runs with; shared by several layers in ALBERT."""
        config = self.config
        return self.layers[index * config.num_groups // config.num_hidden_layers]

    def pool(self, hidden_TH: Tensor, batch: PackedBatch) -> Tensor:
        """One vector a sequence, (S, H): the first token, through the pooler if there is one."""
        first_SH = hidden_TH[batch.starts]
        if self.pooler is None:
            return first_SH
        assert self.config.pooler is not None
        if self.config.pooler_dropout:
            first_SH = dropout(first_SH, self.config.head_dropout, self.training)
        return dense(first_SH, self.pooler, self.config.pooler)


def initialize(module: nn.Module, std: float) -> None:
    """Draw new weights in place: normal cut at two deviations, biases 0, LayerNorm 1 and 0.

    Source: google-research/bert, modeling.py, create_initializer
    (truncated_normal_initializer, 0.02).
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
