"""Batches next to each other: outputs in order, threads as they were, errors that arrive."""

import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import filbert
from filbert.data.loader import by_length
from filbert.inference.forward import even_batches, finished

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

    found = list(finished(launch, [[0], [1], [2], [3]], 2, CPU))
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
        2,
        CPU,
    )
    assert list(launched) == [None] * len(batches)
    assert counts == [(threading.current_thread(), 2)] * len(batches)


def test_an_error_arrives_and_what_has_not_begun_does_not_begin(two_threads):
    begun = []

    def launch(batch):
        begun.append(batch[0])
        if batch[0] == 1:
            raise MemoryError("no room")
        time.sleep(0.02)
        return lambda: batch[0]

    with pytest.raises(MemoryError, match="no room"):
        list(finished(launch, [[number] for number in range(100)], 2, CPU))
    assert len(begun) < 10
    assert torch.get_num_threads() == 2
    assert not [t for t in threading.enumerate() if t.name.startswith("filbert-stream")]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    max_tokens=st.integers(1, 300),
    streams=st.integers(1, 4),
)
def test_streams_get_the_same_number_of_batches_within_the_limit(lengths, max_tokens, streams):
    batches = even_batches(lengths, max_tokens, streams)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    sizes = [sum(lengths[i] for i in batch) for batch in batches]
    assert all(
        size <= max_tokens or len(batch) == 1 for size, batch in zip(sizes, batches, strict=True)
    )
    fewest = len(by_length(lengths, max_tokens))
    assert fewest <= len(batches) <= -(-fewest // streams) * streams
    if streams == 1 or fewest == 1:
        assert batches == by_length(lengths, max_tokens)


def test_vectors_of_inner_layers_are_right_while_other_batches_could_run(tiny_model, two_threads):
    """Inner layers are read by hooks, which another thread's batch would call, too."""
    texts = [f"film {'very ' * (i % 9)}good" for i in range(40)]
    found = filbert.load(tiny_model, max_tokens=32).embed(texts, layers=[0, 1])
    torch.set_num_threads(1)
    alone = filbert.load(tiny_model, max_tokens=32).embed(texts, layers=[0, 1])
    np.testing.assert_allclose(found, alone, atol=1e-6)
