"""How good sentence vectors are: does each text find its own pair.

R rows with two texts, H width of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from filbert.model.pair_losses import share_a_text

# Rows whose cosines with all of a pool are held at once: 8 MB beside a pool of 4,096.
BLOCK_ROWS = 512


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., H) scaled to length one; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12))


def own_pair_ranks(vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Place of each row's second text among the second texts of all rows, int64 (R,), 1 the best.

    They are ordered by their cosine with the row's first text. Rows that share a text with this one
    are left out, since their answer is as right as its own. A tie counts against the row: vectors
    that are all the same find nothing, and neither do vectors that are not finite.

    Args:
        vectors: of both texts of each row, float (R, 2, H).
        ids: of both texts of each row, int64 (R, 2); equal for equal texts.
    """
    texts, pairs = unit(vectors[:, 0]), unit(vectors[:, 1])
    ranks = np.empty(len(texts), dtype=np.int64)
    for start in range(0, len(texts), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        cosines = texts[block] @ pairs.T
        places = np.arange(len(cosines))
        own = cosines[places, start + places]
        ahead = ~(cosines < own[:, None]) & ~share_a_text(ids[block], ids)
        ranks[block] = 1 + ahead.sum(1)
    return ranks


def retrieval_metrics(ranks: Sequence[int], pool_sizes: Sequence[int]) -> dict[str, Any]:
    """`accuracy` (own pair first), `mrr` (mean of 1 / rank), `pool_size` (mean); None of no rows.

    Both figures fall as the pool grows, so they can be compared for equal pools only.
    """
    if not ranks:
        return {"accuracy": None, "mrr": None, "pool_size": None}
    found = np.asarray(ranks, dtype=float)
    return {
        "accuracy": float((found == 1).mean()),
        "mrr": float((1 / found).mean()),
        "pool_size": float(np.mean(pool_sizes)),
    }
