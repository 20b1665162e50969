"""The estimate of the time that the rest of a study takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from filbert.compare.runs import in_words, seconds_left


def run(contestant, seed=0, kind="encoder"):
    return SimpleNamespace(contestant=contestant, kind=kind, key=f"{contestant}/seed-{seed}")


def test_a_run_is_expected_to_take_as_long_as_its_other_seeds_or_its_kind():
    runs = [run("one", 0), run("one", 1), run("other"), run("counts", kind="tfidf")]
    records = {"one/seed-0": {"status": "finished", "seconds": 100.0}}
    assert seconds_left(runs[1:3], runs, records) == 200.0
    assert seconds_left(runs[1:], runs, records) is None, "nothing similar to tfidf has finished"
    records["other/seed-0"] = {"status": "finished", "seconds": 50.0}
    assert seconds_left([runs[1], runs[2]], runs, records) == 150.0
    assert seconds_left([run("new")], runs, records) == 75.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.0, "about 1 s"), (80, "80 s"), (600, "10 min"), (9000, "2.5 h")],
)
def test_the_time_left_is_in_its_unit(seconds, text):
    assert text in in_words(seconds)
