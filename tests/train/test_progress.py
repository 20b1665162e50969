"""What the best step is chosen by."""

from __future__ import annotations

import math

import torch

from filbert.train.progress import Progress
from filbert.train.seeds import spread_lines


def offered(metric, *found):
    so_far = Progress(metric)
    for step, metrics in enumerate(found, 1):
        so_far.step = step
        so_far.offer({"w": torch.tensor(float(step))}, metrics)
    return so_far


def test_the_best_is_the_highest_or_of_a_loss_the_lowest():
    values = [0.2, 0.9, 0.5]
    assert offered("accuracy", *({"accuracy": v} for v in values)).best_step == 2
    assert offered("loss", *({"loss": v} for v in values)).best_step == 1


def test_where_dev_has_no_such_metric_the_loss_decides():
    found = offered("roc_auc", *({"roc_auc": None, "loss": v} for v in (8.5, 8.0, 8.1)))
    assert (found.metric, found.best_step, found.best_value) == ("loss", 2, -8.0)


def test_where_dev_has_no_metric_at_all_the_last_weights_are_kept():
    found = offered("spearman", *({"spearman": None} for _ in range(3)))
    assert found.best_step == 3 and found.best["w"] == 3.0
    assert found.best_value == -math.inf


def test_a_correlation_that_comes_later_wins_and_stays_what_is_chosen_by():
    values = [(None, 9.0), (0.1, 8.0), (None, 2.0), (0.3, 5.0)]
    found = offered("spearman", *({"spearman": s, "mse": m} for s, m in values))
    assert (found.metric, found.best_step, found.best_value) == ("spearman", 4, 0.3)


def test_seeds_without_the_metric_are_told_without_figures():
    seeds = {"runs": {"1": {}, "2": {}}, "metric": "spearman", "figures": {"dev": {}},
             "best": "1", "best_value": None, "failed": {}}  # fmt: skip
    assert spread_lines(seeds) == ["2 seeds, dev spearman: not defined for every seed"]
