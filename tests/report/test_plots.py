from __future__ import annotations

import numpy as np
import pytest

from filbert.report import plots
from filbert.report.plots import Ranking


def test_the_loss_curve_shows_the_losses_and_the_rate_at_their_steps():
    steps = [{"step": s, "loss": 1 / s, "lr": s / 10} for s in (1, 2, 3)]
    plot = plots.loss_curve(steps, []).facts()
    assert plot["series"][0]["y"] == pytest.approx([1, 1 / 2, 1 / 3], abs=1e-5)
    assert plot["below"]["series"][0]["y"] == [0.1, 0.2, 0.3]


def test_a_loss_that_is_not_a_number_leaves_a_gap_and_does_not_fail(tmp_path):
    steps = [{"step": s, "loss": None if s == 5 else 1.0} for s in range(1, 40)]
    plot = plots.loss_curve(steps, [])
    assert plot.facts()["series"][0]["y"][3:6] == [1.0, None, 1.0]
    plots.write_png(plot, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_the_running_mean_is_worked_out_by_hand():
    found = plots.running_mean(np.array([1.0, 2.0, np.nan, 4.0, 6.0]), 3)
    assert found == pytest.approx([1.5, 1.5, 3, 5, 5])


def test_the_legend_of_a_roc_plot_gives_every_area():
    chance = np.random.default_rng(0)
    gold = chance.random(100) < 0.4
    both = [Ranking("model", gold, gold * 0.5 + chance.random(100) * 0.5)]
    both.append(Ranking("guess $x$", gold, np.full(100, 0.5)))
    names = [one.name for one in plots.ranking_plot(both, "roc").series]
    assert names == ["model  1.000", "guess $x$  0.500", ""]
