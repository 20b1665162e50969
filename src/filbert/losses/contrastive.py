"""Losses of sentence vectors: over the two texts of each row, or over texts with labels.

R rows with two texts, N other rows, S sequences, H width of a vector.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

Ids = TypeVar("Ids", np.ndarray, Tensor)


def contrastive_loss(vectors: Tensor, ids: Tensor, scale: float) -> Tensor:
    """Sum over rows of the cross-entropy of a row's second text among the second texts of all rows.

    Its logits are `scale` times the cosines with the row's first text. Rows that share a text with
    it are left out: their pair is no wrong answer. (sentence-transformers keeps such rows out of
    one batch by its sampler NO_DUPLICATES instead.)

    Args:
        vectors: of both texts of each row, float32 (R, 2, H).
        ids: of both texts of each row, int64 (R, 2); equal for equal texts.
        scale: one over the temperature.

    Source: Henderson et al. 2017, section 4.4 (the other rows of the batch as negatives);
    MultipleNegativesRankingLoss of sentence-transformers (cosine and scale).
    """
    texts, pairs = F.normalize(vectors, dim=-1).unbind(1)
    own = torch.eye(len(ids), dtype=torch.bool, device=ids.device)
    logits = scale * (texts @ pairs.T)
    logits = logits.masked_fill(share_a_text(ids, ids) & ~own, -math.inf)
    return F.cross_entropy(logits, torch.arange(len(ids), device=ids.device), reduction="sum")


def label_contrast(vectors: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """Sum over texts of the mean cross-entropy of the other texts with its label.

    The logits of a text are its cosines with all others, divided by the temperature. A text whose
    label no other one has adds nothing. `vectors` are float32 (S, H), `labels` int64 (S,).

    Source: Khosla et al. 2020, equation 2.
    """
    vectors = F.normalize(vectors, dim=-1)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    same = (labels[:, None] == labels) & ~itself
    logits = (vectors @ vectors.T / temperature).masked_fill(itself, -math.inf)
    scores = logits.log_softmax(-1).masked_fill(~same, 0.0).sum(1)
    return -(scores / same.sum(1).clamp(min=1)).sum()


def cosine_loss(vectors: Tensor, scores: Tensor) -> Tensor:
    """Return the sum over rows of the squared difference of cosine and score, float32 (R,).

    `vectors` are those of both texts of each row, float32 (R, 2, H).

    Source: Reimers and Gurevych 2019, section 3, regression objective.
    """
    cosines = F.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1)
    return F.mse_loss(cosines, scores, reduction="sum")


def share_a_text(rows: Ids, others: Ids) -> Ids:
    """Return which rows have a text in common, bool (R, N), from ids (R, 2) and (N, 2)."""
    first, second = rows[:, :1], rows[:, 1:]
    texts, pairs = others[:, 0], others[:, 1]
    shared: Ids = (first == texts) | (first == pairs) | (second == texts) | (second == pairs)
    return shared


def text_ids(sequences: Iterable[np.ndarray]) -> np.ndarray:
    """Return a number for each sequence of token ids, equal for equal tokens: int64 (S,).

    Texts with the same tokens are one text to the model. Among 10,000 texts, two different ones get
    the same number with a probability of 3e-12.
    """
    digests = (
        hashlib.blake2b(ids.astype(np.int64).tobytes(), digest_size=8).digest() for ids in sequences
    )
    numbers: np.ndarray = np.frombuffer(b"".join(digests), dtype=np.int64).copy()
    return numbers
