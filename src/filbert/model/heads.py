"""Heads: hidden states to logits. A head knows no label names and no loss.

T tokens in the batch, S sequences, K rows asked for, H hidden size, E width of the word table, V
vocabulary, C classes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.batch import PackedBatch
from filbert.model.config import EncoderConfig
from filbert.model.dropout import dropout
from filbert.model.encoder import Encoder, initialize, new_norm
from filbert.model.grouping import standing_rows
from filbert.model.linear import dense
from filbert.model.pooling import pool


class Features(NamedTuple):
    """What an encoder gives to a head.

    Attributes:
        tokens_TH: last hidden states, (T, H).
        pooled_SH: one vector a sequence, (S, H); None for heads that do not read it.
        word_table_VE: the word embedding table, which masked LM shares.
        batch: the sequences that the rows of `tokens_TH` belong to.
    """

    tokens_TH: Tensor
    pooled_SH: Tensor | None
    word_table_VE: Tensor
    batch: PackedBatch


class Head(nn.Module):
    """Base of all heads.

    Attributes:
        reads_pooled: whether the encoder's pooler has to run.
        reads_tokens: whether it reads any row but the one that stands for a sequence.
        per_token: whether the output has a row per token rather than one per sequence.
        transform, norm: a dense layer and, after the activation, a LayerNorm over what the head
            reads; None for heads that read it as it is.
    """

    reads_pooled = False
    reads_tokens = True
    per_token = False

    def __init__(self, config: EncoderConfig, transform_to: int | None = None) -> None:
        """`transform_to`: the width that the transform gives, where there is one."""
        super().__init__()
        self.config = config
        self.transform: nn.Linear | None = None
        self.norm: nn.LayerNorm | None = None
        if transform_to is not None:
            self.transform = nn.Linear(
                config.hidden_size, transform_to, bias=config.head_transform.bias
            )
            self.norm = new_norm(transform_to, config)

    def transformed(self, rows: Tensor) -> Tensor:
        """The rows through the transform, if there is one."""
        if self.transform is None or self.norm is None:
            return rows
        return self.norm(dense(rows, self.transform, self.config.feed_forward.activation))  # type: ignore[no-any-return]

    def drop(self, values: Tensor) -> Tensor:
        """Head dropout, in training only."""
        return dropout(values, self.config.dropout.head, self.training)

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        """Logits; `at`, int64 (K,), asks for those rows only, heads over sequences ignore it."""
        raise AssertionError("a head defines forward")


class MaskedLMHead(Head):
    """Scores over the vocabulary at the rows asked for, (K, V).

    Source: Devlin et al. 2019, section 3.1, task 1.

    Rows are chosen before the projection: at 15 % masking this saves most of its cost.
    """

    per_token = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, config.table_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor:
        """Unnormalised log-probabilities, (K, V); all T rows when `at` is None."""
        rows = features.tokens_TH if at is None else features.tokens_TH[at]
        return F.linear(self.transformed(rows), features.word_table_VE, self.bias)


class PairHead(Head):
    """Does B follow A: (S, 2), on the pooled vector.

    Next sentence (BERT) and sentence order (ALBERT).
    """

    reads_pooled = True
    reads_tokens = False

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.out = nn.Linear(config.hidden_size, 2)

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor:
        """Logits (S, 2); class 0 is the true order."""
        assert features.pooled_SH is not None
        return self.out(features.pooled_SH)  # type: ignore[no-any-return]


class PretrainingHead(Head):
    """Masked LM and the pair objective together: ((K, V), (S, 2))."""

    reads_pooled = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.masked_lm = MaskedLMHead(config)
        self.pair = PairHead(config)

    def forward(self, features: Features, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Masked-LM logits (K, V) and pair logits (S, 2)."""
        return self.masked_lm(features, at), self.pair(features)


class DiscriminatorHead(Head):
    """Was this token replaced: one logit per row, (K,). Clark et al. 2020, section 2."""

    per_token = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, 1)

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor:
        """Logits (K,); positive means replaced."""
        rows = features.tokens_TH if at is None else features.tokens_TH[at]
        return self.out(dense(rows, self.dense, self.config.feed_forward.activation)).squeeze(-1)  # type: ignore[no-any-return]


def _transform_width(config: EncoderConfig) -> int | None:
    return config.hidden_size if config.head_transform.everywhere else None


class SequenceHead(Head):
    """C scores per sequence on the pooled vector. Devlin et al. 2019, section 4.1."""

    reads_pooled = True
    reads_tokens = False

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__(config, _transform_width(config))
        self.out = nn.Linear(config.hidden_size, num_labels)

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor:
        """Logits (S, C)."""
        assert features.pooled_SH is not None
        return self.out(self.drop(self.transformed(features.pooled_SH)))  # type: ignore[no-any-return]


class TokenHead(Head):
    """C scores per row asked for. Devlin et al. 2019, section 5.3."""

    per_token = True

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__(config, _transform_width(config))
        self.out = nn.Linear(config.hidden_size, num_labels)

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor:
        """Logits (K, C); all T rows when `at` is None."""
        rows = features.tokens_TH if at is None else features.tokens_TH[at]
        return self.out(self.drop(self.transformed(rows)))  # type: ignore[no-any-return]


class SpanHead(Head):
    """Start and end scores per token.

    Source: Devlin et al. 2019, section 4.2. No dropout, as in run_squad.py.
    """

    per_token = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, _transform_width(config))
        self.out = nn.Linear(config.hidden_size, 2)

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor:
        """Logits (K, 2): start, end; all T rows when `at` is None."""
        rows = features.tokens_TH if at is None else features.tokens_TH[at]
        return self.out(self.transformed(rows))  # type: ignore[no-any-return]


class ChoiceHead(Head):
    """One score per sequence; the choices of a row are neighbouring sequences. Section 4.4."""

    reads_pooled = True
    reads_tokens = False

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, _transform_width(config))
        self.out = nn.Linear(config.hidden_size, 1)

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor:
        """Logits (S,)."""
        assert features.pooled_SH is not None
        return self.out(self.drop(self.transformed(features.pooled_SH))).squeeze(-1)  # type: ignore[no-any-return]


class VectorHead(Head):
    """One vector per sequence from its tokens, without weights of its own.

    Source: Reimers and Gurevych 2019, section 3: the mean of all tokens, the first (for a causal
    encoder the last), or the maximum.
    """

    def __init__(self, config: EncoderConfig, pooling: str = "mean") -> None:
        super().__init__(config)
        self.pooling = pooling

    def forward(self, features: Features, at: Tensor | None = None) -> Tensor:
        """Vectors (S, H)."""
        tokens_TH, batch = features.tokens_TH, features.batch
        return torch.stack(
            pool(tokens_TH, batch, self.pooling, causal=self.config.attention.causal)
        )


HEADS: dict[str, type[Head]] = {
    "masked_lm": MaskedLMHead,
    "pair": PairHead,
    "pretraining": PretrainingHead,
    "discriminator": DiscriminatorHead,
    "sequence": SequenceHead,
    "tokens": TokenHead,
    "spans": SpanHead,
    "choices": ChoiceHead,
}


def new_head(kind: str, config: EncoderConfig, num_labels: int | None = None) -> Head:
    """A freshly drawn head. `num_labels` is for the kinds "sequence" and "tokens"."""
    head = HEADS[kind](config, num_labels) if num_labels is not None else HEADS[kind](config)  # type: ignore[call-arg]
    initialize(head, config.initializer_range)
    return head


class Model(nn.Module):
    """An encoder and, when there is a task, its head."""

    def __init__(self, encoder: Encoder, head: Head | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @property
    def config(self) -> EncoderConfig:
        """The encoder's."""
        return self.encoder.config

    @property
    def device(self) -> torch.device:
        """Where it is, and batches have to be."""
        return next(self.parameters()).device

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        """The head's logits; the last hidden states, (T, H), without a head.

        Off the tape the last layer runs for the rows that the head reads. On it for all, whose
        dropout is then drawn in the same order whatever is asked for.
        """
        encoder, head = self.encoder, self.head
        if head is None or torch.is_grad_enabled():
            return self.read(encoder(batch), batch, at)
        if head.per_token and at is not None:
            return self.read(encoder(batch, at), batch)
        if head.reads_tokens or self.config.pooling.token != "cls":
            return self.read(encoder(batch), batch, at)
        rows_SH = encoder(batch, standing_rows(batch, causal=self.config.attention.causal))
        return self._answer(rows_SH, encoder.through_pooler(rows_SH), batch, None)

    def read(
        self, tokens_TH: Tensor, batch: PackedBatch, at: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """As `forward`, from the encoder's output: pooler and head alone."""
        if self.head is None:
            return tokens_TH
        pooled_SH = self.encoder.pool(tokens_TH, batch) if self.head.reads_pooled else None
        return self._answer(tokens_TH, pooled_SH, batch, at)

    def _answer(
        self, tokens_TH: Tensor, pooled_SH: Tensor | None, batch: PackedBatch, at: Tensor | None
    ) -> Tensor | tuple[Tensor, ...]:
        assert self.head is not None
        features = Features(tokens_TH, pooled_SH, self.encoder.embeddings.word.weight, batch)
        return self.head(features, at)  # type: ignore[no-any-return]
