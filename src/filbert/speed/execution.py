"""A model over many examples, in packed batches of near-equal length.

T tokens in the batch, S sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from filbert.batch import PackedBatch, split
from filbert.data.examples import Example, collate
from filbert.data.loader import by_length
from filbert.model.heads import Model
from filbert.speed.precision import Precision

# Larger batches gain nothing on a processor, smaller ones spend more on each call; see docs/log.md.
MAX_TOKENS_CPU = 4_096
MAX_TOKENS_CUDA = 32_768


def default_max_tokens(device: torch.device) -> int:
    """Tokens per packed batch where the user has not said."""
    return MAX_TOKENS_CUDA if device.type == "cuda" else MAX_TOKENS_CPU


def run_model(
    model: Model,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    precision: Precision,
    on_batch: Callable[[int], None] = lambda num_tokens: None,
) -> list[Tensor]:
    """The head's output of every example, in order, float32 on the host.

    (n, ...) with a row per token for heads over tokens, else what the head gives a sequence.
    """
    outputs: list[Tensor | None] = [None] * len(examples)
    for indices, pieces in _batches(
        model, examples, max_tokens=max_tokens, precision=precision, on_batch=on_batch
    ):
        for index, piece in zip(indices, pieces, strict=True):
            outputs[index] = piece
    return [output for output in outputs if output is not None]


def _batches(
    model: Model,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    precision: Precision,
    on_batch: Callable[[int], None],
) -> Iterator[tuple[list[int], Sequence[Tensor]]]:
    device = next(model.parameters()).device
    model.eval()
    for indices in by_length([len(e.input_ids) for e in examples], max_tokens):
        batch = collate([examples[i] for i in indices])
        with torch.inference_mode(), precision.autocast(device):
            output = model(batch.to(device))
        assert isinstance(output, Tensor)
        on_batch(batch.num_tokens)
        yield indices, pieces_of(output.float().cpu(), batch, model)


def pieces_of(output: Tensor, batch: PackedBatch, model: Model) -> Sequence[Tensor]:
    """A head's output by sequence."""
    per_token = model.head is None or model.head.per_token
    return split(output, batch) if per_token else output.unbind(0)
