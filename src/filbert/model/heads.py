"""Heads: hidden states to logits. A head has no label names and no loss.

T tokens in the batch, S sequences, K rows asked for, H hidden size, E width of the word table, V
vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.model.config import EncoderConfig
from filbert.model.cpu import dense, dropout, linear
from filbert.model.encoder import Encoder, initialize, new_norm
from filbert.model.pooling import VectorModule, pool, row_read


class HeadInput(NamedTuple):
    """The output of an encoder, as a head reads it.

    Attributes:
        tokens_TH: Last hidden states, (T, H).
        pooled_SH: One vector per sequence, (S, H); None for heads that do not read it.
        word_table_VE: The word embedding table, which masked LM shares.
        batch: The sequences that the rows of `tokens_TH` belong to.
    """

    tokens_TH: Tensor
    pooled_SH: Tensor | None
    word_table_VE: Tensor
    batch: PackedBatch

    def rows(self, at: Tensor | None) -> Tensor:
        """Return the rows `at` of the tokens, (K, H); all T rows if it is None."""
        return self.tokens_TH if at is None else self.tokens_TH[at]

    def pooled(self) -> Tensor:
        """Return one vector per sequence, (S, H)."""
        assert self.pooled_SH is not None, "a head that reads it sets reads_pooled"
        return self.pooled_SH


class Head(nn.Module):
    """Base of all heads.

    Attributes:
        reads_pooled: Whether the encoder's pooler has to run.
        reads_tokens: Whether it reads other rows than the one that represents a sequence.
        per_token: Whether the output has a row per token rather than one per sequence.
        transform, norm: A dense layer and, after the activation, a LayerNorm over the input; None
            for heads without.
    """

    reads_pooled = False
    reads_tokens = True
    per_token = False

    def __init__(self, config: EncoderConfig, transform_to: int | None = None) -> None:
        """Create the transform to the width `transform_to`, if that is given."""
        super().__init__()
        self.config = config
        self.transform: nn.Linear | None = None
        self.norm: nn.Module | None = None
        if transform_to is not None:
            bias = config.head_transform.bias
            self.transform = nn.Linear(config.hidden_size, transform_to, bias=bias)
            self.norm = new_norm(transform_to, config)

    def transformed(self, rows: Tensor) -> Tensor:
        """Apply the transform, if there is one."""
        if self.transform is None or self.norm is None:
            return rows
        rows = dense(rows, self.transform, self.config.feed_forward.activation)
        return self.norm(rows)  # type: ignore[no-any-return]

    def drop(self, values: Tensor) -> Tensor:
        """Apply the head's dropout, in training only."""
        return dropout(values, self.config.dropout.head, self.training)

    def forward(self, features: HeadInput, at: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        """Compute logits; heads over tokens do so for the rows `at`, int64 (K,), only."""
        raise AssertionError("a head defines forward")


class MaskedLMHead(Head):
    """Scores over the vocabulary at the rows asked for, (K, V).

    The matrix is the word table, or that of `scores` in a few families.

    Rows are selected before the projection: at 15 % masking this saves most of its cost.

    Source: Devlin et al. 2019, section 3.1, task 1.
    """

    per_token = True

    def __init__(self, config: EncoderConfig) -> None:
        scores = config.word_scores
        super().__init__(config, config.table_size if scores.transform else None)
        self.scores: nn.Linear | None = None
        if not scores.tied:
            self.scores = nn.Linear(config.table_size, config.vocab_size, bias=scores.bias)
        has_bias = scores.tied and scores.bias
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if has_bias else None

    def forward(self, features: HeadInput, at: Tensor | None = None) -> Tensor:
        """Compute unnormalised log-probabilities, (K, V)."""
        rows = self.transformed(features.rows(at))
        if self.scores is not None:
            return dense(rows, self.scores)
        return linear(rows, features.word_table_VE, self.bias)


class PairHead(Head):
    """Whether text B follows text A, (S, 2): next sentence (BERT) or sentence order (ALBERT)."""

    reads_pooled = True
    reads_tokens = False

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.out = nn.Linear(config.hidden_size, 2)

    def forward(self, features: HeadInput, at: Tensor | None = None) -> Tensor:
        """Compute logits (S, 2); class 0 is the true order."""
        return dense(features.pooled(), self.out)


class PretrainingHead(Head):
    """Masked LM and the pair objective together: ((K, V), (S, 2))."""

    reads_pooled = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.masked_lm = MaskedLMHead(config)
        self.pair = PairHead(config)

    def forward(self, features: HeadInput, at: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute masked-LM logits (K, V) and pair logits (S, 2)."""
        return self.masked_lm(features, at), self.pair(features)


class DiscriminatorHead(Head):
    """Whether a token was replaced: one logit per row, (K,). Clark et al. 2020, section 2."""

    per_token = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, 1)

    def forward(self, features: HeadInput, at: Tensor | None = None) -> Tensor:
        """Compute logits (K,); positive means replaced."""
        rows = dense(features.rows(at), self.dense, self.config.feed_forward.activation)
        return dense(rows, self.out).squeeze(-1)


class _TaskHead(Head):
    """A head of C outputs, after the transform with which all heads of some families begin."""

    def __init__(self, config: EncoderConfig, num_outputs: int, *, bias: bool = True) -> None:
        super().__init__(config, config.hidden_size if config.head_transform.everywhere else None)
        self.out = nn.Linear(config.hidden_size, num_outputs, bias=bias)


class SequenceHead(_TaskHead):
    """C scores per sequence, from the pooled vector. Devlin et al. 2019, section 4.1.

    Attributes:
        gives_vectors: Whether `forward` in training returns the vectors (S, H), too.
    """

    reads_pooled = True
    reads_tokens = False
    gives_vectors = False

    def __init__(self, config: EncoderConfig, num_outputs: int) -> None:
        super().__init__(config, num_outputs, bias=config.head_transform.out_bias)

    def forward(
        self, features: HeadInput, at: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Compute logits (S, C)."""
        vectors = self.transformed(features.pooled())
        logits = dense(self.drop(vectors), self.out)
        return (logits, vectors) if self.gives_vectors and self.training else logits


class TokenHead(_TaskHead):
    """C scores per row asked for. Devlin et al. 2019, section 5.3."""

    per_token = True

    def forward(self, features: HeadInput, at: Tensor | None = None) -> Tensor:
        """Compute logits (K, C)."""
        return dense(self.drop(self.transformed(features.rows(at))), self.out)


class SpanHead(_TaskHead):
    """Start and end scores per token.

    Source: Devlin et al. 2019, section 4.2. No dropout, as in run_squad.py.
    """

    per_token = True

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, 2)

    def forward(self, features: HeadInput, at: Tensor | None = None) -> Tensor:
        """Compute logits (K, 2): start, end."""
        return dense(self.transformed(features.rows(at)), self.out)


class ChoiceHead(_TaskHead):
    """One score per sequence; the choices of a row are neighbouring sequences. Section 4.4."""

    reads_pooled = True
    reads_tokens = False

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, 1)

    def forward(self, features: HeadInput, at: Tensor | None = None) -> Tensor:
        """Compute logits (S,)."""
        return dense(self.drop(self.transformed(features.pooled())), self.out).squeeze(-1)


class VectorHead(Head):
    """One vector per sequence from its tokens, without weights that are trained.

    Source: Reimers and Gurevych 2019, section 3: the mean of all tokens, the first (for a causal
    encoder the last), or the maximum. A reranker's `steps` turn it into a score.
    """

    def __init__(
        self, config: EncoderConfig, pooling: str = "mean", steps: Sequence[VectorModule] = ()
    ) -> None:
        super().__init__(config)
        self.pooling = pooling
        self.steps = tuple(steps)

    def forward(self, features: HeadInput, at: Tensor | None = None) -> Tensor:
        """Compute vectors (S, H), or what the steps make of them."""
        causal = self.config.attention.causal
        vectors = pool(features.tokens_TH, features.batch, self.pooling, causal=causal)
        for step in self.steps:
            vectors = step.to(vectors.device)(vectors.float())
        return vectors


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
    """Create a head with random weights. `num_labels` is for the kinds "sequence" and "tokens"."""
    head = HEADS[kind](config, num_labels) if num_labels is not None else HEADS[kind](config)
    initialize(head, config.initializer_range)
    return head


class Model(nn.Module):
    """An encoder and, for a task, its head."""

    def __init__(self, encoder: Encoder, head: Head | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @property
    def config(self) -> EncoderConfig:
        """The encoder's configuration."""
        return self.encoder.config

    @property
    def device(self) -> torch.device:
        """The device of the weights, on which batches have to be."""
        return next(self.parameters()).device

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        """Compute the head's logits; without a head the last hidden states, (T, H).

        In evaluation the last layer runs for the rows that the head reads. In training it runs for
        all rows, so that the dropout draws do not depend on `at`.
        """
        encoder, head = self.encoder, self.head
        if self.training or head is None:
            return self.read(encoder(batch), batch, at)
        if head.per_token and at is not None:
            return self.read(encoder(batch, at), batch)
        rows = row_read(batch, self.config.pooling.token, causal=self.config.attention.causal)
        if not head.reads_tokens and rows is not None:
            rows_SH = encoder(batch, rows)
            return self.read(rows_SH, batch, pooled_SH=encoder.through_pooler(rows_SH))
        return self.read(encoder(batch), batch, at)

    def read(
        self,
        tokens_TH: Tensor,
        batch: PackedBatch,
        at: Tensor | None = None,
        *,
        pooled_SH: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """Compute the output of `forward` from the encoder's and, if it has run, the pooler's."""
        if self.head is None:
            return tokens_TH
        if pooled_SH is None and self.head.reads_pooled:
            pooled_SH = self.encoder.pool(tokens_TH, batch)
        features = HeadInput(tokens_TH, pooled_SH, self.encoder.embeddings.word.weight, batch)
        return self.head(features, at)  # type: ignore[no-any-return]
