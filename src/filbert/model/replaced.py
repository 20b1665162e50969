"""Replaced-token detection: a small generator fills masked places, the encoder finds what is odd.

T tokens in the batch, K masked tokens, E width of the embedding tables, V vocabulary.

Source: Clark et al. 2020, sections 2 and 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig
from filbert.model.cpu import dense, dropout
from filbert.model.encoder import Encoder, InputEmbeddings, new_layers, new_norm, run_layers
from filbert.model.heads import DiscriminatorHead, HeadInput, MaskedLMHead

# Noise of less than this is as rare as the steps in which float32 noise is drawn; its logarithm
# stays finite.
_LEAST_NOISE = 2.0**-24


class Detection(NamedTuple):
    """What one pass gives.

    Attributes:
        masked_KV: the generator's unnormalised log-probabilities at the masked rows.
        replaced_T: the discriminator's logits; positive means replaced.
        is_replaced_T: the truth, bool: a sampled token that is not the original.
    """

    masked_KV: Tensor
    replaced_T: Tensor
    is_replaced_T: Tensor


def generator_config(config: EncoderConfig, share: float) -> EncoderConfig:
    """Return the generator's configuration: a discriminator's depth and embeddings, less width.

    Hidden size, attention heads and feed-forward width are the `share` of the discriminator's.
    There is at least one head, and the hidden size is rounded to a multiple of the heads.

    Source: Clark et al. 2020, section 3.2: 1/4 to 1/2 works best; table 6: small 1/4, base 1/3.
    """
    if not 0.0 < share <= 1.0:
        raise ConfigError(
            f"generator_share is {share}; it must be above 0 and at most 1. Usual are 0.25 to 0.5."
        )
    heads = max(1, round(config.attention.heads * share))
    width = heads * max(1, round(config.hidden_size * share / heads))
    return config.changed(
        hidden_size=width,
        num_attention_heads=heads,
        heads_per_layer=None,
        intermediate_size=max(1, round(config.feed_forward.width * share)),
        embedding_size=None if width == config.table_size else config.table_size,
        pooler=None,
        pooler_dropout=False,
    )


class Generator(nn.Module):
    """A masked-LM model without embedding tables: it is handed those of the discriminator."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        narrow = config.embeddings.width is not None
        self.project = nn.Linear(config.table_size, config.hidden_size) if narrow else None
        self.layers = new_layers(config)
        self.final_norm = new_norm(config.hidden_size, config) if config.pre_norm else nn.Identity()
        self.head = MaskedLMHead(config)

    def forward(self, tables: InputEmbeddings, batch: PackedBatch, at: Tensor) -> Tensor:
        """Return unnormalised log-probabilities over the vocabulary at the rows `at`, (K, V)."""
        config = self.config
        hidden = dropout(tables.normed(batch), config.dropout.hidden, self.training)
        if self.project is not None:
            hidden = dense(hidden, self.project)
        hidden = self.final_norm(run_layers(self.layers, hidden, batch))
        return self.head(HeadInput(hidden, None, tables.word.weight, batch), at)  # type: ignore[no-any-return]


class ReplacedTokenModel(nn.Module):
    """Generator and discriminator, trained together; every tensor has one name.

    The encoder and the head are the discriminator's, which is what one keeps. The word, position
    and token type tables and their LayerNorm belong to the encoder; the generator uses them and has
    a projection of its own, as in google-research/electra, run_pretraining.py.
    """

    def __init__(self, encoder: Encoder, head: DiscriminatorHead, generator: EncoderConfig) -> None:
        super().__init__()
        assert generator.table_size == encoder.config.table_size
        assert generator.vocab_size == encoder.config.vocab_size
        self.encoder = encoder
        self.head = head
        self.generator = Generator(generator)

    @property
    def config(self) -> EncoderConfig:
        """The configuration of the discriminator."""
        return self.encoder.config

    def forward(self, batch: PackedBatch, at: Tensor, labels: Tensor) -> Detection:
        """Generate, corrupt, detect.

        The samples are drawn from torch's default generator, in evaluation too, and carry no
        gradient: seed it before every call that must be repeated.

        Args:
            batch: Some of its tokens are masked.
            at: rows that the generator fills, int64 (K,), none twice: also those whose token was
                left as it is.
            labels: the original ids at those rows, int64 (K,).
        """
        masked_KV = self.generator(self.encoder.embeddings, batch, at)
        original_T = batch.input_ids.index_copy(0, at, labels)
        corrupted_T = batch.input_ids.index_copy(0, at, sample(masked_KV))
        corrupted = replace(batch, input_ids=corrupted_T)
        tokens_TH = self.encoder(corrupted)
        table = self.encoder.embeddings.word.weight
        replaced_T = self.head(HeadInput(tokens_TH, None, table, corrupted))
        return Detection(masked_KV, replaced_T, corrupted_T != original_T)


def sample(logits_KV: Tensor) -> Tensor:
    """Return one id per row, int64 (K,), drawn by softmax(logits) from torch's default generator.

    The largest sum of logit and Gumbel noise is such a draw, and minus the logarithm of
    exponential noise is Gumbel noise. Source: Maddison et al. 2014, section 2.
    """
    with torch.no_grad():
        noise = torch.empty_like(logits_KV, dtype=torch.float32).exponential_()
        return noise.clamp_min_(_LEAST_NOISE).log_().neg_().add_(logits_KV).argmax(-1)
