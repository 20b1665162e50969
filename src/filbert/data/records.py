"""Rows from CSV, TSV, JSON Lines, Parquet or one text a line; compressed or not; streamed.

A CSV file follows RFC 4180: a quoted field may hold commas, quotes (doubled) and newlines. A TSV
file is split at every tab and nothing else: quotes are ordinary characters. The first line of both
names the columns. Blank lines are skipped in all formats but one text a line, where a blank line is
an empty text.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from filbert.data.streams import (
    MAX_FIELD,
    BadRow,
    BadRowReporter,
    Lines,
    OnError,
    chomp,
    kind_of,
    require_file,
    share_read,
    shown,
    unreadable,
)
from filbert.errors import ConfigError, InputError, printable
from filbert.files import sha256_of

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
# Endings of files whose rows have columns.
WITH_COLUMNS = tuple(_FORMATS)

# Canonical columns that must hold text if they hold anything.
TEXT_COLUMNS = ("text", "text_pair")

# Parquet rows that are unpacked at once. A dictionary column repeats a long text for a few bytes on
# the disk: with 1,024 rows of 4 MB, 900 bytes became 4 GB. 1,024 would read a tenth faster.
_PARQUET_ROWS = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One row: canonical column name -> value, and its place.

    `path` is as the user gave it; `line` counts from 1 and is where the row starts (in Parquet: the
    row).
    """

    values: dict[str, Any]
    path: str
    line: int

    @property
    def where(self) -> str:
        """File and line, as in "train.csv:217"."""
        return f"{shown(self.path)}:{self.line}"


def read_rows(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    required: Sequence[str] = (),
    optional: Sequence[str] | None = None,
    extra: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    on_error: OnError | None = None,
) -> Iterator[Row]:
    """The rows of a file in order; the file and its columns are checked before this returns.

    Args:
        path: "-" is standard input: JSON Lines if the first line with content starts with a brace,
            otherwise one text a line.
        columns: canonical name -> the file's own, for example {"text": "comment_text"}. A column
            named here must be in the file.
        required: canonical names that must be in the file, with a value in each row.
        optional: further canonical names to keep if they are there. None keeps all columns.
        extra: the file's own names of further columns that must be there.
        separator: the character between the fields of a CSV or TSV file; quotes count as in CSV. A
            backslash and a t mean a tab.
        encoding: of text files; UTF-8 if not given.
        on_error: receives each bad row instead of it being raised, and reading goes on after it. If
            that is impossible (an open quote, a broken stream, a bad header line) it receives that
            too, and the rows end.

    Raises:
        InputError: no such file, no such column, no rows, or a bad row without `on_error`.
        ConfigError: the separator is not one character.
    """
    choice = Choice(shown(path), dict(columns or {}), tuple(required), optional, tuple(extra))
    if str(path) != "-":
        try:
            choice.pick(column_names(path, separator, encoding))
        except BadRow as error:
            if on_error is None:
                raise
            if _format_of(path) in ("csv", "tsv"):
                # The next row must not be taken for the header.
                on_error(InputError(f"{error} Without a header no row can be read."))
                return iter(())
    report = BadRowReporter(on_error)
    empty = f"{path}: no rows; the file is empty or holds a header only. Check it."
    if str(path) == "-":
        empty = "stdin: no rows came in. Name a file, or pipe one text a line."
    return guarded(_rows(Lines(path, encoding), choice, separator, report), report, empty)


def column_names(
    path: str | Path, separator: str | None = None, encoding: str | None = None
) -> list[str]:
    """The file's own column names; for JSON Lines the keys of the first row.

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
    report = BadRowReporter(None)
    with closing(Lines(path, encoding)) as lines:
        if kind != "jsonl":
            return _header(path, _records(kind, lines, report, separator))
        for _, values in _objects(lines, iter(lines), report):
            return list(values)
    raise InputError(f"{path}: an empty file; there is no row in it.")


def file_digest(path: str | Path) -> str:
    """sha256 of the file's bytes, as hexadecimal digits.

    Raises:
        InputError: no such file, one that cannot be read, or standard input.
    """
    if str(path) == "-":
        raise InputError("Standard input has no digest. Give a file.")
    require_file(path)
    try:
        return sha256_of(Path(path))
    except OSError as error:
        raise unreadable(path, error) from error


def _format_of(path: str | Path) -> str:
    suffix, packed = kind_of(path)
    if suffix in _SPREADSHEETS:
        raise InputError(
            f'{path}: a spreadsheet. Save it as CSV, or convert it: python -c "import pandas; '
            f"pandas.read_excel('{path}').to_csv('rows.csv', index=False)\"."
        )
    kind = _FORMATS.get(suffix, "text")
    if kind == "parquet" and packed:
        raise InputError(
            f"{path}: Parquet inside {packed} cannot be read in pieces. "
            "Unpack it first; Parquet has its own compression."
        )
    return kind


def guarded(rows: Iterator[Row], report: BadRowReporter, empty: str) -> Iterator[Row]:
    """The same rows; an error that ends them is reported unless it is the only result.

    Raises:
        InputError: that error, or `empty` if there is no row and none was reported.
    """
    num_rows = 0
    try:
        for row in rows:
            num_rows += 1
            yield row
    except InputError as error:
        if report.on_error is None or not (num_rows or report.count):
            raise
        report(error)
    if not num_rows and not report.count:
        raise InputError(empty)


def _rows(
    lines: Lines, choice: Choice, separator: str | None, report: BadRowReporter
) -> Iterator[Row]:
    path = lines.path
    kind = _format_of(path)
    if kind == "parquet":
        yield from _parquet_rows(str(path), choice, report)
        return
    with closing(lines):
        if kind in ("csv", "tsv"):
            records = _records(kind, lines, report, separator)
            yield from _table_rows(str(path), records, choice, report, kind)
            return
        source = iter(lines)
        if str(path) == "-":
            head = []
            for line in source:
                head.append(line)
                if not line.isspace():
                    break
            source = chain(head, source)
            kind = "jsonl" if head and head[-1].lstrip().startswith("{") else "text"
        if kind == "jsonl":
            yield from _object_rows(str(path), _objects(lines, source, report), choice, report)
        else:
            yield from _text_rows(lines, source, choice, report)


# The choice of columns


@dataclass(frozen=True)
class Choice:
    """Which columns are kept, under which names; the fields are the arguments of `read_rows`."""

    name: str
    columns: dict[str, str]
    required: tuple[str, ...]
    optional: Sequence[str] | None
    extra: tuple[str, ...]

    def pick(self, names: Sequence[str], line: int | None = None) -> dict[str, str]:
        """The kept columns among `names`, of the file or of one line: canonical name -> its own.

        Raises:
            InputError: a column is missing.
        """
        known = frozenset(names)
        picked = {
            key: self.columns.get(key, key)
            for key in dict.fromkeys(chain(self.columns, self.required))
        }
        for key, own in picked.items():
            if own not in known:
                raise self._missing(own, key, names, line)
        for own in self.extra:
            if own not in known:
                raise self._missing(own, None, names, line)
            if picked.get(own, own) != own:
                raise InputError(
                    f'{self._where(line)}: the column "{printable(own)}" cannot be read next to '
                    f'"{printable(picked[own])}", which is the {own} here. Rename it.'
                )
            picked[own] = own
        taken = set(picked.values())
        for own in names if self.optional is None else self.optional:
            if own in known and own not in picked and own not in taken:
                picked[own] = own
        return picked

    def _where(self, line: int | None) -> str:
        return self.name if line is None else f"{self.name}:{line}"

    def _missing(
        self, own: str, key: str | None, names: Sequence[str], line: int | None
    ) -> InputError:
        """The error for the missing column `own`; `key` is its canonical name, if it has one."""
        # The first line of a file without a header is a text, so names are cut short.
        known = ", ".join(printable(name, 30) for name in names[:20]) or "none"
        # Columns with another use, such as the label, are not proposed.
        used = {self.columns.get(k, k) for k in (*self.columns, *self.required)} | {*self.extra}
        near = _similar(own, [name for name in names if name not in used])
        if names == ["text"] and line is None and kind_of(self.name)[0] not in _FORMATS:
            hint = "Only .csv, .tsv, .jsonl and .parquet files have columns."
        elif len(names) == 1 and (mark := next((m for m in ";\t|," if m in names[0]), None)):
            hint = f"If fields end in {mark!r}, pass --separator {mark!r}."
        elif key is not None:
            option = f"--{'label' if key == 'labels' else key.replace('_', '-')}-column"
            hint = f"Name the right one with {option} {near or 'NAME'}, or check --separator."
        else:
            hint = f"Did you mean {near}?" if near else "Check the name."
        return InputError(
            f'{self._where(line)}: no column "{printable(own)}"; the columns are {known}. {hint}'
        )


def _similar(wanted: str, names: Sequence[str]) -> str | None:
    """The name that `wanted` is likely a misspelling of, or that contains it as a whole word."""
    # difflib's own limit of 0.6 takes "intent" for "text".
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.75)
    near += [name for name in names if wanted.lower() in re.split(r"[\W_]+", name.lower())]
    return printable(near[0], 30) if near else None


def _refuse_repeats(names: Sequence[str], where: str) -> None:
    name, count = Counter(names).most_common(1)[0] if names else ("", 1)
    if count > 1:
        raise InputError(
            f'{where}: the header names the column "{printable(name, 30)}" twice. Rename one.'
        )


# CSV and TSV

Records = Iterator[tuple[int, list[str]]]


def _records(kind: str, lines: Lines, report: BadRowReporter, separator: str | None) -> Records:
    if separator is None:
        return _csv_records(lines, report, ",") if kind == "csv" else _tsv_records(lines, report)
    mark = "\t" if separator == r"\t" else separator
    if len(mark) != 1 or mark in '"\r\n':
        raise ConfigError(
            f"--separator {printable(separator)!r}: give one character that is neither a quote nor "
            "a line break."
        )
    return _csv_records(lines, report, mark)


def _csv_records(lines: Lines, report: BadRowReporter, separator: str) -> Records:
    # The limit is one for the whole process; the module's own is 128 KiB.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD))
    reader = csv.reader(iter(lines), strict=True, delimiter=separator)
    start = 1
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if not lines.report_bad(start, reader.line_num, report):
                report(_csv_error(str(error), f"{lines.path}:{start}"))
        else:
            if fields is None:
                return
            is_bad = lines.bad and lines.report_bad(start, reader.line_num, report)
            if fields and not is_bad:
                yield start, fields
        start = reader.line_num + 1


def _csv_error(message: str, where: str) -> BadRow:
    """Our own sentence for an error of the csv module; raises where reading cannot go on."""
    if "unexpected end of data" in message or "field limit" in message:
        raise InputError(
            f"{where}: a quote opens in the row that begins here and is not closed, up to the end "
            f"of the file or for {MAX_FIELD:,} characters. Close it (a quote inside a quoted field "
            "is written twice); reading stops here."
        )
    return BadRow(f"{where}: not a CSV row, {message}. Inside a quoted field write a quote twice.")


def _tsv_records(lines: Lines, report: BadRowReporter) -> Records:
    for number, line in enumerate(lines, 1):
        if lines.bad and lines.report_bad(number, number, report):
            continue
        if line := chomp(line):
            yield number, line.split("\t")


def _header(path: str | Path, records: Records) -> list[str]:
    line, names = next(records, (0, None))
    if names is None:
        raise InputError(f"{path}: an empty file; expected a header line that names the columns.")
    _refuse_repeats(names, f"{path}:{line}")
    return names


def _table_rows(
    path: str, records: Records, choice: Choice, report: BadRowReporter, kind: str
) -> Iterator[Row]:
    names = _header(path, records)
    picked = choice.pick(names)
    keys, width = list(picked), len(names)
    places = {name: place for place, name in enumerate(names)}
    indexes = [places[own] for own in picked.values()]
    is_whole = indexes == list(range(width))
    # One index more than needed, so that the result is a tuple also for a single column.
    get = itemgetter(*indexes, indexes[0]) if indexes else itemgetter(slice(0))
    rule = "quote a field that holds a comma" if kind == "csv" else "remove tabs inside a text"
    for line, fields in records:
        if len(fields) == width:
            values = fields if is_whole else get(fields)
            yield Row(dict(zip(keys, values, strict=False)), path, line)
        else:
            report(
                BadRow(
                    f"{path}:{line}: {len(fields)} fields, but the header names {width}. Fill in "
                    f"or {rule}; --separator names another separator."
                )
            )


# One text a line, and JSON Lines


def _text_rows(
    lines: Lines, source: Iterator[str], choice: Choice, report: BadRowReporter
) -> Iterator[Row]:
    keys = list(choice.pick(["text"]))
    path = str(lines.path)
    for number, line in enumerate(source, 1):
        if not (lines.bad and lines.report_bad(number, number, report)):
            yield Row(dict.fromkeys(keys, chomp(line)), path, number)


def _objects(
    lines: Lines, source: Iterator[str], report: BadRowReporter
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file, with their line numbers."""
    for number, line in enumerate(source, 1):
        if lines.bad and lines.report_bad(number, number, report):
            continue
        if line.isspace():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            problem = f"broken JSON at column {error.colno}: {error.msg}"
        except (ValueError, RecursionError) as error:  # a number or a nesting without end
            problem = f"JSON that cannot be read: {error}"
        else:
            if isinstance(values, dict):
                yield number, values
                continue
            problem = f"a JSON value of type {type(values).__name__}"
        problem += '. JSON Lines holds one object a line, as in {"text": "..."}.'
        report(BadRow(f"{shown(lines.path)}:{number}: {problem}"))


def _object_rows(
    path: str, objects: Iterator[tuple[int, dict[str, Any]]], choice: Choice, report: BadRowReporter
) -> Iterator[Row]:
    """Rows of a JSON Lines file; its lines may differ in keys."""
    known: tuple[str, ...] | None = None
    picked: dict[str, str] = {}
    for line, values in objects:
        names = tuple(values)
        if names != known:
            try:
                picked, known = choice.pick(names, line), names
            except InputError as error:
                report(BadRow(str(error)))
                continue
        row = Row({key: values[own] for key, own in picked.items()}, path, line)
        if _usable(row, choice, report):
            yield row


def _usable(row: Row, choice: Choice, report: BadRowReporter) -> bool:
    """Whether required values are there and texts are texts; a problem is reported."""
    problem = None
    for key in choice.required:
        if row.values[key] is None:
            problem = f'"{key}" is missing (null). Fill it in, or remove the row.'
    for key in TEXT_COLUMNS if problem is None else ():
        value = row.values.get(key, "")
        if isinstance(value, str):
            if len(value) > MAX_FIELD or "\0" in value:
                problem = f'"{key}" holds a NUL or more than {MAX_FIELD:,} characters.'
        elif value is not None or key == "text":
            problem = f'"{key}" holds a value of type {type(value).__name__}; expected a string.'
    if problem is not None:
        report(BadRow(f"{row.where}: {problem}"))
    return problem is None


# Parquet


def open_parquet(path: str | Path) -> Any:
    """The opened file, a `pyarrow.parquet.ParquetFile`.

    Raises:
        InputError: no such file, one that cannot be read, another format, or a repeated column.
    """
    import pyarrow
    from pyarrow import parquet

    require_file(path)
    if not Path(path).stat().st_size:
        raise InputError(f"{path}: an empty file; there is no row in it.")
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise unreadable(path, error) from error
        raise InputError(f"{path}: not a Parquet file, in spite of its name. Rename it.") from error
    _refuse_repeats(file.schema_arrow.names, str(path))
    return file


def _parquet_rows(path: str, choice: Choice, report: BadRowReporter) -> Iterator[Row]:
    """Rows of a Parquet file; a row's line is its number, from 1."""
    import pyarrow

    number = 0
    try:
        with open_parquet(path) as file:
            picked = choice.pick(file.schema_arrow.names)
            wanted = sorted(set(picked.values()))
            for batch in file.iter_batches(_PARQUET_ROWS, columns=wanted, use_threads=False):
                columns = {key: batch.column(own) for key, own in picked.items()}
                for index in range(batch.num_rows):
                    number += 1
                    row = Row({}, path, number)
                    if _fill(row, columns, index, report) and _usable(row, choice, report):
                        yield row
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"{path}:{number + 1}: the Parquet data is damaged near this row. Reading stops here; "
            "fetch or make the file again."
        ) from error


def _fill(row: Row, columns: dict[str, Any], index: int, report: BadRowReporter) -> bool:
    """Take the values of a row out of a batch; report one that Python cannot hold."""
    for key, column in columns.items():
        try:
            row.values[key] = column[index].as_py()
        except (ValueError, OverflowError):  # not UTF-8, a time after the year 9999
            problem = f"holds a value of type {column.type} that Python cannot read."
            report(BadRow(f'{row.where}: "{printable(key)}" {problem}'))
            return False
    return True


# Counting rows


class ExpectedRows:
    """Estimates the number of rows of a file while it is read; exact for Parquet.

    The estimate is the rows so far, divided by the share of the file's (compressed) bytes that was
    read for them. There is none for standard input.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._last: int | None = None
        self._is_exact = kind_of(path) == (".parquet", None)
        if self._is_exact:
            with open_parquet(path) as file:
                self._last = file.metadata.num_rows

    def after(self, rows: int) -> int | None:
        """The number of all rows, when so many have been read; None if it is unknown."""
        share = None if self._is_exact else share_read(self._path)
        # At 1 the last block is in memory, and how many of its rows are still to come is unknown.
        if rows and share is not None and 0 < share < 1:
            self._last = round(rows / share)
        return None if self._last is None else max(self._last, rows)
