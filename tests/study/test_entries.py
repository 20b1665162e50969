"""What is said of the runs: costs over seeds, and what the reader has to know of them."""

from __future__ import annotations

import pytest

from filbert.study.entries import are_alike, medians, nameless, notes_of


def run(seed=0, **more):
    return {
        "seed": seed,
        "status": "finished",
        "filbert": "0.1.0",
        "precision": "bf16",
        "device": {"name": "cpu", "threads": 2},
        "versions": {"torch": "2"},
        "costs": {"load_start": 2.5, "machine_threads": 2},
    } | more


def entries(*runs, kind="encoder"):
    return [{"name": "one", "kind": kind, "seeds": list(runs)}]


def test_costs_are_medians_of_the_seeds_that_know_them():
    found = medians(
        [{"training_seconds": 1.0, "peak_bytes": 7}, {"training_seconds": 90.0, "load_start": 3.0},
         {"training_seconds": 2.0, "peak_bytes": 9}]
    )  # fmt: skip
    assert found == {"training_seconds": 2.0, "peak_bytes": 8.0}


def test_runs_that_were_made_alike_and_alone_need_no_note():
    assert notes_of(entries(run(0), run(1))) == []
    assert are_alike(entries(run(0), run(1)))


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
    assert are_alike(entries(run(0), run(1, **change))) == ("device" not in change)


def test_a_load_above_the_machines_threads_is_noted():
    busy = {"load_start": 3.1, "machine_threads": 2}
    (note,) = notes_of(entries(run(0), run(1, costs=busy)))
    assert "Other programs ran beside 1 of 2 runs when they began (one, seed 1)" in note
    # Of a run that was made before the load was kept nothing is said.
    assert notes_of(entries(run(0, costs={}))) == []


def test_a_speed_that_changed_while_it_was_measured_is_noted():
    costs = {"rows_per_second_low": 100.0, "rows_per_second_high": 126.0}
    (note,) = notes_of(entries(run(0), run(1, costs=costs)))
    assert "The speed of 1 of 2 runs changed by more than a quarter" in note
    assert "(one, seed 1)" in note
    assert notes_of(entries(run(0, costs=costs | {"rows_per_second_high": 124.0}))) == []


def test_files_are_called_by_their_names_alone():
    assert nameless({"data": "/elsewhere/a.csv", "model": "minilm", "lr": 1.0}) == {
        "data": "a.csv", "model": "minilm", "lr": 1.0,
    }  # fmt: skip
