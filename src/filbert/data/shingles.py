"""Texts as sets of character 5-grams, and MinHash signatures of these sets.

Two texts are as alike as the sets of their shingles: the size of the intersection divided by that
of the union (Jaccard; Broder 1997, "On the resemblance and containment of documents"). Shingles
are five characters and not three words, since what is compared is comments: one word changed in a
sentence of ten touches 3 of its 8 word 3-grams, which leaves a similarity of 5/11, but about 10 of
some 55 character 5-grams, which leaves 0.7; and a comment of one or two words has no word 3-gram
at all. Five is the length that Leskovec, Rajaraman and Ullman (Mining of Massive Datasets, section
3.2.2) give for e-mails; they take nine for research articles.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from filbert.data import draws

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
