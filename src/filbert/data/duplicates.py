"""Which texts were seen before, in eight bytes each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

# 400 MB of hashes. Texts behind that many different ones are still compared with these, but not
# remembered themselves.
MAX_REMEMBERED = 50_000_000

_BUCKETS = 256
_RECENT = 2**17


def hash_of(text: bytes, kind: bytes) -> int:
    """64 bits of BLAKE2b.

    Among n different texts the chance that any two are taken for one is about n * n / 3.7e19: 1 in
    15,000 for the 50 million that are remembered at most.

    Args:
        text: any bytes.
        kind: up to 16 bytes; texts of different kinds have nothing to do with each other.
    """
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=kind).digest(), "little")


class SeenHashes:
    """A set of 64-bit hashes as sorted arrays.

    Attributes:
        count: how many are in it.
        num_forgotten: new ones that found it full; one that comes again is counted again.
    """

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self.count = 0
        self.num_forgotten = 0
        self._limit = limit
        # One array a leading byte: only one of them at a time is copied when new ones are merged.
        self._buckets = [np.empty(0, np.uint64) for _ in range(_BUCKETS)]
        self._recent = np.empty(0, np.uint64)

    def add(self, hashes: Sequence[int]) -> np.ndarray:
        """Remember hashes, in order.

        Returns:
            bool (n,): whether each is there for the first time.
        """
        given = np.array(hashes, np.uint64)
        different, first = np.unique(given, return_index=True)
        fresh = ~_holds(self._recent, different)
        tops = (different >> np.uint64(56)).astype(np.int64)
        edges = np.searchsorted(tops, np.arange(_BUCKETS + 1))
        for bucket in np.unique(tops):
            part = slice(edges[bucket], edges[bucket + 1])
            fresh[part] &= ~_holds(self._buckets[bucket], different[part])
        answer = np.zeros(len(given), np.bool_)
        places = np.sort(first[fresh])
        answer[places] = True
        kept = places[: self._limit - self.count]
        self.count += len(kept)
        self.num_forgotten += len(places) - len(kept)
        self._recent = np.sort(np.concatenate([self._recent, given[kept]]), kind="stable")
        if len(self._recent) >= _RECENT:
            self._merge()
        return answer

    def _merge(self) -> None:
        edges = np.searchsorted(self._recent >> np.uint64(56), np.arange(_BUCKETS + 1))
        for bucket in range(_BUCKETS):
            part = self._recent[edges[bucket] : edges[bucket + 1]]
            # "stable" merges sorted runs in linear time.
            joined = np.concatenate([self._buckets[bucket], part])
            joined.sort(kind="stable")
            self._buckets[bucket] = joined
        self._recent = np.empty(0, np.uint64)


def _holds(table: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Whether each of `asked` is in the sorted `table`."""
    if not len(table):
        return np.zeros(len(asked), np.bool_)
    places = np.minimum(np.searchsorted(table, asked), len(table) - 1)
    found: np.ndarray = table[places] == asked
    return found
