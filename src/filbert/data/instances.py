"""Pre-training rows, made from a corpus when a step needs them.

A step is a pure function of (seed, step): a resumed run restores nothing, and the number of ranks
changes nothing.
"""

from __future__ import annotations

import math
import random
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from filbert.data.draws import PLANS, keys_of
from filbert.data.examples import Example
from filbert.data.loader import Loader, deal, epoch_order
from filbert.data.masking import MaskedRow, Masker, ObjectiveOptions, TokenRows, mask
from filbert.data.shards import Corpus, Sentences
from filbert.errors import ConfigError, InputError
from filbert.text.tokenizer import Tokenizer

# Number of attempts to draw another document for a random next sentence.
_DOCUMENT_DRAWS = 10

_NO_LABEL = -1


# Plans: int64 (R, 5), the tokens [begin, end) of two segments and the label of the pair


def full_sentences(sentences: Sentences, max_tokens: int) -> np.ndarray:
    """Return contiguous text in rows of at most `max_tokens` tokens, across document borders.

    A row holds whole sentences; each document border inside it takes one token, for a separator.
    Only a sentence that fits into no row is split: it begins in the rest of a row and continues in
    the next ones. Every token is in exactly one row.

    Source: Liu et al. 2019 (RoBERTa), section 4.2, FULL-SENTENCES.
    """
    document = np.repeat(np.arange(len(sentences.firsts) - 1), np.diff(sentences.firsts))
    # Offsets with one more place for each document border before them.
    begins = (sentences.borders[:-1] + document).data
    ends = (sentences.borders[1:] + document).data
    documents = document.data
    count = len(ends)
    plan = array("q")
    current = 0
    place = begins[0] if count else 0
    while current < count:
        begin = place - documents[current]
        following = bisect_right(ends, place + max_tokens, current)
        if following == count:
            place = ends[-1]
            end = place - documents[-1]
        else:
            place_after = begins[following]
            if ends[following] - place_after > max_tokens and place + max_tokens > place_after:
                place_after = place + max_tokens
            if following > current and place_after == begins[following]:
                end = ends[following - 1] - documents[following - 1]
            else:
                end = place_after - documents[following]
            place = place_after
        plan.extend((begin, end, end, end, _NO_LABEL))
        current = following
    return _as_plan(plan)


def pairs(
    sentences: Sentences, *, kind: str, seed: int, version: int, max_tokens: int, short_rate: float
) -> np.ndarray:
    """Return sentence pairs of all documents, in order; for streams, the two lines of each.

    Args:
        kind: nsp (label 1: a random next sentence), sop (label 1: swapped) or streams (no label).
            Source of streams: Sun et al. 2019 (VideoBERT), section 3.2.
        version: Of the data: the epoch, or the epoch modulo the number of duplicates.
        max_tokens: Of both segments together.
        short_rate: Probability that a document is split into shorter rows.

    Raises:
        InputError: A document has fewer or more than two lines, for streams.
    """
    lines = np.diff(sentences.firsts)
    if kind == "streams" and (lines != 2).any():
        raise InputError(
            f"Document {np.argmax(lines != 2) + 1} of the corpus does not have two lines with "
            "tokens, which pair streams needs: build the corpus with --text-pair-column, or from "
            "text with two lines a document and --sentences lines."
        )
    keys = keys_of(seed, version, np.arange(len(lines), dtype=np.uint64), use=PLANS)
    rng, plan, offsets = random.Random(), array("q"), sentences.borders.data
    draw: dict[str, Any] = {"short_rate": short_rate, "swap": kind == "sop"}
    for document, key in enumerate(keys.tolist()):
        rng.seed(key)
        if kind == "streams":
            first, middle, last = offsets[2 * document : 2 * document + 3]
            plan.extend((*_truncated([first, middle], [middle, last], max_tokens, rng), _NO_LABEL))
        else:
            plan.extend(pairs_of_document(sentences, document, rng, max_tokens=max_tokens, **draw))
    return _as_plan(plan)


def pairs_of_document(
    sentences: Sentences,
    document: int,
    rng: random.Random,
    *,
    max_tokens: int,
    short_rate: float,
    swap: bool,
) -> list[int]:
    """Return the pairs of one document, five numbers each; arguments as for `pairs`.

    The draws are in the order of the reference, so the same generator gives the same pairs. In a
    corpus of one document, random sentences come from that document.

    Source: google-research/bert, create_pretraining_data.py, and google-research/albert for `swap`.
    """
    offsets = sentences.borders.data
    firsts = sentences.firsts.data
    here, last = firsts[document], firsts[document + 1]
    target = rng.randint(2, max_tokens) if rng.random() < short_rate else max_tokens
    plan: list[int] = []
    while here < last:
        end = bisect_left(offsets, offsets[here] + target, here + 1, last)
        count = end - here
        middle = here + (rng.randint(1, count - 1) if count >= 2 else 1)
        a = (offsets[here], offsets[middle])
        if count == 1 or (not swap and rng.random() < 0.5):
            b = _random_next(offsets, firsts, document, rng, target - (a[1] - a[0]))
            # Unused sentences are put back, so none is lost.
            label, here = 1, middle
        else:
            b = (offsets[middle], offsets[end])
            label, here = 0, end
            if swap and rng.random() < 0.5:
                a, b, label = b, a, 1
        plan += (*_truncated([*a], [*b], max_tokens, rng), label)
    return plan


def _random_next(
    offsets: memoryview, firsts: memoryview, document: int, rng: random.Random, wanted: int
) -> tuple[int, int]:
    for _ in range(_DOCUMENT_DRAWS):
        other = rng.randint(0, len(firsts) - 2)
        if other != document:
            break
    first, last = firsts[other], firsts[other + 1]
    start = rng.randint(first, last - 1)
    end = bisect_left(offsets, offsets[start] + wanted, start + 1, last)
    return offsets[start], offsets[end]


def _truncated(a: list[int], b: list[int], max_tokens: int, rng: random.Random) -> list[int]:
    """Shorten the longer segment, token by token, at a random side."""
    for _ in range(a[1] - a[0] + b[1] - b[0] - max_tokens):
        front = rng.random() < 0.5
        longer = a if a[1] - a[0] > b[1] - b[0] else b
        longer[0 if front else 1] += 1 if front else -1
    return a + b


def _as_plan(numbers: array[int]) -> np.ndarray:
    return np.frombuffer(numbers, dtype=np.int64).reshape(-1, 5)


# Examples

# Tokens that are counted at a time: 64 MB.
_COUNTED = 2**24


class Instances:
    """All rows of a corpus for one objective, by version and row number.

    Impossible options and a vocabulary without mask or separator are a ConfigError.
    """

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, options: ObjectiveOptions, seed: int
    ) -> None:
        options.check()
        self.corpus = corpus
        self.options = options
        self.seed = seed
        if tokenizer.cls_id is None or tokenizer.sep_id is None:
            raise ConfigError("The vocabulary has no token to begin or end a row with.")
        self.separator = tokenizer.sep_id
        self.frame = tokenizer.template(pair=options.pair != "none")
        self.sentences = corpus.marks()
        weights = self._weights(tokenizer.vocab_size) if options.mask_rarity else None
        self.masker = Masker(tokenizer, options, weights)
        self._document_starts = self.sentences.borders[self.sentences.firsts]
        self.plan = lru_cache(maxsize=2)(self._plan)
        self.order = lru_cache(maxsize=2)(self._order)
        # All epochs have as many rows as the plan of the first one.
        self.num_rows = len(self.plan(0))

    def version(self, epoch: int) -> int:
        """Return the version of the data in an epoch."""
        return epoch if self.options.duplicates is None else epoch % self.options.duplicates

    def _weights(self, size: int) -> np.ndarray:
        """Return the relative probability of each id to be masked; unseen ids count as once."""
        counts, end = np.zeros(size, dtype=np.int64), int(self.sentences.borders[-1])
        for begin in range(0, end, _COUNTED):
            ids = self.corpus.tokens(begin, min(end, begin + _COUNTED))
            counts += np.bincount(ids, minlength=size)
        return np.asarray(np.maximum(counts, 1.0) ** -self.options.mask_rarity)

    def _plan(self, version: int) -> np.ndarray:
        max_tokens = self.options.max_length - self.frame.size
        if self.options.pair == "none":
            return self.plan(0) if version else full_sentences(self.sentences, max_tokens)
        return pairs(
            self.sentences,
            kind=self.options.pair,
            seed=self.seed,
            version=version,
            max_tokens=max_tokens,
            short_rate=self.options.short_rate,
        )

    def _order(self, epoch: int) -> np.ndarray:
        """Return the rows of an epoch in random order, int64 (`num_rows`,).

        Of a plan with more rows than the first, some are left out; with fewer, some are repeated.
        """
        rows = epoch_order(self.seed, epoch, len(self.plan(self.version(epoch))))
        return np.resize(rows, self.num_rows)

    def lengths(self, version: int, rows: np.ndarray) -> np.ndarray:
        """Return the tokens of some rows, special tokens included, int64."""
        plan = self.plan(version)[rows]
        inside = self._borders_inside(plan)
        segments = plan[:, 1] - plan[:, 0] + plan[:, 3] - plan[:, 2]
        return np.asarray(segments + self.frame.size + inside[:, 1] - inside[:, 0])

    def _borders_inside(self, plan: np.ndarray) -> np.ndarray:
        """Return the range of documents that begin strictly inside each row, int64 (R, 2)."""
        if self.options.pair != "none":
            return np.zeros((len(plan), 2), dtype=np.int64)
        first = np.searchsorted(self._document_starts, plan[:, 0], "right")
        return np.stack([first, np.searchsorted(self._document_starts, plan[:, 1])], axis=1)

    def examples(self, version: int, rows: np.ndarray) -> list[Example]:
        """Return some rows with their masks, in the order of `rows`."""
        plan = self.plan(version)[rows]
        starts = np.concatenate([[0], np.cumsum(self.lengths(version, rows))])
        ids, types = np.empty(starts[-1], dtype=np.int32), np.zeros(starts[-1], dtype=np.uint8)
        fresh = None if self.options.masking == "token" else np.zeros(starts[-1], dtype=bool)
        tokens = TokenRows(ids, starts, keys_of(self.seed, version, rows), fresh)
        bounds, inside = starts.tolist(), self._borders_inside(plan).tolist()
        for at, numbers, borders in zip(bounds[:-1], plan.tolist(), inside, strict=True):
            self._fill(tokens, types, at, numbers, self._document_starts[slice(*borders)])
        masked, targets = mask(tokens, self.masker)
        labels = [None if label == _NO_LABEL else label for label in plan[:, 4].tolist()]
        return [
            Example(row, masked[a:b], types[a:b], b - a, MaskedRow(*target, label))
            for row, a, b, target, label in zip(
                rows.tolist(), bounds[:-1], bounds[1:], targets, labels, strict=True
            )
        ]

    def _fill(
        self, tokens: TokenRows, types: np.ndarray, at: int, numbers: list[int], borders: np.ndarray
    ) -> None:
        """Write one row at `at`; a separator precedes each document border inside it."""
        frame, offsets, ids, fresh = self.frame, self.sentences.borders, tokens.ids, tokens.fresh
        segments = [numbers[0:2], numbers[2:4]][: len(frame.types)]
        for index, special in enumerate(frame.specials):
            ids[at : at + len(special)] = special
            types[at : at + len(special)] = frame.special_types[index]
            at += len(special)
            if index == len(segments):
                break
            begin, end = segments[index]
            first = at
            for border in [*borders.tolist(), end]:
                ids[at : at + border - begin] = self.corpus.tokens(begin, border)
                if fresh is not None:
                    sentences = slice(*np.searchsorted(offsets, (begin, border)))
                    fresh[at + offsets[sentences] - begin] = True
                at += border - begin
                begin = border
                if border < end:
                    ids[at] = self.separator
                    at += 1
            types[first:at] = frame.types[index]


class PretrainLoader:
    """Pre-training rows by step, with the methods of `data.loader.Loader`.

    Every epoch has an order of its own; a step may begin in one epoch and end in the next.

    Args:
        batch_size: Rows per optimizer step, over all ranks.
        max_tokens: Tokens per micro-batch on one rank; may be changed between steps.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        options: ObjectiveOptions,
        *,
        batch_size: int,
        max_tokens: int,
        seed: int,
    ) -> None:
        self.instances = Instances(corpus, tokenizer, options, seed)
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.num_rows = self.instances.num_rows

    @property
    def steps_per_epoch(self) -> int:
        """Steps of full size that read every row once, rounded up."""
        return -(-self.num_rows // self.batch_size)

    def steps_for(self, epochs: float) -> int:
        """Return the least number of steps that read the rows so many times."""
        return -(-math.ceil(epochs * self.num_rows - 1e-9) // self.batch_size)

    def epochs_at(self, step: int) -> float:
        """Return how often every row was read before step `step` (from 0)."""
        return step * self.batch_size / self.num_rows

    @cached_property
    def stand_in(self) -> list[Example]:
        """One row, for a rank without rows."""
        return self.instances.examples(0, np.zeros(1, dtype=np.int64))

    def _chosen(self, step: int) -> list[tuple[int, int, int]]:
        """Return (tokens, row, version) of every row of a step, shortest first."""
        here, end = step * self.batch_size, (step + 1) * self.batch_size
        chosen: list[tuple[int, int, int]] = []
        while here < end:
            epoch, inside = divmod(here, self.num_rows)
            rows = self.instances.order(epoch)[inside : inside + end - here]
            version = self.instances.version(epoch)
            sizes = self.instances.lengths(version, rows).tolist()
            chosen += [(n, row, version) for n, row in zip(sizes, rows.tolist(), strict=True)]
            here += len(rows)
        return sorted(chosen)

    def _examples(self, chosen: Sequence[tuple[int, int, int]]) -> list[Example]:
        examples: dict[tuple[int, int], Example] = {}
        for version in {version for _, _, version in chosen}:
            rows = np.array([row for _, row, v in chosen if v == version], dtype=np.int64)
            for example in self.instances.examples(version, rows):
                examples[example.row, version] = example
        return [examples[row, version] for _, row, version in chosen]

    def rows_of(self, step: int) -> list[list[Example]]:
        """Return the rows of optimizer step `step` (from 0), over all ranks, shortest first."""
        return [[example] for example in self._examples(self._chosen(step))]

    def step(self, step: int, rank: int = 0, world: int = 1) -> list[list[Example]]:
        """Return the micro-batches of one rank in a step; the last ones may be empty."""
        chosen = self._chosen(step)
        sizes = [size for size, _, _ in chosen]
        dealt = deal(sizes, max_tokens=self.max_tokens, rank=rank, world=world)
        examples = iter(self._examples([chosen[i] for batch in dealt for i in batch]))
        return [[next(examples) for _ in batch] for batch in dealt]


# The source of a trainer's examples.
Batches = Loader | PretrainLoader


def fixed_examples(
    corpus: Corpus,
    tokenizer: Tokenizer,
    options: ObjectiveOptions,
    *,
    limit: int | None = None,
) -> list[Example]:
    """Return held-out examples with the masks of the first epoch, the same in every call.

    They are at most `limit`, spread evenly over the corpus.
    """
    instances = Instances(corpus, tokenizer, options, 0)
    count = instances.num_rows
    kept = count if limit is None else min(limit, count)
    return instances.examples(0, np.arange(kept, dtype=np.int64) * count // max(1, kept))
