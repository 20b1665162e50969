"""Vectors of words out of text files: GloVe's, word2vec's and fastText's, compressed or not."""

from __future__ import annotations

import logging
import math
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
    _check_first(lines, [line for _, line in first])
    size, num_words = _dimension(path, [line for _, line in first])
    if dim is not None and size != dim:
        raise InputError(
            f"{shown(path)} has {size} numbers a word, and dim is {dim}. Give dim {size}."
        )
    wanted = None if words is None else frozenset(words)
    kept: dict[str, None] = {}
    values = array("f")
    num_found = 0
    for number, line in chain(first[num_words is not None :], numbered):
        if lines.bad:
            _check_text(lines, number)
        text = line.rstrip()
        if not text:
            continue
        num_found += 1
        if text.count(" ") == size and text[0] != " " and "\t" not in text:
            word, _, rest = text.partition(" ")
        else:
            word, rest = _apart(path, number, text, size)
        if word in kept or (wanted is not None and word not in wanted):
            continue
        values.extend(_numbers(path, number, word, rest, size))
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
    first = list(islice(lines, _FIRST))
    _check_first(lines, first)
    return _dimension(path, first)[0]


def _check_first(lines: Lines, first: list[str]) -> None:
    number = min(lines.bad, default=1)
    if 1 < number <= len(first) and _is_header(first[0]):
        # word2vec's other format has the same header, then each word with its numbers as bytes. In
        # a text of another encoding the word cannot be read, but the numbers can.
        parts = first[number - 1].split()
        if not parts or not _is_number(parts[-1]):
            raise InputError(
                f"{shown(lines.path)}:{number}: not text, though its first line is. A binary file "
                "has to be saved as text first."
            )
    _check_text(lines, len(first))


def _check_text(lines: Lines, number: int) -> None:
    lines.report_bad(1, number, BadRowReporter(None))


def _dimension(path: str | Path, lines: list[str]) -> tuple[int, int | None]:
    """Numbers a word, and how many words a header announces; None without a header."""
    name = shown(path)
    if not lines:
        raise InputError(f"{name}: empty. A file of word vectors has a line a word.")
    if _is_header(lines[0]):
        head = lines[0].split()
        if 1 <= int(head[1][:9]) <= LARGEST_DIM:
            return int(head[1]), int(head[0][:18])
        raise InputError(f"{name}:1: {head[1]} numbers a word; 1 to {LARGEST_DIM:,} are possible.")
    # Some files have a tab after the word and spaces between its numbers.
    counts = Counter(text.count(" ") + text.count("\t") for text in map(str.rstrip, lines) if text)
    size = min(counts, key=lambda number: (-counts[number], number), default=0)
    if not 1 <= size <= LARGEST_DIM:
        raise InputError(
            f"{name}:1: {size:,} numbers; word vectors are a word and its numbers, with "
            "spaces between. A binary file has to be saved as text first."
        )
    return size, None


def _is_header(line: str) -> bool:
    head = line.split()
    return len(head) == 2 and all(part.isascii() and part.isdecimal() for part in head)


def _apart(path: str | Path, number: int, text: str, size: int) -> tuple[str, str]:
    """A word and its numbers where there are too many spaces, or too few."""
    parts = text.split()
    surplus = len(parts) - size - 1
    if surplus < 0:
        found = f"{max(len(parts) - 1, 0)} numbers"
    elif surplus and _is_number(parts[-size - 1]) and not _is_number(parts[0]):
        # The word is before the numbers, and words of several parts end in letters.
        found = f"{sum(map(_is_number, parts[1:]))} numbers"
    else:
        word, *rest = text.rsplit(" ", size)
        if len(rest) == size and all(rest) and "\t" not in text:
            return word, " ".join(rest)
        return " ".join(parts[: surplus + 1]), " ".join(parts[surplus + 1 :])
    raise InputError(
        f"{shown(path)}:{number}: {printable(parts[0] if parts else '', 40)!r} has {found}, the "
        f"others have {size}. The line is broken; fetch or make the file again."
    )


def _numbers(path: str | Path, number: int, word: str, rest: str, size: int) -> Iterator[float]:
    parts = rest.split()
    for part in parts:
        if not _is_number(part) or abs(float(part)) > _MOST:
            raise InputError(
                f"{shown(path)}:{number}: {printable(word, 40)!r} has {printable(part, 40)!r} "
                "where a finite number belongs. The line is broken; fetch or make the file again."
            )
    assert len(parts) == size
    return map(float, parts)


def _is_number(part: str) -> bool:
    try:
        return math.isfinite(float(part)) and "_" not in part
    except ValueError:
        return False
