"""Rows of pre-training, made of a corpus when a step asks for them.

A step is a pure function of (seed, step): nothing is stored, so resuming restores nothing, and the
number of ranks changes nothing.
"""

from __future__ import annotations

import math
import random
import textwrap
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from filbert.data.draws import PLANS, keys_of
from filbert.data.examples import Example
from filbert.data.loader import deal
from filbert.data.masking import MaskedRow, Masker, ObjectiveOptions, Rows, mask
from filbert.errors import ConfigError, InputError
from filbert.text.tokenizer import Tokenizer

# Segments

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


# Examples

# Tokens that are counted at a time: 64 MB.
_COUNTED = 2**24


class Text(Marks, Protocol):
    """What rows are made of; `data.shards.Corpus` has it."""

    def tokens(self, begin: int, end: int) -> np.ndarray:
        """Token ids of a stretch of the corpus, by global offsets."""


class Instances:
    """All rows of a corpus under one objective, by version and row number.

    Raises:
        ConfigError: impossible options, or a vocabulary without mask or separator.
        InputError: a corpus without text.
    """

    def __init__(
        self, corpus: Text, tokenizer: Tokenizer, options: ObjectiveOptions, seed: int
    ) -> None:
        options.check()
        self.corpus = corpus
        self.options = options
        self.seed = seed
        if tokenizer.cls_id is None or tokenizer.sep_id is None:
            raise ConfigError("The vocabulary has no token to begin or end a row with.")
        self.separator = tokenizer.sep_id
        self.frame = tokenizer.template(pair=options.pair != "none")
        self.sentences = Sentences.of(corpus)
        if not self.sentences.num_documents:
            raise InputError("The corpus has no text, so there is nothing to learn from.")
        self.masker = Masker.of(
            tokenizer,
            unit=options.masking,
            style=options.mask_style,
            rate=options.mask_rate,
            most=options.most,
            weights=self._weights(tokenizer.vocab_size) if options.mask_rarity else None,
        )
        self._document_starts = self.sentences.borders[self.sentences.firsts]
        self.plan = lru_cache(maxsize=2)(self._plan)
        self.order = lru_cache(maxsize=2)(self._order)
        # Of every epoch: as many as the first one's plan has. Kept, because that plan is not.
        self.num_rows = len(self.plan(0))

    def version(self, epoch: int) -> int:
        """Which version of the data an epoch sees."""
        return epoch if self.options.duplicates is None else epoch % self.options.duplicates

    def _weights(self, size: int) -> np.ndarray:
        """How readily each id is masked, by its count; one that never occurs counts as once."""
        counts, end = np.zeros(size, dtype=np.int64), int(self.sentences.borders[-1])
        for begin in range(0, end, _COUNTED):
            found = self.corpus.tokens(begin, min(end, begin + _COUNTED))
            counts += np.bincount(found, minlength=size)
        return np.asarray(np.maximum(counts, 1.0) ** -self.options.mask_rarity)

    def _plan(self, version: int) -> np.ndarray:
        room = self.options.max_length - self.frame.size
        if self.options.pair == "none":
            return self.plan(0) if version else full_sentences(self.sentences, room)
        return pairs(
            self.sentences,
            seed=self.seed,
            version=version,
            room=room,
            short_rate=self.options.short_rate,
            swap=self.options.pair == "sop",
        )

    def _order(self, epoch: int) -> np.ndarray:
        """The rows of an epoch in its own order: int64, `num_rows` of them.

        A plan with more rows than the first leaves some out; one with fewer repeats some.
        """
        # Philox is counter-based: the key alone fixes the order, on every machine.
        generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        rows = generator.permutation(len(self.plan(self.version(epoch))))
        return np.resize(rows, self.num_rows)

    def lengths(self, version: int, rows: np.ndarray) -> np.ndarray:
        """Tokens of some rows, special tokens included: int64, as many as `rows`."""
        plan = self.plan(version)[rows]
        inside = self._borders_inside(plan)
        segments = plan[:, 1] - plan[:, 0] + plan[:, 3] - plan[:, 2]
        return np.asarray(segments + self.frame.size + inside[:, 1] - inside[:, 0])

    def _borders_inside(self, plan: np.ndarray) -> np.ndarray:
        """First and last + 1 document that begins strictly within each row: int64 (R, 2)."""
        if self.options.pair != "none":
            return np.zeros((len(plan), 2), dtype=np.int64)
        first = np.searchsorted(self._document_starts, plan[:, 0], "right")
        return np.stack([first, np.searchsorted(self._document_starts, plan[:, 1])], axis=1)

    def examples(self, version: int, rows: np.ndarray) -> list[Example]:
        """Some rows with their masks, in the order of `rows`."""
        plan = self.plan(version)[rows]
        starts = np.concatenate([[0], np.cumsum(self.lengths(version, rows))])
        ids = np.empty(starts[-1], dtype=np.int32)
        types = np.zeros(starts[-1], dtype=np.uint8)
        inside = self._borders_inside(plan).tolist()
        bounds = starts.tolist()
        fresh = None if self.masker.unit == "token" else np.zeros(starts[-1], dtype=bool)
        for index, numbers in enumerate(plan.tolist()):
            self._lay_out(ids, types, fresh, bounds[index], numbers, inside[index])
        keys = keys_of(self.seed, version, rows)
        masked, targets = mask(Rows(ids, starts, keys, fresh), self.masker)
        labels = [None if n[4] < 0 else n[4] for n in plan.tolist()]
        return [
            Example(
                row,
                masked[a:b],
                types[a:b],
                b - a,
                MaskedRow(*target, label),
            )
            for row, a, b, target, label in zip(
                rows.tolist(), bounds, bounds[1:], targets, labels, strict=False
            )
        ]

    def _lay_out(
        self,
        ids: np.ndarray,
        types: np.ndarray,
        fresh: np.ndarray | None,
        at: int,
        numbers: list[int],
        inside: list[int],
    ) -> None:
        frame = self.frame
        segments = [numbers[0:2], numbers[2:4]][: len(frame.types)]
        for index, special in enumerate(frame.specials):
            ids[at : at + len(special)] = special
            types[at : at + len(special)] = frame.special_types[index]
            at += len(special)
            if index == len(segments):
                break
            begin, end = segments[index]
            first = at
            for border in [*self._document_starts[slice(*inside)].tolist(), end]:
                ids[at : at + border - begin] = self.corpus.tokens(begin, border)
                if fresh is not None:
                    fresh[at + self.sentences.begins_within(begin, border)] = True
                at += border - begin
                begin = border
                if border < end:
                    ids[at] = self.separator
                    at += 1
            types[first:at] = frame.types[index]


class PretrainLoader:
    """Pre-training rows by step; takes the place of `data.loader.Loader`.

    An epoch has as many rows as the first one, in an order of its own; a step may begin in one
    epoch and end in the next. While the first `batch_warmup` rows are consumed, the rows per step
    grow in a line from `batch_start` to `batch_size`.

    Args:
        corpus: the text, as tokens.
        tokenizer: its vocabulary.
        options: what is learnt.
        batch_size: rows per optimiser step, over all ranks.
        max_tokens: tokens per micro-batch on one rank; may be changed between steps.
        seed: of plans, masks and shuffles.
        batch_start: rows of the first step, where they grow.
        batch_warmup: rows over which they grow.

    Raises:
        ConfigError: impossible options.
        InputError: a corpus without text.
    """

    def __init__(
        self,
        corpus: Text,
        tokenizer: Tokenizer,
        options: ObjectiveOptions,
        *,
        batch_size: int,
        max_tokens: int,
        seed: int,
        batch_start: int | None = None,
        batch_warmup: int = 0,
    ) -> None:
        self.instances = Instances(corpus, tokenizer, options, seed)
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.num_rows = self.instances.num_rows
        start = batch_size if batch_start is None else batch_start
        if not 1 <= start <= batch_size:
            raise ConfigError(f"batch_start is {start}; it must be from 1 to {batch_size}.")
        self._begins = [0]
        while self._begins[-1] < batch_warmup and start < batch_size:
            here = self._begins[-1]
            self._begins.append(here + start + (batch_size - start) * here // batch_warmup)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of full size that take every row once, rounded up."""
        return -(-self.num_rows // self.batch_size)

    def steps_for(self, epochs: float) -> int:
        """The least steps that take the rows so many times, those of a growing batch included."""
        wanted = math.ceil(epochs * self.num_rows - 1e-9)
        warm = len(self._begins) - 1
        if wanted <= self._begins[warm]:
            return bisect_left(self._begins, wanted)
        return warm - (self._begins[warm] - wanted) // self.batch_size

    def epochs_at(self, step: int) -> float:
        """How often every row was taken before step `step` (from 0)."""
        return self.begin_of(step) / self.num_rows

    @cached_property
    def stand_in(self) -> list[Example]:
        """One row, for a rank that has none."""
        return self.instances.examples(0, np.zeros(1, dtype=np.int64))

    def begin_of(self, step: int) -> int:
        """How many rows were consumed before step `step` (from 0)."""
        warm = len(self._begins) - 1
        return (
            self._begins[step]
            if step <= warm
            else (self._begins[warm] + (step - warm) * self.batch_size)
        )

    def _chosen(self, step: int) -> list[tuple[int, int, int]]:
        """(tokens, row, version) of every row of a step, shortest first."""
        here, end = self.begin_of(step), self.begin_of(step + 1)
        found: list[tuple[int, int, int]] = []
        while here < end:
            epoch, inside = divmod(here, self.num_rows)
            rows = self.instances.order(epoch)[inside : inside + end - here]
            version = self.instances.version(epoch)
            sizes = self.instances.lengths(version, rows).tolist()
            found += [(n, row, version) for n, row in zip(sizes, rows.tolist(), strict=True)]
            here += len(rows)
        return sorted(found)

    def _made(self, chosen: Sequence[tuple[int, int, int]]) -> list[Example]:
        made: dict[tuple[int, int], Example] = {}
        for version in {version for _, _, version in chosen}:
            rows = np.array([row for _, row, v in chosen if v == version], dtype=np.int64)
            for example in self.instances.examples(version, rows):
                made[example.row, version] = example
        return [made[row, version] for _, row, version in chosen]

    def rows_of(self, step: int) -> list[list[Example]]:
        """The rows of optimiser step `step` (from 0), over all ranks, shortest first."""
        return [[example] for example in self._made(self._chosen(step))]

    def step(self, step: int, rank: int = 0, world: int = 1) -> list[list[Example]]:
        """The micro-batches of one rank in a step; the last ones may be empty."""
        chosen = self._chosen(step)
        sizes = [size for size, _, _ in chosen]
        dealt = deal(sizes, max_tokens=self.max_tokens, rank=rank, world=world)
        made = iter(self._made([chosen[i] for batch in dealt for i in batch]))
        return [[next(made) for _ in batch] for batch in dealt]


def fixed_examples(
    corpus: Text,
    tokenizer: Tokenizer,
    options: ObjectiveOptions,
    *,
    seed: int = 0,
    limit: int | None = None,
) -> list[Example]:
    """Held-out examples with the masks of the first epoch, the same in every call.

    Args:
        corpus: the held-out text.
        tokenizer: its vocabulary.
        options: what is learnt.
        seed: of pairs and masks.
        limit: at most so many, spread evenly over the corpus; all when not given.
    """
    instances = Instances(corpus, tokenizer, options, seed)
    count = instances.num_rows
    kept = count if limit is None else min(limit, count)
    return instances.examples(0, np.arange(kept, dtype=np.int64) * count // max(1, kept))


# Printed examples

LINE_WIDTH = 100

_PAIR_WORDS = {
    "nsp": ("B follows A (label 0)", "B comes from somewhere else (label 1)"),
    "sop": ("A and B are in order (label 0)", "A and B are not in order (label 1)"),
}


def show_examples(
    corpus: Text, tokenizer: Tokenizer, options: ObjectiveOptions, count: int, seed: int = 0
) -> Iterator[str]:
    """The first `count` rows of the first epoch's shuffle, each as a few lines of plain text.

    A masked word is written as [MASK→word], one that stays but is to be guessed as [kept word], one
    with another in its place as [other→word]. Pieces of a word that fare alike stand together.

    Args:
        corpus: the text.
        tokenizer: its vocabulary.
        options: what is learnt.
        count: examples; fewer where the corpus has fewer.
        seed: as of the run.
    """
    instances = Instances(corpus, tokenizer, options, seed)
    rows = instances.order(0)[:count]
    for number, example in enumerate(instances.examples(0, rows), 1):
        yield _example_text(number, example, tokenizer, instances.masker, options)


def _example_text(
    number: int,
    example: Example,
    tokenizer: Tokenizer,
    masker: Masker,
    options: ObjectiveOptions,
) -> str:
    found = example.target
    kinds = np.zeros(len(example.input_ids), dtype=np.int8)
    now = example.input_ids[found.positions]
    kinds[found.positions] = np.where(
        now == masker.mask_id, _MASKED, np.where(now == found.labels, _KEPT, _OTHER)
    )
    before = example.input_ids.astype(np.int64)
    before[found.positions] = found.labels
    counts = np.bincount(kinds, minlength=4)
    head = (
        f"example {number} (row {example.row}): {example.num_tokens} tokens, "
        f"{len(found.positions)} to guess: {counts[_MASKED]} masked, {counts[_KEPT]} kept, "
        f"{counts[_OTHER]} replaced at random"
    )
    lines = [head]
    if found.pair is not None:
        lines.append(_PAIR_WORDS[options.pair][found.pair])
    names = iter(("A: ", "B: ") if found.pair is not None else ("text: ",))
    edges = np.flatnonzero(masker.never[before] & (kinds == 0))
    for begin, end in zip([-1, *edges.tolist()], [*edges.tolist(), len(before)], strict=True):
        if begin + 1 == end:
            continue
        words = _marked(example.input_ids, before, kinds, begin + 1, end, tokenizer, masker)
        lines += textwrap.wrap(
            next(names, "next document: ") + " ".join(words),
            LINE_WIDTH,
            initial_indent="  ",
            subsequent_indent="     ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


_PLAIN, _MASKED, _KEPT, _OTHER = range(4)


def _marked(
    now: np.ndarray,
    before: np.ndarray,
    kinds: np.ndarray,
    begin: int,
    end: int,
    tokenizer: Tokenizer,
    masker: Masker,
) -> list[str]:
    """Plain stretches and marked words of one segment."""
    found: list[str] = []
    at = begin
    while at < end:
        kind, upto = kinds[at], at + 1
        while (
            upto < end
            and kinds[upto] == kind
            and (kind == _PLAIN or masker.continues[before[upto]])
        ):
            upto += 1
        word = _readable(before[at:upto], tokenizer)
        if kind == _MASKED:
            word = f"[MASK→{word}]"
        elif kind == _KEPT:
            word = f"[kept {word}]"
        elif kind == _OTHER:
            word = f"[{_readable(now[at:upto], tokenizer)}→{word}]"
        found.append(word)
        at = upto
    return found


def _readable(ids: np.ndarray, tokenizer: Tokenizer) -> str:
    """Text of some tokens; entries that decode to nothing, such as specials, by their name."""
    return tokenizer.decode(ids).strip() or " ".join(tokenizer.tokens(ids))
