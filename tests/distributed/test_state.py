"""A state is that of the whole model, whatever kind of processes it came from or goes to."""

from __future__ import annotations

from typing import Any

import pytest

Measured = list[dict[str, Any]]
KINDS = ("single", "ddp", "fsdp")
# A tenth of one optimiser step: Adam divides by the size of the gradient, so where that is all
# rounding error the direction of a step is too.
CLOSE = 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_names_the_weights_and_moments_of_one_process(
    measured: Measured, kind: str
) -> None:
    assert measured[0]["state"][f"names {kind}"]
    assert measured[0]["state"][f"like single {kind}"] < CLOSE


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_only_the_first_process_holds_a_state(measured: Measured, kind: str) -> None:
    first, second = (rank["state"] for rank in measured)
    assert first[f"holders {kind}"][0] > 0
    assert first[f"weights only {kind}"] == [first[f"holders {kind}"][0], 0]
    assert second[f"holders {kind}"] == second[f"weights only {kind}"] == [0, 0]


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_a_state_of_any_kind_is_loaded_bit_for_bit_into_any_other(
    measured: Measured, source: str, target: str
) -> None:
    for rank in measured:
        assert rank["state"][f"loaded {source} to {target}"] == [True, True]
        assert rank["state"][f"kept {source} to {target}"]


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_training_goes_on_from_a_loaded_state_as_if_it_had_not_stopped(
    measured: Measured, source: str, target: str
) -> None:
    for rank in measured:
        assert rank["state"][f"after {source} to {target}"] < CLOSE
        if source == target:
            assert rank["state"][f"exact {source} to {target}"]
