"""Vectors of many examples, in packed batches of near-equal length.

S sequences, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from filbert.data.examples import Example, collate
from filbert.inference.forward import in_eval_mode, to_host
from filbert.inference.onnx_session import SessionModel, sharing_cores
from filbert.inference.streams import batches_on, finished
from filbert.model.heads import Model
from filbert.model.pooling import Dense, hidden_states, pool, row_read
from filbert.model.precision import Precision
from filbert.model.shapes import few_shapes


def run_vectors(
    model: Model | SessionModel,
    examples: Sequence[Example],
    *,
    layers: tuple[int, ...],
    pooling: str,
    dense: Sequence[Dense] = (),
    normalize: bool = False,
    max_tokens: int,
    precision: Precision,
    on_batch: Callable[[int], None] = lambda num_tokens: None,
) -> list[np.ndarray]:
    """The vector of every example, in order, float32 (H * layers,); its matrix with "none".

    Args:
        model: whose encoder runs.
        examples: one sequence each.
        layers: whose outputs are joined end to end; 0 for the embeddings, 1 to N.
        pooling: see `model.pooling.pool`.
        dense: what pooled vectors go through, in order.
        normalize: scale to unit length.
        max_tokens: per batch.
        precision: of the matrix products.
        on_batch: told each batch's tokens.
    """
    in_eval_mode(model)
    encoder, device, causal = model.encoder, model.device, model.config.attention.causal
    last_alone = layers == (model.config.num_hidden_layers,)
    # Exports give every row.
    may_choose = last_alone and isinstance(model, Model)
    there = [layer.to(device) for layer in dense]

    def launch(indices: list[int]) -> Callable[[], tuple[list[int], Sequence[Tensor]]]:
        batch = collate([examples[i] for i in indices])
        moved = batch.to(device)
        filled = few_shapes(moved, model) if last_alone else moved
        at = row_read(filled, pooling, causal=causal) if may_choose else None
        with torch.inference_mode():
            with precision.autocast(device):
                if at is not None:
                    hidden = encoder(filled, at)[: batch.num_sequences]
                else:
                    hidden = hidden_states(encoder, filled, layers)
                    hidden = hidden[: batch.num_tokens]
            hidden = hidden.float()
            pooled = list(hidden) if at is not None else pool(hidden, moved, pooling, causal=causal)
            if pooling == "none":
                # Of all tokens, end to end: one product, and one transfer.
                sizes: list[int] | None = [len(piece) for piece in pooled]
                joined = torch.cat(pooled)
            else:
                sizes, joined = None, torch.stack(pooled)
            for layer in there:
                joined = layer(joined)
            if normalize:
                joined = nn.functional.normalize(joined, dim=-1)
            arrived = to_host(joined)

        def finish() -> tuple[list[int], Sequence[Tensor]]:
            found = arrived()
            on_batch(batch.num_tokens)
            return indices, found.unbind() if sizes is None else torch.split(found, sizes)

        return finish

    vectors: list[np.ndarray] = [np.empty(0)] * len(examples)
    with sharing_cores(model):
        batches = batches_on(device, [len(e.input_ids) for e in examples], max_tokens)
        for indices, pieces in finished(launch, batches, device):
            for index, piece in zip(indices, pieces, strict=True):
                # Its own memory: who keeps one vector should not keep its whole batch.
                vectors[index] = piece.numpy().copy()
    return vectors
