"""Vectors of whole texts from the hidden states of their tokens.

T tokens in the batch, S sequences, H hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch, split
from filbert.model.encoder import Encoder

POOLINGS = ("mean", "cls", "max", "none")


def pool(hidden_TH: Tensor, batch: PackedBatch, pooling: str) -> list[Tensor]:
    """Hidden states (T, H) to S vectors (H,), or S matrices (tokens, H) for pooling "none"."""
    if pooling == "cls":
        return list(hidden_TH[batch.starts])
    pieces = split(hidden_TH, batch)
    if pooling == "none":
        return list(pieces)
    if pooling == "max":
        return [piece.amax(0) for piece in pieces]
    return [piece.mean(0) for piece in pieces]


def hidden_states(encoder: Encoder, batch: PackedBatch, layers: tuple[int, ...]) -> Tensor:
    """Outputs of the chosen layers side by side, (T, H * len(layers)), collected by hooks."""
    config = encoder.config
    if layers == (config.num_hidden_layers,):
        return encoder(batch)  # type: ignore[no-any-return]
    states: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
        states.append(output)

    parts = [encoder.embeddings, *encoder.layers]
    hooks = [part.register_forward_hook(keep) for part in parts]
    try:
        encoder(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([states[layer] for layer in layers], -1)
