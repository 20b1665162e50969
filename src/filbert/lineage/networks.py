"""Text classifiers without attention: recurrent and convolutional networks over word vectors.

S texts in a batch, T words of the longest, E width of the word vectors, H states.

Sources: Hochreiter and Schmidhuber 1997 (LSTM); Cho et al. 2014, section 2.3 (GRU); Kim 2014
(convolutions over words); Tompson et al. 2015, section 3.2 (SpatialDropout).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from filbert.lineage import words as reading

# Kim 2014, section 3.1.
_WIDTHS = (3, 4, 5)


class Recurrent(nn.Module):
    """An LSTM or a bidirectional GRU over vectors, pooled by mean and maximum, and a linear layer.

    `kind` is "lstm" or "bigru", `width` is E, and `hidden` is H of each direction. `dropout` is the
    share of the vectors' elements that all words of a text lose together.
    """

    def __init__(self, kind: str, width: int, hidden: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout, both = dropout, kind == "bigru"
        layer = nn.GRU if both else nn.LSTM
        self.layer = layer(width, hidden, batch_first=True, bidirectional=both)
        self.out = nn.Linear((4 if both else 2) * hidden, num_labels)

    def forward(self, vectors_STE: Tensor, lengths_S: Tensor) -> Tensor:
        """Return logits, (S, labels). Texts are padded at their end."""
        vectors_STE = F.dropout1d(vectors_STE.mT, self.dropout, self.training).mT
        packed = pack_padded_sequence(
            vectors_STE, lengths_S, batch_first=True, enforce_sorted=False
        )
        states_STH, _ = pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        text = torch.cat(mean_and_largest(states_STH, lengths_S), -1)
        return self.out(F.dropout(text, self.dropout / 2, self.training))  # type: ignore[no-any-return]


def mean_and_largest(states_STH: Tensor, lengths_S: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the largest state of each text, (S, H) each, without padding."""
    padding_ST1 = (torch.arange(states_STH.shape[1]) >= lengths_S[:, None])[..., None]
    mean = states_STH.masked_fill(padding_ST1, 0).sum(1) / lengths_S[:, None]
    return mean, states_STH.masked_fill(padding_ST1, -math.inf).amax(1)


class Convolutional(nn.Module):
    """Filters over 3, 4 and 5 words, each one's largest value, and a linear layer."""

    def __init__(self, width: int, filters: int, num_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.filters = nn.ModuleList(nn.Conv1d(width, filters, size) for size in _WIDTHS)
        self.out = nn.Linear(len(_WIDTHS) * filters, num_labels)

    def forward(self, vectors_STE: Tensor, lengths_S: Tensor) -> Tensor:
        """Return logits, (S, labels). Texts are padded at their end."""
        vectors_SET = F.pad(vectors_STE.mT, (0, max(0, _WIDTHS[-1] - vectors_STE.shape[1])))
        parts = []
        for size, layer in zip(_WIDTHS, self.filters, strict=True):
            values = F.relu(layer(vectors_SET))
            # Windows that begin after the last word; a shorter text has one window.
            first = (lengths_S - size).clamp(min=0)[:, None]
            is_padding = torch.arange(values.shape[-1]) > first
            parts.append(values.masked_fill(is_padding[:, None], 0).amax(-1))
        return self.out(F.dropout(torch.cat(parts, -1), self.dropout, self.training))  # type: ignore[no-any-return]


class TextNetwork(nn.Module):
    """A classifier of texts: what `encode` returns of each is what `forward` reads.

    It reads `max_length` words of a text; `listed` are the words of its table.
    """

    def __init__(self, listed: Sequence[str], max_length: int) -> None:
        super().__init__()
        self.rows = {word: at for at, word in enumerate(listed)}
        self.max_length = max_length

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Return the ids of each text's words; an empty text is one unknown word."""
        lists = (reading.split_words(text.lower()) for text in texts)
        ids = ([self.rows.get(word, reading.UNKNOWN) for word in words] for words in lists)
        return [row[: self.max_length] or [reading.UNKNOWN] for row in ids]

    def groups(self) -> list[list[nn.Parameter]]:
        """Return groups of parameters, each with a rate of its own."""
        return [[parameter for parameter in self.parameters() if parameter.requires_grad]]

    def rates(self, done: float) -> list[float]:
        """Return each group's share of the learning rate after a part `done` of the training."""
        return [1.0]


class WordNetwork(TextNetwork):
    """A network of a kind over the vectors of a text's words, which are trained too.

    `kind` is "lstm", "bigru" or "cnn", and `options` are those of `recipe.NetworkOptions`. The
    frequent words of the training `texts` are the vocabulary.
    """

    def __init__(
        self,
        kind: str,
        texts: Sequence[str],
        num_labels: int,
        options: Mapping[str, Any],
        seed: int,
    ) -> None:
        most, least = options["max_words"], options["min_count"]
        listed = reading.frequent_words(texts, most=most, min_count=least)
        super().__init__(listed, options["max_length"])
        table = reading.word_table(listed, texts, options, seed)
        self.words = nn.Embedding(*table.shape)
        self.words.weight.data.copy_(table)
        sizes = (table.shape[1], options["hidden"], num_labels, options["dropout"])
        self.network = Convolutional(*sizes) if kind == "cnn" else Recurrent(kind, *sizes)

    def forward(self, rows: Sequence[list[int]]) -> Tensor:
        """Return logits, (S, labels), of encoded texts."""
        words_ST, lengths_S = reading.padded(rows)
        return self.network(self.words(words_ST), lengths_S)  # type: ignore[no-any-return]
