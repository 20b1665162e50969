"""What the report of a study claims in sentences."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from filbert.report.comparison_plots import pareto
from filbert.report.comparison_study import read_study
from filbert.report.comparison_words import headline, lead, named, times

_spec = importlib.util.spec_from_file_location("studies", Path(__file__).with_name("studies.py"))
studies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(studies)


@pytest.fixture
def small(tmp_path):
    """A study of three contestants that a test may change: (folder, results)."""
    some = studies.CONTESTANTS[:3]
    return tmp_path, studies.write_study(tmp_path, contestants=some, seeds=2, num_rows=150)


def with_pair(small, **changed):
    """The study after changing the PR AUC test between its two best contestants."""
    folder, results = small
    first, second = (one.name for one in read_study(folder).measured[:2])
    for pair in results["pairs"]:
        if {pair["one"], pair["other"]} == {first, second}:
            sign = 1 if pair["one"] == first else -1
            ends = [sign * changed.pop("low"), sign * changed.pop("high")]
            pair["pr_auc"] |= {"difference": sign * changed.pop("difference"), "low": min(ends),
                               "high": max(ends), **changed}  # fmt: skip
            if pair["pr_auc"].get("over_seeds"):
                over = [sign * x for x in pair["pr_auc"]["over_seeds"]]
                pair["pr_auc"]["over_seeds"] = {
                    "difference": over[0], "low": min(over[1:]), "high": max(over[1:])
                }  # fmt: skip
    studies.save(folder, results)
    return first, second, read_study(folder)


@pytest.mark.parametrize(
    "changed",
    [
        {"difference": 0.02, "low": -0.001, "high": 0.04, "p_holm": 0.001},
        {"difference": 0.02, "low": 0.0, "high": 0.04, "p_holm": 0.001},
        {"difference": 0.02, "low": 0.01, "high": 0.03, "p_holm": 0.05},
        {"difference": -0.02, "low": -0.05, "high": 0.01, "p_holm": 0.001},
        {"difference": 0.02, "low": 0.01, "high": 0.03, "p_holm": 0.001,
         "over_seeds": [0.02, -0.01, 0.04]},
        {"difference": 0.02, "low": 0.01, "high": 0.03, "p_holm": 0.001,
         "over_seeds": [-0.02, -0.04, -0.01]},
    ],
)  # fmt: skip
def test_no_lead_is_claimed_that_the_interval_the_correction_or_the_seeds_do_not_bear(
    small, changed
):
    first, second, study = with_pair(small, **changed)
    sentences = " ".join(headline(study))
    assert f"{named(first)} leads {named(second)} on" not in sentences
    assert f"{named(second)} leads {named(first)} on" not in sentences
    assert "cannot be told apart on PR AUC" in sentences
    assert second in {one.name for one in study.measured}


def test_a_lead_is_claimed_with_its_interval_and_corrected_p(small):
    first, second, study = with_pair(
        small, difference=0.02, low=0.01, high=0.03, p_holm=0.0004, over_seeds=[0.02, 0.01, 0.03]
    )
    said = (
        f"{named(first)} leads {named(second)} on PR AUC by 0.020 [0.010, 0.030], p_holm < 0.001."
    )
    assert said in " ".join(headline(study))


def test_a_lead_is_told_from_the_side_that_is_ahead(small):
    first, second, study = with_pair(small, difference=-0.02, low=-0.03, high=-0.01, p_holm=0.012)
    pair = study.pair(first, second, "pr_auc")
    wanted = (
        f"{named(second)} leads {named(first)} on PR AUC by 0.020 [0.010, 0.030], p_holm = 0.012."
    )
    assert pair is not None and (pair.low, pair.high) == (-0.03, -0.01)
    assert (pair.swapped.low, pair.swapped.high) == (0.01, 0.03)
    assert lead(pair, "PR AUC", 3) == wanted
    assert lead(pair.swapped, "PR AUC", 3) == wanted


def test_the_cheapest_that_is_not_told_from_the_first_is_named_with_its_price(small):
    first, second, study = with_pair(small, difference=0.01, low=-0.01, high=0.03, p_holm=1.0)
    cost = {one.name: one.cost("training_seconds") for one in study.measured}
    text = " ".join(headline(study))
    if cost[second] < cost[first]:
        assert f"not told from {named(first)}, trains in" in text
    else:
        assert f"not told from {named(first)}, trains in" not in text


def test_pareto_points_are_those_that_nobody_beats():
    points = [(1.0, 0.5), (10.0, 0.9), (20.0, 0.8), (10.0, 0.7), (1.0, 0.5)]
    assert pareto(points, more_is_better=False) == [True, True, False, False, True]
    assert pareto(points, more_is_better=True) == [False, True, True, False, False]


def test_a_ratio_has_two_digits():
    assert [times(x) for x in (1.27, 9.96, 123.0, 4567.0)] == [
        "1.3 times", "10 times", "120 times", "4,600 times",
    ]  # fmt: skip
