"""Vectors of words in context, layer by layer, and the word table's for the same words.

H width, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from filbert.data.examples import Example, collate
from filbert.data.loader import by_length
from filbert.inspection.occurrences import Shown
from filbert.model.heads import Model
from filbert.model.pooling import hidden_states
from filbert.predict import Predictor

# All layers of a batch are held at a time.
MOST_TOKENS = 4_096


def vectors_of(
    predictor: Predictor,
    model: Model,
    examples: Sequence[Example],
    asked: Sequence[Sequence[np.ndarray]],
) -> list[np.ndarray]:
    """The mean vector of groups of tokens, in every layer.

    Args:
        predictor: for its precision and batch size.
        model: its model.
        examples: the sequences.
        asked: for each, the rows of every group of its tokens.

    Returns:
        For every layer, 0 to L, float32 (groups of all examples in order, H).
    """
    config = model.config
    numbers = tuple(range(config.num_hidden_layers + 1))
    starts = np.cumsum([0, *map(len, asked)])
    found = np.empty((starts[-1], len(numbers) * config.hidden_size), dtype=np.float32)
    lengths = [len(example.input_ids) for example in examples]
    for indices in by_length(lengths, min(predictor.max_tokens, MOST_TOKENS)):
        batch = collate([examples[i] for i in indices]).to(predictor.device)
        first = np.cumsum([0, *(lengths[i] for i in indices)])
        groups = [
            rows + begin for i, begin in zip(indices, first, strict=False) for rows in asked[i]
        ]
        if not groups:
            continue
        sizes = torch.tensor([len(rows) for rows in groups], device=predictor.device)
        at = torch.from_numpy(np.concatenate(groups)).to(predictor.device)
        with torch.inference_mode():
            with predictor.precision.autocast(predictor.device):
                hidden = hidden_states(model.encoder, batch, numbers)
            sums = hidden.new_zeros(len(groups), hidden.shape[1], dtype=torch.float32)
            into = torch.repeat_interleave(sizes)
            means = sums.index_add_(0, into, hidden[at].float()) / sizes[:, None]
        there = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in indices])
        found[there] = means.cpu().numpy()
    return np.split(found, len(numbers), axis=1)


def static_vectors(
    model: Model, sequences: list[Shown], count: int
) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """The word table's vector of each place, float32 (N, width of the table), and its token ids."""
    ids: list[tuple[int, ...]] = [()] * count
    for sequence in sequences:
        for which, rows in zip(sequence.which, sequence.places, strict=True):
            ids[which] = tuple(sequence.example.input_ids[rows].tolist())
    return table_means(model, ids), ids


def table_means(model: Model, ids: Sequence[Sequence[int]]) -> np.ndarray:
    """The mean of the word table's rows for each of some lists of tokens, float32 (lists, E)."""
    table: Any = model.encoder.embeddings.word
    with torch.inference_mode():
        rows = [table(torch.tensor(own, device=model.device)).float().mean(0) for own in ids]
        return np.asarray(torch.stack(rows).cpu().numpy())
