from __future__ import annotations

from threading import Thread
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.serve.queue import Queue, RequestQueue


class Item(NamedTuple):
    request_queue: RequestQueue
    size: int
    name: str


# A turn is an eighth of the batch, 10 tokens.
BUDGET = 80


def add(queue: Queue[Item], *items: Item) -> bool:
    return all(queue.put(item.request_queue, [(item.size, item)]) for item in items)


def filled(*requests: list[int], wait: float = 0.0) -> tuple[Queue[Item], list[RequestQueue]]:
    """A queue with the sizes of some requests; their items are called a0, a1, ..., b0, b1, ..."""
    queue: Queue[Item] = Queue(BUDGET, wait)
    lanes = [RequestQueue() for _ in requests]
    for letter, lane, sizes in zip("abcdefgh", lanes, requests, strict=False):
        add(queue, *(Item(lane, size, f"{letter}{i}") for i, size in enumerate(sizes)))
    return queue, lanes


def names(queue: Queue[Item]) -> list[str]:
    """What the next batch holds; it has to be there at once."""
    taken: list[list[Item] | None] = []
    thread = Thread(target=lambda: taken.append(queue.take()), daemon=True)
    thread.start()
    thread.join(5)
    assert taken and taken[0], "the queue waits"
    return [item.name for item in taken[0]]


def test_short_and_long_share_a_batch_up_to_its_tokens():
    queue, _ = filled([5, 60, 5], [10, 1])
    assert sorted(names(queue)) == ["a0", "a1", "b0", "b1"]
    assert queue.size == (1, 5)
    assert names(queue) == ["a2"]
    assert queue.size == (0, 0)


def test_a_small_request_is_in_the_next_batch_however_much_came_before():
    queue, _ = filled([10] * 1000, [10] * 1000, [3])
    assert "c0" in names(queue)


def test_a_sequence_longer_than_a_batch_goes_alone_and_is_not_passed_over():
    queue, _ = filled([200, 1], [70, 70])
    taken = [names(queue) for _ in range(4)]
    assert ["a0"] in taken
    assert sorted(sum(taken, [])) == ["a0", "a1", "b0", "b1"]


def test_what_a_request_still_has_can_be_taken_back():
    queue, lanes = filled([10] * 3, [10])
    assert queue.drop(lanes[0]) == 3
    assert queue.size == (1, 10)
    assert names(queue) == ["b0"]
    assert queue.drop(lanes[0]) == queue.drop(lanes[1]) == 0


def test_a_closed_queue_gives_back_what_waits_and_lets_nothing_in():
    queue, lanes = filled([10] * 3)
    assert [item.name for item in queue.close()] == ["a0", "a1", "a2"]
    assert queue.take() is None
    assert not add(queue, Item(lanes[0], 1, "late"))
    assert queue.size == (0, 0)


def test_a_client_alone_never_waits_for_company():
    queue, lanes = filled([10], wait=1e6)
    assert names(queue) == ["a0"]
    add(queue, Item(lanes[0], 10, "again"))
    assert names(queue) == ["again"]


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("filbert.serve.queue.time", made)
    return made


def waits(thread: Thread) -> bool:
    """Whether it is still there after a while."""
    thread.join(0.1)
    return thread.is_alive()


def test_clients_that_shared_a_batch_wait_for_each_other_in_the_next(clock):
    queue, (first, second) = filled([10], [10], wait=1e6)
    assert len(names(queue)) == 2
    clock.now = 4e6  # that batch took its time
    taken: list[str] = []
    add(queue, Item(first, 10, "a1"))
    thread = Thread(target=lambda: taken.extend(i.name for i in queue.take() or ()), daemon=True)
    thread.start()
    assert waits(thread)
    add(queue, Item(second, 10, "b1"))
    thread.join(20)
    assert taken == ["a1", "b1"]


@pytest.mark.parametrize(
    ("wait", "busy"), [(0.5, 4e6), (1e6, 2.0)], ids=["max_wait", "a quarter of the batch before"]
)
def test_a_sequence_waits_for_company_no_longer_than_it_may(clock, wait, busy):
    queue, (first, _) = filled([10], [10], wait=wait)
    names(queue)
    clock.now = busy - 0.5
    add(queue, Item(first, 10, "a1"))
    clock.now = busy
    assert names(queue) == ["a1"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=30), min_size=1, max_size=6))
def test_everything_comes_out_once_in_order_and_in_fair_turns(requests):
    queue, lanes = filled(*requests)
    served = [0] * len(lanes)
    order: list[list[int]] = [[] for _ in lanes]
    while queue.size[0]:
        batch = queue.take()
        assert batch
        assert len(batch) == 1 or sum(item.size for item in batch) <= BUDGET
        for item in batch:
            at = lanes.index(item.request_queue)
            order[at].append(int(item.name[1:]))
            served[at] += item.size
            # Two that both still wait never are further apart than a turn and a sequence each.
            behind = [served[i] for i, lane in enumerate(lanes) if lane.waiting]
            if behind and item.request_queue.waiting:
                assert served[at] - min(behind) <= 2 * (BUDGET // 8 + 40)
    assert order == [list(range(len(sizes))) for sizes in requests]
