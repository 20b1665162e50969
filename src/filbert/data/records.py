"""Rows from CSV, TSV, JSON Lines, Parquet or one text a line; compressed or not; streamed.

A CSV file follows RFC 4180: a quoted field may hold commas, quotes (doubled) and newlines. A TSV
file is split at every tab and nothing else: quotes are ordinary characters. The first line of both
names the columns. Blank lines are skipped in all formats but one text a line, where a blank line is
an empty text.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path

from filbert.data.objects import object_rows, objects, open_parquet, parquet_rows
from filbert.data.row import Choice, Row, refuse_repeats
from filbert.data.streams import (
    MAX_FIELD,
    BadRow,
    Lines,
    OnError,
    Report,
    chomp,
    kind_of,
    require_file,
    shown,
    unreadable,
)
from filbert.data.tables import RECORDS, separated_records
from filbert.errors import InputError

__all__ = ["MAX_FIELD", "Row", "column_names", "file_digest", "read_rows"]

log = logging.getLogger(__name__)

# Rows that are looked at to tell an index column from rows with a field too many.
_INDEX_ROWS = 100

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}


def read_rows(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    required: Sequence[str] = (),
    optional: Sequence[str] | None = None,
    extra: Sequence[str] = (),
    separator: str | None = None,
    on_error: OnError | None = None,
) -> Iterator[Row]:
    """The rows of a file in order; the file and its columns are looked at before the first row is
    asked for.

    Args:
        path: "-" is standard input: JSON Lines if the first line with content starts with a brace,
            otherwise one text a line.
        columns: canonical name -> the file's own, for example {"text": "comment_text"}. A column
            named here must be in the file.
        required: canonical names that must be in the file, with a value in each row.
        optional: further canonical names to keep where they are there. None keeps all columns.
        extra: the file's own names of further columns that must be there.
        separator: the character between the fields of a CSV or TSV file, in place of the usual one.
        on_error: is given each bad row instead of it being raised, and reading goes on behind it.
            Where that is impossible (an open quote, a broken stream, a bad header line) it is given
            that too, and the rows end.

    Raises:
        InputError: no such file, no such column, no rows, or a bad row without `on_error`.
    """
    choice = Choice(shown(path), dict(columns or {}), tuple(required), optional, tuple(extra))
    if str(path) != "-":
        try:
            choice.pick(column_names(path, separator))
        except BadRow as error:
            if on_error is None:
                raise
            if _format_of(path) in RECORDS:
                # The next row must not be taken for the header.
                on_error(InputError(f"{error} Without a header no row can be read."))
                return iter(())
    return _guarded(path, choice, separator, on_error)


def column_names(path: str | Path, separator: str | None = None) -> list[str]:
    """The file's own column names, from its beginning only; for JSON Lines the keys of the first
    row.

    Raises:
        InputError: no such file, an empty one, or a first row that cannot be read.
    """
    if str(path) == "-":
        raise InputError(
            "The columns of standard input are not known before it is read. Give a file."
        )
    kind = _format_of(path)
    require_file(path, once=kind == "text")
    if kind == "parquet":
        return list(open_parquet(path).schema_arrow.names)
    if kind == "text":
        return ["text"]
    report, lines = Report(None), Lines(path)
    try:
        if kind != "jsonl":
            return _header(path, _records(kind, lines, report, separator))
        for _, values in objects(lines, iter(lines), report):
            return list(values)
    finally:
        lines.close()
    raise InputError(f"{path}: an empty file; there is no row in it.")


def file_digest(path: str | Path) -> str:
    """sha256 of the file's bytes, as hexadecimal digits.

    Raises:
        InputError: no such file, one that cannot be read, or standard input.
    """
    if str(path) == "-":
        raise InputError("Standard input has no digest. Give a file.")
    require_file(path)
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    except OSError as error:
        raise unreadable(path, error) from error
    return digest.hexdigest()


def _guarded(
    path: str | Path, choice: Choice, separator: str | None, on_error: OnError | None
) -> Iterator[Row]:
    report = Report(on_error)
    rows = _rows(path, choice, separator, report)
    first = None
    try:
        first = next(rows, None)
        if first is not None:
            yield first
            yield from rows
    except InputError as error:
        if on_error is None or (first is None and not report.count):
            raise
        report(error)
    if first is None and not report.count:
        if str(path) == "-":
            raise InputError("stdin: no rows came in. Name a file, or pipe one text a line.")
        raise InputError(
            f"{shown(path)}: no rows; the file is empty or holds a header only. Check it."
        )


def _rows(path: str | Path, choice: Choice, separator: str | None, report: Report) -> Iterator[Row]:
    kind = _format_of(path)
    if kind == "parquet":
        return parquet_rows(str(path), choice, report)
    lines = Lines(path)
    if kind in RECORDS:
        records = _records(kind, lines, report, separator)
        return _closing(lines, _table_rows(str(path), records, choice, report, kind))
    return _closing(lines, _line_rows(path, kind, lines, choice, report))


def _records(
    kind: str, lines: Lines, report: Report, separator: str | None
) -> Iterator[tuple[int, list[str]]]:
    if separator is not None:
        return separated_records(lines, report, separator)
    return RECORDS[kind](lines, report)


def _closing(lines: Lines, rows: Iterator[Row]) -> Iterator[Row]:
    try:
        yield from rows
    finally:
        lines.close()


def _line_rows(
    path: str | Path, kind: str, lines: Lines, choice: Choice, report: Report
) -> Iterator[Row]:
    source = iter(lines)
    if str(path) == "-":
        head = list(_through_first_content(source))
        source = chain(head, source)
        kind = "jsonl" if head and head[-1].lstrip().startswith("{") else "text"
    if kind == "jsonl":
        return object_rows(str(path), objects(lines, source, report), choice, report)
    return _text_rows(lines, source, choice, report)


def _format_of(path: str | Path) -> str:
    suffix, packed = kind_of(path)
    kind = _SUFFIXES.get(suffix, "text")
    if kind == "parquet" and packed:
        raise InputError(
            f"{path}: Parquet inside {packed} cannot be read in pieces. "
            "Unpack it first; Parquet has its own compression."
        )
    return kind


def _table_rows(
    path: str, records: Iterator[tuple[int, list[str]]], choice: Choice, report: Report, kind: str
) -> Iterator[Row]:
    names = _header(path, records)
    picked = choice.pick(names)
    keys = list(picked)
    has_index, records = _with_index(records, len(names))
    if has_index:
        _log_index(path)
    places = {name: place for place, name in enumerate(names, has_index)}
    indexes = [places[own] for own in picked.values()]
    width = len(names) + has_index
    whole = indexes == list(range(width))
    get = itemgetter(*indexes, indexes[0]) if indexes else itemgetter(slice(0))
    for line, fields in records:
        if len(fields) != width:
            report(BadRow(_wrong_width(path, line, len(fields), width, kind, has_index)))
        else:
            yield Row(dict(zip(keys, fields if whole else get(fields), strict=False)), path, line)


def _with_index(
    records: Iterator[tuple[int, list[str]]], num_names: int
) -> tuple[bool, Iterator[tuple[int, list[str]]]]:
    """Whether the rows begin with an index that the header does not name; and all the records.

    R's write.table writes such files. A row number, and no empty last field, tells them from rows
    that have a comma too many.
    """
    head = list(islice(records, 1))
    if head and len(head[0][1]) == num_names + 1:
        head += islice(records, _INDEX_ROWS - 1)
        has_index = all(
            len(fields) == num_names + 1 and fields[0].isdecimal() and fields[-1]
            for _, fields in head
        )
        return has_index, chain(head, records)
    return False, chain(head, records)


@cache
def _log_index(path: str) -> None:
    # A file is read several times; cached, so that this is logged once.
    log.warning(
        "%s: every row has one field more than the header; the first is read as an index column.",
        path,
    )


def _wrong_width(path: str, line: int, found: int, width: int, kind: str, has_index: bool) -> str:
    several = "1 field" if found == 1 else f"{found} fields"
    if found < width:
        hint = "Add what is missing, or remove the row."
    elif kind == "csv":
        hint = "A field that holds a comma must stand in double quotes."
    else:
        hint = "A text cannot hold a tab in TSV; replace it by a space, or write CSV."
    if found > width:
        hint += (
            " If the file has another separator, name it with --separator; if it has further "
            "columns, name them in the header."
        )
    after = " after an index column" if has_index else ""
    return f"{path}:{line}: {several}, but the header names {width - has_index}{after}. {hint}"


def _header(path: str | Path, records: Iterator[tuple[int, list[str]]]) -> list[str]:
    first = next(records, None)
    if first is None:
        raise InputError(f"{path}: an empty file; expected a header line that names the columns.")
    names = first[1]
    refuse_repeats(names, f"{path}:{first[0]}")
    return names


def _text_rows(
    lines: Lines, source: Iterator[str], choice: Choice, report: Report
) -> Iterator[Row]:
    keys = list(choice.pick(["text"]))
    path = str(lines.path)
    for number, line in enumerate(source, 1):
        if lines.bad and lines.report_bad(number, number, report):
            continue
        yield Row(dict.fromkeys(keys, chomp(line)), path, number)


def _through_first_content(source: Iterator[str]) -> Iterator[str]:
    for line in source:
        yield line
        if not line.isspace():
            return
