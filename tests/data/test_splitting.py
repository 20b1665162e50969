from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from filbert.data.splitting import merged_groups, stratified_split
from filbert.errors import InputError

THREE = {"train": 0.7, "dev": 0.15, "test": 0.15}


def labels(**counts: int) -> list[str]:
    """So many rows of each label, mixed."""
    every = [label for label, count in counts.items() for _ in range(count)]
    random.Random(0).shuffle(every)
    return every


def drawn(
    given: list[str], shares: Any, seed: int = 0, groups: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """`stratified_split` with shares in order, and rows that are each a group by default."""
    named = shares if isinstance(shares, dict) else dict(zip(THREE, shares, strict=False))
    groups = np.arange(len(given)) if groups is None else groups
    return stratified_split(given, named, seed=seed, groups=groups)


def counted(given: list[str], split: dict[str, np.ndarray]) -> dict[str, Counter[str]]:
    """How many rows of each label every split has."""
    return {name: Counter(given[row] for row in rows) for name, rows in split.items()}


def test_every_row_is_in_exactly_one_split():
    given = labels(rude=103, polite=897)
    split = drawn(given, THREE, seed=0)
    assert list(split) == ["train", "dev", "test"]
    assert np.array_equal(np.sort(np.concatenate(list(split.values()))), np.arange(1000))
    for rows in split.values():
        assert rows.dtype == np.int64
        assert np.array_equal(rows, np.sort(rows))


@pytest.mark.parametrize("seed", range(5))
def test_every_split_has_its_share_of_every_class_to_the_row(seed):
    given = labels(a=11, b=1009, c=97, d=400)
    shares = {"train": 0.61, "dev": 0.17, "test": 0.22}
    split = drawn(given, shares, seed=seed)
    for name, counts in counted(given, split).items():
        for label, count in counts.items():
            assert abs(count - shares[name] * given.count(label)) < 1, (name, label)


def test_shares_that_are_whole_rows_are_met_exactly():
    # 0.15 * 20 is 3.0000000000000004 or a little less: neither may be rounded to 4 or 2.
    split = drawn(labels(a=20, b=40), THREE, seed=3)
    assert counted(labels(a=20, b=40), split) == {
        "train": {"a": 14, "b": 28},
        "dev": {"a": 3, "b": 6},
        "test": {"a": 3, "b": 6},
    }


def test_many_small_classes_do_not_all_round_to_the_same_split():
    given = labels(**{f"c{number}": 5 for number in range(100)})
    split = drawn(given, (0.7, 0.1, 0.2), seed=0)
    assert {name: len(rows) for name, rows in split.items()} == {
        "train": 300,
        "dev": 100,
        "test": 100,
    }  # 3.5, 0.5 and 1 of each five: dev gets one of each rather than none
    given = labels(**{f"c{number}": 15 for number in range(100)})
    sizes = [len(rows) for rows in drawn(given, (0.7, 0.1, 0.2), seed=0).values()]
    assert np.abs(np.array(sizes) - [1050, 150, 300]).max() <= 1


def test_the_split_is_that_of_the_seed_on_every_machine():
    # Whole numbers only, so no platform can round otherwise: this is what the first one gave.
    split = drawn(["a", "b"] * 10, {"train": 0.5, "test": 0.5}, seed=7)
    assert split["train"].tolist() == [1, 2, 3, 6, 7, 10, 12, 13, 14, 15]
    again = drawn(["a", "b"] * 10, {"train": 0.5, "test": 0.5}, seed=7)
    assert again["test"].tolist() == split["test"].tolist()
    other = drawn(["a", "b"] * 10, {"train": 0.5, "test": 0.5}, seed=8)
    assert other["train"].tolist() != split["train"].tolist()


def grouped(seed: int = 0) -> tuple[list[str], np.ndarray]:
    """3,000 rows, a tenth of them rude, in groups of one to thirty of mixed labels."""
    draw = random.Random(seed)
    given, groups = [], []
    while len(given) < 3000:
        size = draw.choice([1, 1, 1, 1, 2, 3, 5, 30])
        odds = draw.choice([0.02, 0.1, 0.4])
        groups += [len(given)] * size
        given += ["rude" if draw.random() < odds else "polite" for _ in range(size)]
    return given, np.array(groups)


@pytest.mark.parametrize("seed", range(4))
def test_groups_stay_together_and_shares_are_met_all_the_same(seed):
    given, groups = grouped(seed)
    split = drawn(given, THREE, seed=seed, groups=groups)
    homes = [set(groups[rows].tolist()) for rows in split.values()]
    assert not homes[0] & homes[1] and not homes[0] & homes[2] and not homes[1] & homes[2]
    assert sum(map(len, split.values())) == len(given)
    total = Counter(given)
    for wanted, counts in zip(THREE.values(), counted(given, split).values(), strict=True):
        for label in total:
            # Single rows even out what groups leave: to the row, and rows are 1/3000 or 1/350.
            assert counts[label] / total[label] == pytest.approx(wanted, abs=0.006)


def test_rows_of_rare_classes_are_in_the_first_split_if_that_is_wanted():
    given = labels(a=80, b=40, c=2, d=1)
    split = drawn(given, (0.8, 0.1, 0.1), seed=0)
    assert counted(given, split) == {
        "train": {"a": 64, "b": 32, "c": 2, "d": 1},
        "dev": {"a": 8, "b": 4},
        "test": {"a": 8, "b": 4},
    }


def test_a_class_within_one_group_is_rare_however_many_rows_it_has():
    given = ["a"] * 40 + ["b"] * 10
    groups = np.array([*range(40), *[0] * 10])
    split = drawn(given, (0.8, 0.1, 0.1), seed=0, groups=groups)
    assert set(range(40, 50)) | {0} <= set(split["train"].tolist())
    assert len(split["dev"]) == len(split["test"]) == 4


def test_too_few_rows_for_the_splits_are_refused():
    with pytest.raises(InputError, match="2 rows are too few"):
        drawn(["a", "a"], (0.8, 0.1, 0.1), seed=0)


def test_merged_groups_join_what_any_partition_joins():
    one = np.array([0, 0, 1, 2, 3])
    other = np.array([5, 6, 6, 7, 8])
    assert len(set(merged_groups(one, other)[[0, 1, 2]].tolist())) == 1
    assert len(set(merged_groups(one, other).tolist())) == 3


def test_groups_larger_than_a_small_split_still_leave_it_one():
    given = ["a", "b"] * 40
    split = drawn(given, (0.8, 0.1, 0.1), seed=0, groups=np.arange(80) // 16)
    assert {name: len(rows) for name, rows in split.items()} == {"train": 48, "dev": 16, "test": 16}
