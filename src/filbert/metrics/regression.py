"""How near predicted scores come to the wanted ones.

N rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from filbert.errors import InputError

# Values that differ by less than this share of their size differ by rounding only; scipy warns of
# correlations below the same bound.
ROUNDING = 1e-13


def regression_metrics(gold: ArrayLike, values: ArrayLike) -> dict[str, float | None]:
    """Pearson's r, Spearman's rho and the mean squared error.

    Args:
        gold: wanted scores, float (N,), finite.
        values: predicted scores, float (N,), finite.

    Returns:
        pearson, spearman, mse. A correlation is None where one of the two sides is constant, as it
        is for a single row. Equal values share the mean of their ranks.

    Raises InputError when there is no row, or a predicted score is not finite.
    """
    # Here, as it takes a second: every command that loads a model comes past this file.
    from scipy.stats import rankdata

    wanted = np.asarray(gold, dtype=np.float64)
    found = np.asarray(values, dtype=np.float64)
    if wanted.shape != found.shape or wanted.ndim != 1:
        raise ValueError(f"{wanted.shape} gold scores for {found.shape} predictions")
    if not len(wanted):
        raise InputError("There is no row to measure.")
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise InputError(f"The predicted score of row {wrong[0] + 1} is not a finite number.")
    return {
        "pearson": _correlation(wanted, found),
        "spearman": _correlation(rankdata(wanted), rankdata(found)),
        "mse": float(np.mean((wanted - found) ** 2)),
    }


def _correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    units = []
    for side in (one, other):
        centred = side - side.mean()
        length = np.linalg.norm(centred)
        if length <= ROUNDING * np.linalg.norm(side):
            return None
        units.append(centred / length)
    return float(np.clip(units[0] @ units[1], -1.0, 1.0))
