"""Two processes train as one process does.

The reference of a gradient is plain torch: one batch, one backward pass, in float64 (the processes
compute in float32), without dropout. One torchrun command measures everything: see worker.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

KINDS = ("single", "ddp")
# Sums of some hundred float32 numbers in another order; seen: 4e-7.
EXACT = 1e-6
# A tenth of one optimiser step: Adam divides by the size of the gradient, so where that is all
# rounding error the direction of a step is too.
CLOSE = 1e-4
GRADIENTS = (
    "sequences",
    "tokens",
    "tied word table",
    "shared layers",
    "frozen below",
    "one row",
    # Its count, 0.5, is below 1: class weights do that.
    "one light row",
    "one row of tokens",
    "whole batch",
)
PRETRAINING = (
    "mlm",
    "mlm, nsp",
    "mlm, sop",
    "words, some rows without a mask",
    "nothing masked on a rank",
    "one row",
    "replaced",
    "replaced, one row",
)


def distance(first: Path, second: Path) -> float:
    """Largest difference of any two weights of two models."""
    a, b = (load_file(folder / "model" / "model.safetensors") for folder in (first, second))
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.mark.parametrize("case", GRADIENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_cut_into_processes_and_micro_batches_gives_the_gradient_of_the_whole_batch(
    measured, kind, case
):
    for rank in measured:
        result = rank[kind][case]
        assert max(result["whole"], result["worst"], result["norm"], result.get("loss", 0)) < EXACT
        assert result["extra"] == []


@pytest.mark.parametrize("case", PRETRAINING)
@pytest.mark.parametrize("kind", KINDS)
def test_pre_training_has_the_gradient_of_the_whole_batch_in_any_cut(measured, kind, case):
    for rank in measured:
        result = rank[kind]["pretraining"][case]
        assert max(result["whole"], result["loss"]) < EXACT
        assert result["extra"] == []


@pytest.mark.parametrize("case", ["all", "relations"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_student_has_the_same_gradient_in_any_cut(measured, kind, case):
    for rank in measured:
        result = rank[kind]["student"][case]
        assert result["micro_batches"] >= 2
        # The reference is in float32, too.
        assert result["whole"] < 5 * EXACT and result["worst"] < 50 * EXACT
        assert result["extra"] == []


@pytest.mark.parametrize("case", ["sequences", "tokens", "mlm", "replaced"])
def test_dividing_by_the_own_count_of_each_process_fails_the_same_check(measured, case):
    assert all(rank["control ddp"][case]["whole"] > 1000 * EXACT for rank in measured)


def test_the_cases_are_as_uneven_as_they_are_meant_to_be(measured):
    first, second = (rank["ddp"] for rank in measured)
    for case in ("sequences", "tokens"):
        assert first[case]["micro_batches"] == second[case]["micro_batches"] >= 3
        assert len(set(first[case]["tokens"])) == 3
        assert sum(first[case]["counts"]) != sum(second[case]["counts"])
    # Rows of which none has a target; a rank with fewer rows than micro-batches, or none at all.
    assert 0 in first["tokens"]["counts"]
    assert first["tied word table"]["tokens"][-1] == 0 < second["tied word table"]["tokens"][-1]
    assert second["one row"]["tokens"] == [0, 0]
    assert second["one row of tokens"]["tokens"] == [0]
    assert first["one light row"]["counts"] == [0.5]
    first, second = (rank["ddp"]["pretraining"] for rank in measured)
    for name in ("mlm", "mlm, nsp", "replaced"):
        assert first[name]["counts"] != second[name]["counts"], "unequal numbers of masks"
    assert 0 in first["words, some rows without a mask"]["counts"]
    masked = [sum(rank["nothing masked on a rank"]["counts"]) for rank in (first, second)]
    assert min(masked) == 0 < max(masked)
    assert second["one row"]["counts"] == second["replaced, one row"]["counts"] == []


def test_all_processes_begin_with_the_weights_of_the_first(measured):
    assert [rank["first weights ddp"] for rank in measured] == [0.0, 0.0]


def test_processes_exchange_numbers_values_and_rows(measured):
    for rank, found in enumerate(result["small"] for result in measured):
        # Float32 would lose the last digit.
        assert found["sum"] == 2 * 2**40 + 1
        assert found["any"] == [False, True, True]
        assert found["broadcast"] == {"from": 0, "list": [1, None, 0.1]}
        assert found["rows"] == [[10.0, 11.0], [12.0, 13.0], [14.0, 15.0]]
        assert not found["rows need gradients"]
        assert found["no rows"] == [0, 2]
        assert found["before"] == [0, 3][rank]
        assert found["rank"] == [rank, 2, rank == 0, "cpu"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_holds_all_that_learns(measured, kind):
    assert measured[0]["names"][kind]


@pytest.mark.parametrize("case", ["adamw", "bert_adam", "lamb", "muon", "muon in bf16"])
def test_a_state_of_any_kind_is_loaded_and_trained_on_as_if_training_had_not_stopped(
    measured, case
):
    for rank in measured:
        result = dict(rank["states"][case])
        assert result.pop("moved") > 0.003, "much more than the tolerance"
        assert len(result) == 3
        for pair, found in result.items():
            source, _, target = pair.split()
            assert found["loaded"] and found["agrees"], pair
            # The order of sums differs between kinds, and bf16 rounds such a difference up.
            assert found["distance"] < (0.02 if case == "muon in bf16" else CLOSE), pair
            assert found["exact"] or source != target, pair


def test_a_pre_training_run_in_two_processes_makes_the_model_of_one(measured, place):
    run = json.loads((place / "text-two" / "run.json").read_text())
    alone = json.loads((place / "text-alone" / "run.json").read_text())
    assert measured[1]["runs"]["text"] == {} and measured[0]["runs"]["text"] == run
    assert run["device"]["processes"] == 2 and run["tokens"] == alone["tokens"]
    assert distance(place / "text-two", place / "text-alone") < CLOSE
    assert run["metrics"]["dev"] == pytest.approx(alone["metrics"]["dev"], rel=1e-3)
    lines = (place / "text-two" / "metrics.jsonl").read_text().splitlines()
    assert sum("mlm_accuracy" in line for line in lines) == 2 and len(lines) == 8


def test_a_fine_tuning_run_in_two_processes_makes_the_model_of_one(measured, place):
    two, one = (
        json.loads((place / f"films-{name}" / "run.json").read_text()) for name in ("two", "alone")
    )
    assert distance(place / "films-two", place / "films-alone") < CLOSE
    assert two["status"] == "done" and two["device"]["processes"] == 2
    for name, value in one["metrics"]["dev"].items():
        if isinstance(value, float):
            assert two["metrics"]["dev"][name] == pytest.approx(value, abs=1e-3)
    output = (place / "output.txt").read_text()
    assert output.count("processes: 2") == 2, "of each of two runs, one process reports"


def test_a_finished_run_is_left_alone_by_all_processes_and_reported_once(measured, place):
    run = json.loads((place / "text-two" / "run.json").read_text())
    assert [rank["runs"]["resumed"] for rank in measured] == [run, {}]
    assert (place / "output.txt").read_text().count("it is finished; nothing was done") == 1
