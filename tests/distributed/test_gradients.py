"""Two processes under DDP or FSDP2 compute the gradient of one process over the whole batch.

The reference is plain torch: one batch, one backward pass, in float64 (the processes
compute in float32), without dropout.
"""

from __future__ import annotations

from typing import Any

import pytest

Measured = list[dict[str, Any]]

# Sums of some hundred float32 numbers in another order; seen: 4e-7.
EXACT = 1e-6
KINDS = ("single", "ddp", "fsdp")
CASES = (
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
    "features",
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_any_cut_into_processes_and_micro_batches_gives_the_gradient_of_the_whole_batch(
    measured: Measured, kind: str, case: str
) -> None:
    for rank in measured:
        figures = rank[kind][case]
        assert figures["whole"] < EXACT
        assert figures["worst"] < EXACT
        assert figures["norm"] < EXACT
        assert figures["extra"] == []


@pytest.mark.parametrize("case", [case for case in CASES if case != "features"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_process_reports_the_mean_loss_of_the_whole_batch(
    measured: Measured, kind: str, case: str
) -> None:
    assert all(rank[kind][case]["loss"] < EXACT for rank in measured)


@pytest.mark.parametrize("case", ["sequences", "tokens"])
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_dividing_by_the_own_count_of_each_process_fails_the_same_check(
    measured: Measured, kind: str, case: str
) -> None:
    assert all(rank[f"control {kind}"][case]["whole"] > 1000 * EXACT for rank in measured)


def test_the_cases_are_as_uneven_as_they_are_meant_to_be(measured: Measured) -> None:
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


@pytest.mark.parametrize("kind", KINDS)
def test_clipping_scales_the_gradient_of_all_processes_together(
    measured: Measured, kind: str
) -> None:
    for rank in measured:
        # torch adds 1e-6 to the norm it divides by.
        assert rank[kind]["sequences"]["clipped"] < 1e-5
        assert rank[kind]["tokens"]["clipped"] < 1e-5
        assert rank[kind]["tokens"]["untouched"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_all_processes_begin_with_the_weights_of_the_first(measured: Measured, kind: str) -> None:
    assert [rank[f"first weights {kind}"] for rank in measured] == [0.0, 0.0]


def test_the_loss_of_a_process_without_rows_is_a_finite_zero(measured: Measured) -> None:
    assert measured[0]["zero"] == {"loss": 0.0, "gradient": [0.0] * 4}
