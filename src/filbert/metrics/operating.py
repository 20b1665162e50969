"""What a model is worth where it will be used: precision at a wanted recall; the Brier score.

N rows. The calibration error is in metrics/calibration.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from filbert.metrics import ranking
from filbert.metrics.weighted import hits_for

RECALLS = (0.5, 0.8, 0.9, 0.95)


def precision_at_recalls(
    is_positive: ArrayLike, scores: ArrayLike, recalls: Sequence[float] = RECALLS
) -> dict[float, float | None]:
    """The highest precision of any threshold whose recall is at least r, for each r.

    The threshold is chosen on these very rows, so the figure compares rankings; it promises nothing
    for new rows. It never rises with r. "At least", because recall moves in steps; "any", because
    the first threshold to reach r may stand before a run of positives. None without positive rows.

    Args:
        is_positive: bool (N,).
        scores: float (N,).
        recalls: each in (0, 1].
    """
    outside = [recall for recall in recalls if not 0 < recall <= 1]
    if outside:
        raise ValueError(f"recall {outside[0]} is not in (0, 1]")
    table = ranking.cuts(is_positive, scores)
    if table.num_positives == 0:
        return dict.fromkeys(recalls)
    best = np.maximum.accumulate((table.hits / table.flagged)[::-1])[::-1]
    return {
        recall: float(best[np.searchsorted(table.hits, hits_for(recall, table.num_positives))])
        for recall in recalls
    }


def brier_score(is_positive: ArrayLike, scores: ArrayLike) -> float:
    """Mean squared distance between probability and outcome, from 0 (sure and right) to 1.

    Ranking and calibration in one figure; always saying the share of positives s costs s (1 - s).

    Args:
        is_positive: bool (N,), N > 0.
        scores: probability of "positive", float (N,).

    Source: Brier 1950, for one of the two classes (half his sum over both).
    """
    gold = np.asarray(is_positive, dtype=np.float64)
    return float(np.mean((np.asarray(scores, dtype=np.float64) - gold) ** 2))
