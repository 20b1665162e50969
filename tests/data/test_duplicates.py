"""The set of hashes, against Python's own."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.data import documents
from filbert.data.documents import SeenHashes


@pytest.mark.parametrize("recent", [1, 50, 10**6])
def test_the_first_of_each_is_fresh_and_no_other(monkeypatch, recent):
    monkeypatch.setattr(documents, "_MIN_RECENT", recent)
    draw = np.random.default_rng(0)
    pool = draw.integers(0, 2**64, 2000, np.uint64)
    seen, judge = SeenHashes(), set()
    for _ in range(60):
        given = draw.choice(pool, draw.integers(0, 90)).tolist()
        wanted = []
        for one in given:
            wanted.append(one not in judge)
            judge.add(one)
        assert seen.add(given).tolist() == wanted
    assert seen.count == len(judge)


def test_behind_the_limit_new_ones_are_compared_but_not_remembered():
    seen = SeenHashes(limit=3)
    assert seen.add([5, 6]).all()
    assert seen.add([7, 8, 9]).all()
    assert seen.num_forgotten == 2
    assert seen.add([5, 7, 8, 8]).tolist() == [False, False, True, False]
