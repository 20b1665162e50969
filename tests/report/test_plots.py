from __future__ import annotations

import numpy as np
import pytest

from filbert.report import canvas, plots
from filbert.report.comparison_plots import pareto
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
    canvas.save(plots.loss_curve(steps, []), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_the_running_mean_is_worked_out_by_hand():
    found = plots.running_mean(np.array([1.0, 2.0, np.nan, 4.0, 6.0]), 3)
    assert found == pytest.approx([1.5, 1.5, 3, 5, 5])


@pytest.mark.parametrize(
    ("lengths", "max_length"),
    [([5, 9, 256, 257, 9000], 256), ([4], 512), ([3, 3], None), (list(range(1, 400)), 128)],
)
def test_bars_beyond_the_border_count_exactly_the_texts_that_are_cut(lengths, max_length):
    figure = plots.length_histogram(lengths, max_length)
    bars = {c.get_label(): sum(b.get_height() for b in c) for c in figure.axes[0].containers}
    num_cut = sum(n > (max_length or 10**9) for n in lengths)
    assert sum(n for name, n in bars.items() if name.startswith("cut")) == num_cut
    assert bars.get("whole", 0) == len(lengths) - num_cut


def test_very_long_texts_share_one_bar_that_says_so():
    figure = plots.length_histogram([*[20] * 99, 30, 5000, 9000], 256)
    bars = {c.get_label(): sum(b.get_height() for b in c) for c in figure.axes[0].containers}
    (name,) = [name for name in bars if "or more" in name]
    assert bars[name] == 2
    assert 256 < int(name.split()[1]) < 5000


def test_the_legend_of_a_roc_plot_gives_every_area():
    chance = np.random.default_rng(0)
    gold = chance.random(100) < 0.4
    both = [Ranking("model", gold, gold * 0.5 + chance.random(100) * 0.5)]
    both.append(Ranking("guess $x$", gold, np.full(100, 0.5)))
    labels = lines_of(plots.ranking_plot(both, "roc").axes[0])
    assert "model  1.000" in labels and r"guess \$x\$  0.500" in labels


def test_a_long_curve_is_thinned_but_keeps_its_ends():
    chance = np.random.default_rng(0)
    gold = chance.random(20_000) < 0.5
    figure = plots.ranking_plot([Ranking("m", gold, chance.random(20_000))], "roc")
    curve = figure.axes[0].get_lines()[-1]
    assert len(curve.get_xdata()) == plots.MOST_POINTS
    assert (curve.get_xdata()[0], curve.get_xdata()[-1]) == (0, 1)


def test_the_threshold_plot_peaks_where_f1_is_best():
    gold, scores = np.array([False, True, True]), np.array([0.2, 0.6, 0.9])
    f1 = lines_of(plots.threshold_plot(gold, scores, None).axes[0])["F1"]
    assert f1.get_ydata() == pytest.approx([2 / 3, 1, 0.8])
    assert f1.get_xdata() == pytest.approx([0.9, 0.6, 0.2])


def test_plots_do_not_touch_the_state_that_other_code_shares():
    import matplotlib
    from matplotlib import _pylab_helpers

    before = dict(matplotlib.rcParams)
    plots.label_bars(["a", "b"], [0.5, 0.7], [3, 4])
    assert dict(matplotlib.rcParams) == before
    assert _pylab_helpers.Gcf.figs == {}


def test_the_interval_of_a_share_equals_that_of_scipy():
    from scipy.stats import binomtest

    for hits, num_rows in ((0, 3), (2, 5), (97, 100)):
        judge = binomtest(hits, num_rows).proportion_ci(method="wilson")
        found = plots.wilson_interval(hits / num_rows, num_rows)
        # 1e-4: 1.96 for 1.959964.
        assert found == pytest.approx((judge.low, judge.high), abs=1e-4)


def test_a_name_is_shortened_to_one_line():
    assert canvas.plain("a\n b") == "a b"
    assert len(canvas.plain("x" * 100)) == canvas.LONGEST_NAME
    for longest in (18, 22, 23):
        assert len(canvas.plain("bert-base-uncased-max-256", longest)) == longest
        assert canvas.plain("bert-base-uncased-max-256", longest).endswith("max-256")


def test_pareto_points_are_those_that_no_other_point_dominates():
    points = [(1.0, 0.5), (10.0, 0.9), (20.0, 0.8), (10.0, 0.7), (1.0, 0.5)]
    assert pareto(points, more_is_better=False) == [True, True, False, False, True]
    assert pareto(points, more_is_better=True) == [False, True, True, False, False]
