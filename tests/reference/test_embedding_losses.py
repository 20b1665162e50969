"""The losses of sentence vectors, value and gradient, against those of sentence-transformers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.tasks.embedding import SentenceEmbedding

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sentence_transformers.sentence_transformer import losses

NUM_ROWS, WIDTH = 9, 24
# Sums of 9 logarithms of up to 20 in float32.
TOLERANCE = 1e-6


@pytest.fixture
def vectors() -> Tensor:
    torch.manual_seed(3)
    return torch.randn(2 * NUM_ROWS, WIDTH)


def examples(target=None) -> list[Example]:
    """Two texts a row, all of them different."""
    zeros = np.zeros(1, np.uint8)
    return [
        Example(i // 2, np.array([i]), zeros, 1, None if target is None else float(target[i // 2]))
        for i in range(2 * NUM_ROWS)
    ]


def ours(task: SentenceEmbedding, vectors: Tensor, target=None) -> tuple[Tensor, Tensor]:
    """Mean loss and its gradient at the vectors, through sum and count as the trainer has them."""
    vectors = vectors.clone().requires_grad_()
    targets = task.targets(examples(target))
    loss = task.loss(vectors, targets) / task.count(targets)
    loss.backward()
    return loss.detach(), vectors.grad


def theirs(judge, vectors: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    vectors = vectors.clone().requires_grad_()
    loss = judge.compute_loss_from_embeddings([vectors[::2], vectors[1::2]], labels)
    loss.backward()
    return loss.detach(), vectors.grad


@pytest.mark.parametrize("scale", [20.0, 5.0])
def test_the_contrastive_loss_is_multiple_negatives_ranking(vectors, scale):
    found = ours(SentenceEmbedding(scale=scale), vectors)
    judge = losses.MultipleNegativesRankingLoss(torch.nn.Identity(), scale=scale)
    wanted = theirs(judge, vectors, None)
    torch.testing.assert_close(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_cosine_loss_is_cosine_similarity(vectors):
    scores = torch.rand(NUM_ROWS)
    found = ours(SentenceEmbedding(loss_kind="cosine", score_max=1.0), vectors, scores)
    wanted = theirs(losses.CosineSimilarityLoss(torch.nn.Identity()), vectors, scores)
    torch.testing.assert_close(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)
