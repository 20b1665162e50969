"""Where a word stands in texts, and the sequences that show it to a model.

n tokens of one sequence.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from filbert.data.examples import Example
from filbert.errors import ConfigError, InputError, printable
from filbert.inspection.word_numbers import with_words
from filbert.text.encoding import Encoding
from filbert.text.scripts import UNSPACED
from filbert.text.tokenizer import Tokenizer

# There a word is wherever its letters are.
_UNSPACED = re.compile(f"[{UNSPACED}]")


class Source(NamedTuple):
    """A text, where it came from in words, and the sense of the word in it, where that is known."""

    text: str
    where: str
    sense: str | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One place of the word: characters [start, end) of a source's text."""

    source: Source
    start: int
    end: int

    @property
    def form(self) -> str:
        """The word as it is written there."""
        return self.source.text[self.start : self.end]


class Gathered(NamedTuple):
    """What one pass over the texts leaves.

    Attributes:
        occurrences: of the word, in the order of the texts; a uniform sample where there are more
            than asked for.
        found: how many there were.
        others: a uniform sample of all texts, without those that `occurrences` come from.
        texts: how many texts there were.
    """

    occurrences: list[Occurrence]
    found: int
    others: list[Source]
    texts: int


def pattern_of(words: Sequence[str], *, match_case: bool = False) -> re.Pattern[str]:
    """What finds any of the words as whole words.

    Raises:
        ConfigError: there is no word, or one of nothing but blanks.
    """
    bare = [" ".join(word.split()) for word in words]
    if not bare or not all(bare):
        raise ConfigError("--word is empty; name the word to look for, such as --word bank.")
    parts = []
    # The longest first: an alternation takes the first that fits.
    for word in sorted(bare, key=len, reverse=True):
        before = r"(?<!\w)" if _ends_at_blank(word[0]) else ""
        after = r"(?!\w)" if _ends_at_blank(word[-1]) else ""
        parts.append(before + r"\s+".join(map(re.escape, word.split(" "))) + after)
    return re.compile("|".join(parts), 0 if match_case else re.IGNORECASE)


def _ends_at_blank(character: str) -> bool:
    return bool(re.match(r"\w", character)) and not _UNSPACED.match(character)


def gather(
    sources: Iterable[Source], pattern: re.Pattern[str], *, most: int, others: int, seed: int = 0
) -> Gathered:
    """The word's places and some other texts, in one pass and fixed memory.

    Args:
        sources: texts in order; empty ones do not count.
        pattern: of the word.
        most: occurrences to keep.
        others: further texts to keep.
        seed: of the samples.

    Raises:
        InputError: the word is in less than two places.
    """
    kept: list[tuple[int, Occurrence]] = []
    aside: list[tuple[int, Source]] = []
    found = count = 0
    for_places, for_texts = random.Random(seed), random.Random(seed + 1)
    for source in sources:
        # The lines between the documents of a file.
        if not source.text.strip():
            continue
        count += 1
        for match in pattern.finditer(source.text):
            found += 1
            occurrence = Occurrence(source, *match.span())
            _keep(kept, (found, occurrence), most, for_places)
        _keep(aside, (count, source), others, for_texts)
    if not count:
        raise InputError("There is no text; give a file or at least two sentences.")
    if found < 2:
        told = "in none of" if not found else "only once in"
        texts = f"the {count:,} texts" if count > 1 else "the one text"
        raise InputError(
            f"The word is {told} {texts}; at least two places are compared. Whole words are looked "
            "for: name further forms with another --word."
        )
    occurrences = [occurrence for _, occurrence in sorted(kept, key=lambda item: item[0])]
    shown = {id(occurrence.source) for occurrence in occurrences}
    rest = [source for _, source in sorted(aside, key=lambda item: item[0])]
    return Gathered(
        occurrences, found, [source for source in rest if id(source) not in shown], count
    )


def _keep(sample: list, item: tuple, most: int, draw: random.Random) -> None:  # type: ignore[type-arg]
    """Reservoir sampling, Vitter 1985, algorithm R: every item is as likely to stay."""
    if len(sample) < most:
        sample.append(item)
    elif most and (place := draw.randrange(item[0])) < most:
        sample[place] = item


# Tokens


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """One sequence that the model reads.

    Attributes:
        example: the tokens; its row is the number of the text.
        words: of each word in it, its form in lower case and its rows; without the word looked for.
        places: rows of each occurrence of the word in it.
        which: the numbers of these occurrences.
    """

    example: Example
    words: list[tuple[str, np.ndarray]]
    places: list[np.ndarray]
    which: list[int]


def shown(gathered: Gathered, tokenizer: Tokenizer, max_length: int) -> list[Shown]:
    """The sequences of all texts: those with the word first.

    A text that is too long is cut around the word, which gets a sequence for each of its places.

    Raises:
        InputError: the word has no token there, or more than `max_length` hold.
    """
    sequences: list[Shown] = []
    numbered = enumerate(gathered.occurrences)
    by_text = groupby(numbered, key=lambda item: id(item[1].source))
    for text, (_, group) in enumerate(by_text):
        own = list(group)
        source = own[0][1].source
        encoding = _encoded(source, tokenizer)
        rows = [_rows_of(occurrence, encoding) for _, occurrence in own]
        numbers = [number for number, _ in own]
        if len(encoding.input_ids) <= max_length:
            sequences.append(_sequence(text, source, encoding, rows, numbers, None))
            continue
        for number, places in zip(numbers, rows, strict=True):
            part = _around(encoding, places, max_length, source)
            sequences.append(_sequence(text, source, encoding, [places], [number], part))
    for text, source in enumerate(gathered.others, start=len(sequences)):
        encoding = _encoded(source, tokenizer)
        long = len(encoding.input_ids) > max_length
        kept = _around(encoding, np.array([1]), max_length, source) if long else None
        sequences.append(_sequence(text, source, encoding, [], [], kept))
    return sequences


def _encoded(source: Source, tokenizer: Tokenizer) -> Encoding:
    (encoding,) = tokenizer.encode([source.text], with_offsets=True)
    return with_words(encoding, [source.text])


def tokens_within(encoding: Encoding, start: int, end: int) -> np.ndarray:
    """Rows of the tokens that hold any of the characters [start, end) of the one text, int64."""
    assert encoding.offsets is not None and encoding.sequence is not None
    begins, stops = encoding.offsets.T
    return np.flatnonzero((encoding.sequence >= 0) & (begins < end) & (stops > start))


def _rows_of(occurrence: Occurrence, encoding: Encoding) -> np.ndarray:
    rows = tokens_within(encoding, occurrence.start, occurrence.end)
    if not len(rows):
        raise InputError(
            f"{occurrence.source.where}: this model's vocabulary has no token for "
            f"{printable(occurrence.form)!r}."
        )
    return rows


def _around(encoding: Encoding, places: np.ndarray, max_length: int, source: Source) -> np.ndarray:
    """The rows that stay: the specials, and as much as fits on both sides of `places`."""
    first, last = int(places[0]), int(places[-1])
    if last - first >= encoding.room(max_length):
        raise InputError(
            f"{source.where}: the word alone has {last - first + 1} tokens, and this model reads "
            f"{max_length}."
        )
    return encoding.around((first + last + 1) // 2, max_length)


def _sequence(
    text: int,
    source: Source,
    encoding: Encoding,
    places: list[np.ndarray],
    which: list[int],
    kept: np.ndarray | None,
) -> Shown:
    assert encoding.words is not None and encoding.offsets is not None
    kept = np.arange(len(encoding.input_ids)) if kept is None else kept
    example = Example(
        text, encoding.input_ids[kept], encoding.token_type_ids[kept], encoding.num_tokens
    )
    taken = set(np.concatenate(places).tolist()) if places else set()
    words = []
    # Blank tokens say nothing of the word that they belong to.
    seen = [bool(source.text[a:b].strip()) for a, b in encoding.offsets[kept].tolist()]
    for word, group in groupby(range(len(kept)), key=encoding.words[kept].__getitem__):
        rows = np.array([row for row in group if seen[row]], dtype=np.int64)
        if word < 0 or not len(rows) or taken & set(kept[rows].tolist()):
            continue
        start, end = encoding.offsets[kept[rows[0]], 0], encoding.offsets[kept[rows[-1]], 1]
        words.append((source.text[start:end].strip().casefold(), rows))
    return Shown(example, words, [np.searchsorted(kept, rows) for rows in places], which)
