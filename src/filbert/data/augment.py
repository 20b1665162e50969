"""More rows out of rows: words replaced by others that a model expects in their place.

For training rows of which a teacher, not a label, says what is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from filbert.data.records import Row

# Letters and digits, and what may stand within a word.
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")

Places = Sequence[tuple[int, int]]
# For every place of some texts the words that may stand there, the likeliest first.
Candidates = Callable[[Sequence[str], Sequence[Places]], Sequence[Sequence[Sequence[str]]]]

# Rows whose words are asked for together: a model likes many at a time.
_ROWS = 64


def augmented(
    rows: Iterable[Row],
    candidates: Candidates,
    *,
    copies: int,
    rate: float,
    seed: int,
    columns: Sequence[str] = ("text", "text_pair"),
) -> Iterator[Row]:
    """Copies of rows in which each word is replaced with probability `rate`.

    What is drawn hangs on the seed and the row's place alone. Copies that come out equal to the row
    or to each other are left out, so there may be fewer; a row without any replaceable word has
    none.

    Args:
        rows: with texts in `columns`, of which all but the first may be missing.
        candidates: gives words for places of texts; an empty list keeps the original word.
        copies: of each row, at most.
        rate: above 0, at most 1.
        seed: of the draws.
        columns: what is changed.

    Source: Jiao et al. 2020, algorithm 1.
    """
    numbered = enumerate(rows)
    while part := list(islice(numbered, _ROWS)):
        texts = [
            {name: row.values[name] for name in columns if row.values.get(name)} for _, row in part
        ]
        flat = [text for own in texts for text in own.values()]
        places = [word_places(text) for text in flat]
        found = iter(zip(places, candidates(flat, places), strict=True))
        for (number, row), own in zip(part, texts, strict=True):
            words = [next(found) for _ in own]
            generator = np.random.Generator(np.random.Philox(key=[seed, number]))
            seen = {tuple(own.values())}
            for _ in range(copies):
                drawn = tuple(
                    _changed(text, *which, rate, generator)
                    for text, which in zip(own.values(), words, strict=True)
                )
                if drawn not in seen:
                    seen.add(drawn)
                    yield replace(row, values=row.values | dict(zip(own, drawn, strict=True)))


def word_places(text: str) -> list[tuple[int, int]]:
    """Where the words of a text stand: characters [start, end), without punctuation around them."""
    return [match.span() for match in _WORD.finditer(text)]


def _changed(
    text: str,
    places: Places,
    words: Sequence[Sequence[str]],
    rate: float,
    generator: np.random.Generator,
) -> str:
    parts, done = [], 0
    chances, choices = generator.random(len(places)), generator.random(len(places))
    for (start, end), own, chance, choice in zip(places, words, chances, choices, strict=True):
        if chance < rate and own:
            parts += [text[done:start], own[int(choice * len(own))]]
            done = end
    return "".join([*parts, text[done:]])
