"""The published procedures for pre-training data, written out plainly: one token, one coin each.

They work on lists of token ids and one `random.Random`, drawn from in the order of the published
scripts. Slow on purpose; the judge of filbert's own, vectorised way. Sources: the data scripts of
google-research/bert and google-research/albert, fairseq's dynamic masking, the pre-training code of
google-research/electra, and the SpanBERT paper (Joshi et al. 2020, section 3.1).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

Document = list[list[int]]


@dataclass
class Words:
    """What masking must know about a vocabulary."""

    size: int
    mask: int
    special: set[int]
    ordinary: list[int]
    continuing: set[int]


@dataclass
class Pair:
    """Two segments and whether the second is a stranger (or the two are swapped)."""

    a: list[int]
    b: list[int]
    label: int


def flat(sentences: Document) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def shorten(a: list[int], b: list[int], most: int, rng: random.Random) -> None:
    """Take single tokens off the longer list, at a side that a coin decides, until both fit."""
    while len(a) + len(b) > most:
        victim = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            victim.pop(0)
        else:
            victim.pop()


def pairs_of(
    documents: list[Document],
    number: int,
    most: int,
    short_rate: float,
    rng: random.Random,
    swap: bool = False,
) -> list[Pair]:
    """The pairs of one document in one pass: BERT's, or ALBERT's with `swap`."""
    document = documents[number]
    goal = most
    if rng.random() < short_rate:
        goal = rng.randint(2, most)
    found: list[Pair] = []
    chunk: Document = []
    at = 0
    while at < len(document):
        chunk.append(document[at])
        if sum(map(len, chunk)) >= goal or at + 1 == len(document):
            cut = 1
            if len(chunk) > 1:
                cut = rng.randint(1, len(chunk) - 1)
            a = flat(chunk[:cut])
            if len(chunk) == 1 or (not swap and rng.random() < 0.5):
                other = number
                for _ in range(10):
                    other = rng.randint(0, len(documents) - 1)
                    if other != number:
                        break
                start = rng.randint(0, len(documents[other]) - 1)
                b: list[int] = []
                for sentence in documents[other][start:]:
                    b = b + sentence
                    if len(b) >= goal - len(a):
                        break
                label = 1
                at -= len(chunk) - cut
            else:
                b = flat(chunk[cut:])
                label = 0
                if swap and rng.random() < 0.5:
                    a, b, label = b, a, 1
            shorten(a, b, most, rng)
            found.append(Pair(a, b, label))
            chunk = []
        at += 1
    return found


def stretches(documents: list[Document], room: int, separator: int) -> list[list[int]]:
    """Full sentences, end to end over documents; only what fits nowhere goes on in a new row."""
    rows: list[list[int]] = []
    row: list[int] = []
    for number, document in enumerate(documents):
        for index, sentence in enumerate(document):
            rest = list(sentence)
            border = [separator] if index == 0 and number > 0 else []
            if row and len(row) + len(border) + len(rest) > room:
                space = room - len(row) - len(border)
                if len(rest) > room and space > 0:
                    row, rest = row + border + rest[:space], rest[space:]
                rows.append(row)
                row = []
            elif row:
                row = row + border
            while len(rest) > room:
                rows.append(rest[:room])
                rest = rest[room:]
            row = row + rest
    return [*rows, row] if row else rows


def exact_count(length: int, rate: float, most: int | None) -> int:
    wanted = max(1, round(rate * length))
    return wanted if most is None else min(most, wanted)


def loose_count(length: int, rate: float, rng: random.Random) -> int:
    return int(rate * length + rng.random())


def word_lists(row: list[int], words: Words) -> list[list[int]]:
    """Positions of every whole word; special tokens belong to none."""
    found: list[list[int]] = []
    inside = False
    for position, token in enumerate(row):
        if token in words.special:
            inside = False
        elif token in words.continuing and inside:
            found[-1].append(position)
        else:
            found.append([position])
            inside = True
    return found


def single_tokens(row: list[int], wanted: int, words: Words, rng: random.Random) -> list[list[int]]:
    candidates = [[i] for i, token in enumerate(row) if token not in words.special]
    rng.shuffle(candidates)
    return candidates[:wanted]


def whole_words(row: list[int], wanted: int, words: Words, rng: random.Random) -> list[list[int]]:
    candidates = word_lists(row, words)
    rng.shuffle(candidates)
    chosen: list[list[int]] = []
    for word in candidates:
        if sum(map(len, chosen)) + len(word) <= wanted:
            chosen.append(word)
    return chosen


def ngrams(row: list[int], wanted: int, words: Words, rng: random.Random) -> list[list[int]]:
    candidates = word_lists(row, words)
    starts = list(range(len(candidates)))
    rng.shuffle(starts)
    covered: set[int] = set()
    chosen: list[list[int]] = []
    for start in starts:
        if len(covered) >= wanted:
            break
        possible = range(1, min(3, len(candidates) - start) + 1)
        n = rng.choices(possible, weights=[1 / n for n in possible])[0]
        gram = flat(candidates[start : start + n])
        while n > 1 and len(covered) + len(gram) > wanted:
            n -= 1
            gram = flat(candidates[start : start + n])
        if len(covered) + len(gram) > wanted or covered.intersection(gram):
            continue
        covered.update(gram)
        chosen.append(gram)
    return chosen


def spans(row: list[int], wanted: int, words: Words, rng: random.Random) -> list[list[int]]:
    """Geometric spans of whole words, the first word that of a token drawn at random."""
    lists = word_lists(row, words)
    word_at = {position: number for number, word in enumerate(lists) for position in word}
    anchors = list(word_at)
    rng.shuffle(anchors)
    covered: set[int] = set()
    chosen: list[list[int]] = []
    for anchor in anchors:
        length = rng.choices(range(1, 11), weights=[0.8**n for n in range(10)])[0]
        span: list[int] = []
        for word in lists[word_at[anchor] : word_at[anchor] + length]:
            apart = bool(span) and word[0] != span[-1] + 1
            if apart or word[0] in covered or len(covered) + len(word) > wanted:
                break
            span += word
            covered.update(word)
        if span:
            chosen.append(span)
    return chosen


def replaced(
    row: list[int],
    chosen: list[list[int]],
    words: Words,
    rng: random.Random,
    *,
    together: bool = False,
    ordinary: bool = False,
) -> list[int]:
    """80 % mask, 10 % kept, 10 % drawn: decided per piece, or once per group."""
    result = list(row)
    for group in chosen:
        decision = None
        for position in group:
            if decision is None or not together:
                decision = "mask"
                if rng.random() >= 0.8:
                    decision = "keep" if rng.random() < 0.5 else "draw"
            if decision == "mask":
                result[position] = words.mask
            elif decision == "draw":
                result[position] = (
                    rng.choice(words.ordinary) if ordinary else rng.randint(0, words.size - 1)
                )
    return result


def replaced_by_draws(
    row: list[int], wanted: int, words: Words, rng: random.Random
) -> tuple[list[int], list[list[int]]]:
    """ELECTRA's: positions with replacement, 85 % become the mask, the rest stay."""
    candidates = [i for i, token in enumerate(row) if token not in words.special]
    result, met = list(row), set()
    for position in rng.choices(candidates, k=wanted):
        met.add(position)
        if rng.random() < 0.85:
            result[position] = words.mask
    return result, [[position] for position in sorted(met)]
