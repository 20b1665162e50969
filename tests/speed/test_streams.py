"""Batches side by side: the same answers in order, threads as they were, errors that arrive."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.data.loader import by_length
from filbert.inference import streams
from filbert.inference.streams import batches_on, finished

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_batches_are_launched_side_by_side_and_finished_here_in_order(two_threads):
    together, seen = threading.Barrier(2), []

    def launch(batch):
        # Two at a time, or this never ends well.
        together.wait(20)
        seen.append((threading.current_thread(), torch.get_num_threads()))
        time.sleep(0.05 * (batch[0] % 2 == 0))
        return lambda: (batch[0], threading.current_thread())

    found = list(finished(launch, [[0], [1], [2], [3]], CPU))
    assert [number for number, _ in found] == [0, 1, 2, 3]
    assert {thread for _, thread in found} == {threading.current_thread()}
    threads, counts = zip(*seen, strict=True)
    assert len(set(threads)) == 2 and threading.current_thread() not in threads
    assert set(counts) == {1}
    # Here, and in threads to come.
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert (torch.get_num_threads(), later) == (2, [2])


@pytest.mark.parametrize("batches", [[], [[0]]])
def test_one_batch_has_all_threads(two_threads, batches):
    counts = []
    launched = finished(
        lambda batch: lambda: counts.append((threading.current_thread(), torch.get_num_threads())),
        batches,
        CPU,
    )
    assert list(launched) == [None] * len(batches)
    assert counts == [(threading.current_thread(), 2)] * len(batches)


def test_one_thread_is_no_stream(two_threads):
    torch.set_num_threads(1)
    threads = []
    launched = finished(
        lambda batch: lambda: threads.append(threading.current_thread()), [[0], [1]], CPU
    )
    list(launched)
    assert threads == [threading.current_thread()] * 2


def test_an_error_arrives_and_what_has_not_begun_does_not_begin(two_threads):
    begun = []

    def launch(batch):
        begun.append(batch[0])
        if batch[0] == 1:
            raise MemoryError("no room")
        time.sleep(0.02)
        return lambda: batch[0]

    with pytest.raises(MemoryError, match="no room"):
        list(finished(launch, [[number] for number in range(100)], CPU))
    assert len(begun) < 10
    assert torch.get_num_threads() == 2
    assert not [t for t in threading.enumerate() if t.name.startswith("filbert-stream")]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    max_tokens=st.integers(1, 300),
    threads=st.integers(1, 4),
)
def test_streams_get_the_same_number_of_batches_within_the_limit(lengths, max_tokens, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        batches = batches_on(CPU, lengths, max_tokens)
    finally:
        torch.set_num_threads(before)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    sizes = [sum(lengths[i] for i in batch) for batch in batches]
    assert all(
        size <= max_tokens or len(batch) == 1 for size, batch in zip(sizes, batches, strict=True)
    )
    fewest = len(by_length(lengths, max_tokens))
    assert fewest <= len(batches) <= -(-fewest // threads) * threads
    if threads == 1 or fewest == 1:
        assert batches == by_length(lengths, max_tokens)


def test_equal_lengths_are_shared_out_evenly(two_threads):
    assert [len(batch) for batch in by_length([10] * 10, 40)] == [4, 4, 2]
    assert [len(batch) for batch in batches_on(CPU, [10] * 10, 40)] == [3, 3, 3, 1]
    assert [len(batch) for batch in batches_on(CPU, [10] * 12, 40)] == [3, 3, 3, 3]
    assert batches_on(torch.device("cuda"), [10] * 12, 40) == by_length([10] * 12, 40)


def test_there_are_never_more_than_a_few(monkeypatch):
    monkeypatch.setattr(streams.torch, "get_num_threads", lambda: 64)
    assert streams.streams_on(CPU) == 4
    assert streams.streams_on(torch.device("cuda")) == 1
