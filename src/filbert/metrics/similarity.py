"""Metrics of scores and vectors: correlation with gold scores, and the rank of a text's own pair.

R rows, H width of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from filbert.errors import InputError
from filbert.losses.contrastive import share_a_text

# A side whose values differ by less than this share of their size is constant but for rounding.
ROUNDING = 1e-13
# Rows compared with the whole pool at once: 8 MB for a pool of 4,096.
BLOCK_ROWS = 512


def regression_metrics(gold: ArrayLike, values: ArrayLike) -> dict[str, float | None]:
    """Compute pearson, spearman and mse of predicted scores, float (R,) each.

    A correlation is None if one side is constant, as it is for a single row.

    Raises:
        InputError: A predicted score is not finite.
    """
    # Imported late: it takes a second, and every command that loads a model imports this file.
    from scipy import stats

    wanted = np.asarray(gold, dtype=np.float64)
    given = np.asarray(values, dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(given))
    if len(wrong):
        raise InputError(f"The predicted score of row {wrong[0] + 1} is not a finite number.")
    is_flat = any(
        np.linalg.norm(side - side.mean()) <= ROUNDING * np.linalg.norm(side)
        for side in (wanted, given)
    )
    is_constant = any(np.ptp(side) == 0 for side in (wanted, given))
    return {
        "pearson": None if is_flat else float(stats.pearsonr(wanted, given).statistic),
        "spearman": None if is_constant else float(stats.spearmanr(wanted, given).statistic),
        "mse": float(np.mean((wanted - given) ** 2)),
    }


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors (..., H) to length one; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12))


def own_pair_ranks(vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the rank of each row's second text among the second texts of all rows, int64 (R,).

    They are ranked by cosine similarity with the row's first text; 1 is the best. Rows that share a
    text with this row are left out, because their answer is as right as its own. A tie counts
    against the row, and so do vectors that are not finite.

    Args:
        vectors: Of both texts of each row, float (R, 2, H).
        ids: Of both texts of each row, int64 (R, 2); equal for equal texts.
    """
    texts, pairs = unit(vectors[:, 0]), unit(vectors[:, 1])
    ranks = np.empty(len(texts), dtype=np.int64)
    for start in range(0, len(texts), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        cosines = texts[block] @ pairs.T
        rows = np.arange(len(cosines))
        own = cosines[rows, start + rows]
        ahead = ~(cosines < own[:, None]) & ~share_a_text(ids[block], ids)
        ranks[block] = 1 + ahead.sum(1)
    return ranks


def retrieval_metrics(ranks: Sequence[int], pool_sizes: Sequence[int]) -> dict[str, Any]:
    """Return accuracy (rank 1), mrr (mean of 1 / rank) and pool_size (mean); None without rows.

    Accuracy and mrr fall as the pool grows, so they are comparable for equal pools only.
    """
    if not ranks:
        return {"accuracy": None, "mrr": None, "pool_size": None}
    places = np.asarray(ranks, dtype=float)
    return {
        "accuracy": float((places == 1).mean()),
        "mrr": float((1 / places).mean()),
        "pool_size": float(np.mean(pool_sizes)),
    }
