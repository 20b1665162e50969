"""Documents out of text files, in order and in bounded memory: what pre-training reads."""

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
    Lines,
    OnError,
    Report,
    kind_of,
    require_file,
    shown,
)
from filbert.errors import InputError

# Reading documents

# Characters. A longer plain-text document is cut in front of the line that would exceed it: some
# files of a gigabyte have no blank line at all. No line is longer than this either.
MAX_DOCUMENT = MAX_FIELD


@dataclass(frozen=True, slots=True)
class Document:
    """A text whose parts belong together.

    Attributes:
        lines: paragraphs or sentences: stripped, none empty, at least one.
        where: "file:line" of its first line (JSONL, Parquet: of its row).
        is_continuation: it is the rest of the document before it, cut at MAX_DOCUMENT characters.
    """

    lines: tuple[str, ...]
    where: str
    is_continuation: bool = False


def read_documents(
    paths: Sequence[str | Path],
    *,
    text_column: str = "text",
    pair_column: str | None = None,
    on_error: OnError | None = None,
) -> Iterator[Document]:
    """The documents of all files, one file after the other.

    In plain text a blank line stands between documents. In JSON Lines, Parquet, CSV and TSV a row
    is a document, and the line breaks in it separate its lines. Rows without text are skipped.

    Args:
        paths: files, compressed (.gz, .xz, .zst) or not; "-" is standard input, as plain text.
        text_column: which column of a row holds the text.
        pair_column: which one more text of the same document; "text_pair" where there is one.
        on_error: is given each bad line or row instead of it being raised; reading goes on behind.

    Raises:
        InputError: a file that is missing, damaged or without any text; or, without `on_error`, a
            line that is not UTF-8, holds a NUL or is longer than MAX_FIELD characters.
    """
    for path in paths:
        report = Report(on_error)
        # In these a row is a document; all others are plain text.
        is_rows = kind_of(path)[0] in WITH_COLUMNS and str(path) != "-"
        found = _plain(path, report)
        if is_rows:
            found = _row_documents(path, text_column, pair_column, report)
        is_empty = True
        for document in found:
            is_empty = False
            yield document
        if is_empty and not report.count:
            raise InputError(f"{shown(path)}: no text in it. Leave the file out, or fill it.")


def _plain(path: str | Path, report: Report) -> Iterator[Document]:
    if str(path) != "-":
        require_file(path, once=True)
    name = shown(path)
    lines = Lines(path)
    held: list[str] = []
    start = size = 0
    is_rest = False
    for number, line in enumerate(lines, 1):
        if lines.bad and lines.report_bad(number, number, report):
            continue
        text = line.strip()
        if not text:
            if held:
                yield Document(tuple(held), f"{name}:{start}", is_rest)
                held = []
            is_rest = False
            continue
        if held and size + len(text) > MAX_DOCUMENT:
            yield Document(tuple(held), f"{name}:{start}", is_rest)
            held, is_rest = [], True
        if not held:
            start, size = number, 0
        held.append(text)
        size += len(text)
    if held:
        yield Document(tuple(held), f"{name}:{start}", is_rest)


def _row_documents(
    path: str | Path, text_column: str, pair_column: str | None, report: Report
) -> Iterator[Document]:
    # As for tasks: a column that somebody has named must be there.
    is_named = pair_column not in (None, "text_pair")
    rows = read_rows(
        path,
        columns={"text": text_column} | ({"text_pair": str(pair_column)} if is_named else {}),
        required=("text",),
        optional=("text_pair",) if pair_column == "text_pair" else (),
        on_error=report if report.on_error else None,
    )
    for row in rows:
        text = row.values["text"]
        if not isinstance(text, str):
            report(BadRow(f'{row.where}: "{text_column}" holds no text.'))
            continue
        pair = row.values.get("text_pair")
        parts = text.splitlines() + (pair.splitlines() if isinstance(pair, str) else [])
        lines = tuple(line for part in parts if (line := part.strip()))
        if lines:
            yield Document(lines, row.where)


# Remembering hashes

# 400 MB of hashes. Texts behind that many different ones are still compared with these, but not
# remembered themselves.
MAX_REMEMBERED = 50_000_000

_BUCKETS = 256
_RECENT = 2**17


def hash_of(text: bytes, kind: bytes) -> int:
    """64 bits of BLAKE2b.

    Among n different texts the chance that any two are taken for one is about n * n / 3.7e19: 1 in
    15,000 for the 50 million that are remembered at most.

    Args:
        text: any bytes.
        kind: up to 16 bytes; texts of different kinds have nothing to do with each other.
    """
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=kind).digest(), "little")


class SeenHashes:
    """A set of 64-bit hashes as sorted arrays.

    Attributes:
        count: how many are in it.
        num_forgotten: new ones that found it full; one that comes again is counted again.
    """

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self.count = 0
        self.num_forgotten = 0
        self._limit = limit
        # One array a leading byte: only one of them at a time is copied when new ones are merged.
        self._buckets = [np.empty(0, np.uint64) for _ in range(_BUCKETS)]
        self._recent = np.empty(0, np.uint64)

    def add(self, hashes: Sequence[int]) -> np.ndarray:
        """Remember hashes, in order.

        Returns:
            bool (n,): whether each is there for the first time.
        """
        given = np.array(hashes, np.uint64)
        different, first = np.unique(given, return_index=True)
        fresh = ~_holds(self._recent, different)
        tops = (different >> np.uint64(56)).astype(np.int64)
        edges = np.searchsorted(tops, np.arange(_BUCKETS + 1))
        for bucket in np.unique(tops):
            part = slice(edges[bucket], edges[bucket + 1])
            fresh[part] &= ~_holds(self._buckets[bucket], different[part])
        answer = np.zeros(len(given), np.bool_)
        places = np.sort(first[fresh])
        answer[places] = True
        kept = places[: self._limit - self.count]
        self.count += len(kept)
        self.num_forgotten += len(places) - len(kept)
        self._recent = np.sort(np.concatenate([self._recent, given[kept]]), kind="stable")
        if len(self._recent) >= _RECENT:
            self._merge()
        return answer

    def _merge(self) -> None:
        edges = np.searchsorted(self._recent >> np.uint64(56), np.arange(_BUCKETS + 1))
        for bucket in range(_BUCKETS):
            part = self._recent[edges[bucket] : edges[bucket + 1]]
            # "stable" merges sorted runs in linear time.
            joined = np.concatenate([self._buckets[bucket], part])
            joined.sort(kind="stable")
            self._buckets[bucket] = joined
        self._recent = np.empty(0, np.uint64)


def _holds(table: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Whether each of `asked` is in the sorted `table`."""
    if not len(table):
        return np.zeros(len(asked), np.bool_)
    places = np.minimum(np.searchsorted(table, asked), len(table) - 1)
    found: np.ndarray = table[places] == asked
    return found


# Duplicate lines and documents

# Characters. A block ends with the document that reaches this size. The borders decide where shards
# end, so they depend on the input alone.
BLOCK_CHARACTERS = 2**19

_DOCUMENT, _LINE = b"document", b"line"


class CleanBlocks:
    """Documents in blocks, each different text once; to be iterated once.

    Args:
        documents: in the order that decides which one of equal ones stays: the first.
        drop_lines: also drop each line that was in an earlier kept document or further up.

    Attributes:
        num_documents, num_lines, num_bytes: read so far; bytes of UTF-8 with a newline a line.
        num_cuts: continuations of documents that were too long.
        duplicate_documents: dropped as equal to an earlier one.
        duplicate_lines: dropped as equal to an earlier one.
        emptied_documents: left without any line by that.
        seen: the hashes of all that was kept.
    """

    def __init__(self, documents: Iterable[Document], *, drop_lines: bool) -> None:
        self.num_documents = self.num_lines = self.num_bytes = self.num_cuts = 0
        self.duplicate_documents = self.duplicate_lines = self.emptied_documents = 0
        self.seen = SeenHashes()
        self._documents = documents
        self._drop_lines = drop_lines

    def __iter__(self) -> Iterator[list[tuple[str, ...]]]:
        held: list[tuple[str, ...]] = []
        size = 0
        for document in self._documents:
            held.append(document.lines)
            size += sum(map(len, document.lines))
            self.num_cuts += document.is_continuation
            if size >= BLOCK_CHARACTERS:
                yield self._clean(held)
                held, size = [], 0
        if held:
            yield self._clean(held)

    def _clean(self, block: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        hashes = []
        for lines in block:
            content = "\n".join(lines).encode("utf-8", "surrogatepass")
            hashes.append(hash_of(content, _DOCUMENT))
            self.num_bytes += len(content) + 1
            self.num_lines += len(lines)
        self.num_documents += len(block)
        fresh = self.seen.add(hashes)
        kept = [lines for lines, is_fresh in zip(block, fresh, strict=True) if is_fresh]
        self.duplicate_documents += len(block) - len(kept)
        return self._without_lines(kept) if self._drop_lines else kept

    def _without_lines(self, block: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        hashes = [
            hash_of(line.encode("utf-8", "surrogatepass"), _LINE)
            for lines in block
            for line in lines
        ]
        fresh = iter(self.seen.add(hashes))
        kept = [tuple(line for line in lines if next(fresh)) for lines in block]
        self.duplicate_lines += len(hashes) - sum(map(len, kept))
        left = [lines for lines in kept if lines]
        self.emptied_documents += len(block) - len(left)
        return left
