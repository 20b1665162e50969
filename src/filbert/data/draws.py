"""Random numbers without state: every draw is a hash of what it is used for.

So the draws of a row do not depend on earlier draws, on the number of processes or on a resume, and
those of many rows are computed at once.
"""

from __future__ import annotations

import numpy as np

# What keys are used for, so that no two uses share draws: masks, which sentences go together,
# hashes of shingles, and the order in which rows are dealt to splits.
MASKS, PLANS, HASHES, LOTS = range(4)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(x: np.ndarray) -> np.ndarray:
    """Return the output function of SplitMix64 (Steele, Lea and Flood 2014), on uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def keys_of(seed: int, version: int, numbers: np.ndarray, *, use: int = MASKS) -> np.ndarray:
    """Return the key of each row or document, uint64, from which all its draws follow.

    `numbers` are integers, those of the rows or documents.
    """
    key = np.zeros(1, dtype=np.uint64)
    for part in (use, seed, version):
        key = mixed(key + np.uint64(part % 2**64) + _GOLDEN)
    return mixed(mixed(key + numbers.astype(np.uint64) * _GOLDEN))


def bits(keys: np.ndarray, stream: int, counters: np.ndarray) -> np.ndarray:
    """Return uint64, one per key: number `counters` of a stream; streams hold 2**32 draws."""
    places = counters.astype(np.uint64) + np.uint64((stream << 32) + 1)
    return mixed(keys + places * _GOLDEN)


def uniform(keys: np.ndarray, stream: int, counters: np.ndarray) -> np.ndarray:
    """Return the same as float64 in [0, 1)."""
    return np.asarray((bits(keys, stream, counters) >> np.uint64(11)) * 2.0**-53)


def shuffled(keys: np.ndarray, stream: int, counters: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return indices in random order within each group, the groups in order: int64.

    `keys`, `counters` and `groups` have an entry per element; the groups are ascending numbers
    below 2**24.
    """
    # The group in the top bits and 40 random bits below: one sort for all groups.
    order = bits(keys, stream, counters) >> np.uint64(24)
    return np.argsort(order | (groups.astype(np.uint64) << np.uint64(40)), kind="stable")
