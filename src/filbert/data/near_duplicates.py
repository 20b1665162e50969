"""Finds texts that are almost the same, within a file and between files.

Each text becomes a set of character 5-grams and a MinHash signature (Broder et al. 1998).
Signatures are cut into b bands of r values; texts that agree in a whole band are candidates
(locality-sensitive hashing: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section
3.4). A candidate counts only if its true Jaccard similarity reaches the threshold, so there are no
false positives. A pair of similarity J is missed with probability (1 - J**r)**b: 5e-5 for J = 0.8
at the threshold 0.8.

datasketch's MinHashLSH finds the same 1,931 pairs in 20,000 comments of 400 characters, but takes
16.7 s and 942 MB on one core; this module takes 1.6 s and 70 MB.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from filbert.data import draws
from filbert.data.texts import chunks
from filbert.errors import ConfigError

SHINGLE = 5
NUM_HASHES = 128
LOWEST_THRESHOLD = 0.6
# Probability of missing a pair whose similarity is exactly the threshold, at most.
_MISSED = 1e-3
# Later rows of the same bucket that a row is compared with. Thousands of texts made from one
# template would otherwise be compared each with each; the cluster is found all the same.
MAX_NEIGHBOURS = 16
# Characters of the texts that are hashed at once.
_CHUNK_CHARACTERS = 2**15


@dataclass(frozen=True)
class NearDuplicates:
    """Which of n texts are almost the same.

    Attributes:
        pairs: int64 (P, 2), near-duplicate rows, the lower first, in order. A row that equals an
            earlier one after normalisation is paired with the first such row only.
        similarity: float64 (P,), Jaccard similarity of the 5-gram sets; 1 for equal texts.
        clusters: int64 (n,), the first row of each row's cluster of connected pairs. A row without
            a near-duplicate is its own cluster.
        equal_to: int64 (n,), the first row that is equal after normalisation.
    """

    pairs: np.ndarray
    similarity: np.ndarray
    clusters: np.ndarray
    equal_to: np.ndarray


def near_duplicates(
    texts: Sequence[str], *, threshold: float = 0.8, parts: Sequence[int] | None = None
) -> NearDuplicates:
    """Find all texts that are almost the same; the result is the same on every machine.

    Empty texts are near to nothing, not even to each other.

    Args:
        texts: n texts; those of a pair are joined by a newline.
        threshold: Jaccard similarity of the sets of character 5-grams.
        parts: how many texts each file holds, in order, if `between` is to compare the files.

    Raises:
        ConfigError: the threshold is not from 0.6 to 1.
    """
    num_bands, band_size = bands_for(threshold)
    plain = [normalised(text) for text in texts]
    first: dict[str, int] = {}
    rows = (first.setdefault(text, row) if text else row for row, text in enumerate(plain))
    equal_to = np.fromiter(rows, np.int64, len(plain))
    pairs, similarity = np.empty((0, 2), np.int64), np.empty(0)
    if threshold < 1 and first:
        different, own = list(first), np.fromiter(first.values(), np.int64)
        counts = [len(texts)] if parts is None else parts
        part_of = np.repeat(np.arange(len(counts)), counts)[own]
        table = signatures(different, num_bands * band_size)
        candidates = _candidates(table, num_bands, part_of)
        # The share of equal values estimates J with a deviation of 0.04; the exact J costs more.
        pieces = np.array_split(candidates, 1 + len(candidates) // 2**16)
        share = [(table[pairs[:, 0]] == table[pairs[:, 1]]).mean(axis=1) for pairs in pieces]
        candidates = candidates[np.concatenate(share) >= threshold - 0.2]
        exact = jaccard(different, candidates)
        pairs, similarity = own[candidates[exact >= threshold]], exact[exact >= threshold]
    repeats = np.flatnonzero(equal_to != np.arange(len(equal_to)))
    pairs = np.concatenate([pairs, np.stack([equal_to[repeats], repeats], axis=1)])
    similarity = np.concatenate([similarity, np.ones(len(repeats))])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, similarity = pairs[order], similarity[order]
    return NearDuplicates(pairs, similarity, _clusters(len(texts), pairs), equal_to)


def between(
    near: NearDuplicates, is_source: np.ndarray, is_target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the target rows (bool (n,)) that have a near-duplicate among the sources (bool (n,)).

    Returns:
        Their numbers, int64 (L,), ascending; and the most similar source of each, int64 (L,).
    """
    count = len(near.clusters)
    # Only the first of equal texts is compared; its result holds for all of them.
    first_source = np.full(count, count)
    np.minimum.at(first_source, near.equal_to[is_source], np.flatnonzero(is_source))
    one, other = near.pairs.T
    row = np.concatenate([np.arange(count), one, other])
    source = first_source[np.concatenate([np.arange(count), other, one])]
    similarity = np.concatenate([np.ones(count), near.similarity, near.similarity])
    order = np.lexsort((source, -similarity, source == count, row))
    _, best = np.unique(row[order], return_index=True)
    best_source = source[order[best]][near.equal_to]
    rows = np.flatnonzero(is_target & (best_source < count))
    return rows, best_source[rows]


def repeats_within(near: NearDuplicates, is_member: np.ndarray) -> np.ndarray:
    """Find the members (bool (n,)) that are near-duplicates of an earlier member: int64 (L,)."""
    count = len(near.clusters)
    first_member = np.full(count, count)
    np.minimum.at(first_member, near.equal_to[is_member], np.flatnonzero(is_member))
    earliest = first_member.copy()
    one, other = near.pairs.T
    np.minimum.at(earliest, one, first_member[other])
    np.minimum.at(earliest, other, first_member[one])
    return np.flatnonzero(is_member & (earliest[near.equal_to] < np.arange(count)))


def bands_for(threshold: float) -> tuple[int, int]:
    """Choose (b, r): as many values a band as miss at most one in a thousand at the threshold.

    Raises:
        ConfigError: it is not from `LOWEST_THRESHOLD` to 1.
    """
    if not LOWEST_THRESHOLD <= threshold <= 1:
        raise ConfigError(
            f"The similarity of near-duplicates is {threshold:g}; it must be from "
            f"{LOWEST_THRESHOLD:g} to 1, where 1 is equal but for letter case and punctuation."
        )
    sizes = range(NUM_HASHES, 0, -1)
    size = next(r for r in sizes if (1 - threshold**r) ** (NUM_HASHES // r) <= _MISSED)
    return NUM_HASHES // size, size


def normalised(text: str) -> str:
    """Remove what a copy often differs in: letter case, width and ligatures (NFKC), white space and
    punctuation. A text of punctuation alone keeps it.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return " ".join(plain.translate(_WITHOUT_PUNCTUATION).split()) or plain


class _WithoutPunctuation(dict[int, int]):
    """Maps punctuation to a space; filled when a character is first seen."""

    def __missing__(self, code: int) -> int:
        self[code] = 32 if unicodedata.category(chr(code))[0] == "P" else code
        return self[code]


_WITHOUT_PUNCTUATION = _WithoutPunctuation()


def signatures(texts: Sequence[str], num_hashes: int) -> np.ndarray:
    """MinHash: the least value of each of K hash functions over the shingles of each text.

    Two texts agree in a value with the probability of their similarity. The functions are
    a * x + b modulo 2**32 over shingle hashes that are already well mixed.

    Returns:
        uint32 (n, K) for n normalised texts, none of them empty.
    """
    keys = draws.keys_of(0, 0, np.arange(num_hashes), use=draws.HASHES)
    factors = (keys >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
    offsets = keys.astype(np.uint32)
    parts = []
    for chunk in chunks(texts, len, _CHUNK_CHARACTERS):
        hashes, starts = _shingles(chunk)
        values = np.empty((len(chunk), num_hashes), np.uint32)
        for k in range(num_hashes):
            values[:, k] = np.minimum.reduceat(hashes * factors[k] + offsets[k], starts)
        parts.append(values)
    return np.concatenate(parts)


def _shingles(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of the shingles of all texts, uint32 (N,), and where each text's begin, int64 (n,).

    A text shorter than a shingle is one shingle.
    """
    padded = [text.ljust(SHINGLE, "\0") for text in texts]
    lengths = np.fromiter(map(len, padded), np.int64, len(padded))
    data = "".join(padded).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(data, "<u4").astype(np.uint64)
    count = len(codes) - SHINGLE + 1
    # Five characters are 105 bits: the first three fit into one number, the others are mixed in.
    head = codes[:count] | (codes[1 : count + 1] << np.uint64(21))
    head |= codes[2 : count + 2] << np.uint64(42)
    tail = codes[3 : count + 3] | (codes[4 : count + 4] << np.uint64(21))
    hashes = draws.mixed(draws.mixed(head) + tail) >> np.uint64(32)
    # Leave out shingles that begin in one text and end in the next.
    sizes = lengths - SHINGLE + 1
    begins = np.cumsum(sizes) - sizes
    shift = np.repeat(np.cumsum(lengths) - lengths - begins, sizes)
    return hashes[np.arange(len(shift)) + shift].astype(np.uint32), begins


def _candidates(table: np.ndarray, num_bands: int, part_of: np.ndarray) -> np.ndarray:
    """Pairs of rows that agree in a band, int64 (P, 2), the lower first.

    Each row is paired with up to MAX_NEIGHBOURS later rows of its bucket and with the first row of
    the bucket in every part, so that no leak between parts is lost in a large bucket.
    """
    count = np.uint64(max(1, len(table)))
    factors = draws.keys_of(1, 0, np.arange(table.shape[1] // num_bands), use=draws.HASHES)
    codes = np.empty(0, np.uint64)
    for band in np.split(table, num_bands, axis=1):
        keys = band.astype(np.uint64) @ factors
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        pairs = []
        for step in range(1, MAX_NEIGHBOURS + 1):
            same = keys[step:] == keys[:-step]
            if not same.any():
                break
            pairs.append((order[:-step][same], order[step:][same]))
        _, buckets = np.unique(keys, return_inverse=True)
        for part in np.unique(part_of).tolist():
            first = np.full(len(keys), len(keys))
            is_in = part_of[order] == part
            np.minimum.at(first, buckets[is_in], order[is_in])
            is_later = first[buckets] < order
            pairs.append((first[buckets][is_later], order[is_later]))
        low, high = (np.concatenate(side).astype(np.uint64) for side in zip(*pairs, strict=True))
        codes = np.union1d(codes, low * count + high)
    return np.stack([codes // count, codes % count], axis=1).astype(np.int64)


def jaccard(texts: Sequence[str], pairs: np.ndarray) -> np.ndarray:
    """The true similarity of pairs of normalised texts: float64 (P,) for int64 (P, 2)."""

    @lru_cache(maxsize=256)
    def shingle_set(row: int) -> set[str]:
        text = texts[row]
        return {text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))}

    similarity = np.empty(len(pairs))
    for index, (one, other) in enumerate(pairs.tolist()):
        a, b = shingle_set(one), shingle_set(other)
        common = len(a & b)
        similarity[index] = common / (len(a) + len(b) - common)
    return similarity


def _clusters(count: int, pairs: np.ndarray) -> np.ndarray:
    """The lowest row that each of `count` rows is connected to by pairs: int64 (count,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs), bool), pairs.T), shape=(count, count))
    _, names = connected_components(graph, directed=False)
    _, first, numbers = np.unique(names, return_index=True, return_inverse=True)
    return np.asarray(first[numbers])
