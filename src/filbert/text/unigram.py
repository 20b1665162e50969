"""Learn a unigram vocabulary: many candidates, then the least useful go until the size is right.

Source: Kudo 2018, section 3.2, with the choices of google/sentencepiece (candidates of at most 16
characters of one script, three quarters kept per round, digamma in the M step). Its two passes of
Viterbi are replaced by expected counts. Sums run in a fixed order in one thread, so that the same
words give the same scores; the trainer of the `tokenizers` library does not promise that, and it
looks for candidates without regard to how often a word was counted.

The words lie in one array, column by column: first the first characters of all words, then their
second ones, and so on, the words sorted by length. All candidates that begin in one column and have
one length are then a slice, and no two of them end at the same place.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from filbert.text.spiece import SPACE

LONGEST_PIECE = 16

# Longer words are learnt from in parts. Also keeps a word's probability above the smallest float64:
# 32 characters of at least _RAREST each.
LONGEST_PART = 32
_RAREST = 1e-9
_ANY = 2  # no name of a script has this number

_KEPT = 0.75  # of the candidates in each round
_LEAST = 0.5  # a candidate expected less often goes in the M step
_CANDIDATES = 1_000_000

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass
class _Lattice:
    """All places where a candidate stands in the words.

    `starts[n]` and `ids[n]`, int32, are the places and candidates of length n, by place. `bases`
    int64 (columns + 1,) says where each column begins. `weights` float64 (words,): their counts.
    """

    starts: dict[int, Ints]
    ids: dict[int, Ints]
    bases: NDArray[np.int64]
    weights: Floats

    @property
    def num_nodes(self) -> int:
        return int(self.bases[-1])


@dataclass
class _Pieces:
    """The candidates: text, expected count, length and one place where each stands."""

    texts: list[str]
    counts: Floats
    lengths: Ints
    places: Ints


def learn_pieces(
    counts: Mapping[str, int],
    alphabet: list[str],
    *,
    size: int,
    min_count: int,
    progress: Callable[[int], None] = lambda left: None,
) -> list[tuple[str, float]]:
    """The pieces and their natural log-probabilities, most probable first.

    Args:
        counts: how often each word stands in the text.
        alphabet: the characters that are pieces in any case. Words with others are left out.
        size: how many pieces to learn; fewer come back when the text does not hold so many.
        min_count: pieces that are seen less often are no candidates.
        progress: is told how many candidates are left.
    """
    pieces, lattice = _candidates(counts, alphabet, size, min_count)
    target = max(size, len(alphabet))
    probabilities = pieces.counts / pieces.counts.sum()
    while True:
        for _ in range(2):
            expected = _expected(lattice, probabilities)
            keep = (expected >= _LEAST) | (pieces.lengths == 1)
            if keep.sum() < target:
                keep = _best(np.where(pieces.lengths == 1, np.inf, expected), target)
            expected = _keep(pieces, lattice, keep, expected)
            probabilities = _maximize(expected)
        progress(len(pieces.texts))
        if len(pieces.texts) <= target:
            break
        loss = _losses(pieces, lattice, probabilities)
        loss[pieces.lengths == 1] = np.inf
        keep = _best(loss, max(target, int(_KEPT * len(pieces.texts))))
        probabilities = _keep(pieces, lattice, keep, probabilities)
    order = sorted(range(len(pieces.texts)), key=lambda i: (-probabilities[i], pieces.texts[i]))
    # Six digits: what another processor's logarithm may change is behind them.
    return [(pieces.texts[i], float(f"{np.log(probabilities[i]):.6g}")) for i in order]


def _candidates(
    counts: Mapping[str, int], alphabet: list[str], size: int, min_count: int
) -> tuple[_Pieces, _Lattice]:
    number = {character: n for n, character in enumerate(alphabet)}
    known = number.keys()
    parts: dict[str, int] = {}
    for word, count in counts.items():
        if known >= set(word):
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
        reach = int(width[column + 1])
        begin = int(bases[column])
        characters[begin : begin + reach] = [number[word[column]] for word in words[:reach]]
    script = np.array([_script(character) for character in alphabet], dtype=np.int32)
    following = _following(bases)
    word_of = (np.arange(len(characters)) - np.repeat(bases[:-1], width)).astype(np.int32)

    rank = characters
    all_starts, all_ids = {1: np.flatnonzero(rank >= 0).astype(np.int32)}, {}
    all_ids[1] = characters[all_starts[1]]
    totals = [np.bincount(all_ids[1], weights[word_of[all_starts[1]]], len(alphabet))]
    places = [np.full(len(alphabet), -1, dtype=np.int32)]
    np.maximum.at(places[0], all_ids[1], all_starts[1])
    sizes = [len(alphabet)]
    space = number.get(SPACE, -1)
    for length in range(2, LONGEST_PIECE + 1):
        # A longer one begins with a shorter one that was frequent, and goes on in its script.
        last = all_starts[length - 1]
        ends: NDArray[Any] = last
        for _ in range(length - 1):
            ends = following[ends]
        there = characters[ends] >= 0
        before: NDArray[Any] = last
        for _ in range(length - 2):
            before = following[before]
        left, right = characters[before], characters[ends]
        same = script[left] == script[right]
        same |= (script[left] == _ANY) | (script[right] == _ANY)
        there &= (right != space) & ((left == space) | same)
        starts = last[there]
        key = rank[starts].astype(np.int64) * len(alphabet) + characters[ends[there]]
        found, inverse = np.unique(key, return_inverse=True)
        total = np.bincount(inverse, weights[word_of[starts]], len(found))
        frequent = total >= min_count
        new_ids = np.cumsum(frequent) - 1
        stays = frequent[inverse]
        starts = starts[stays]
        ids: Ints = new_ids[inverse[stays]].astype(np.int32)
        rank = np.full(len(characters), -1, dtype=np.int32)
        rank[starts] = ids
        all_starts[length], all_ids[length] = starts, ids
        totals.append(total[frequent])
        sizes.append(int(frequent.sum()))
        place = np.full(sizes[-1], -1, dtype=np.int32)
        np.maximum.at(place, ids, starts)
        places.append(place)
    firsts = np.concatenate([[0], np.cumsum(sizes)])
    for length in all_ids:
        all_ids[length] = (all_ids[length] + firsts[length - 1]).astype(np.int32)
    piece_lengths = np.repeat(np.arange(1, LONGEST_PIECE + 1), sizes).astype(np.int32)
    uses: Floats = np.concatenate(totals).astype(np.float64)
    place = np.concatenate(places)
    lattice = _Lattice(all_starts, all_ids, bases, weights)
    score: Floats = (uses * piece_lengths).astype(np.float64)
    score[: len(alphabet)] = np.inf
    keep = _best(score, max(_CANDIDATES, 4 * size))
    texts = list(alphabet)
    columns_of = np.searchsorted(bases, place, side="right") - 1
    for index in range(len(alphabet), len(place)):
        column = int(columns_of[index])
        if keep[index]:
            word = words[int(place[index] - bases[column])]
            texts.append(word[column : column + int(piece_lengths[index])])
        else:
            texts.append("")
    pieces = _Pieces(texts, np.maximum(uses * piece_lengths, 1.0), piece_lengths, place)
    _keep(pieces, lattice, keep, uses)
    return pieces, lattice


def _script(character: str) -> int:
    """A number per script; digits are one of their own, and so is everything that is no letter.

    _ANY for the marks that go with the letters of every script, as accents do in decomposed text.
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
    """For each node the one behind it in its word; the last of a word points to itself."""
    width = np.diff(bases)
    following = np.arange(bases[-1])
    for column in range(len(width) - 1):
        reach = width[column + 1]
        following[bases[column] : bases[column] + reach] = bases[column + 1] + np.arange(reach)
    return following


def _best(score: Floats, count: int) -> NDArray[np.bool_]:
    """Which are the `count` highest; of equals the first."""
    keep = np.zeros(len(score), dtype=bool)
    keep[np.argsort(-score, kind="stable")[:count]] = True
    return keep


def _keep(pieces: _Pieces, lattice: _Lattice, keep: NDArray[np.bool_], values: Floats) -> Floats:
    """Forget the other candidates everywhere; `values` of those that stay."""
    new_ids = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
    pieces.texts = [text for text, stays in zip(pieces.texts, keep.tolist(), strict=True) if stays]
    pieces.counts = pieces.counts[keep]
    pieces.lengths = pieces.lengths[keep]
    pieces.places = pieces.places[keep]
    for length, ids in lattice.ids.items():
        ids = new_ids[ids]
        stays = ids >= 0
        lattice.ids[length] = ids[stays]
        lattice.starts[length] = lattice.starts[length][stays]
    return values[keep]


def _slices(lattice: _Lattice) -> list[list[tuple[int, int, int, int]]]:
    """Per column the slices that begin there: length, first, last, distance to the end node."""
    bases = lattice.bases
    found: list[list[tuple[int, int, int, int]]] = [[] for _ in range(len(bases) - 1)]
    for length, starts in lattice.starts.items():
        cuts = np.searchsorted(starts, bases)
        for column in range(len(bases) - 1 - length):
            low, high = int(cuts[column]), int(cuts[column + 1])
            if low < high:
                distance = int(bases[column + length] - bases[column])
                found[column].append((length, low, high, distance))
    return found


def _expected(lattice: _Lattice, probabilities: Floats) -> Floats:
    """How often each candidate is used, over all segmentations: the E step."""
    forward = np.zeros(lattice.num_nodes)
    backward = np.zeros(lattice.num_nodes)
    num_words = len(lattice.weights)
    forward[:num_words] = 1.0
    slices = _slices(lattice)
    for column in slices:
        for length, low, high, distance in column:
            starts = lattice.starts[length][low:high]
            forward[starts + distance] += (
                forward[starts] * probabilities[lattice.ids[length][low:high]]
            )
    width = np.diff(lattice.bases)
    for begin, end, longer in zip(
        lattice.bases, lattice.bases[1:], [*width[1:].tolist(), 0], strict=False
    ):
        backward[begin + longer : end] = 1.0
    for column in reversed(slices):
        for length, low, high, distance in column:
            starts = lattice.starts[length][low:high]
            backward[starts] += (
                backward[starts + distance] * probabilities[lattice.ids[length][low:high]]
            )
    scale = lattice.weights / backward[:num_words]
    expected = np.zeros(len(probabilities))
    by_length: dict[int, list[Floats]] = {}
    for number, column in enumerate(slices):
        for length, low, high, distance in column:
            starts = lattice.starts[length][low:high]
            used = forward[starts] * backward[starts + distance]
            used *= scale[starts - int(lattice.bases[number])]
            by_length.setdefault(length, []).append(used)
    for length, uses in by_length.items():
        used = np.concatenate(uses)
        ids = lattice.ids[length]
        expected += np.bincount(ids, used * probabilities[ids], len(expected))
    return expected


def _maximize(expected: Floats) -> Floats:
    """The M step: a Bayesian estimate that takes from the rare."""
    rest = np.maximum(expected, 1e-3)
    found: Floats = np.exp(digamma(rest) - digamma(rest.sum()))
    return np.maximum(found, _RAREST)


def _losses(pieces: _Pieces, lattice: _Lattice, probabilities: Floats) -> Floats:
    """By how much the text's log-likelihood would sink without each candidate, float64 (pieces,).

    Its uses would go to the best way to write the candidate itself with others.
    """
    count = len(pieces.texts)
    following = _following(lattice.bases)
    nodes = np.zeros((LONGEST_PIECE + 1, count), dtype=np.int32)
    nodes[0] = pieces.places
    for step in range(1, LONGEST_PIECE + 1):
        nodes[step] = following[nodes[step - 1]]
    best = np.zeros((LONGEST_PIECE + 1, count))
    best[0] = 1.0
    for end in range(1, LONGEST_PIECE + 1):
        for length in range(1, end + 1):
            rows = np.flatnonzero(pieces.lengths > end if length == end else pieces.lengths >= end)
            starts = lattice.starts[length]
            if not len(rows) or not len(starts):
                continue
            wanted = nodes[end - length, rows]
            at = np.minimum(np.searchsorted(starts, wanted), len(starts) - 1)
            there = starts[at] == wanted
            rows, at = rows[there], at[there]
            with_it = best[end - length, rows] * probabilities[lattice.ids[length][at]]
            best[end, rows] = np.maximum(best[end, rows], with_it)
    other = np.maximum(best[pieces.lengths, np.arange(count)], 1e-300)
    uses = _expected(lattice, probabilities)
    losses: Floats = uses * (np.log(probabilities) - np.log(other))
    return losses
