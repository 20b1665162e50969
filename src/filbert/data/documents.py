"""Documents from text files, in order and in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filbert.data.records import WITH_COLUMNS, read_rows
from filbert.data.streams import (
    MAX_FIELD,
    BadRow,
    BadRowReporter,
    Lines,
    require_file,
    shown,
    suffix_of,
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
        if suffix_of(path) in WITH_COLUMNS and str(path) != "-":
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


# Characters. A block ends with the document that reaches this size. Shards end with a block, so
# this must depend on the input alone.
BLOCK_CHARACTERS = 2**19


# Documents whose hashes are stored, in 312 MB; later ones are compared with these only.
MAX_REMEMBERED = 4_000_000


class Blocks:
    """Documents in blocks, without those that equal an earlier one; can be iterated once.

    Documents are compared by 64 bits of BLAKE2b.

    Attributes:
        num_documents, num_lines, num_bytes: Read so far; bytes of UTF-8 with a newline per line.
        num_cuts: Continuations of documents that were too long.
        num_duplicates: Documents dropped as equal to an earlier one.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.num_documents = self.num_lines = self.num_bytes = self.num_cuts = 0
        self.num_duplicates = 0
        self._documents = documents
        self._seen: set[bytes] = set()

    def __iter__(self) -> Iterator[list[tuple[str, ...]]]:
        pending: list[tuple[str, ...]] = []
        size = 0
        for document in self._documents:
            size += sum(map(len, document.lines))
            if self._is_new(document):
                pending.append(document.lines)
            if size >= BLOCK_CHARACTERS:
                yield pending
                pending, size = [], 0
        if size:
            yield pending

    def _is_new(self, document: Document) -> bool:
        text = "\n".join(document.lines).encode("utf-8", "surrogatepass")
        self.num_documents += 1
        self.num_lines += len(document.lines)
        self.num_bytes += len(text) + 1
        self.num_cuts += document.is_continuation
        digest = hashlib.blake2b(text, digest_size=8).digest()
        if digest in self._seen:
            self.num_duplicates += 1
            return False
        if len(self._seen) < MAX_REMEMBERED:
            self._seen.add(digest)
        return True
