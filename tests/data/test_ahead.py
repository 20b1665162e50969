"""Steps made ahead are the steps asked for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from filbert.data.examples import Example
from filbert.data.loader import Ahead, Loader, one_ahead
from filbert.errors import InputError


def loader() -> Loader:
    draw = np.random.default_rng(0)
    examples = []
    for row, length in enumerate(draw.integers(3, 20, 50).tolist()):
        ids = np.full(length, row)
        examples.append(Example(row, ids, np.zeros_like(ids), length))
    return Loader(examples, batch_size=8, max_tokens=60, seed=1)


def rows(step: list[list[Example]]) -> list[list[int]]:
    return [[example.row for example in batch] for batch in step]


def test_every_step_is_that_of_the_loader_in_any_order_and_for_any_rank():
    ahead, plain = Ahead(loader()), loader()
    for step in (0, 1, 2, 5, 6, 3, 3, 4, 12):
        assert rows(ahead.step(step)) == rows(plain.step(step))
        assert rows(ahead.step(step, 1, 2)) == rows(plain.step(step, 1, 2))
    assert rows(ahead.rows_of(3)) == rows(plain.rows_of(3))
    assert rows([ahead.stand_in]) == rows([plain.stand_in])
    assert ahead.steps_per_epoch == plain.steps_per_epoch


def test_the_next_step_is_made_in_another_thread_and_only_once():
    batches, made = loader(), []
    real = batches.step

    def step(*asked):
        made.append((asked[0], threading.current_thread() is threading.main_thread()))
        return real(*asked)

    batches.step = step
    ahead = Ahead(batches)
    for number in range(4):
        ahead.step(number)
    ahead._next[1].join()
    assert made == [(0, True), (1, False), (2, False), (3, False), (4, False)]


def test_an_error_is_raised_by_the_step_that_has_it_and_by_no_other():
    batches = loader()
    real = batches.step

    def step(number, *rest):
        if number == 2:
            raise InputError("row 7 is unreadable")
        return real(number, *rest)

    batches.step = step
    ahead = Ahead(batches)
    ahead.step(0)
    ahead.step(1)
    with pytest.raises(InputError, match="row 7"):
        ahead.step(2)
    assert rows(ahead.step(3)) == rows(real(3))


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
