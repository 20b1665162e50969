"""Documents out of text files, in order and in bounded memory: what pre-training reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filbert.data.records import read_rows
from filbert.data.row import WITH_COLUMNS
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
