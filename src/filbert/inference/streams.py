"""Batches side by side on a processor's cores, one behind the other on a GPU.

Half of the calls in a layer are too small to be shared out: two threads on one batch spend a tenth
of their time waiting for each other. A thread with cores and a batch of its own does not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from filbert.data.loader import by_length

_T = TypeVar("_T")

# Python itself runs one thread at a time, and between products there is some of it.
_MOST_STREAMS = 4


def streams_on(device: torch.device) -> int:
    """Batches at a time, from the threads that torch has."""
    return min(_MOST_STREAMS, torch.get_num_threads()) if device.type == "cpu" else 1


def batches_on(device: torch.device, lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """As `by_length`, but so that all streams have the same number of batches, as large.

    Args:
        device: where they run.
        lengths: of the sequences.
        max_tokens: per batch.
    """
    batches, streams = by_length(lengths, max_tokens), streams_on(device)
    if len(batches) < 2 or streams == 1:
        return batches
    count = -(-len(batches) // streams) * streams
    # The least limit that needs no more batches.
    low, high = -(-sum(lengths) // count), max_tokens
    while low < high:
        middle = (low + high) // 2
        if len(by_length(lengths, middle)) > count:
            low = middle + 1
        else:
            high = middle
    return by_length(lengths, high)


def finished(
    launch: Callable[[list[int]], Callable[[], _T]], batches: list[list[int]], device: torch.device
) -> Iterator[_T]:
    """Launch all batches, and finish them in order.

    Args:
        launch: computes a batch, in any thread; what comes back is called in this one.
        batches: of `batches_on`.
        device: where they run.
    """
    streams = min(streams_on(device), len(batches))
    if streams < 2:
        yield from overlapped(map(launch, batches), device)
        return
    threads = torch.get_num_threads()
    ready = threading.Barrier(streams + 1)

    def begin() -> None:
        # The first question of a thread would undo what was set before it.
        torch.get_num_threads()
        torch.set_num_threads(threads // streams)
        ready.wait()

    pool = ThreadPoolExecutor(streams, "filbert-stream", begin)
    try:
        waiting = deque(pool.submit(launch, batch) for batch in batches)
        ready.wait()
        # For threads that are yet to come; those that have begun keep theirs.
        torch.set_num_threads(threads)
        while waiting:
            yield waiting.popleft().result()()
    finally:
        pool.shutdown(cancel_futures=True)


def overlapped(launched: Iterator[Callable[[], _T]], device: torch.device) -> Iterator[_T]:
    """Finish what was launched, in order: on a GPU only after the next has been launched too.

    The GPU so computes one batch while the host lays out the next.
    """
    waiting: deque[Callable[[], _T]] = deque()
    for finish in launched:
        waiting.append(finish)
        if len(waiting) > (device.type == "cuda"):
            yield waiting.popleft()()
    for finish in waiting:
        yield finish()
