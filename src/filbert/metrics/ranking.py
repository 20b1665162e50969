"""What a ranking by score is worth: ROC and PR curves, their areas, the threshold of best F1.

All come from one table of cuts. N rows, K distinct scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from filbert.errors import InputError


@dataclass(frozen=True, slots=True)
class Cuts:
    """Counts when the rows with score >= scores[k] are called positive, for every distinct score.

    Attributes:
        scores: float64 (K,), falling.
        flagged: int64 (K,), rows called positive.
        hits: int64 (K,), positives among them.
        num_rows: N.
        num_positives: positives among all rows.
    """

    scores: np.ndarray
    flagged: np.ndarray
    hits: np.ndarray
    num_rows: int
    num_positives: int

    @property
    def has_both_classes(self) -> bool:
        """Without a positive and a negative, neither curve is defined."""
        return 0 < self.num_positives < self.num_rows


# A float32 softmax may leave [0, 1] by a few units in the last place.
ROUNDING = 1e-6


def probabilities(values: ArrayLike) -> np.ndarray:
    """The values as float64; InputError, naming the row, when one is not a number from 0 to 1."""
    scores = np.asarray(values, dtype=np.float64)
    # Asked this way round because NaN answers False to every comparison.
    wrong = ~((scores >= -ROUNDING) & (scores <= 1 + ROUNDING))
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        raise InputError(
            f"a score of row {row + 1} is {float(scores[wrong][0]):g}; "
            "scores are probabilities, from 0 to 1."
        )
    return scores.clip(0, 1)


def cuts(is_positive: ArrayLike, scores: ArrayLike) -> Cuts:
    """The table of all cuts, in O(N log N).

    Args:
        is_positive: bool (N,).
        scores: float (N,), finite.
    """
    positive = np.asarray(is_positive, dtype=bool)
    values = np.asarray(scores, dtype=np.float64)
    if positive.shape != values.shape or positive.ndim != 1:
        raise ValueError(f"{positive.shape} gold values for {values.shape} scores")
    order = np.argsort(-values, kind="stable")
    falling = values[order]
    last_of_group = np.append(falling[1:] != falling[:-1], True)[: len(falling)]
    at = np.flatnonzero(last_of_group)
    hits = np.cumsum(positive[order], dtype=np.int64)[at]
    return Cuts(falling[at], at + 1, hits, len(values), int(positive.sum()))


def roc_curve(is_positive: ArrayLike, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates from (0, 0) to (1, 1), float64 (K + 1,). Needs both classes."""
    table = cuts(is_positive, scores)
    false_rate = (table.flagged - table.hits) / (table.num_rows - table.num_positives)
    return np.append(0.0, false_rate), np.append(0.0, table.hits / table.num_positives)


def pr_curve(is_positive: ArrayLike, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Recall and precision from the highest score down, float64 (K,). Needs a positive row."""
    table = cuts(is_positive, scores)
    return table.hits / table.num_positives, table.hits / table.flagged


def roc_auc(is_positive: ArrayLike, scores: ArrayLike) -> float | None:
    """Share of (positive, negative) pairs ranked right, ties half; None for one class only."""
    table = cuts(is_positive, scores)
    if not table.has_both_classes:
        return None
    # Whole numbers until the last division: the area carries no rounding error.
    hits = np.append(0, table.hits)
    misses = np.append(0, table.flagged - table.hits)
    twice_area = int(np.sum(np.diff(misses) * (hits[1:] + hits[:-1])))
    num_pairs = table.num_positives * (table.num_rows - table.num_positives)
    return twice_area / (2 * num_pairs)


def pr_auc(is_positive: ArrayLike, scores: ArrayLike) -> float | None:
    """Average precision: the sum of precision times the step in recall. None for one class only.

    Not the trapezoid under the curve, which is too kind (Davis and Goadrich 2006, section 4).
    """
    table = cuts(is_positive, scores)
    if not table.has_both_classes:
        return None
    steps = np.diff(table.hits, prepend=0)
    return float(np.sum(steps * (table.hits / table.flagged)) / table.num_positives)


def best_f1_threshold(is_positive: ArrayLike, scores: ArrayLike) -> float:
    """The threshold of the highest F1, where a row is positive if its score >= threshold.

    It lies midway between two neighbouring scores, so that rounding a score flips no row; below the
    lowest score it is half of that. Of equally good cuts, the highest threshold (fewest rows called
    positive) is taken. 0.5 when no row is positive.

    Args:
        is_positive: bool (N,).
        scores: float (N,), probabilities.
    """
    table = cuts(is_positive, scores)
    if table.num_positives == 0:
        return 0.5
    f1 = 2 * table.hits / (table.flagged + table.num_positives)
    best = int(np.argmax(f1))
    above = float(table.scores[best])
    below = float(table.scores[best + 1]) if best + 1 < len(table.scores) else 0.0
    middle = below + (above - below) / 2
    # Between two adjacent floats there is no middle: it rounds onto one of them.
    return middle if below < middle <= above else above
