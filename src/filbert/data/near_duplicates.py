"""Texts that are almost the same, and those of dev and test that almost stand in train.

Every text becomes a set of character shingles and a MinHash signature. Signatures
are cut into b bands of r values; texts that agree in all of a band are candidates (locality
sensitive hashing: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4), and a
candidate counts only if its true Jaccard similarity reaches the threshold. So nothing is reported
that is not alike; what is alike by J is missed with the probability (1 - J**r)**b, see `missed`.

Texts that are equal once normalised are found by a table and stand for each other. Beside the
texts a row costs 500 bytes for its signature and 24 bytes for each pair that is kept of it: up to
`MAX_NEAR` with every part of the rows. Some more such pairs are held for the moment in which they
are looked at. Time grows with the length of the texts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from filbert.data import draws
from filbert.errors import ConfigError

# Shingles and signatures

SHINGLE_CHARACTERS = 5

# Hashes of a chunk's shingles carry the number of their text in the top bits, so that one sort
# groups both. Forty bits: two texts of 500 shingles share one by accident once in 4 million.
_HASH_BITS = 40
_CHUNK_TEXTS = 2**14
_CHUNK_CHARACTERS = 2**17
# 64 KB of uint32, which stay in a core's cache while all hash functions pass over them.
_BLOCK = 2**14
_EMPTY = np.uint32(2**32 - 1)


def normalised(text: str) -> str:
    """The text without what a copy often differs in: letter case, width and ligatures (NFKC), white
    space, punctuation. A text that is nothing but punctuation keeps it.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return " ".join(plain.translate(_SPACED).split()) or plain


class _Spaced(dict[int, int]):
    """Punctuation becomes a space; filled as characters turn up."""

    def __missing__(self, code: int) -> int:
        self[code] = 32 if unicodedata.category(chr(code))[0] == "P" else code
        return self[code]


_SPACED = _Spaced()


def shingles(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of all shingles of normalised texts, with repeats.

    A text shorter than a shingle is one shingle; an empty one has none.

    Args:
        texts: as `normalised` gives them.

    Returns:
        hashes: uint64 (N,), below 2**40, text by text.
        sizes: int64 (n,), how many each text has.
    """
    padded = [text.ljust(SHINGLE_CHARACTERS, "\0") if text else "" for text in texts]
    lengths = np.fromiter(map(len, padded), np.int64, len(padded))
    data = "".join(padded).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(data, "<u4").astype(np.uint64)
    count = len(codes) - SHINGLE_CHARACTERS + 1
    sizes = np.maximum(0, lengths - SHINGLE_CHARACTERS + 1)
    if count <= 0:
        return np.empty(0, np.uint64), sizes
    # Five characters are 105 bits: the first three lie side by side, the others are mixed in.
    head = codes[:count] | (codes[1 : count + 1] << np.uint64(21))
    head |= codes[2 : count + 2] << np.uint64(42)
    tail = codes[3 : count + 3] | (codes[4 : count + 4] << np.uint64(21))
    hashes = draws.mixed(draws.mixed(head) + tail) >> np.uint64(64 - _HASH_BITS)
    # Windows that begin in one text and end in the next are none.
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    places = np.arange(int(sizes.sum())) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return hashes[places], sizes


def shingle_sets(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The same without repeats: each text's hashes ascending.

    Args:
        texts: fewer than 2**24.
    """
    hashes, sizes = shingles(texts)
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), sizes)
    keys = np.sort(hashes | (owners << np.uint64(_HASH_BITS)))
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
    sizes = np.bincount((keys >> np.uint64(_HASH_BITS)).astype(np.int64), minlength=len(texts))
    return keys & np.uint64(2**_HASH_BITS - 1), sizes


def signatures(texts: Sequence[str], num_hashes: int, *, seed: int = 0) -> np.ndarray:
    """MinHash: the least value of each of many random hash functions over a text's shingles.

    Two texts agree at a place with the probability of their similarity (Broder et al. 1998). The
    functions are a * x + b modulo 2**32 over shingles that are well mixed already.

    Args:
        texts: as `normalised` gives them; an empty one gets the largest value everywhere.
        num_hashes: K.
        seed: of the functions.

    Returns:
        uint32 (n, K).
    """
    keys = draws.keys_of(seed, 0, np.arange(num_hashes), use=draws.HASHES)
    factors = (keys >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
    offsets = keys.astype(np.uint32)
    table = np.full((len(texts), num_hashes), _EMPTY, np.uint32)
    for first, chunk in _chunks(texts):
        hashes, sizes = shingles(chunk)
        rows = first + np.flatnonzero(sizes)
        ends = np.cumsum(sizes[sizes > 0])
        _least(hashes.astype(np.uint32), ends, rows, factors, offsets, table)
    return table


def _least(
    values: np.ndarray,
    ends: np.ndarray,
    rows: np.ndarray,
    factors: np.ndarray,
    offsets: np.ndarray,
    table: np.ndarray,
) -> None:
    """Lower `table[rows]` to the least hash of each run of `values`; run i ends at `ends[i]`."""
    for begin in range(0, len(values), _BLOCK):
        block = values[begin : begin + _BLOCK]
        end = begin + len(block)
        # Runs that have a value in this block; the first and the last may reach beyond it.
        low = int(np.searchsorted(ends, begin, side="right"))
        high = int(np.searchsorted(ends, end, side="left")) + 1
        starts = np.concatenate([[0], ends[low : high - 1] - begin])
        scratch = np.empty_like(block)
        found = np.empty((len(starts), len(factors)), np.uint32)
        for place, (factor, offset) in enumerate(zip(factors, offsets, strict=True)):
            np.multiply(block, factor, out=scratch)
            scratch += offset
            found[:, place] = np.minimum.reduceat(scratch, starts)
        mine = rows[low:high]
        table[mine] = np.minimum(table[mine], found)


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Pieces of bounded size, each with the number of its first text."""
    first = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= _CHUNK_CHARACTERS or index + 1 - first == _CHUNK_TEXTS:
            yield first, texts[first : index + 1]
            first, size = index + 1, 0
    if first < len(texts):
        yield first, texts[first:]


# Pairs and clusters

LOWEST_THRESHOLD = 0.6
NUM_HASHES = 128
# What may be missed of the texts that are just as alike as the threshold.
_MISSED = 1e-3
# Lower rows of one part that a row is kept paired with, and neighbours in a bucket that each row is
# compared with. Thousands of texts made from one template would otherwise be paired each with each;
# their cluster is found all the same, through those between them. Leakage is not, since it goes by
# pairs alone: so a row is also compared with the first of its bucket in every part.
MAX_NEAR = 32
# Candidates held, and characters of texts that are verified, at once.
_PENDING = 2**21
_CHARACTERS_AT_ONCE = 2**21
_PAIR_BITS = np.uint64(40)


@dataclass(frozen=True)
class NearDuplicates:
    """Which of n texts are almost the same.

    Attributes:
        threshold: the similarity from which on they are.
        pairs: int64 (P, 2), rows that are alike, the lower first, in order. Of rows that are equal
            once normalised each is paired with the first, and only that one with others: with
            `MAX_NEAR` lower rows of each part at the most, those that are most alike.
        similarity: float64 (P,), Jaccard similarity of the shingle sets; 1 for equal ones.
        clusters: int64 (n,), the first row of each row's cluster: those that a chain of pairs
            connects. A row without a near-duplicate is its own.
        equal_to: int64 (n,), the first row that is equal once normalised.
    """

    threshold: float
    pairs: np.ndarray
    similarity: np.ndarray
    clusters: np.ndarray
    equal_to: np.ndarray

    def groups(self) -> list[list[int]]:
        """The clusters of two rows or more, by their first row."""
        order = np.argsort(self.clusters, kind="stable")
        edges = np.flatnonzero(np.diff(self.clusters[order])) + 1
        return [part.tolist() for part in np.split(order, edges) if len(part) > 1]


@dataclass(frozen=True)
class Leakage:
    """The rows of one set that are near-duplicates of rows of another, L of them.

    Attributes:
        rows: int64 (L,), of the judged set, ascending.
        sources: int64 (L,), the most similar row of the other set; of several the first.
        similarity: float64 (L,).
        labels_differ: bool (L,), whether the two carry different labels; None without labels.
    """

    rows: np.ndarray
    sources: np.ndarray
    similarity: np.ndarray
    labels_differ: np.ndarray | None


def bands_for(threshold: float) -> tuple[int, int]:
    """(b, r): as many values a band as still miss no more than one in a thousand at the threshold.

    Raises:
        ConfigError: it is not from `LOWEST_THRESHOLD` to 1.
    """
    if not LOWEST_THRESHOLD <= threshold <= 1:
        raise ConfigError(
            f"The similarity of near-duplicates is {threshold:g}; it must be from "
            f"{LOWEST_THRESHOLD:g} to 1, where 1 is equal but for letter case and punctuation."
        )
    fitting = [
        r for r in range(1, NUM_HASHES + 1) if (1 - threshold**r) ** (NUM_HASHES // r) <= _MISSED
    ]
    return NUM_HASHES // fitting[-1], fitting[-1]


def missed(similarity: float, threshold: float = 0.8) -> float:
    """The probability that a pair as alike as this is not found; 2e-10 at 0.9, 5e-5 at 0.8."""
    num_bands, rows_per_band = bands_for(threshold)
    return float((1 - similarity**rows_per_band) ** num_bands)


def near_duplicates(
    texts: Sequence[str],
    *,
    threshold: float = 0.8,
    seed: int = 0,
    parts: Sequence[int] | None = None,
) -> NearDuplicates:
    """All that are almost the same; the same answer on every machine.

    Texts without any content are near to nothing, not even to each other.

    Args:
        texts: n of them; those of a pair joined by a newline.
        threshold: Jaccard similarity of the sets of character 5-grams.
        seed: of the hash functions.
        parts: how many texts each file holds, in order, where `between` shall tell which rows of
            one are near to rows of another; all are one part when not given.

    Raises:
        ConfigError: the threshold is not from 0.6 to 1.
    """
    num_bands, rows_per_band = bands_for(threshold)
    plain = [normalised(text) for text in texts]
    equal_to = _first_equal(plain)
    # Only the first of equal texts, and only texts with content, are compared any further.
    kept = np.flatnonzero(
        (equal_to == np.arange(len(plain))) & np.array(list(map(bool, plain)), bool)
    )
    different = [plain[row] for row in kept.tolist()]
    del plain
    counts = [len(texts)] if parts is None else list(parts)
    part_of = np.repeat(np.arange(len(counts)), counts)
    pairs, similarity = np.empty((0, 2), np.int64), np.empty(0)
    clusters = np.arange(len(texts))
    if threshold < 1:
        table = signatures(different, num_bands * rows_per_band, seed=seed)
        for candidates in _candidates(table, num_bands, part_of[kept]):
            alike = jaccard(different, candidates)
            is_near = alike >= threshold
            near = kept[candidates[is_near]]
            clusters = _connected(clusters, near)
            pairs = np.concatenate([pairs, near])
            similarity = np.concatenate([similarity, alike[is_near]])
            chosen = _most_alike(pairs, similarity, part_of)
            pairs, similarity = pairs[chosen], similarity[chosen]
    repeats = np.flatnonzero(equal_to != np.arange(len(equal_to)))
    equal = np.stack([equal_to[repeats], repeats], axis=1)
    clusters = _connected(clusters, equal)
    pairs = np.concatenate([pairs, equal])
    similarity = np.concatenate([similarity, np.ones(len(repeats))])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return NearDuplicates(threshold, pairs[order], similarity[order], clusters, equal_to)


def leakage(
    train_texts: Sequence[str],
    other_texts: Sequence[str],
    *,
    train_labels: Sequence[object] | None = None,
    other_labels: Sequence[object] | None = None,
    threshold: float = 0.8,
) -> Leakage:
    """Which of the other texts are near-duplicates of training texts, and whether labels differ.

    Args:
        train_texts: what was learnt from.
        other_texts: of dev or test.
        train_labels, other_labels: of the rows, both or none.
        threshold: as for `near_duplicates`.

    Raises:
        ConfigError: the threshold is not from 0.6 to 1.
    """
    parts = (len(train_texts), len(other_texts))
    found = near_duplicates([*train_texts, *other_texts], threshold=threshold, parts=parts)
    is_train = np.arange(len(found.clusters)) < len(train_texts)
    rows, sources, similarity = between(found, is_train, ~is_train)
    rows = rows - len(train_texts)
    differ = None
    if train_labels is not None and other_labels is not None:
        labels = zip(rows.tolist(), sources.tolist(), strict=True)
        differ = np.array([other_labels[a] != train_labels[b] for a, b in labels], bool)
    return Leakage(rows, sources, similarity, differ)


def between(
    found: NearDuplicates, is_source: np.ndarray, is_judged: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The judged rows that have a near-duplicate among the sources.

    Args:
        found: near-duplicates of n texts.
        is_source: bool (n,).
        is_judged: bool (n,).

    Returns:
        rows: int64 (L,), ascending.
        sources: int64 (L,), the most similar source of each; of several the first.
        similarity: float64 (L,).
    """
    count = len(found.clusters)
    rows = np.arange(count)
    # The first source among equal texts answers for all of them.
    first_source = np.full(count, count)
    np.minimum.at(first_source, found.equal_to[is_source], rows[is_source])
    unequal = found.equal_to[found.pairs[:, 0]] != found.equal_to[found.pairs[:, 1]]
    one, other = found.pairs[unequal].T
    near = found.similarity[unequal]
    asked = np.concatenate([rows, one, other])
    source = first_source[np.concatenate([rows, other, one])]
    similarity = np.concatenate([np.ones(count), near, near])
    usable = source < count
    asked, source, similarity = asked[usable], source[usable], similarity[usable]
    order = np.lexsort((source, -similarity, asked))
    asked, first = np.unique(asked[order], return_index=True)
    best = np.full(count, -1)
    best[asked] = order[first]
    answers = best[found.equal_to]
    leaked = np.flatnonzero(is_judged & (answers >= 0))
    return leaked, source[answers[leaked]], similarity[answers[leaked]]


def repeats_within(found: NearDuplicates, is_mine: np.ndarray) -> np.ndarray:
    """The rows of one set that are near-duplicates of an earlier row of it: int64, ascending.

    Args:
        found: near-duplicates of n texts.
        is_mine: bool (n,), the rows of the set.
    """
    count = len(found.clusters)
    rows = np.arange(count)
    # Under the first of equal texts: the set's earliest one, then that of the texts near to it too.
    own = np.full(count, count)
    np.minimum.at(own, found.equal_to[is_mine], rows[is_mine])
    earliest = own.copy()
    one, other = found.pairs.T
    np.minimum.at(earliest, one, own[other])
    np.minimum.at(earliest, other, own[one])
    return np.flatnonzero(is_mine & (earliest[found.equal_to] < rows))


def jaccard(texts: Sequence[str], pairs: np.ndarray) -> np.ndarray:
    """The true similarity of pairs of normalised texts: float64 (P,) for int64 (P, 2)."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    pieces = np.cumsum(lengths[pairs].sum(axis=1)) // _CHARACTERS_AT_ONCE
    edges = np.flatnonzero(np.diff(pieces)) + 1
    parts = [_jaccard(texts, part) for part in np.split(pairs, edges)]
    return np.concatenate(parts)


def _jaccard(texts: Sequence[str], pairs: np.ndarray) -> np.ndarray:
    rows, places = np.unique(pairs, return_inverse=True)
    places = places.reshape(pairs.shape)
    hashes, sizes = shingle_sets([texts[row] for row in rows.tolist()])
    starts = np.cumsum(sizes) - sizes
    tagged = []
    for side in places.T:
        taken = sizes[side]
        begin = np.repeat(starts[side] - (np.cumsum(taken) - taken), taken)
        numbers = np.repeat(np.arange(len(pairs), dtype=np.uint64), taken)
        tagged.append(hashes[np.arange(len(begin)) + begin] | (numbers << _PAIR_BITS))
    # A shingle of both texts stands twice.
    both = np.sort(np.concatenate(tagged))
    shared = both[1:][both[1:] == both[:-1]] >> _PAIR_BITS
    common = np.bincount(shared.astype(np.int64), minlength=len(pairs))
    return np.asarray(common / np.maximum(1, sizes[places].sum(axis=1) - common))


def _first_equal(plain: Sequence[str]) -> np.ndarray:
    """The first row with the same text; a row without content is its own. int64 (n,)."""
    first: dict[str, int] = {}
    rows = (first.setdefault(text, row) if text else row for row, text in enumerate(plain))
    return np.fromiter(rows, np.int64, len(plain))


def _candidates(table: np.ndarray, num_bands: int, part_of: np.ndarray) -> Iterator[np.ndarray]:
    """Pairs of rows (int64 (P, 2), the lower first) that agree in a band, in pieces."""
    held: list[np.ndarray] = []
    size = 0
    count = np.uint64(len(table))
    for band in np.split(table, num_bands, axis=1):
        low, high = _in_buckets(band, part_of)
        held.append(low.astype(np.uint64) * count + high.astype(np.uint64))
        size += len(low)
        if size >= _PENDING:
            yield _unpacked(held, count)
            held, size = [], 0
    if size:
        yield _unpacked(held, count)


def _unpacked(held: list[np.ndarray], count: np.uint64) -> np.ndarray:
    codes = np.unique(np.concatenate(held))
    return np.stack([codes // count, codes % count], axis=1).astype(np.int64)


def _in_buckets(band: np.ndarray, part_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of rows with the same values, uint32 (n, r): each with up to `MAX_NEAR` later ones, and
    with the first one of every part, where that is earlier.
    """
    keys = np.zeros(len(band), np.uint64)
    for column in band.T:
        keys = draws.mixed(keys + column.astype(np.uint64))
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    low, high = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for step in range(1, MAX_NEAR + 1):
        same = keys[step:] == keys[:-step]
        if not same.any():
            break
        low.append(order[:-step][same])
        high.append(order[step:][same])
    _, buckets = np.unique(keys, return_inverse=True)
    for part in np.unique(part_of).tolist():
        first = np.full(len(keys), len(keys))
        is_mine = part_of[order] == part
        np.minimum.at(first, buckets[is_mine], order[is_mine])
        is_later = first[buckets] < order
        low.append(first[buckets][is_later])
        high.append(order[is_later])
    return np.concatenate(low), np.concatenate(high)


def _most_alike(pairs: np.ndarray, similarity: np.ndarray, part_of: np.ndarray) -> np.ndarray:
    """Which pairs to keep, each once: int64."""
    # A pair may be a candidate twice, in pieces that were looked at one after the other.
    _, once = np.unique(pairs, axis=0, return_index=True)
    low, high = pairs[once].T
    order = np.lexsort((low, -similarity[once], part_of[low], high))
    group = high[order] * (part_of[-1] + 1) + part_of[low[order]]
    rank = np.arange(len(order)) - np.searchsorted(group, group)
    return np.asarray(once[order[rank < MAX_NEAR]])


def _connected(clusters: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The lowest row that each row is connected to, by pairs or in its cluster: int64 (n,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(clusters)
    one = np.concatenate([pairs[:, 0], clusters])
    other = np.concatenate([pairs[:, 1], np.arange(count)])
    graph = coo_array((np.ones(len(one), bool), (one, other)), shape=(count, count))
    _, names = connected_components(graph, directed=False)
    _, first, numbers = np.unique(names, return_index=True, return_inverse=True)
    return np.asarray(first[numbers])
