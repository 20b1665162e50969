"""Pooling: one vector from the tokens of a sequence, or one value from the sequences of a row.

T tokens in the batch, S sequences, H hidden size, R rows, G the most sequences of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.batch import PackedBatch, onto, split
from filbert.errors import ConfigError, printable

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len", "weightedmean", "last", "none")
# Activations after dense layers over vectors, by torch's classes.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(nn, name)()
    for name in (
        "Tanh", "ReLU", "GELU", "Identity", "Sigmoid", "SiLU",
        "ELU", "SELU", "LeakyReLU", "Mish", "Softplus", "Softsign",
    )
}  # fmt: skip


# Tokens of a sequence.


def mean_of_sequences(rows_TH: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Compute the mean of every sequence's rows, (S, H), differentiable; zeros for an empty one.

    `cu_seqlens` are the borders, int32 (S + 1,). Sums are float32.
    """
    lengths = cu_seqlens.diff().long()
    sums = torch.segment_reduce(rows_TH.float(), "sum", lengths=lengths, unsafe=True)
    return (sums / lengths.clamp_min(1)[:, None]).to(rows_TH.dtype)


def max_of_sequences(rows_TH: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Compute the maximum of every sequence's rows by element; no sequence is empty."""
    lengths = cu_seqlens.diff().long()
    largest = torch.segment_reduce(rows_TH.float(), "max", lengths=lengths, unsafe=True)
    return largest.to(rows_TH.dtype)


_ON_A_GPU = {"mean": mean_of_sequences, "max": max_of_sequences}


def check_pooling(pooling: str) -> None:
    """Raise a ConfigError unless a pooling is one of POOLINGS, or several joined by "+".

    Several are each named once, and "none" is not among them.
    """
    parts = str(pooling).split("+")
    if not all(part in POOLINGS for part in parts) or (len(parts) > 1 and "none" in parts):
        raise ConfigError(f"pooling {printable(str(pooling))!r} is not one of {list(POOLINGS)}.")
    if len(set(parts)) < len(parts):
        raise ConfigError(f"pooling {printable(pooling)!r} names one of them twice.")


def row_read(batch: PackedBatch, pooling: str, *, causal: bool) -> Tensor | None:
    """Return the only row of each sequence that a pooling reads, int64 (S,); None for all.

    For "cls" with causal attention it is the last: no other attends to the whole sequence.
    """
    if pooling == "last" or (pooling == "cls" and causal):
        return batch.cu_seqlens[1:].long() - 1
    return batch.starts if pooling == "cls" else None


def pool(
    hidden_TH: Tensor, batch: PackedBatch, pooling: str, *, causal: bool = False, skip: int = 0
) -> Tensor:
    """Pool hidden states into one vector a sequence, (S, H); "none" is no pooling here.

    Several poolings joined by "+" give vectors (S, H * poolings), end to end. "cls" is the first
    token, or the last one of a causal encoder. "weightedmean" weights tokens by their position,
    counted from 1 (Muennighoff 2022, section 3.1.1). The first `skip` tokens of each sequence are
    left out, but the last token never is.
    """
    if "+" in pooling:
        parts = [pool(hidden_TH, batch, p, causal=causal, skip=skip) for p in pooling.split("+")]
        return torch.cat(parts, 1)
    at = row_read(batch, pooling, causal=causal)
    if at is not None:
        return hidden_TH[(at + skip).minimum(batch.cu_seqlens[1:].long() - 1)]
    if hidden_TH.is_cuda and pooling in _ON_A_GPU and not skip:
        # A kernel for each sequence would take longer than the encoder.
        return _ON_A_GPU[pooling](hidden_TH, batch.cu_seqlens)
    pieces = [piece[min(skip, len(piece) - 1) :] for piece in split(hidden_TH, batch)]
    if pooling == "max":
        return torch.stack([piece.amax(0) for piece in pieces])
    if pooling == "mean_sqrt_len":
        return torch.stack([piece.sum(0) / len(piece) ** 0.5 for piece in pieces])
    if pooling == "weightedmean":
        return torch.stack([_weighted_mean(piece, skip) for piece in pieces])
    return torch.stack([piece.mean(0) for piece in pieces])


def _weighted_mean(rows_TH: Tensor, skip: int) -> Tensor:
    """Compute the mean of rows (T, H), weighted by their positions skip + 1, skip + 2 ..."""
    weights_T = torch.arange(1, len(rows_TH) + 1, device=rows_TH.device) + skip
    return (rows_TH * weights_T[:, None]).sum(0) / weights_T.sum()


@dataclass(frozen=True, eq=False)
class VectorModule:
    """A module over the vectors of tokens or texts, as sentence-transformers has it.

    Attributes:
        kind: "Dense", "LayerNorm" or "Normalize" (unit length).
        tensors: float, by the names in the module's file: "linear.weight" (outputs, inputs) and
            "linear.bias" (outputs,) of a dense layer, "norm.weight" and "norm.bias".
        activation: Of a dense layer, a key of ACTIVATIONS.
        config: Content of its config.json.
    """

    kind: str
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    activation: str = "Identity"
    config: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Map vectors (..., inputs) to vectors (..., outputs)."""
        if self.kind == "Normalize":
            return F.normalize(vectors, dim=-1)
        part = "linear" if self.kind == "Dense" else "norm"
        weight, bias = self.tensors[f"{part}.weight"], self.tensors.get(f"{part}.bias")
        if self.kind == "LayerNorm":
            return F.layer_norm(vectors, weight.shape, weight, bias)
        return ACTIVATIONS[self.activation](F.linear(vectors, weight, bias))

    def to(self, device: torch.device) -> VectorModule:
        """Return the same module on a device."""
        tensors = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        return replace(self, tensors=tensors)

    def width(self, inputs: int) -> int:
        """Return the width of vectors after the module, for vectors of width `inputs`."""
        return len(self.tensors["linear.weight"]) if self.kind == "Dense" else inputs

    @property
    def description(self) -> str:
        """The layer in words, for example "768 to 256, tanh"."""
        if self.kind != "Dense":
            return self.kind
        outputs, inputs = self.tensors["linear.weight"].shape
        return f"{inputs} to {outputs}, {self.activation.lower()}"


# Sequences of a row: windows of a long text, or choices.


def mean_of_groups(values: Tensor, groups: Sequence[int]) -> Tensor:
    """Compute the mean over each run of neighbouring sequences, (R, ...), differentiable.

    Args:
        values: float (S, ...).
        groups: Number of sequences of each row, in order; above zero, with the sum S.
    """
    if all(size == 1 for size in groups):
        return values
    lengths = onto(values.device, torch.tensor(groups))
    # Faster than a loop, and unlike index_add on a GPU it always adds in the same order.
    return torch.segment_reduce(values, "mean", lengths=lengths, unsafe=True)


def table_of_groups(values: Tensor, groups: Sequence[int]) -> Tensor:
    """Lay out one score per sequence as one line per row, (R, G), differentiable.

    Args:
        values: float (S,).
        groups: As for `mean_of_groups`. Rows with fewer than G sequences end in -inf, to which a
            softmax gives nothing.
    """
    widest = max(groups)
    if all(size == widest for size in groups):
        return values.view(-1, widest)
    sizes = onto(values.device, torch.tensor(groups))
    table = values.new_full((len(groups), widest), float("-inf"))
    inside = torch.arange(widest, device=values.device) < sizes[:, None]
    return table.masked_scatter(inside, values)
