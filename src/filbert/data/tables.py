"""CSV and TSV files as records: the line where each starts, and its fields."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from filbert.data.streams import MAX_FIELD, BadRow, Lines, Report, chomp
from filbert.errors import ConfigError, InputError, printable

_BATCH = 1024


def _csv_records(
    lines: Lines, report: Report, separator: str = ","
) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(iter(lines), strict=True, delimiter=separator)
    start = 1
    more = True
    while more:
        batch: list[tuple[int, list[str], int]] = []
        problem: Exception | None = None
        # The limit is one for the whole process, so it is ours only while a batch is parsed.
        limit = csv.field_size_limit(MAX_FIELD)
        try:
            for fields in islice(reader, _BATCH):
                end = reader.line_num
                batch.append((start, fields, end))
                start = end + 1
            more = len(batch) == _BATCH
        except (csv.Error, InputError) as error:
            problem = error
        finally:
            csv.field_size_limit(limit)
        for line, fields, end in batch:
            if lines.bad and lines.report_bad(line, end, report):
                continue
            if fields:
                yield line, fields
        if isinstance(problem, csv.Error):
            if not lines.report_bad(start, reader.line_num, report):
                report(_csv_error(str(problem), lines.path, start, separator))
            start = reader.line_num + 1
        elif problem is not None:
            raise problem


def _csv_error(message: str, path: str | Path, start: int, separator: str) -> InputError:
    """Our own sentence for an error of the csv module; raised here where reading cannot go on."""
    if "unexpected end of data" in message or "field limit" in message:
        line = _open_quote(path, start, separator)
        if "field limit" in message:
            raise InputError(
                f"{path}:{line}: a field of more than {MAX_FIELD:,} characters begins here. Its "
                "quote is probably never closed; reading stops here."
            )
        raise InputError(
            f"{path}:{line}: a quote opens here and is never closed, up to the end of the file. "
            "Close it (a quote inside a quoted field is written twice); reading stops here."
        )
    if "expected after" in message:
        return BadRow(
            f"{path}:{start}: text follows a closing quote. "
            "Inside a quoted field write a quote twice."
        )
    if "new-line" in message:
        return BadRow(
            f"{path}:{start}: a carriage return stands outside quotes. Put the field in quotes."
        )
    return BadRow(f"{path}:{start}: not a CSV row: {message}.")


def _open_quote(path: str | Path, start: int, separator: str) -> int:
    """The line of the quote that the record starting at line `start` leaves open."""
    at, length = start, 0
    field, quoted, closing = True, False, False  # at the start of a field; in quotes; after a quote
    for number, line in enumerate(Lines(path), 1):
        if number < start:
            continue
        for character in line:
            if quoted and not closing:
                closing = character == '"'
            elif closing and character == '"':
                closing = False
            elif field and character == '"':
                at, quoted, field = number, True, False
            else:
                field = character == separator
                quoted = closing = False
        length += len(line)
        if length > 2 * MAX_FIELD:
            break
    return at


def _tsv_records(lines: Lines, report: Report) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, 1):
        if lines.bad and lines.report_bad(number, number, report):
            continue
        line = chomp(line)
        if line:
            yield number, line.split("\t")


RECORDS: dict[str, Callable[[Lines, Report], Iterator[tuple[int, list[str]]]]] = {
    "csv": _csv_records,
    "tsv": _tsv_records,
}


def separated_records(
    lines: Lines, report: Report, separator: str
) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file with another separator; quotes count as in CSV.

    Args:
        lines: of the file.
        report: takes the bad records.
        separator: one character; a backslash with a t also stands for a tab.

    Raises:
        ConfigError: it is no such character.
    """
    mark = "\t" if separator == r"\t" else separator
    if len(mark) != 1 or mark in '"\r\n':
        raise ConfigError(
            f"--separator {printable(separator)!r}: give one character that is neither a quote nor "
            "a line break."
        )
    return _csv_records(lines, report, mark)
