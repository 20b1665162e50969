"""Rows of pre-training, made of a corpus when a step asks for them.

A step is a pure function of (seed, step): nothing is stored, so resuming restores nothing, and the
number of ranks changes nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from filbert.data.draws import keys_of
from filbert.data.examples import Example
from filbert.data.frame import Frame
from filbert.data.loader import deal
from filbert.data.masking import MaskedRow, Masker, Rows, mask
from filbert.data.objective import ObjectiveOptions
from filbert.data.segments import Marks, Sentences, full_sentences, pairs
from filbert.errors import ConfigError, InputError
from filbert.text.tokenizer import Tokenizer

__all__ = [
    "Instances",
    "MaskedRow",
    "ObjectiveOptions",
    "PretrainLoader",
    "Text",
    "fixed_examples",
]


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
        self.frame = Frame(tokenizer, pair=options.pair != "none")
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
        segments = [numbers[0:2], numbers[2:4]][: len(frame.segment_types)]
        for index, special in enumerate(frame.specials):
            ids[at : at + len(special)] = special
            types[at : at + len(special)] = frame.types[index]
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
            types[first:at] = frame.segment_types[index]


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
