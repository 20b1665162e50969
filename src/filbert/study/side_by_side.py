"""Two classifiers on the same rows: intervals of each, and how far their difference can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from filbert.metrics import ranking
from filbert.metrics.intervals import bootstrap
from filbert.metrics.paired import mcnemar, paired_bootstrap
from filbert.metrics.weighted import AtThreshold, Metric
from filbert.tasks.base import Prediction


def side_by_side(
    gold: Sequence[str],
    answers: Mapping[str, Sequence[Prediction]],
    thresholds: Mapping[str, float],
    *,
    positive: str,
    resamples: int = 2000,
) -> dict[str, Any]:
    """Statistics of two models for two labels.

    Args:
        gold: labels of the N rows.
        answers: of exactly two models, by name, with their `scores`.
        thresholds: of the positive label, by the same names.
        positive: the positive label.
        resamples: of the bootstrap.

    Returns:
        {"intervals": {name: {metric: {value, low, high}}}, "pair": {"one", "other", metric:
        {value, low, high, p}, "mcnemar": {...}}}, for roc_auc, pr_auc and f1.
    """
    wanted = np.array([label == positive for label in gold])
    scores = {
        name: np.array([row["scores"][positive] for row in rows]) for name, rows in answers.items()
    }

    def metrics(name: str) -> dict[str, Metric]:
        at = AtThreshold("f1", thresholds[name])
        return {"roc_auc": ranking.roc_auc, "pr_auc": ranking.pr_auc, "f1": at}

    one, other = answers
    pair: dict[str, Any] = {"one": one, "other": other}
    for key, metric in metrics(one).items():
        pair[key] = asdict(
            paired_bootstrap(
                metric,
                wanted,
                scores[one],
                scores[other],
                other_metric=metrics(other)[key],
                resamples=resamples,
            )
        )
    called = {name: found >= thresholds[name] for name, found in scores.items()}
    pair["mcnemar"] = asdict(mcnemar(wanted, called[one], called[other]))
    intervals = {
        name: {
            key: asdict(bootstrap(metric, wanted, scores[name], resamples=resamples))
            for key, metric in metrics(name).items()
        }
        for name in answers
    }
    return {"intervals": intervals, "pair": pair}
