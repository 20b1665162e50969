"""Who is chosen for a target, on which rows, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.compare.recipe import Target
from filbert.compare.results import choice_of
from filbert.compare.statistics import Measured, shares_of


def entry(name, dev, pace, latency=None, *, test=0.9, share=None, status="finished"):
    costs = {"rows_per_second": pace, "latency_seconds": latency}
    told = None
    if share is not None:
        told = {"of": "teacher", "value": share, "low": share - 0.02, "high": share + 0.02}
    return {
        "name": name,
        "seeds": [{"status": "finished", "dev": {"pr_auc": value}} for value in dev]
        + [{"status": "failed"}],
        "test": {"pr_auc": {"value": test}} if status == "finished" else None,
        "costs": {key: value for key, value in costs.items() if value is not None},
        "share": told,
    }


ENTRIES = [
    entry("teacher", [0.9, 0.9], 100.0, 0.010),
    entry("good", [0.88, 0.90], 150.0, 0.008, share=0.985),
    entry("quick", [0.87, 0.89], 300.0, 0.004, share=0.96),
    entry("poor", [0.5, 0.6], 900.0, 0.001, share=0.6),
    entry("gone", [0.89], 5000.0, 0.0001, status="failed"),
]


def chosen(quality=None, latency=None, of="teacher", entries=ENTRIES):
    return choice_of(entries, Target(quality, of, latency), "pr_auc")


def test_the_cheapest_of_those_that_reach_the_quality_is_chosen():
    found = chosen(0.97)
    assert found["chosen"] == "quick"
    assert found["why"].startswith(
        "quick has the most rows a second (300) of 2 with at least 97.0% of teacher's PR AUC on "
    )
    assert {c["name"]: c["is_good"] for c in found["candidates"]} == {
        "good": True, "quick": True, "poor": False,
    }  # fmt: skip
    assert chosen(0.98)["chosen"] == "good"


def test_test_rows_have_no_part_in_the_choice_and_say_whether_it_holds():
    spoilt = [{**e, "test": {"pr_auc": {"value": 1.0 - i}}} for i, e in enumerate(ENTRIES[:4])]
    assert chosen(0.97, entries=spoilt)["chosen"] == "quick"
    assert chosen(0.97)["why"].endswith(
        "On test it has 96.0% [94.0%, 98.0%] of teacher's. That is less than the target."
    )
    assert "less than the target" not in chosen(0.98)["why"]


def test_the_best_within_a_time_is_chosen():
    assert chosen(latency=0.009)["chosen"] == "good"
    assert chosen(latency=0.005)["chosen"] == "quick"
    # The teacher itself, where it is quick enough.
    assert chosen(latency=0.02)["chosen"] == "teacher"
    assert "at most 9 ms for a single text" in chosen(latency=0.009)["why"]


def test_with_both_the_cheapest_that_does_both_is_chosen():
    assert chosen(0.98, 0.009)["chosen"] == "good"
    found = chosen(0.98, 0.005)
    assert found["chosen"] is None
    assert found["why"] == (
        "None of the 3 measured contestants has at least 98.0% of teacher's PR AUC on dev and at "
        "most 5 ms for a single text."
    )


def test_nobody_is_chosen_where_nobody_reaches_it_or_it_cannot_be_told():
    assert chosen(0.999)["chosen"] is None
    without = chosen(0.5, entries=ENTRIES[1:])
    assert without["chosen"] is None
    assert without["why"].startswith("teacher has no finished run")
    # A run from before single texts were timed.
    old = [entry("old", [0.99], 100.0)]
    assert chosen(latency=1.0, entries=old)["chosen"] is None


def test_a_share_has_the_interval_of_the_ratio_on_the_same_resamples():
    draws = np.linspace(0.5, 1.0, 399)

    def measured(value, factor):
        return Measured(
            seeds={}, dev={}, test={0: {"pr_auc": value}}, best=0,
            drawn={"pr_auc": factor * draws}, over_seeds={},
        )  # fmt: skip

    runs = {"t": measured(0.8, 1.0), "s": measured(0.6, 0.75), "n": measured(None, 1.0)}
    names = {"s": "t", "n": "t", "lost": "t"}
    found = shares_of(runs, names, metric="pr_auc", level=0.95)
    assert found.keys() == {"s"}
    # Resampled apart, the ends would be as far from each other as 0.4 and 1.4.
    assert found["s"].pop("of") == "t"
    assert found["s"] == pytest.approx(dict.fromkeys(("value", "low", "high"), 0.75))
