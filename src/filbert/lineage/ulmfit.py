"""ULMFiT: the AWD-LSTM language model, and its fine-tuning as a classifier.

S texts in a batch, T words of the longest, E width of the word vectors, V words.

Sources: Merity et al. 2018 (AWD-LSTM), sections 2 to 4; Howard and Ruder 2018 (ULMFiT).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.lineage import words as reading
from filbert.lineage.networks import TextNetwork, mean_and_largest

State = list[tuple[Tensor, Tensor]]

# Howard and Ruder 2018, sections 3.2 and 3.3: each lower layer learns 2.6 times slower; the rate
# rises in the first tenth of the steps, and its lowest value is a 32nd of the highest.
_SLOWER, _RISE, _LOWEST = 2.6, 0.1, 1 / 32
_HEAD_WIDTH = 50
# Section 4.1: rates for words, inputs, recurrent weights, states between layers, last states.
_WORDS, _INPUTS, _RECURRENT, _BETWEEN, _LAST = 0.05, 0.4, 0.5, 0.3, 0.4


@dataclass(frozen=True)
class AwdLstmConfig:
    """The sizes of the language model; the defaults are those of `ulmfit-small`."""

    vocab_size: int
    width: int = 128  # of the word vectors and of the last layer's states
    cells: int = 256  # of the other layers
    layers: int = 3
    dropout: float = 0.2  # a factor of the published rates


def locked_dropout(values_STE: Tensor, rate: float, training: bool) -> Tensor:
    """Drop the same elements at all words of a text: Merity et al. 2018, section 4.2."""
    if not training:
        return values_STE
    kept = torch.ones_like(values_STE[:, :1])
    return values_STE * F.dropout(kept, rate)


class AwdLstm(nn.Module):
    """LSTM layers with dropout on their recurrent weights, and an output that shares the table."""

    def __init__(self, config: AwdLstmConfig) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Embedding(config.vocab_size, config.width, reading.PADDING)
        # Smaller ones leave three layers without a signal: the loss stays at that of word counts.
        nn.init.normal_(self.table.weight, std=0.3)
        widths = [config.width, *[config.cells] * (config.layers - 1), config.width]
        self.layers = nn.ModuleList(
            nn.LSTM(left, right, batch_first=True)
            for left, right in zip(widths, widths[1:], strict=False)
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def words(self, ids_ST: Tensor) -> Tensor:
        """Return the vectors of words; in training some words are dropped everywhere."""
        weight, factor = self.table.weight, self.config.dropout
        if self.training:
            weight = weight * F.dropout(torch.ones_like(weight[:, :1]), _WORDS * factor)
        return locked_dropout(F.embedding(ids_ST, weight), _INPUTS * factor, self.training)

    def forward(self, ids_ST: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return the last layer's states, (S, T, E), and the state after the last word."""
        values, after = self.words(ids_ST), []
        for at, layer in enumerate(self.layers):
            assert isinstance(layer, nn.LSTM)
            zeros = values.new_zeros((1, len(values), layer.hidden_size))
            before = (zeros, zeros) if state is None else state[at]
            # Section 2: recurrent weights are dropped once for all words.
            rate = _RECURRENT * self.config.dropout
            recurrent = F.dropout(cast("Tensor", layer.weight_hh_l0), rate, self.training)
            weights = [layer.weight_ih_l0, recurrent, layer.bias_ih_l0, layer.bias_hh_l0]
            lstm: Any = torch.lstm
            values, *last = lstm(values, before, weights, True, 1, 0.0, self.training, False, True)
            after.append((last[0].detach(), last[1].detach()))
            rate = _LAST if at + 1 == len(self.layers) else _BETWEEN
            values = locked_dropout(values, rate * self.config.dropout, self.training)
        return values, after

    def groups(self) -> list[list[nn.Parameter]]:
        """Return the parameters of each layer from the last, then those of the table."""
        layers = [list(layer.parameters()) for layer in reversed(self.layers)]
        return [*layers, [cast("nn.Parameter", self.table.weight), self.bias]]

    def logits(self, states_STE: Tensor) -> Tensor:
        """Return scores of the next word, (S, T, V); the table is shared: section 4.4."""
        return F.linear(states_STE, self.table.weight, self.bias)


def slanted_rates(done: float, count: int) -> list[float]:
    """Return the shares of the learning rate of `count` groups of layers, the last layer first.

    They rise to 1 and fall after it, and are lower for lower layers. `done` is the part of the
    training that is done.
    """
    slope = done / _RISE if done < _RISE else (1 - done) / (1 - _RISE)
    height = _LOWEST + (1 - _LOWEST) * slope
    return [height / _SLOWER**at for at in range(count)]


class UlmfitClassifier(TextNetwork):
    """A classifier over the last, the largest and the mean state: ULMFiT, section 3.3.

    `listed` are the words of the language model's table.
    """

    def __init__(
        self, language_model: AwdLstm, listed: Sequence[str], num_labels: int, max_length: int
    ) -> None:
        super().__init__(listed, max_length)
        self.trunk, width = language_model, language_model.config.width
        self.head = nn.Sequential(
            nn.BatchNorm1d(3 * width), nn.Dropout(0.2), nn.Linear(3 * width, _HEAD_WIDTH),
            nn.ReLU(), nn.BatchNorm1d(_HEAD_WIDTH), nn.Dropout(0.1),
            nn.Linear(_HEAD_WIDTH, num_labels),
        )  # fmt: skip

    def forward(self, rows: Sequence[list[int]]) -> Tensor:
        """Return logits, (S, labels), of encoded texts."""
        ids_ST, lengths_S = reading.padded(rows)
        states_STE, _ = self.trunk(ids_ST)
        last = states_STE[torch.arange(len(rows)), lengths_S - 1]
        mean, largest = mean_and_largest(states_STE, lengths_S)
        return self.head(torch.cat((last, largest, mean), -1))  # type: ignore[no-any-return]

    def groups(self) -> list[list[nn.Parameter]]:
        """Return the head's parameters, those of each layer from the last, and the table."""
        return [list(self.head.parameters()), *self.trunk.groups()]

    def rates(self, done: float) -> list[float]:
        """Return each group's share of the learning rate after a part `done` of the training.

        In the first half one more group learns in each of as many parts (gradual unfreezing).
        """
        count = len(self.trunk.layers) + 2
        learning = 1 + int(2 * done * count)
        rates = slanted_rates(done, count)
        return [rate if at < learning else 0.0 for at, rate in enumerate(rates)]
