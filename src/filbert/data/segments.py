"""Which stretches of a corpus become training rows: sentence pairs, or full sentences end to end.

A plan has one row per example: int64 (N, 5) with the columns a_begin, a_end, b_begin, b_end, label.
The first four are global token offsets; without a second segment b is empty and the label is -1.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left, bisect_right
from typing import Protocol

import numpy as np

from filbert.data.draws import PLANS, keys_of

# How often another document is looked for before the same one will do.
DOCUMENT_DRAWS = 10

NO_LABEL = -1


class Marks(Protocol):
    """What a plan needs to know of a corpus; `data.shards.Corpus` has it."""

    @property
    def num_documents(self) -> int:
        """How many documents there are."""

    def borders(self, document: int) -> np.ndarray:
        """Global token offsets of a document's sentences and of its end."""


class Sentences:
    """Where every sentence and document of a corpus begins.

    Attributes:
        borders: int64 (sentences + 1,): sentence i is the tokens [borders[i], borders[i + 1]).
        firsts: int64 (documents + 1,): number of each document's first sentence.
    """

    def __init__(self, borders: np.ndarray, firsts: np.ndarray) -> None:
        self.borders = np.ascontiguousarray(borders, dtype=np.int64)
        self.firsts = np.ascontiguousarray(firsts, dtype=np.int64)

    @classmethod
    def of(cls, corpus: Marks) -> Sentences:
        """Read the marks of a whole corpus: 8 bytes per sentence and document."""
        found = [corpus.borders(document) for document in range(corpus.num_documents)]
        firsts = np.cumsum([0, *(len(one) - 1 for one in found)])
        starts = [one[:-1] for one in found]
        end = found[-1][-1:] if found else np.zeros(1, dtype=np.int64)
        return cls(np.concatenate([*starts, end]), firsts)

    @property
    def num_documents(self) -> int:
        """How many documents there are."""
        return len(self.firsts) - 1

    def begins_within(self, begin: int, end: int) -> np.ndarray:
        """Sentences that begin in the tokens [begin, end): int64, offsets from `begin`."""
        first, last = np.searchsorted(self.borders, (begin, end))
        return self.borders[first:last] - begin


def full_sentences(sentences: Sentences, room: int) -> np.ndarray:
    """Contiguous text in rows of at most `room` tokens, over document borders.

    A row holds whole sentences; each document border inside it costs one token, for a separator.
    Only a sentence that fits into no row is cut: it begins in the rest of a row and goes on in the
    next ones. Every token is in exactly one row.

    Source: Liu et al. 2019 (RoBERTa), section 4.2, FULL-SENTENCES.
    """
    document = np.repeat(np.arange(sentences.num_documents), np.diff(sentences.firsts))
    # Offsets with one place more for each document border before them.
    begins = (sentences.borders[:-1] + document).data
    ends = (sentences.borders[1:] + document).data
    documents = document.data
    count = len(ends)
    plan = array("q")
    current = 0
    place = begins[0] if count else 0
    while current < count:
        begin = place - documents[current]
        following = bisect_right(ends, place + room, current)
        if following == count:
            place = ends[-1]
            end = place - documents[-1]
        else:
            place_after = begins[following]
            if ends[following] - place_after > room and place + room > place_after:
                place_after = place + room
            if following > current and place_after == begins[following]:
                end = ends[following - 1] - documents[following - 1]
            else:
                end = place_after - documents[following]
            place = place_after
        plan.extend((begin, end, end, end, NO_LABEL))
        current = following
    return _as_plan(plan)


def pairs(
    sentences: Sentences, *, seed: int, version: int, room: int, short_rate: float, swap: bool
) -> np.ndarray:
    """Sentence pairs out of all documents, in order.

    Args:
        sentences: of the corpus.
        seed: of the run.
        version: of the data: the epoch, or the epoch modulo the number of duplicates.
        room: most tokens of both segments together.
        short_rate: probability that a document is cut for shorter rows.
        swap: sentence order (label 1: swapped) instead of next sentence (label 1: random).
    """
    documents = np.arange(sentences.num_documents, dtype=np.uint64)
    rng = random.Random()
    plan = array("q")
    for document, key in enumerate(keys_of(seed, version, documents, use=PLANS).tolist()):
        rng.seed(key)
        plan.extend(
            pairs_of_document(sentences, document, rng, room=room, short_rate=short_rate, swap=swap)
        )
    return _as_plan(plan)


def pairs_of_document(
    sentences: Sentences,
    document: int,
    rng: random.Random,
    *,
    room: int,
    short_rate: float,
    swap: bool,
) -> list[int]:
    """The pairs of one document, five numbers each; arguments as for `pairs`.

    The draws come in the order of the reference, so the same generator gives the same pairs.
    A corpus of one document has to take its random sentences from that document.

    Source: google-research/bert, create_pretraining_data.py, and google-research/albert for `swap`.
    """
    offsets = sentences.borders.data
    firsts = sentences.firsts.data
    here, last = firsts[document], firsts[document + 1]
    target = rng.randint(2, room) if rng.random() < short_rate else room
    plan: list[int] = []
    while here < last:
        end = bisect_left(offsets, offsets[here] + target, here + 1, last)
        count = end - here
        middle = here + (rng.randint(1, count - 1) if count >= 2 else 1)
        a = (offsets[here], offsets[middle])
        if count == 1 or (not swap and rng.random() < 0.5):
            b = _random_next(offsets, firsts, document, rng, target - (a[1] - a[0]))
            # What was collected but not used is put back, so no sentence is lost.
            label, here = 1, middle
        else:
            b = (offsets[middle], offsets[end])
            label, here = 0, end
            if swap and rng.random() < 0.5:
                a, b, label = b, a, 1
        plan += (*_truncate(*a, *b, room, rng), label)
    return plan


def _random_next(
    offsets: memoryview, firsts: memoryview, document: int, rng: random.Random, wanted: int
) -> tuple[int, int]:
    for _ in range(DOCUMENT_DRAWS):
        other = rng.randint(0, len(firsts) - 2)
        if other != document:
            break
    first, last = firsts[other], firsts[other + 1]
    start = rng.randint(first, last - 1)
    end = bisect_left(offsets, offsets[start] + wanted, start + 1, last)
    return offsets[start], offsets[end]


def _truncate(
    a_begin: int, a_end: int, b_begin: int, b_end: int, room: int, rng: random.Random
) -> tuple[int, int, int, int]:
    for _ in range(a_end - a_begin + b_end - b_begin - room):
        front = rng.random() < 0.5
        if a_end - a_begin > b_end - b_begin:
            if front:
                a_begin += 1
            else:
                a_end -= 1
        elif front:
            b_begin += 1
        else:
            b_end -= 1
    return a_begin, a_end, b_begin, b_end


def _as_plan(numbers: array[int]) -> np.ndarray:
    return np.frombuffer(numbers, dtype=np.int64).reshape(-1, 5)
