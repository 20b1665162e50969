"""What learns on top of frozen hidden states: a mixture of layers, a BiLSTM, a linear layer.

T tokens in the batch, S sequences, K layers of the choice, H hidden size, W width of the features,
C classes, R rows asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from filbert.batch import PackedBatch
from filbert.model.dropout import dropout
from filbert.model.pooling import pool
from filbert.probe.layer_choices import Choice


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


class LayerMixture(nn.Module):
    """K layers to one: the only one, all end to end, or their weighted sum.

    The weights of the sum go through a softmax and a common factor stands before it; both are
    learnt, and the sum begins as the mean. Source: Peters et al. 2018, section 3.2, equation 1
    (Devlin et al. 2019 do not say more than "weighted sum").
    """

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.way = choice.way
        if self.way == "sum":
            self.scores_K = nn.Parameter(torch.zeros(choice.behind - choice.first))
            self.factor = nn.Parameter(torch.ones(()))

    def forward(self, states_TKH: Tensor) -> Tensor:
        """(T, K, H) to (T, W)."""
        if self.way == "sum":
            return self.factor * torch.einsum("tkh,k->th", states_TKH, self.weights_K())
        return states_TKH.flatten(1)

    def weights_K(self) -> Tensor:
        """Shares of the layers in the sum, (K,); they add up to 1."""
        return torch.softmax(self.scores_K, 0)


class LayerHead(nn.Module):
    """From the hidden states of some layers to the logits of a task.

    Args:
        choice: which layers, and how they become one.
        hidden_size: H.
        num_labels: C.
        per_token: logits for tokens rather than for sequences.
        width: units of the BiLSTM in each direction; None for no BiLSTM.
        depth: layers of the BiLSTM.
        pooling: of a sequence's tokens to one vector, where `per_token` is off: a key of
            `model.pooling.pool`.
        causal: which token "cls" is.
        dropped: share that dropout takes, in training only.
    """

    def __init__(
        self,
        choice: Choice,
        *,
        hidden_size: int,
        num_labels: int,
        per_token: bool,
        width: int | None,
        depth: int,
        pooling: str,
        causal: bool,
        dropped: float,
    ) -> None:
        super().__init__()
        self.per_token, self.pooling, self.causal = per_token, pooling, causal
        self.dropped = dropped
        self.mixture = LayerMixture(choice)
        size = choice.size(hidden_size)
        self.lstm: nn.LSTM | None = None
        if width is not None:
            between = dropped if depth > 1 else 0.0
            self.lstm = nn.LSTM(size, width, num_layers=depth, bidirectional=True, dropout=between)
            size = 2 * width
        self.out = nn.Linear(size, num_labels)

    def forward(self, states_TKH: Tensor, batch: PackedBatch, at: Tensor | None = None) -> Tensor:
        """Logits: (R, C) of the rows `at`, int64 (R,); of all T when it is None; or (S, C)."""
        rows = dropout(self.mixture(states_TKH), self.dropped, self.training)
        if self.lstm is not None:
            order = time_order(batch)
            found, _ = self.lstm(PackedSequence(rows[order.by_time], order.batch_sizes))
            rows = dropout(found.data[order.back], self.dropped, self.training)
        if self.per_token:
            return F.linear(rows if at is None else rows[at], self.out.weight, self.out.bias)
        pooled = torch.stack(pool(rows, batch, self.pooling, causal=self.causal))
        return F.linear(pooled, self.out.weight, self.out.bias)
