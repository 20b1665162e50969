"""What filbert's pre-training rows look like next to those of the published procedures.

    python benchmarks/masking_statistics.py CORPUS_FOLDER [--examples 100000] [--max-length 128]

CORPUS_FOLDER is what `filbert corpus` wrote. The last column is the difference in standard errors:
binomial, but over clusters of one document in one pass, since its rows share the draw that makes
them short. A row of the table is in order when it is below 4.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from filbert.data.instances import Instances, ObjectiveOptions
from filbert.data.shards import Corpus
from filbert.text.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "reference"))
import pretraining_procedures as published

OBJECTIVES = {
    "BERT": ObjectiveOptions(pair="nsp"),
    "BERT, whole words": ObjectiveOptions(pair="nsp", masking="word", max_predictions=20),
    "ALBERT": ObjectiveOptions(pair="sop", masking="ngram", max_predictions=20),
    "RoBERTa": ObjectiveOptions(mask_style="roberta"),
    "ELECTRA": ObjectiveOptions(mask_style="electra"),
    "SpanBERT": ObjectiveOptions(masking="span"),
}
LONGEST_RUN = 4


class Seen(NamedTuple):
    """One example: which cluster it is from, and what is in it."""

    cluster: int
    length: int
    a: int
    b: int
    label: int
    chosen: int
    masked: int
    kept: int
    runs: tuple[int, ...]


def words_of(tokenizer: Tokenizer) -> published.Words:
    """The reference's view of a WordPiece vocabulary."""
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.mask_id}
    ids = tokenizer.backend.get_vocab(with_added_tokens=True)
    return published.Words(
        size=tokenizer.vocab_size,
        mask=tokenizer.mask_id,
        special=special,
        ordinary=sorted(set(ids.values()) - special - {tokenizer.unk_id}),
        continuing={number for name, number in ids.items() if name.startswith("##")},
    )


def ours(corpus: Corpus, tokenizer: Tokenizer, options: ObjectiveOptions, count: int) -> list[Seen]:
    instances = Instances(corpus, tokenizer, options, seed=1)
    starts = instances.sentences.borders[instances.sentences.firsts]
    look = Look(words_of(tokenizer))
    seen: list[Seen] = []
    version = 0
    while len(seen) < count:
        plan = instances.plan(version)
        documents = np.searchsorted(starts, plan[:, 0], "right") - 1
        for begin in range(0, min(len(plan), count - len(seen)), 1000):
            rows = np.arange(begin, min(begin + 1000, len(plan), begin + count - len(seen)))
            for example in instances.examples(version, rows):
                a0, a1, b0, b1, label = plan[example.row].tolist()
                original = example.input_ids.astype(np.int64)
                original[example.target.positions] = example.target.labels
                cluster = version * len(starts) + int(documents[example.row])
                seen.append(
                    look(cluster, a1 - a0, b1 - b0, label, original, example.input_ids,
                         example.target.positions)
                )  # fmt: skip
        version += 1
    return seen


def theirs(
    documents: list[published.Document],
    tokenizer: Tokenizer,
    options: ObjectiveOptions,
    count: int,
) -> list[Seen]:
    rng = random.Random(12345)
    words = words_of(tokenizer)
    look = Look(words)
    seen: list[Seen] = []
    for cluster, row, a, b, label in published_rows(documents, tokenizer, options, rng):
        changed, chosen = published_masks(row, words, options, rng)
        positions = np.array(sorted(i for group in chosen for i in group), dtype=np.int64)
        seen.append(look(cluster, a, b, label, np.array(row), np.array(changed), positions))
        if len(seen) == count:
            break
    return seen


def published_rows(
    documents: list[published.Document],
    tokenizer: Tokenizer,
    options: ObjectiveOptions,
    rng: random.Random,
) -> Iterator[tuple[int, list[int], int, int, int]]:
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    clusters = 0
    while True:
        if options.pair == "none":
            for row in published.stretches(documents, options.max_length - 2, sep):
                clusters += 1
                yield clusters, [cls, *row, sep], len(row) - row.count(sep), 0, -1
            continue
        for number in range(len(documents)):
            clusters += 1
            for pair in published.pairs_of(
                documents,
                number,
                options.max_length - 3,
                options.short_rate,
                rng,
                options.pair == "sop",
            ):
                row = [cls, *pair.a, sep, *pair.b, sep]
                yield clusters, row, len(pair.a), len(pair.b), pair.label


CHOICES = {
    "token": published.single_tokens,
    "word": published.whole_words,
    "ngram": published.ngrams,
    "span": published.spans,
}


def published_masks(
    row: list[int], words: published.Words, options: ObjectiveOptions, rng: random.Random
) -> tuple[list[int], list[list[int]]]:
    wanted = published.exact_count(len(row), options.mask_rate, options.most)
    if options.mask_style == "electra":
        return published.replaced_by_draws(row, wanted, words, rng)
    loose = options.mask_style == "roberta"
    if loose:
        wanted = published.loose_count(len(row), options.mask_rate, rng)
    chosen = CHOICES[options.masking](row, wanted, words, rng)
    together = options.masking == "span"
    return published.replaced(row, chosen, words, rng, together=together, ordinary=loose), chosen


class Look:
    """Turns an example into what is counted."""

    def __init__(self, words: published.Words) -> None:
        self.mask = words.mask
        self.begins = np.ones(words.size, dtype=np.int64)
        self.begins[list(words.continuing)] = 0

    def __call__(
        self,
        cluster: int,
        a: int,
        b: int,
        label: int,
        original: np.ndarray,
        changed: np.ndarray,
        positions: np.ndarray,
    ) -> Seen:
        now = changed[positions]
        word = np.unique(np.cumsum(self.begins[original])[positions])
        ends = np.flatnonzero(np.append(np.diff(word) != 1, True))
        lengths = np.minimum(np.diff(ends, prepend=-1), LONGEST_RUN)
        return Seen(
            cluster,
            len(original),
            a,
            b,
            label,
            len(positions),
            int((now == self.mask).sum()),
            int((now == original[positions]).sum()),
            tuple(np.bincount(lengths, minlength=LONGEST_RUN + 1)[1:].tolist()),
        )


class Line(NamedTuple):
    """A quantity on both sides, and the difference in standard errors."""

    name: str
    filbert: float
    reference: float
    difference: float


Count = Callable[[Seen], tuple[float, float]]


def ratio(seen: list[Seen], count: Count) -> tuple[float, float]:
    """Sum over sum, and its standard error over clusters."""
    pairs = np.array([count(one) for one in seen], dtype=np.float64)
    _, cluster = np.unique([one.cluster for one in seen], return_inverse=True)
    total = pairs.sum(0)
    if not total[1]:
        return 0.0, 0.0
    value = total[0] / total[1]
    apart = np.bincount(cluster, pairs[:, 0] - value * pairs[:, 1])
    return float(value), float(np.sqrt((apart**2).sum()) / total[1])


def quantities(options: ObjectiveOptions, reference: list[Seen]) -> dict[str, Count]:
    """What is compared; lengths by the reference's own quantiles."""
    found: dict[str, Count] = {
        "tokens per row": lambda one: (one.length, 1),
        "share of tokens chosen": lambda one: (one.chosen, one.length),
        "of these: mask": lambda one: (one.masked, one.chosen),
        "of these: kept": lambda one: (one.kept, one.chosen),
        "of these: random": lambda one: (one.chosen - one.masked - one.kept, one.chosen),
        "rows shorter than 3/4": lambda one: (one.length < 0.75 * options.max_length, 1),
    }
    if options.pair != "none":
        found["label 1 (random, swapped)"] = lambda one: (one.label == 1, 1)
        for side in ("a", "b"):
            found[f"tokens of {side.upper()}"] = lambda one, side=side: (getattr(one, side), 1)
            for share in (10, 50, 90):
                limit = float(np.percentile([getattr(one, side) for one in reference], share))
                found[f"share of {side.upper()} up to {limit:.0f}"] = (
                    lambda one, side=side, limit=limit: (getattr(one, side) <= limit, 1)
                )
    if options.masking != "token":
        for run in range(LONGEST_RUN):
            more = "+" if run + 1 == LONGEST_RUN else ""
            found[f"masked runs of {run + 1}{more} words"] = lambda one, run=run: (
                one.runs[run],
                sum(one.runs),
            )
    return found


def compare(options: ObjectiveOptions, filbert: list[Seen], reference: list[Seen]) -> list[Line]:
    lines = []
    for name, count in quantities(options, reference).items():
        here, error_here = ratio(filbert, count)
        there, error_there = ratio(reference, count)
        error = float(np.hypot(error_here, error_there))
        lines.append(Line(name, here, there, (here - there) / error if error else 0.0))
    return lines


def documents_of(corpus: Corpus) -> list[published.Document]:
    """The corpus as lists."""
    borders, firsts = (marks.tolist() for marks in corpus.marks())
    pairs = zip(borders, borders[1:], strict=False)
    sentences = [corpus.tokens(begin, end).tolist() for begin, end in pairs]
    return [sentences[begin:end] for begin, end in zip(firsts, firsts[1:], strict=False)]


def main() -> None:

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--max-length", type=int, default=128)
    given = parser.parse_args()
    corpus = Corpus.open(given.corpus)
    tokenizer = Tokenizer.load(given.corpus / "tokenizer")
    documents = documents_of(corpus)
    print(f"{corpus.num_documents:,} documents, {corpus.num_tokens:,} tokens; ", end="")
    print(f"{given.examples:,} examples of at most {given.max_length} tokens on each side")
    for name, chosen in OBJECTIVES.items():
        options = ObjectiveOptions(**{**vars(chosen), "max_length": given.max_length})
        start = time.perf_counter()
        here = ours(corpus, tokenizer, options, given.examples)
        between = time.perf_counter()
        there = theirs(documents, tokenizer, options, given.examples)
        seconds = (between - start, time.perf_counter() - between)
        print(f"\n{name} (counted in {seconds[0]:.0f} and {seconds[1]:.0f} s)")
        print(f"{'':28} {'filbert':>10} {'reference':>10} {'difference':>11}")
        for line in compare(options, here, there):
            print(f"{line.name:28} {line.filbert:10.4f} {line.reference:10.4f} ", end="")
            print(f"{line.difference:+8.2f} SE")


if __name__ == "__main__":
    main()
