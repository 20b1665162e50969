"""The loader is a pure function of (seed, step)."""

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from filbert.data.examples import Example
from filbert.data.loader import Loader, by_length, one_ahead


def examples(lengths: list[int], per_row: int = 1) -> list[Example]:
    return [
        Example(i // per_row, np.ones(n, dtype=np.int32), np.zeros(n, dtype=np.uint8), n)
        for i, n in enumerate(lengths)
    ]


def rows_in(micro_batches: list[list[Example]]) -> list[int]:
    return [example.row for batch in micro_batches for example in batch]


def test_a_step_is_the_same_whenever_and_in_whatever_order_it_is_asked_for():
    data = examples(list(range(1, 41)))
    first = Loader(data, batch_size=8, max_tokens=64, seed=3)
    second = Loader(data, batch_size=8, max_tokens=64, seed=3)
    backwards = {step: rows_in(second.step(step)) for step in reversed(range(12))}
    assert [rows_in(first.step(step)) for step in range(12)] == [backwards[s] for s in range(12)]


def test_every_epoch_has_every_row_once_in_another_order():
    loader = Loader(examples([5] * 21), batch_size=8, max_tokens=64)
    assert loader.steps_per_epoch == 3
    epochs = [[sorted(rows_in(loader.step(3 * e + s))) for s in range(3)] for e in range(2)]
    for epoch in epochs:
        assert sorted(row for step in epoch for row in step) == list(range(21))
    assert epochs[0] != epochs[1]


def test_a_share_of_an_epoch_is_rounded_up_but_no_dust_is():
    loader = Loader(examples([5] * 25), batch_size=1, max_tokens=64)
    assert 2.2 * 25 > 55 and loader.steps_for(2.2) == 55
    assert loader.steps_for(2.21) == 56


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=50),
    st.integers(1, 9),
    st.integers(10, 100),
    st.integers(1, 3),
)
def test_ranks_share_the_rows_of_a_step_and_make_as_many_micro_batches(
    lengths, size, budget, world
):
    loader = Loader(examples(lengths), batch_size=size, max_tokens=budget)
    for step in range(loader.steps_per_epoch):
        shares = [loader.step(step, rank, world) for rank in range(world)]
        assert len({len(share) for share in shares}) == 1
        together = sorted(row for share in shares for row in rows_in(share))
        assert together == sorted(rows_in(loader.step(step)))
        for share in shares:
            for batch in share:
                tokens = sum(len(e.input_ids) for e in batch)
                assert tokens <= budget or len(batch) == 1


def test_the_windows_of_a_row_never_part():
    loader = Loader(examples([30] * 12, per_row=3), batch_size=2, max_tokens=50)
    for step in range(loader.steps_per_epoch):
        for batch in loader.step(step):
            rows = [e.row for e in batch]
            assert all(rows.count(row) == 3 for row in set(rows))


def test_neighbours_in_a_micro_batch_are_of_near_equal_length():
    rng = np.random.default_rng(0)
    loader = Loader(examples(rng.integers(5, 200, 64).tolist()), batch_size=64, max_tokens=10**6)
    lengths = [len(e.input_ids) for batch in loader.step(0) for e in batch]
    assert lengths == sorted(lengths)


@given(st.lists(st.integers(1, 80), max_size=60), st.integers(20, 200))
def test_prediction_batches_hold_every_index_once_within_the_budget(lengths, budget):
    batches = by_length(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert sum(lengths[i] for i in batch) <= budget or len(batch) == 1


def test_the_next_item_is_made_while_this_one_is_in_use_and_no_more_than_one():
    made = [threading.Event() for _ in range(4)]

    def items():
        for number, event in enumerate(made):
            event.set()
            yield number

    ahead = one_ahead(items())
    assert next(ahead) == 0
    assert made[1].wait(10)
    assert not made[2].wait(0.05)
