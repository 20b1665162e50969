"""What is said of the runs: costs over seeds, and what the reader has to know of them."""

from __future__ import annotations

import pytest

from filbert.compare.contestants import ContestantRun
from filbert.compare.recipe import Contestant
from filbert.compare.results import entry_of, medians, notes_of


def run(seed=0, **more):
    return {
        "seed": seed,
        "status": "finished",
        "filbert": "0.1.0",
        "precision": "bf16",
        "device": {"name": "cpu", "threads": 2},
        "versions": {"torch": "2"},
        "costs": {},
    } | more


def entries(*runs, kind="encoder"):
    return [{"name": "one", "kind": kind, "seeds": list(runs)}]


def test_costs_are_medians_of_the_seeds_that_know_them():
    found = medians(
        [{"training_seconds": 1.0, "peak_bytes": 7}, {"training_seconds": 90.0},
         {"training_seconds": 2.0, "peak_bytes": 9}]
    )  # fmt: skip
    assert found == {"training_seconds": 2.0, "peak_bytes": 8.0}


def test_runs_that_were_made_the_same_way_need_no_note():
    assert notes_of(entries(run(0), run(1))) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"filbert": "0.2.0"}, "different versions of filbert: 0.1.0; 0.2.0"),
        ({"precision": "float32"}, "different number formats: bf16; float32"),
        ({"device": {"name": "gpu", "threads": 2}}, "different devices"),
        ({"versions": {"torch": "3"}}, "different versions of libraries: torch 2; torch 3"),
    ],
)
def test_what_differs_between_runs_is_noted(change, words):
    (note,) = notes_of(entries(run(0), run(1, **change)))
    assert words in note


def contestant():
    return Contestant("one", "bigru", {}, None, (0,))


def runs_in(folder):
    return [
        ContestantRun(
            contestant="one", kind="bigru", options={}, training={}, cleaning=None, seed=0, data={},
            labels=("0", "1"), positive="1", out=str(folder / "contestants/one/seed-0"),
            fingerprint="now",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(("fingerprint", "status"), [("now", "failed"), ("before", "missing")])
def test_a_failure_with_other_options_is_not_reported_for_this_run(fingerprint, status, tmp_path):
    record = {"status": "failed", "error": "No such vectors.", "fingerprint": fingerprint}
    state = {"runs": {"one/seed-0": record}}
    entry = entry_of(contestant(), tmp_path, state, runs_in(tmp_path))
    assert entry["status"] == status
    assert entry["error"] == ("No such vectors." if status == "failed" else None)
