"""What is said of the runs: costs over seeds, and what the reader has to know of them."""

from __future__ import annotations

import json
import sys

import pytest

from filbert.compare.contestants import ContestantRun
from filbert.compare.recipe import BIGRU, Contestant
from filbert.compare.results import entry_of, medians, notes_of, ran_in_same_environment


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
    assert ran_in_same_environment(entries(run(0), run(1)), ["cpu"])


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
    assert ran_in_same_environment(entries(run(0), run(1, **change)), ["cpu"]) == (
        "device" not in change
    )


def test_runs_of_another_machine_are_not_alike_with_the_one_that_the_report_names():
    assert not ran_in_same_environment(entries(run(0), run(1)), ["another processor", "a GPU"])
    assert not ran_in_same_environment(entries(run(0, device=None)), ["cpu"])
    assert not ran_in_same_environment([], ["cpu"])


def test_a_load_above_the_machines_threads_is_noted():
    busy = {"load_start": 3.1, "machine_threads": 2}
    (note,) = notes_of(entries(run(0), run(1, costs=busy)))
    assert note.startswith("1 of 2 runs (one, seed 1) started while other programs")
    # Of a run that was made before the load was kept nothing is said.
    assert notes_of(entries(run(0, costs={}))) == []


def test_a_speed_that_changed_while_it_was_measured_is_noted():
    costs = {"rows_per_second_low": 100.0, "rows_per_second_high": 126.0}
    (note,) = notes_of(entries(run(0), run(1, costs=costs)))
    assert note.startswith("1 of 2 runs (one, seed 1) changed by more than a quarter")
    assert notes_of(entries(run(0, costs=costs | {"rows_per_second_high": 124.0}))) == []


def contestant(kind="bigru", **options):
    return Contestant("one", "one", kind, options, None, (), (0,))


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


def test_the_options_in_effect_of_a_bigru_are_its_own(tmp_path, monkeypatch):
    options = BIGRU | {"vectors": "/here/v.txt", "dim": 50}
    (run,) = runs_in(tmp_path)
    run.folder.mkdir(parents=True)
    facts = {
        "options": {"lr": 1e-3},
        "word_vectors": {"words": 900, "with_vectors": 12},
        "costs": {},
        "metrics": {},
        "precision": "float32",
    }
    (run.folder / "run.json").write_text(json.dumps(facts))
    monkeypatch.setattr(ContestantRun, "is_finished", True)
    monkeypatch.setattr(sys.modules["filbert.compare.results"], "_damage", lambda *_: None)
    entry = entry_of(contestant("bigru", **options), tmp_path, {"runs": {}}, [run])
    assert entry["effective"] == {
        "lr": 1e-3, "batch_size": 32, "epochs": 4.0, "max_length": 256, "vectors": "v.txt",
        "dim": 50, "hidden": 128, "dropout": 0.2,
        "max_words": 50_000, "min_count": 2, "pooling": "mean+max", "words": 900,
        "words_with_vectors": 12, "precision": "float32",
    }  # fmt: skip
