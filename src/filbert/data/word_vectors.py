"""Vectors of words out of text files: GloVe's, word2vec's and fastText's, compressed or not."""

from __future__ import annotations

import logging
import math
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from filbert.data.streams import BadRowReporter, Lines, require_file, shown
from filbert.errors import InputError, printable

log = logging.getLogger(__name__)

# Without a header, the dimension is the most common one of so many lines: a few words of the
# largest GloVe file contain spaces.
_FIRST = 100
LARGEST_DIM = 4096
_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: n different ones.
        table: float32 (n, d), a row a word.
        source: the file they come from, for messages.
    """

    words: list[str]
    table: np.ndarray
    source: str = "the vectors"

    @property
    def dim(self) -> int:
        """d, numbers a word."""
        return int(self.table.shape[1])


def read_vectors(
    path: str | Path, words: Collection[str] | None = None, *, dim: int | None = None
) -> WordVectors:
    """The vectors in a text file: a line a word, the word and its numbers with spaces between.

    A first line of two whole numbers (how many words, of what dimension) is word2vec's and
    fastText's; GloVe's files have none. A word may hold spaces: the last numbers of the line count.
    The first vector of a repeated word is used. Only the requested words are kept in memory.

    Args:
        path: of the file, also .gz, .xz or .zst.
        words: that are wanted; None for all.
        dim: the dimension that is wanted; any when not given.

    Raises:
        InputError: no such file, one that is not such text, a line with fewer or more numbers than
            the others, or a wanted word whose numbers are none; with the line.
    """
    require_file(path, once=True)
    lines = Lines(path)
    numbered = enumerate(lines, 1)
    first = list(islice(numbered, _FIRST))
    size, num_words = _dimension(lines, [line for _, line in first])
    if dim is not None and size != dim:
        raise InputError(
            f"{shown(path)} has {size} numbers a word, and dim is {dim}. Give dim {size}."
        )
    wanted = None if words is None else frozenset(words)
    kept: dict[str, None] = {}
    values = array("f")
    num_found = 0
    for number, line in chain(first[num_words is not None :], numbered):
        lines.report_bad(1, number, BadRowReporter(None))
        text = line.rstrip()
        if not text:
            continue
        num_found += 1
        if wanted is not None and text.count(" ") == size and text.split(" ", 1)[0] not in wanted:
            continue  # the usual line, without taking it apart
        word, *numbers = text.replace("\t", " ").rsplit(" ", size)
        before = word.split()
        # A word of several parts ends in letters or begins with a number.
        is_longer = len(before) > 1 and _is_number(before[-1]) and not _is_number(before[0])
        if len(numbers) < size or not before or is_longer:
            raise InputError(
                f"{shown(path)}:{number}: {printable(text.split()[0], 40)!r} does not have "
                f"{size} numbers, as the others do. The line is broken; fetch or make the file "
                "again."
            )
        if word in kept or (wanted is not None and word not in wanted):
            continue
        values.extend(_numbers(path, number, word, numbers))
        kept[word] = None
    if num_words is not None and num_found < num_words:
        log.warning(
            f"{shown(path)}: its first line says {num_words:,} words, and {num_found:,} follow. It "
            "may be cut short; fetch it again."
        )
    table = np.frombuffer(values, dtype=np.float32).reshape(-1, size)
    return WordVectors(list(kept), table, shown(path))


def vector_dimension(path: str | Path) -> int:
    """How many numbers a word has in such a file, by its first lines.

    Raises:
        InputError: no such file, or one that is not such text.
    """
    require_file(path)
    lines = Lines(path)
    return _dimension(lines, list(islice(lines, _FIRST)))[0]


def _dimension(lines: Lines, first: list[str]) -> tuple[int, int | None]:
    """Numbers a word, and how many words a header announces; None without a header."""
    name = shown(lines.path)
    num_words = None
    for number in sorted(lines.bad)[:1]:
        problem = f"{lines.bad[number]} A binary file has to be saved as text first."
        raise InputError(f"{name}:{number}: {problem}")
    if first and _is_header(first[0]):
        num_words, size = (int(part[:18]) for part in first[0].split())
    else:
        # Some files have a tab after the word and spaces between its numbers.
        counts = Counter(len(re.findall(r"[ \t]", text)) for text in map(str.rstrip, first) if text)
        size = min(counts, key=lambda number: (-counts[number], number), default=0)
    if not 1 <= size <= LARGEST_DIM:
        raise InputError(
            f"{name}:1: {size:,} numbers a word; 1 to {LARGEST_DIM:,} are possible. A line is a "
            "word and its numbers, with spaces between; save a binary file as text first."
        )
    return size, num_words


def _is_header(line: str) -> bool:
    head = line.split()
    return len(head) == 2 and all(part.isascii() and part.isdecimal() for part in head)


def _numbers(path: str | Path, number: int, word: str, parts: list[str]) -> Iterator[float]:
    for part in parts:
        if not _is_number(part) or abs(float(part)) > _MOST:
            raise InputError(
                f"{shown(path)}:{number}: {printable(word, 40)!r} has {printable(part, 40)!r} "
                "where a finite number belongs. The line is broken; fetch or make the file again."
            )
    return map(float, parts)


def _is_number(part: str) -> bool:
    try:
        return math.isfinite(float(part)) and "_" not in part
    except ValueError:
        return False
