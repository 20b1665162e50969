"""Calibration of probabilities: temperature and calibration error.

N rows, C classes. Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", sections 2
and 4.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

LOWEST_TEMPERATURE = 0.05
HIGHEST_TEMPERATURE = 20.0


def probabilities(logits: np.ndarray, temperature: float, *, multilabel: bool) -> np.ndarray:
    """Return float64 (N, C): a softmax per row of logits (N, C), or a sigmoid per label."""
    from scipy import special

    scaled = logits.astype(np.float64) / temperature
    return np.asarray(special.expit(scaled) if multilabel else special.softmax(scaled, axis=-1))


def fit_temperature(logits: ArrayLike, targets: ArrayLike, *, multilabel: bool) -> float:
    """Return the T in [0.05, 20] with the lowest negative log-likelihood of softmax(logits / T).

    It is 1.0 without rows, for logits that are all equal or not finite, and if all predictions are
    right: then the likelihood has no maximum, and T below 1 would be overconfident.

    Args:
        logits: float (N, C).
        targets: Class numbers, int (N,), or bool (N, C) if multi-label.
        multilabel: C independent sigmoids instead of one softmax.
    """
    from scipy.optimize import minimize_scalar

    values = np.asarray(logits, dtype=np.float64)
    gold = np.asarray(targets, dtype=bool if multilabel else np.int64)
    # How far each wrong answer is above the right one: the loss depends on nothing else.
    excess = np.where(gold, -values, values) if multilabel else _excess(values, gold)
    if not np.isfinite(excess).all() or excess.size == 0 or excess.max() < 0 or not excess.any():
        return 1.0

    def loss(log_temperature: float) -> float:
        scaled = excess / np.exp(log_temperature)
        if multilabel:
            return float(np.logaddexp(0, scaled).mean())
        most = np.maximum(scaled.max(1), 0)
        return float((most + np.log(np.exp(-most) + np.exp(scaled - most[:, None]).sum(1))).mean())

    # The loss is convex in 1 / T, so it has one minimum in log T, which bounded search finds.
    bounds = (np.log(LOWEST_TEMPERATURE), np.log(HIGHEST_TEMPERATURE))
    best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return float(np.clip(np.exp(best.x), LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE))


def _excess(logits: np.ndarray, gold: np.ndarray) -> np.ndarray:
    rows = np.arange(len(gold))
    others = np.ones(logits.shape, dtype=bool)
    others[rows, gold] = False
    excess: np.ndarray = (logits - logits[rows, gold][:, None])[others]
    return excess.reshape(len(gold), logits.shape[1] - 1)


def expected_calibration_error(is_true: ArrayLike, confidence: ArrayLike, bins: int = 15) -> float:
    """Return the mean distance of confidence and frequency over the rows; 0 without rows.

    Both are means over the rows in one of `bins` bins of equal width, (lower, upper]; the first one
    includes 0. 0.03: probabilities are off by three points on average.

    Args:
        is_true: bool (N,): the row is positive (`confidence` = probability of positive), or the
            prediction is right (`confidence` = its probability).
        confidence: float (N,), from 0 to 1.
    """
    true = np.asarray(is_true, dtype=bool)
    values = np.asarray(confidence, dtype=np.float64)
    edges = np.linspace(0, 1, bins + 1)
    at = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, bins - 1)
    confident = np.bincount(at, weights=values, minlength=bins)
    hits = np.bincount(at, weights=true, minlength=bins)
    return float(np.abs(confident - hits).sum()) / len(values) if len(values) else 0.0
