"""Documents from text files, in order and in bounded memory, each different text once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from filbert.data.records import WITH_COLUMNS, read_rows
from filbert.data.streams import (
    MAX_FIELD,
    BadRow,
    BadRowReporter,
    Lines,
    kind_of,
    require_file,
    shown,
)
from filbert.errors import InputError

# Characters. A longer plain-text document is split before the line that would exceed it, because
# some files of a gigabyte have no blank line. No line is longer than this either.
MAX_DOCUMENT = MAX_FIELD


@dataclass(frozen=True, slots=True)
class Document:
    """A text whose parts belong together.

    Attributes:
        lines: Paragraphs or sentences, stripped; at least one, none empty.
        where: "file:line" of its first line (JSONL, Parquet: of its row).
        is_continuation: Whether it is the rest of a document of more than MAX_DOCUMENT characters.
    """

    lines: tuple[str, ...]
    where: str
    is_continuation: bool = False


def read_documents(
    paths: Sequence[str | Path],
    *,
    text_column: str = "text",
    pair_column: str | None = None,
) -> Iterator[Document]:
    """Yield the documents of all files, one file after the other.

    In plain text a blank line separates documents. In JSON Lines, Parquet, CSV and TSV a row is a
    document, and its line breaks separate lines. Rows without text are skipped.

    Args:
        paths: Files, compressed (.gz, .xz, .zst) or not; "-" is standard input, as plain text.
        text_column: Column of a row that holds the text.
        pair_column: Column with one more text of the same document; "text_pair" is optional.

    Raises:
        InputError: A file is missing, damaged or without text; or a line is not UTF-8, contains a
            NUL or is longer than MAX_FIELD characters.
    """
    for path in paths:
        if kind_of(path)[0] in WITH_COLUMNS and str(path) != "-":
            found = _row_documents(path, text_column, pair_column)
        else:
            found = _plain(path)
        is_empty = True
        for document in found:
            is_empty = False
            yield document
        if is_empty:
            raise InputError(f"{shown(path)}: no text in it. Leave the file out, or fill it.")


def _plain(path: str | Path) -> Iterator[Document]:
    if str(path) != "-":
        require_file(path, once=True)
    name = shown(path)
    lines, report = Lines(path), BadRowReporter(None)
    pending: list[str] = []
    start = size = 0
    is_rest = False
    for number, line in enumerate(lines, 1):
        if lines.bad:
            lines.report_bad(number, number, report)
        text = line.strip()
        is_full = bool(text) and size + len(text) > MAX_DOCUMENT
        if pending and (is_full or not text):
            yield Document(tuple(pending), f"{name}:{start}", is_rest)
            pending, is_rest = [], True
        if not text:
            is_rest = False
            continue
        if not pending:
            start, size = number, 0
        pending.append(text)
        size += len(text)
    if pending:
        yield Document(tuple(pending), f"{name}:{start}", is_rest)


def _row_documents(
    path: str | Path, text_column: str, pair_column: str | None
) -> Iterator[Document]:
    # As for tasks, a column that the user named must exist.
    is_named = pair_column not in (None, "text_pair")
    rows = read_rows(
        path,
        columns={"text": text_column} | ({"text_pair": str(pair_column)} if is_named else {}),
        required=("text",),
        optional=("text_pair",) if pair_column == "text_pair" else (),
    )
    for row in rows:
        text = row.values["text"]
        if not isinstance(text, str):
            raise BadRow(f'{row.where}: "{text_column}" holds no text.')
        pair = row.values.get("text_pair")
        parts = text.splitlines() + (pair.splitlines() if isinstance(pair, str) else [])
        lines = tuple(line for part in parts if (line := part.strip()))
        if lines:
            yield Document(lines, row.where)


# Duplicates

# 400 MB of hashes. When so many are stored, new texts are compared with them but not stored.
MAX_REMEMBERED = 50_000_000
# New hashes are merged into the large array when there are this many, or an eighth of it.
_MIN_RECENT = 2**17
# Characters. A block ends with the document that reaches this size. Shards end with a block, so
# this must depend on the input alone.
BLOCK_CHARACTERS = 2**19


def hash_of(text: bytes) -> int:
    """Return 64 bits of BLAKE2b.

    Among n different texts the chance of any collision is about n * n / 3.7e19: 1 in 15,000 for
    the 50 million that are stored at most.
    """
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class SeenHashes:
    """A set of 64-bit hashes in two sorted arrays, a large and a recent one.

    Attributes:
        count: Number of hashes.
        num_forgotten: Number of new hashes that were not stored because the set was full.
    """

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self.count = 0
        self.num_forgotten = 0
        self._limit = limit
        self._stored = self._recent = np.empty(0, np.uint64)

    def add(self, hashes: Sequence[int]) -> np.ndarray:
        """Add hashes in order; return bool (n,), whether each is new."""
        given = np.array(hashes, np.uint64)
        different, first = np.unique(given, return_index=True)
        places = np.sort(first[~_is_in(different, self._recent) & ~_is_in(different, self._stored)])
        is_new = np.zeros(len(given), np.bool_)
        is_new[places] = True
        kept = places[: self._limit - self.count]
        self.count += len(kept)
        self.num_forgotten += len(places) - len(kept)
        # The "stable" sort merges sorted parts in linear time.
        self._recent = np.sort(np.concatenate([self._recent, given[kept]]), kind="stable")
        if len(self._recent) >= max(_MIN_RECENT, len(self._stored) // 8):
            self._stored = np.sort(np.concatenate([self._stored, self._recent]), kind="stable")
            self._recent = np.empty(0, np.uint64)
        return is_new


def _is_in(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return whether each value is in the sorted table."""
    if not len(table):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return np.asarray(table[places] == values)


class CleanBlocks:
    """Documents in blocks, without repeated texts; can be iterated once.

    Args:
        documents: Of equal ones the first is kept.

    Attributes:
        num_documents, num_lines, num_bytes: Read so far; bytes of UTF-8 with a newline per line.
        num_cuts: Continuations of documents that were too long.
        duplicate_documents: Documents dropped as equal to an earlier one.
        seen: The hashes of everything that was kept.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.num_documents = self.num_lines = self.num_bytes = self.num_cuts = 0
        self.duplicate_documents = 0
        self.seen = SeenHashes()
        self._documents = documents

    def __iter__(self) -> Iterator[list[tuple[str, ...]]]:
        pending: list[tuple[str, ...]] = []
        size = 0
        for document in self._documents:
            pending.append(document.lines)
            size += sum(map(len, document.lines))
            self.num_cuts += document.is_continuation
            if size >= BLOCK_CHARACTERS:
                yield self._clean(pending)
                pending, size = [], 0
        if pending:
            yield self._clean(pending)

    def _clean(self, block: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        texts = ["\n".join(lines).encode("utf-8", "surrogatepass") for lines in block]
        self.num_bytes += sum(len(text) + 1 for text in texts)
        self.num_lines += sum(map(len, block))
        self.num_documents += len(block)
        is_new = self.seen.add([hash_of(text) for text in texts])
        kept = [lines for lines, new in zip(block, is_new, strict=True) if new]
        self.duplicate_documents += len(block) - len(kept)
        return kept
