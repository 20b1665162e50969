"""Learns a unigram vocabulary: many candidates, of which the least useful are removed.

Source: Kudo 2018, section 3.2, with the choices of google/sentencepiece (candidates of at most 16
characters of one script, three quarters kept per round, digamma in the M step). Its two passes of
Viterbi are replaced by expected counts. Sums run in a fixed order in one thread, so that the same
words give the same scores; the trainer of the `tokenizers` library does not guarantee that, and it
looks for candidates without regard to how often a word was counted.

The words are in one array, column by column: the first characters of all words, then the second
ones, and so on, with the words sorted by length. All candidates that begin in one column and have
one length are a slice, and no two of them end at the same place.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from filbert.text.spiece import SPACE

LONGEST_PIECE = 16

# Longer words are split. Also keeps a word's probability above the smallest float64: 32 characters
# of at least _RAREST each.
LONGEST_PART = 32
_RAREST = 1e-9
_ANY = 2  # no name of a script has this number

_KEPT = 0.75  # of the candidates in each round
_LEAST = 0.5  # a candidate expected less often is removed in the M step
_CANDIDATES = 1_000_000

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Places = tuple[Ints, Ints, Ints]


@dataclass
class _Lattice:
    """The candidates and all their places in the words.

    `texts`, `lengths` and `lasts` are the text, the length and the last place of each candidate.
    `places[n]` are the first nodes, the nodes after the last ones, and the ids of the candidates of
    length n, by place. `bases` int64 (columns + 1,) are the starts of the columns. `word_of` int32
    (nodes,) is the word of each node, `is_end` bool (nodes,) whether it is the end of one.
    `weights` float64 (words,) are counts.
    """

    texts: list[str]
    lengths: Ints
    lasts: Ints
    places: dict[int, Places]
    bases: NDArray[np.int64]
    word_of: Ints
    is_end: NDArray[np.bool_]
    weights: Floats


def learn_pieces(
    counts: Mapping[str, int],
    alphabet: list[str],
    *,
    size: int,
    min_count: int,
    progress: Callable[[str, int], None] = lambda what, done: None,
) -> list[tuple[str, float]]:
    """Return the pieces and their natural log-probabilities, most probable first.

    The characters in `alphabet` are always pieces. Words with others are left out.
    """
    lattice, uses = _candidates(counts, alphabet, size, min_count)
    target = max(size, len(alphabet))
    probabilities = uses / uses.sum()
    while True:
        for _ in range(2):
            expected = _expected(lattice, probabilities)
            keep = (expected >= _LEAST) | (lattice.lengths == 1)
            if keep.sum() < target:
                keep = _best(np.where(lattice.lengths == 1, np.inf, expected), target)
            expected = _keep(lattice, keep, expected)
            # The M step: a Bayesian estimate that lowers rare pieces.
            rest = np.maximum(expected, 1e-3)
            estimate: Floats = np.exp(digamma(rest) - digamma(rest.sum()))
            probabilities = np.maximum(estimate, _RAREST)
        progress(f"choosing pieces, {len(lattice.texts):,} left", 0)
        if len(lattice.texts) <= target:
            break
        loss = _losses(lattice, probabilities)
        loss[lattice.lengths == 1] = np.inf
        keep = _best(loss, max(target, int(_KEPT * len(lattice.texts))))
        probabilities = _keep(lattice, keep, probabilities)
    order = sorted(range(len(lattice.texts)), key=lambda i: (-probabilities[i], lattice.texts[i]))
    # Six digits: the logarithms of CPUs differ in later ones.
    return [(lattice.texts[i], float(f"{np.log(probabilities[i]):.6g}")) for i in order]


def _candidates(
    counts: Mapping[str, int], alphabet: list[str], size: int, min_count: int
) -> tuple[_Lattice, Floats]:
    """Return the most useful candidates of all lengths, and their uses.

    A use counts as often as it has characters.
    """
    number = {character: n for n, character in enumerate(alphabet)}
    parts: dict[str, int] = {}
    for word, count in counts.items():
        if number.keys() >= set(word):
            for start in range(0, len(word), LONGEST_PART):
                part = word[start : start + LONGEST_PART]
                parts[part] = parts.get(part, 0) + count
    words = sorted(parts, key=lambda word: (-len(word), word))
    weights = np.array([parts[word] for word in words], dtype=np.float64)
    lengths = np.array([len(word) for word in words], dtype=np.int64)
    columns = int(lengths.max(initial=0))
    width = np.array([(lengths >= column).sum() for column in range(columns + 1)], dtype=np.int64)
    bases = np.concatenate([[0], np.cumsum(width)])
    characters = np.full(int(bases[-1]), -1, dtype=np.int32)
    for column in range(columns):
        reach, begin = int(width[column + 1]), int(bases[column])
        characters[begin : begin + reach] = [number[word[column]] for word in words[:reach]]
    word_of = (np.arange(len(characters)) - np.repeat(bases[:-1], width)).astype(np.int32)
    totals, places = _grow(bases, characters, weights[word_of], alphabet, min_count)
    piece_lengths = np.repeat([*places], [len(total) for total in totals]).astype(np.int32)
    uses: Floats = np.concatenate(totals).astype(np.float64)
    place = np.full(len(uses), -1, dtype=np.int32)
    for starts, _, ids in places.values():
        np.maximum.at(place, ids, starts)
    score: Floats = (uses * piece_lengths).astype(np.float64)
    score[: len(alphabet)] = np.inf
    keep = _best(score, max(_CANDIDATES, 4 * size))
    texts = [*alphabet, *[""] * (len(place) - len(alphabet))]
    columns_of = np.searchsorted(bases, place, side="right") - 1
    for index in np.flatnonzero(keep[len(alphabet) :]) + len(alphabet):
        column = int(columns_of[index])
        word = words[int(place[index] - bases[column])]
        texts[index] = word[column : column + int(piece_lengths[index])]
    is_end = characters < 0
    lattice = _Lattice(texts, piece_lengths, place, places, bases, word_of, is_end, weights)
    return lattice, _keep(lattice, keep, np.maximum(uses * piece_lengths, 1.0))


def _grow(
    bases: NDArray[np.int64],
    characters: Ints,
    weights: Floats,
    alphabet: list[str],
    min_count: int,
) -> tuple[list[Floats], dict[int, Places]]:
    """Return the counts of the frequent pieces, by length, and their places; see `_Lattice`.

    Args:
        characters: int32 (nodes,), indices into `alphabet`; -1 at the end of a word.
        weights: float64 (nodes,), the count of each node's word.
    """
    script = np.array([_script(character) for character in alphabet], dtype=np.int32)
    space = alphabet.index(SPACE) if SPACE in alphabet else -1
    following = _following(bases)
    starts: Ints = np.flatnonzero(characters >= 0).astype(np.int32)
    ids: Ints = characters[starts]
    totals: list[Floats] = [np.bincount(ids, weights[starts], len(alphabet)).astype(np.float64)]
    places: dict[int, Places] = {}
    # The last character of the pieces that begin at `starts`.
    ends: NDArray[Any] = starts
    rank = characters
    for length in range(1, LONGEST_PIECE + 1):
        if length > 1:
            # A longer one begins with a shorter one that was frequent, and stays in its script.
            left, ends = characters[ends], following[ends]
            right = characters[ends]
            same = script[left] == script[right]
            same |= (script[left] == _ANY) | (script[right] == _ANY)
            there = (right >= 0) & (right != space) & ((left == space) | same)
            starts, ends = starts[there], ends[there]
            key = rank[starts].astype(np.int64) * len(alphabet) + characters[ends]
            pieces, inverse = np.unique(key, return_inverse=True)
            total = np.bincount(inverse, weights[starts], len(pieces)).astype(np.float64)
            frequent = total >= min_count
            stays = frequent[inverse]
            starts, ends = starts[stays], ends[stays]
            ids = (np.cumsum(frequent) - 1)[inverse[stays]].astype(np.int32)
            rank = np.full(len(characters), -1, dtype=np.int32)
            rank[starts] = ids
            totals.append(total[frequent])
        numbers = (ids + sum(map(len, totals[:-1]))).astype(np.int32)
        places[length] = starts, following[ends].astype(np.int32), numbers
    return totals, places


def _script(character: str) -> int:
    """Return a number per script; digits have one of their own, and so have all other non-letters.

    _ANY for the marks of every script's letters, such as accents in decomposed text.
    """
    kind = unicodedata.category(character)[0]
    if kind == "N":
        return 1
    if kind not in "LM":
        return 0
    name = unicodedata.name(character, "LATIN").split()[0]
    if kind == "M" and name == "COMBINING":
        return _ANY
    if name in ("HIRAGANA", "KATAKANA", "CJK", "KATAKANA-HIRAGANA"):
        name = "CJK"
    return 2 + int.from_bytes(name.encode()[:3], "big")


def _following(bases: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the next node in the word of each node; the last one points to itself."""
    width = np.diff(bases)
    following = np.arange(bases[-1])
    for column in range(len(width) - 1):
        reach = width[column + 1]
        following[bases[column] : bases[column] + reach] = bases[column + 1] + np.arange(reach)
    return following


def _best(score: Floats, count: int) -> NDArray[np.bool_]:
    """Return a mask of the `count` highest; of equals the first."""
    keep = np.zeros(len(score), dtype=bool)
    keep[np.argsort(-score, kind="stable")[:count]] = True
    return keep


def _keep(lattice: _Lattice, keep: NDArray[np.bool_], values: Floats) -> Floats:
    """Remove the other candidates everywhere; return the `values` of those that stay."""
    new_ids = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
    lattice.texts = list(compress(lattice.texts, keep.tolist()))
    lattice.lengths = lattice.lengths[keep]
    lattice.lasts = lattice.lasts[keep]
    for length, (starts, ends, ids) in lattice.places.items():
        ids = new_ids[ids]
        stays = ids >= 0
        lattice.places[length] = starts[stays], ends[stays], ids[stays]
    return values[keep]


def _slices(lattice: _Lattice) -> list[list[Places]]:
    """Return starts, ends and ids of the candidates that begin in each column, by length."""
    slices: list[list[Places]] = [[] for _ in lattice.bases[1:]]
    for starts, ends, ids in lattice.places.values():
        cuts = np.searchsorted(starts, lattice.bases).tolist()
        for column, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                slices[column].append((starts[low:high], ends[low:high], ids[low:high]))
    return slices


def _expected(lattice: _Lattice, probabilities: Floats) -> Floats:
    """Return the expected uses of each candidate over all segmentations: the E step."""
    num_words = len(lattice.weights)
    forward, backward = np.zeros(len(lattice.word_of)), lattice.is_end.astype(np.float64)
    forward[:num_words] = 1.0
    slices = _slices(lattice)
    for column in slices:
        for starts, ends, ids in column:
            forward[ends] += forward[starts] * probabilities[ids]
    for column in reversed(slices):
        for starts, ends, ids in column:
            backward[starts] += backward[ends] * probabilities[ids]
    scale = lattice.weights / backward[:num_words]
    expected = np.zeros(len(probabilities))
    for starts, ends, ids in lattice.places.values():
        used = forward[starts] * backward[ends] * scale[lattice.word_of[starts]]
        expected += np.bincount(ids, used * probabilities[ids], len(expected))
    return expected


def _losses(lattice: _Lattice, probabilities: Floats) -> Floats:
    """Return the loss of log-likelihood without each candidate, float64 (pieces,).

    Its uses would be replaced by the best segmentation of the candidate itself.
    """
    count, lengths = len(lattice.texts), lattice.lengths
    following = _following(lattice.bases)
    nodes = np.zeros((LONGEST_PIECE + 1, count), dtype=np.int32)
    nodes[0] = lattice.lasts
    for step in range(1, LONGEST_PIECE + 1):
        nodes[step] = following[nodes[step - 1]]
    best = np.zeros((LONGEST_PIECE + 1, count))
    best[0] = 1.0
    for end in range(1, LONGEST_PIECE + 1):
        for length in range(1, end + 1):
            rows = np.flatnonzero(lengths > end if length == end else lengths >= end)
            starts, _, ids = lattice.places[length]
            if not len(rows) or not len(starts):
                continue
            wanted = nodes[end - length, rows]
            at = np.minimum(np.searchsorted(starts, wanted), len(starts) - 1)
            there = starts[at] == wanted
            rows, at = rows[there], at[there]
            with_it = best[end - length, rows] * probabilities[ids[at]]
            best[end, rows] = np.maximum(best[end, rows], with_it)
    other = np.maximum(best[lengths, np.arange(count)], 1e-300)
    uses = _expected(lattice, probabilities)
    losses: Floats = uses * (np.log(probabilities) - np.log(other))
    return losses
