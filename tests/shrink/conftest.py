"""Small encoders whose every part matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from filbert.batch import PackedBatch, pack
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model

CONFIG = EncoderConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=20,
)


def _drawn(kind: str | None = "sequence", family: str = "bert", **fields: Any) -> Checkpoint:
    torch.manual_seed(3)
    config = EncoderConfig(**{**CONFIG.__dict__, **fields})
    encoder = Encoder(config)
    initialize(encoder, 0.2)
    for parameter in encoder.parameters():
        # Biases and gains that are not those of a fresh LayerNorm.
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    bare = Checkpoint(config, family, Model(encoder).state_dict())
    if kind is None:
        return bare
    labels = ("no", "yes") if kind in ("sequence", "tokens") else None
    return with_new_head(bare, kind, labels=labels)


@pytest.fixture
def drawn() -> Callable[..., Checkpoint]:
    return _drawn


@pytest.fixture
def batch() -> PackedBatch:
    return pack([[1, 2, 3, 4, 5], [7, 8, 9], [30, 49]], [[0, 0, 1, 1, 1], [0, 0, 0], [0, 1]])
