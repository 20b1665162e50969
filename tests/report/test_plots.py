from __future__ import annotations

import numpy as np
import pytest

from filbert.report import plots
from filbert.report.plots import Ranking


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_the_loss_curve_shows_the_losses_and_the_rate_at_their_steps():
    steps = [{"step": s, "loss": 1 / s, "lr": s / 10} for s in (1, 2, 3)]
    upper, lower = plots.loss_curve(steps, []).axes
    assert lines_of(upper)["train"].get_ydata() == pytest.approx([1, 1 / 2, 1 / 3])
    assert lower.get_lines()[0].get_ydata() == pytest.approx([0.1, 0.2, 0.3])


def test_a_loss_that_is_not_a_number_leaves_a_gap_and_does_not_fail(tmp_path):
    steps = [{"step": s, "loss": None if s == 5 else 1.0} for s in range(1, 40)]
    plots.save(plots.loss_curve(steps, []), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_the_running_mean_is_worked_out_by_hand():
    found = plots.running_mean(np.array([1.0, 2.0, np.nan, 4.0, 6.0]), 3)
    assert found == pytest.approx([1.5, 1.5, 3, 5, 5])


def test_the_legend_of_a_roc_plot_gives_every_area():
    chance = np.random.default_rng(0)
    gold = chance.random(100) < 0.4
    both = [Ranking("model", gold, gold * 0.5 + chance.random(100) * 0.5)]
    both.append(Ranking("guess $x$", gold, np.full(100, 0.5)))
    labels = [line.get_label() for line in plots.ranking_plot(both, "roc").axes[0].lines]
    assert "model  1.000" in labels and r"guess \$x\$  0.500" in labels


def test_a_name_is_shortened_to_one_line():
    assert plots.plain("a\n b") == "a b"
    assert len(plots.plain("x" * 100)) == 28
    for longest in (18, 22, 23):
        assert len(plots.plain("bert-base-uncased-max-256", longest)) == longest
        assert plots.plain("bert-base-uncased-max-256", longest).endswith("max-256")
