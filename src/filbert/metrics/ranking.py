"""Counts above each score, areas under ROC and precision-recall curves, and the best threshold.

N rows, K distinct scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from filbert.errors import InputError

# A float32 softmax may leave [0, 1] by a few units in the last place.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Cuts:
    """Counts of the rows with score >= scores[k], for every distinct score.

    Attributes:
        scores: float64 (K,), falling.
        flagged: Rows at or above the score, int64 (K,).
        hits: Positive rows among them, int64 (K,).
    """

    scores: np.ndarray
    flagged: np.ndarray
    hits: np.ndarray
    num_rows: int
    num_positives: int


def probabilities(values: ArrayLike) -> np.ndarray:
    """Return the values as float64, clipped to [0, 1].

    Raises:
        InputError: A value is not a number from 0 to 1; the message names its row.
    """
    scores = np.asarray(values, dtype=np.float64)
    # NaN fails both comparisons, so it counts as outside.
    outside = ~((scores >= -ROUNDING) & (scores <= 1 + ROUNDING))
    if outside.any():
        row = int(np.argwhere(outside)[0][0])
        raise InputError(
            f"a score of row {row + 1} is {float(scores[outside][0]):g}; "
            "scores are probabilities, from 0 to 1."
        )
    return scores.clip(0, 1)


def cuts(is_positive: ArrayLike, scores: ArrayLike) -> Cuts:
    """Count rows and positive rows above each distinct score; bool (N,) and finite float (N,)."""
    positive = np.asarray(is_positive, dtype=bool)
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    falling = values[order]
    last_of_group = np.append(falling[1:] != falling[:-1], True)[: len(falling)]
    at = np.flatnonzero(last_of_group)
    hits = np.cumsum(positive[order], dtype=np.int64)[at]
    return Cuts(falling[at], at + 1, hits, len(values), int(positive.sum()))


def roc_auc(is_positive: ArrayLike, scores: ArrayLike) -> float | None:
    """Return the area under the ROC curve; None if only one class is present."""
    from sklearn.metrics import roc_auc_score

    gold = np.asarray(is_positive, dtype=bool)
    return None if gold.all() or not gold.any() else float(roc_auc_score(gold, scores))


def pr_auc(is_positive: ArrayLike, scores: ArrayLike) -> float | None:
    """Return the average precision; None if only one class is present.

    The trapezoid under the curve would be too high (Davis and Goadrich 2006, section 4).
    """
    from sklearn.metrics import average_precision_score

    gold = np.asarray(is_positive, dtype=bool)
    return None if gold.all() or not gold.any() else float(average_precision_score(gold, scores))


def best_f1_threshold(is_positive: ArrayLike, scores: ArrayLike) -> float:
    """Return the threshold with the highest F1 of "positive if score >= threshold".

    It is midway between two neighbouring scores, so that rounding a score changes no decision;
    below the lowest score it is half of that score. Of equally good thresholds the highest is
    returned. Without a positive row it is 0.5.

    Rows are bool (N,), their probabilities float (N,).
    """
    table = cuts(is_positive, scores)
    if table.num_positives == 0:
        return 0.5
    f1 = 2 * table.hits / (table.flagged + table.num_positives)
    best = int(np.argmax(f1))
    above = float(table.scores[best])
    below = float(table.scores[best + 1]) if best + 1 < len(table.scores) else 0.0
    middle = below + (above - below) / 2
    # The middle of two adjacent floats rounds to one of them.
    return middle if below < middle <= above else above
