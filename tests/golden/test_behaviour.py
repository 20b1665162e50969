"""filbert does on tiny inputs what it did when the record in behaviour/ was written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.golden.behaviour import internals, record
from tests.golden.behaviour.place import CASES, Place

VALUES, ARRAYS = record.read()

# float32 has a relative spacing of 1.2e-7, and instruction sets add up in another order: a few
# spacings after two layers.
PLAIN = 1e-6
# By case, its first word, or "case/key". Logits: the 16 terms of one number may nearly cancel.
# Training: each optimiser step passes the differences of the one before it on.
TOLERANCES = {
    "family": 3e-6,
    "finetune": 1e-5,
    # Its matrices are made orthogonal by iteration.
    "finetune muon": 1e-3,
    "resume": 1e-5,
    "pretrain": 1e-5,
    "distill": 1e-5,
    "compare": 1e-5,
    "evaluate": 1e-5,
    "gradient": 3e-6,
    "explain": 1e-5,
    # Processors without VNNI round sums of int8 products otherwise.
    "int8": 2e-2,
    # The server rounds to four decimals.
    "serve/maps": 2e-4,
}


def tolerance_of(name: str, key: str = "") -> float:
    return next(
        (TOLERANCES[n] for n in (f"{name}/{key}", name, name.split()[0]) if n in TOLERANCES), PLAIN
    )


def differences(old: Any, new: Any, tolerance: float, place: str = "") -> Iterator[str]:
    """Where two JSON values differ; numbers by more than `tolerance` of 1 or the larger."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from differences(old[key], new[key], tolerance, f"{place}.{key}")
            else:
                yield f"{place}.{key} is only in the {'record' if key in old else 'new values'}"
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{place} has {len(new)} entries, the record {len(old)}"
        for i, (a, b) in enumerate(zip(old, new, strict=False)):
            yield from differences(a, b, tolerance, f"{place}[{i}]")
    elif isinstance(old, float) and isinstance(new, float | int):
        if not math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{place} is {new!r}, the record has {old!r}"
    elif old != new:
        yield f"{place} is {new!r}, the record has {old!r}"


def array_difference(old: np.ndarray, new: np.ndarray, tolerance: float) -> str | None:
    """What differs between two arrays; their numbers by more than `tolerance` of the largest."""
    if old.shape != new.shape or old.dtype != new.dtype:
        return f"{new.dtype} {new.shape}, the record has {old.dtype} {old.shape}"
    if not old.size:
        return None
    worst = float(np.abs(old.astype(np.float64) - new).max() / max(np.abs(old).max(), 1e-30))
    return None if worst <= tolerance else f"differs by {worst:.1e} of the largest value"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with internals.cheap():
        yield Place(tmp_path_factory.mktemp("behaviour"))


@pytest.mark.parametrize("name", CASES)
def test_behaviour_is_the_recorded_one(name: str, place: Place) -> None:
    values, arrays = record.split(CASES[name](place))
    old = {k.partition("/")[2]: v for k, v in ARRAYS.items() if k.partition("/")[0] == name}
    assert arrays.keys() == old.keys()
    found = list(differences(VALUES[name], values, tolerance_of(name)))
    for key, value in arrays.items():
        if difference := array_difference(old[key], value, tolerance_of(name, key)):
            found.append(f"{key}: {difference}")
    assert not found, "\n".join(found[:20])


def test_the_record_has_no_case_that_is_gone() -> None:
    assert VALUES.keys() == CASES.keys()


@pytest.mark.parametrize("new", [{"a": [1.0, 2.1]}, {"a": [1.0]}, {"b": [1.0, 2.0]}, {"a": "x"}])
def test_a_changed_value_is_seen(new: Any) -> None:
    old = {"a": [1.0, 2.0]}
    assert not list(differences(old, {"a": [1 + 1e-7, 2]}, PLAIN))
    assert list(differences(old, new, PLAIN))


def test_a_changed_array_is_seen() -> None:
    old = np.array([1.0, 2.0], np.float32)
    assert array_difference(old, old + np.float32(1e-6), PLAIN) is None
    assert array_difference(old, old + np.float32(1e-5), PLAIN)
    assert array_difference(old, old[:1], PLAIN)
    assert array_difference(old, old.astype(np.float64), PLAIN)
