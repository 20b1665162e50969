"""Near-duplicates of texts, and rows into train, dev and test with their share of every class.

For near-duplicates each text becomes a set of character 5-grams and a MinHash signature (Broder et
al. 1998). Signatures are cut into b bands of r values; texts that agree in a whole band are
candidates (locality-sensitive hashing: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets,
section 3.4). A candidate counts only if its true Jaccard similarity reaches the threshold, so there
are no false positives. A pair of similarity J is missed with probability (1 - J**r)**b.

datasketch's MinHashLSH finds the same 1,931 pairs in 20,000 comments of 400 characters, but takes
16.7 s and 942 MB on one core; this module takes 1.6 s and 70 MB.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from filbert.data import draws
from filbert.data.labels import listed
from filbert.errors import InputError
from filbert.text.tokenizer import chunked

# Near-duplicates

SHINGLE = 5
# Near-duplicates have at least this Jaccard similarity of their sets of character 5-grams.
THRESHOLD = 0.8
# A pair of exactly this similarity is missed with probability (1 - 0.8**5)**25, 5e-5.
NUM_BANDS, BAND_SIZE = 25, 5
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


def near_duplicates(texts: Sequence[str], *, parts: Sequence[int] | None = None) -> NearDuplicates:
    """Find all texts that are almost the same; the result is the same on every machine.

    Empty texts are near to nothing, not even to each other.

    Args:
        texts: n texts; those of a pair are joined by a newline.
        parts: Number of texts of each file, in order, if `between` is to compare the files.
    """
    plain = [normalised(text) for text in texts]
    first: dict[str, int] = {}
    rows = (first.setdefault(text, row) if text else row for row, text in enumerate(plain))
    equal_to = np.fromiter(rows, np.int64, len(plain))
    pairs, similarity = np.empty((0, 2), np.int64), np.empty(0)
    if first:
        different, own = list(first), np.fromiter(first.values(), np.int64)
        counts = [len(texts)] if parts is None else parts
        part_of = np.repeat(np.arange(len(counts)), counts)[own]
        table = signatures(different, NUM_BANDS * BAND_SIZE)
        candidates = _candidates(table, part_of)
        # The share of equal values estimates J with a deviation of 0.04; the exact J costs more.
        pieces = np.array_split(candidates, 1 + len(candidates) // 2**16)
        share = [(table[pairs[:, 0]] == table[pairs[:, 1]]).mean(axis=1) for pairs in pieces]
        candidates = candidates[np.concatenate(share) >= THRESHOLD - 0.2]
        exact = jaccard(different, candidates)
        pairs, similarity = own[candidates[exact >= THRESHOLD]], exact[exact >= THRESHOLD]
    repeats = np.flatnonzero(equal_to != np.arange(len(equal_to)))
    pairs = np.concatenate([pairs, np.stack([equal_to[repeats], repeats], axis=1)])
    similarity = np.concatenate([similarity, np.ones(len(repeats))])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, similarity = pairs[order], similarity[order]
    _, begins, numbers = np.unique(
        _components(len(texts), pairs.T), return_index=True, return_inverse=True
    )
    return NearDuplicates(pairs, similarity, np.asarray(begins[numbers]), equal_to)


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


def normalised(text: str) -> str:
    """Return a text without what a copy often differs in.

    That is letter case, width and ligatures (NFKC), white space and punctuation. A text of
    punctuation alone keeps it.
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
    """Return the MinHash: the least value of each of K hash functions over the shingles of a text.

    Two texts agree in a value with the probability of their similarity. The functions are
    a * x + b modulo 2**32 over shingle hashes that are already well mixed.

    Returns:
        uint32 (n, K) for n normalised texts, none of them empty.
    """
    keys = draws.keys_of(0, 0, np.arange(num_hashes), use=draws.HASHES)
    factors = (keys >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
    offsets = keys.astype(np.uint32)
    parts = []
    for chunk in chunked(texts, len, size=_CHUNK_CHARACTERS):
        hashes, starts = _shingles(chunk)
        values = np.empty((len(chunk), num_hashes), np.uint32)
        for k in range(num_hashes):
            values[:, k] = np.minimum.reduceat(hashes * factors[k] + offsets[k], starts)
        parts.append(values)
    return np.concatenate(parts)


def _shingles(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the shingles' hashes of all texts, uint32 (N,), and where each text begins, int64.

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


def _candidates(table: np.ndarray, part_of: np.ndarray) -> np.ndarray:
    """Return the pairs of rows that agree in a band, int64 (P, 2), the lower first.

    Each row is paired with up to MAX_NEIGHBOURS later rows of its bucket and with the first row of
    the bucket in every part, so that no leak between parts is lost in a large bucket.
    """
    count = np.uint64(max(1, len(table)))
    factors = draws.keys_of(1, 0, np.arange(BAND_SIZE), use=draws.HASHES)
    codes = np.empty(0, np.uint64)
    for band in np.split(table, NUM_BANDS, axis=1):
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
    """Return the true similarity of pairs of normalised texts: float64 (P,) for int64 (P, 2)."""

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


# Splits

SPLITS = ("train", "dev", "test")


def stratified_split(
    labels: Sequence[Hashable],
    shares: Mapping[str, float],
    *,
    seed: int,
    groups: np.ndarray,
) -> dict[str, np.ndarray]:
    """Draw the rows of each split so that every split has its share of every class.

    All rows of a class that some split would lack go to the first split, with their groups. Of rows
    in no group the number of each class differs from its share by less than one. The draw depends
    on the seed and the order of the rows only.

    Rows of one group stay together. Groups of several rows are placed first, the largest first.
    Each goes to the split with the smallest ratio of placed to wanted rows of the group's classes
    (longest processing time first: Gonzalez, Ibarra and Sahni 1977). Single rows fill the rest.

    Args:
        shares: Of the splits, which add up to 1.
        groups: The group number of each row, such as `NearDuplicates.clusters`.

    Returns:
        int64 row numbers by split, ascending.

    Raises:
        InputError: A split would have no row.
    """
    wanted, names = np.array([*shares.values()]), [*shares]
    classes = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    of_class = np.array([classes[label] for label in labels], dtype=np.int64)
    lots = draws.keys_of(seed, 0, np.arange(len(of_class)), use=draws.LOTS)
    is_rare = np.zeros(len(of_class), dtype=bool)
    while True:
        place, counts = _placed(of_class, wanted, lots, groups, is_rare)
        lacks = (counts == 0).any(axis=0)
        # Classes of rows that are in the first split already have no further split to be in.
        lacks[np.bincount(of_class[~is_rare], minlength=len(classes)) == 0] = False
        if not lacks.any():
            break
        is_rare |= np.isin(groups, groups[lacks[of_class]])
    if not counts.any(axis=1).all():
        raise InputError(f"{len(of_class):,} rows are too few for the parts {listed(names)}.")
    return {name: np.flatnonzero(place == number) for number, name in enumerate(names)}


def _placed(
    of_class: np.ndarray,
    wanted: np.ndarray,
    lots: np.ndarray,
    groups: np.ndarray,
    is_rare: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the split of each of n rows, int64 (n,), and rows by split and class, int64 (S, C).

    `wanted` are the shares of the splits, `lots` the drawn order, and rows that are rare are for
    the first split.
    """
    num_classes = int(of_class.max()) + 1
    quotas = wanted[:, None] * np.bincount(of_class)
    place = np.where(is_rare, 0, -1)
    counts = np.zeros(quotas.shape, dtype=np.int64)
    counts[0] += np.bincount(of_class[is_rare], minlength=num_classes)
    large = [rows for rows in _large_groups(groups, lots) if not is_rare[rows[0]]]
    for rows in large:
        members = np.bincount(of_class[rows], minlength=num_classes)
        fullness = ((counts + members) / quotas) @ members
        best = int(np.argmin(fullness))
        place[rows] = best
        counts[best] += members
    owed = np.zeros(len(wanted))
    for number in range(num_classes):
        rows = np.flatnonzero((of_class == number) & (place < 0))
        if not len(rows):
            continue
        rows = rows[np.argsort(lots[rows], kind="stable")]
        lacking = np.maximum(0.0, quotas[:, number] - counts[:, number])
        lacking *= len(rows) / lacking.sum()
        given = _whole_rows(lacking, len(rows), owed, is_empty=counts[:, number] == 0)
        owed += lacking - given
        place[rows] = np.repeat(np.arange(len(wanted)), given)
        counts[:, number] += given
    # Groups that are larger than a small split are all in others; it gets the smallest of them.
    short = np.flatnonzero(counts.sum(axis=1) < quotas.sum(axis=1) / 2)
    for rows, target in zip(reversed(large[1:]), short, strict=False):
        members = np.bincount(of_class[rows], minlength=num_classes)
        counts[place[rows[0]]] -= members
        counts[target] += members
        place[rows] = target
    return place, counts


def merged_groups(*partitions: np.ndarray) -> np.ndarray:
    """Join groups that share a row: int64 (n,) for group numbers int64 (n,), of each partition."""
    count = len(partitions[0])
    pairs = []
    for groups in partitions:
        _, first, numbers = np.unique(groups, return_index=True, return_inverse=True)
        pairs.append(np.stack([np.arange(count), first[numbers]]))
    return _components(count, np.concatenate(pairs, axis=1))


def _components(count: int, edges: np.ndarray) -> np.ndarray:
    """Return the number of each node's connected component: int64 (count,) for int64 (2, E)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(edges.shape[1], bool), edges), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _large_groups(groups: np.ndarray, lots: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each group of two or more, the largest first, equal ones by lot."""
    order = np.argsort(groups, kind="stable")
    edges = np.flatnonzero(np.diff(groups[order])) + 1
    large = [rows for rows in np.split(order, edges) if len(rows) > 1]
    return sorted(large, key=lambda rows: (-len(rows), int(lots[rows[0]])))


def _whole_rows(
    wanted: np.ndarray, total: int, owed: np.ndarray, *, is_empty: np.ndarray
) -> np.ndarray:
    """Return `wanted` as whole numbers that add up to `total`, each rounded up or down.

    Rounded up are first those that would be nothing otherwise, then the largest remainders, where
    what earlier classes left a split `owed` counts as well: rounding many small classes in the same
    direction would leave a split too small.
    """
    # The tolerance is for quotas such as 0.15 * 20, which is not quite 3.
    given = np.floor(wanted + 1e-9).astype(np.int64)
    rest = np.maximum(0.0, wanted - given)
    rest[rest < 1e-9] = 0.0
    nothing = is_empty & (given == 0) & (rest > 0)
    order = np.lexsort((np.arange(len(wanted)), -(rest + owed), ~nothing, rest == 0))
    given[order[: total - int(given.sum())]] += 1
    return given
