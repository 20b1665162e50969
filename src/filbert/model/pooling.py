"""Vectors of whole texts from the hidden states of their tokens.

T tokens in the batch, S sequences, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.batch import PackedBatch, split
from filbert.errors import ConfigError, printable
from filbert.model.encoder import Encoder
from filbert.model.grouping import max_of_sequences, mean_of_sequences, standing_rows

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len", "last", "none")
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": F.relu,
    "gelu": F.gelu,
    "identity": lambda vectors: vectors,
}
_AT_ONCE = {"mean": mean_of_sequences, "max": max_of_sequences}


@dataclass(frozen=True, eq=False)
class Dense:
    """A layer that pooled vectors go through, as sentence-transformers has it.

    Attributes:
        weight_OI: float (outputs, inputs).
        bias_O: float (outputs,), or None.
        activation: "tanh", "relu", "gelu" (erf) or "identity".
    """

    weight_OI: Tensor
    bias_O: Tensor | None
    activation: str

    def __call__(self, vectors_SI: Tensor) -> Tensor:
        """Vectors (S, inputs) to vectors (S, outputs)."""
        return _ACTIVATIONS[self.activation](F.linear(vectors_SI, self.weight_OI, self.bias_O))

    def to(self, device: torch.device) -> Dense:
        """The same layer on a device."""
        bias = None if self.bias_O is None else self.bias_O.to(device)
        return Dense(self.weight_OI.to(device), bias, self.activation)

    @property
    def description(self) -> str:
        """In words: "768 to 256, tanh"."""
        outputs, inputs = self.weight_OI.shape
        return f"{inputs} to {outputs}, {self.activation}"


def check_pooling(pooling: str) -> None:
    """Make sure that `pool` knows it.

    Raises:
        ConfigError: it is neither one of POOLINGS nor several of them, each once and without
            "none", joined by "+".
    """
    parts = str(pooling).split("+")
    if not all(part in POOLINGS for part in parts) or (len(parts) > 1 and "none" in parts):
        raise ConfigError(f"pooling {printable(str(pooling))!r} is not one of {list(POOLINGS)}.")
    if len(set(parts)) < len(parts):
        raise ConfigError(f"pooling {printable(pooling)!r} names one of them twice.")


def row_read(batch: PackedBatch, pooling: str, *, causal: bool) -> Tensor | None:
    """The row of each sequence that a pooling reads, int64 (S,), where it reads one alone."""
    if pooling not in ("cls", "last"):
        return None
    return standing_rows(batch, causal=causal or pooling == "last")


def pool(
    hidden_TH: Tensor, batch: PackedBatch, pooling: str, *, causal: bool = False
) -> list[Tensor]:
    """Hidden states (T, H) to S vectors (H,), or S matrices (tokens, H) for pooling "none".

    Several poolings with "+" between give vectors (H * poolings,), end to end. "cls" is the token
    that stands for a sequence: the first, or for a causal encoder the last.
    """
    if "+" in pooling:
        parts = [pool(hidden_TH, batch, part, causal=causal) for part in pooling.split("+")]
        return [torch.cat(vectors) for vectors in zip(*parts, strict=True)]
    at = row_read(batch, pooling, causal=causal)
    if at is not None:
        return list(hidden_TH[at])
    if hidden_TH.is_cuda and pooling in _AT_ONCE:
        # There, a kernel for each sequence would take longer than the encoder.
        return list(_AT_ONCE[pooling](hidden_TH, batch.cu_seqlens))
    pieces = split(hidden_TH, batch)
    if pooling == "none":
        return list(pieces)
    if pooling == "max":
        return [piece.amax(0) for piece in pieces]
    if pooling == "mean_sqrt_len":
        return [piece.sum(0) / len(piece) ** 0.5 for piece in pieces]
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
        # The last layer's, through the LayerNorm that may follow it.
        last = encoder(batch)
    finally:
        for hook in hooks:
            hook.remove()
    states[-1] = last
    return torch.cat([states[layer] for layer in layers], -1)
