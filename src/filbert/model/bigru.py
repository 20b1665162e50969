"""BiGRU: word vectors and bidirectional GRU layers over packed sequences, in an encoder's place.

T tokens in the batch, S sequences, E width of the word vectors, H hidden size (both directions).

Source: Cho et al. 2014, section 2.3 (the unit); Schuster and Paliwal 1997 (two directions).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from filbert.batch import PackedBatch
from filbert.errors import InputError
from filbert.model.config import EncoderConfig
from filbert.model.dropout import dropout, keep_mask
from filbert.model.grouping import max_of_sequences, mean_of_sequences


class TimeOrder(NamedTuple):
    """The tokens of a batch by time: all first tokens, then all second ones, the longest first.

    Attributes:
        by_time: the row of each token in that order, int64 (T,).
        back: the place of each row in that order, int64 (T,).
        batch_sizes: sequences that reach each step, int64 (longest,), on the host.
    """

    by_time: Tensor
    back: Tensor
    batch_sizes: Tensor


def time_order(batch: PackedBatch) -> TimeOrder:
    """How a recurrent layer walks through a batch, without a place for padding."""
    lengths = np.array(batch.lengths)
    starts = np.cumsum(lengths) - lengths
    times = np.arange(batch.num_tokens) - np.repeat(starts, lengths)
    rank = np.empty(len(lengths), dtype=np.int64)
    rank[np.argsort(-lengths, kind="stable")] = np.arange(len(lengths))
    by_time = np.lexsort((np.repeat(rank, lengths), times))
    back = np.empty_like(by_time)
    back[by_time] = np.arange(len(by_time))
    device = batch.input_ids.device
    return TimeOrder(
        torch.from_numpy(by_time).to(device),
        torch.from_numpy(back).to(device),
        torch.from_numpy(np.bincount(times)),
    )


class WordEmbeddings(nn.Module):
    """A vector for each word, and nothing else.

    In training whole elements of the vectors are dropped, the same throughout a sequence: its words
    share them, so that dropping one here and there would take little away.

    Source: Tompson et al. 2015, section 3.2 (SpatialDropout).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.word = nn.Embedding(config.vocab_size, config.table_size)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Vectors (T, E)."""
        words_TE: Tensor = self.word(batch.input_ids)
        if not self.training or self.config.hidden_dropout == 0.0:
            return words_TE
        like_SE = words_TE.new_empty(batch.num_sequences, words_TE.shape[1])
        return words_TE * keep_mask(like_SE, self.config.hidden_dropout)[batch.sequence_ids]


class GRULayer(nn.Module):
    """A GRU from either end, the two halves of H side by side."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        width = config.hidden_size if index else config.table_size
        self.gru = nn.GRU(width, config.hidden_size // 2, bidirectional=True)

    def forward(self, hidden: Tensor, order: TimeOrder) -> Tensor:
        """(T, E) or (T, H) to (T, H).

        Always in the precision of the weights: rounding would add up from word to word, and a step
        is too small a product to gain by bf16.
        """
        with torch.autocast(hidden.device.type, enabled=False):
            rows = hidden.to(next(self.gru.parameters()).dtype)[order.by_time]
            states, _ = self.gru(PackedSequence(rows, order.batch_sizes))
        return states.data[order.back]  # type: ignore[no-any-return]


class BiGRU(nn.Module):
    """Stands for an `Encoder`, with the same names: embeddings, layers, pool."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = WordEmbeddings(config)
        self.layers = nn.ModuleList(
            GRULayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.final_norm = nn.Identity()
        self.pooler = None

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> Tensor:
        """State of every token in the last layer, (T, H), or of the rows `at`: (K, H).

        Raises:
            InputError: a sequence is longer than the config allows.
        """
        longest = self.config.max_tokens_per_sequence
        if batch.max_seqlen > longest:
            raise InputError(
                f"A sequence of {batch.max_seqlen} words; this model reads up to {longest}. Cut "
                f"the text to max_length {longest}."
            )
        hidden, order = self.embeddings(batch), time_order(batch)
        for index, layer in enumerate(self.layers):
            if index:
                hidden = dropout(hidden, self.config.hidden_dropout, self.training)
            hidden = layer(hidden, order)
        return hidden if at is None else hidden[at]  # type: ignore[no-any-return]

    def layer(self, index: int) -> nn.Module:
        """Layer `index`."""
        return self.layers[index]

    def pool(self, hidden_TH: Tensor, batch: PackedBatch) -> Tensor:
        """One vector a sequence, (S, H) or (S, 2 H): the mean, the maximum, or both in a row."""
        ways = {"mean": mean_of_sequences, "max": max_of_sequences}
        asked = self.config.pooled.split("+")
        return torch.cat([ways[way](hidden_TH, batch.cu_seqlens) for way in asked], -1)
