"""Vectors of words out of text files: GloVe's, word2vec's and fastText's, compressed or not."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from filbert.data.streams import Lines, name_of, raised, require_file
from filbert.errors import InputError, printable

# Without a header, the dimension is the most common one of so many lines: a few words of the
# largest GloVe file contain spaces.
_FIRST = 100
LARGEST_DIM = 4096


class WordVectors(NamedTuple):
    """Words and their vectors: `table` is float32 (n, d)."""

    words: list[str]
    table: np.ndarray


def read_vectors(path: str | Path, words: Collection[str] | None = None) -> WordVectors:
    """Return the vectors in a text file: a line a word, the word and its numbers between spaces.

    A first line of two whole numbers (how many words, of what dimension) is word2vec's and
    fastText's; GloVe's files have none. A word may hold spaces: the last numbers of the line count.
    The first vector of a repeated word is used. Only `words` are kept in memory; None for all.

    Raises:
        InputError: No such file, one that is not such text, a line with fewer or more numbers than
            the others, or a wanted word whose numbers are not finite; with the line.
    """
    require_file(path, once=True)
    wanted = None if words is None else frozenset(words)
    values, rows = array("f"), dict[str, int]()
    with closing(Lines(path)) as lines:
        numbered = enumerate(lines, 1)
        first = list(islice(numbered, _FIRST))
        size, has_header = _dimension(lines, [line for _, line in first])
        for number, line in chain(first[has_header:], numbered):
            lines.report_bad(number, raised)
            text = line.rstrip()
            word, *numbers = text.replace("\t", " ").rsplit(" ", size)
            if not text or (len(numbers) == size and wanted is not None and word not in wanted):
                continue
            before = word.split()
            # A word of several parts ends in letters or begins with a number.
            is_longer = len(before) > 1 and _is_finite(before[-1]) and not _is_finite(before[0])
            if not before or is_longer or len(numbers) < size or not all(map(_is_finite, numbers)):
                raise InputError(
                    f"{name_of(path)}:{number}: {printable(text.split()[0], 40)!r} does not have "
                    f"{size} finite numbers, as the others do. Fetch or make the file again."
                )
            if word not in rows:
                rows[word] = len(rows)
                values.extend(map(float, numbers))
    table = np.frombuffer(values, dtype=np.float32).reshape(-1, size)
    return WordVectors(list(rows), table)


def vector_dimension(path: str | Path) -> int:
    """Return how many numbers a word has by the first lines, or raise an InputError."""
    require_file(path)
    with closing(Lines(path)) as lines:
        return _dimension(lines, list(islice(lines, _FIRST)))[0]


def _dimension(lines: Lines, first: list[str]) -> tuple[int, bool]:
    """Return the numbers a word, and whether the first line is a header."""
    name = name_of(lines.path)
    for number in sorted(lines.bad)[:1]:
        problem = f"{lines.bad[number]} A binary file has to be saved as text first."
        raise InputError(f"{name}:{number}: {problem}")
    header = re.fullmatch(r"\d+ (\d{1,18})\s*", first[0], re.ASCII) if first else None
    if header:
        size = int(header[1])
    else:
        # Some files have a tab after the word and spaces between its numbers.
        counts = Counter(len(re.findall(r"[ \t]", text)) for text in map(str.rstrip, first) if text)
        size = min(counts, key=lambda number: (-counts[number], number), default=0)
    if not 1 <= size <= LARGEST_DIM:
        raise InputError(
            f"{name}:1: {size:,} numbers a word; 1 to {LARGEST_DIM:,} are possible. A line is a "
            "word and its numbers, with spaces between; save a binary file as text first."
        )
    return size, bool(header)


def _is_finite(part: str) -> bool:
    """Return whether a text is a number that float32 can hold."""
    try:
        return "_" not in part and abs(float(part)) < 3.4e38
    except ValueError:
        return False
