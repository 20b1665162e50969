"""A decoder layer of the Transformer of 2017: BERT's layer, which also attends to another text.

T tokens in the batch, S sequences, L tokens of the longest, H hidden size, A heads, D head size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from filbert.batch import PackedBatch, split
from filbert.model.attention import AttentionPlan
from filbert.model.config import EncoderConfig
from filbert.model.cpu import dense, dropout
from filbert.model.encoder import Layer, new_norm


class Memory(NamedTuple):
    """The source as the decoder attends to it: the encoder's output and its batch."""

    hidden_TH: Tensor
    batch: PackedBatch


class CrossAttention(nn.Module):
    """Attention whose queries are of the target and whose keys and values are of the source."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads, width = config.attention.heads, config.hidden_size
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden_TH: Tensor, batch: PackedBatch, memory: Memory) -> Tensor:
        """Compute the sublayer's output, (T, H)."""
        query, key, value = self.operands(hidden_TH, memory)
        mixed_SALD = F.scaled_dot_product_attention(
            padded(query, batch).transpose(1, 2),
            padded(key, memory.batch).transpose(1, 2),
            padded(value, memory.batch).transpose(1, 2),
            attn_mask=is_token(memory.batch)[:, None, None, :],
        )
        return dense(mixed_SALD.transpose(1, 2)[is_token(batch)].flatten(1), self.out)

    def operands(self, hidden_TH: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of all tokens, (T, A, D) each."""
        key, value = dense(memory.hidden_TH, self.key_value).chunk(2, -1)
        parts = (dense(hidden_TH, self.query), key, value)
        query, key, value = (part.reshape(len(part), self.heads, -1) for part in parts)
        return query, key, value


def is_token(batch: PackedBatch) -> Tensor:
    """Return which places of the padded batch are tokens, bool (S, L)."""
    lengths = torch.tensor(batch.lengths, device=batch.input_ids.device)
    return torch.arange(batch.max_seqlen, device=lengths.device) < lengths[:, None]


def padded(rows_T: Tensor, batch: PackedBatch) -> Tensor:
    """Lay out packed rows, (T, ...), as (S, L, ...) with zeros after each sequence."""
    return pad_sequence(list(split(rows_T, batch)), batch_first=True)


class DecoderLayer(Layer):
    """Causal self-attention, attention to the source, feed-forward network. Section 3.1."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__(config, index)
        self.cross = CrossAttention(config)
        self.cross_norm = new_norm(config.hidden_size, config)

    def forward(  # type: ignore[override]
        self, hidden_TH: Tensor, plan: AttentionPlan, memory: Memory
    ) -> Tensor:
        """Compute the layer's output, (T, H)."""
        hidden = self.attended(hidden_TH, plan)
        mixed = self.cross(hidden, plan.batch, memory)
        hidden = self.cross_norm(hidden + dropout(mixed, self.config.dropout.hidden, self.training))
        return self.norm(hidden + self._feed_forward(hidden))  # type: ignore[no-any-return]

    def attended(self, hidden_TH: Tensor, plan: AttentionPlan) -> Tensor:
        """Compute the first sublayer, (T, H): what the queries to the source are made of."""
        mixed = self._attention(hidden_TH, plan, None)
        return self.attention_norm(hidden_TH + mixed)  # type: ignore[no-any-return]
