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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from filbert.data.streams import (
    MAX_FIELD,
    Lines,
    OnError,
    check_each,
    chomp,
    name_of,
    raised,
    require_file,
    share_read,
    suffix_of,
)
from filbert.errors import ConfigError, InputError, printable, unreadable_as
from filbert.files import sha256_of

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}

# Parquet rows that are unpacked at once. A dictionary column repeats a long text for a few bytes on
# the disk: with 1,024 rows of 4 MB, 900 bytes became 4 GB.
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
        return f"{name_of(self.path)}:{self.line}"


Level = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """One problem of rows in one place.

    `kind` is one word for programs, `message` a sentence that is the same for all places of its
    kind, `where` file and line (and more, such as a question's id); never any text of the data.
    """

    level: Level
    kind: str
    message: str
    where: str = ""
    times: int = 1


def read_rows(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    required: Sequence[str] = (),
    optional: Sequence[str] | None = None,
    extra: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    on_error: OnError = raised,
) -> Iterator[Row]:
    """Return the rows of a file in order; the first one is read before this returns.

    Args:
        path: "-" is standard input: JSON Lines if the first line with content starts with a brace,
            otherwise one text a line. It is not read before the first row is taken.
        columns: Canonical name -> the file's own, for example {"text": "comment_text"}. A column
            named here must be in the file.
        required: Canonical names that must be in the file, with a value in each row.
        optional: Further canonical names to keep if they are there. None keeps all columns.
        extra: The file's own names of further columns that must be there.
        separator: The character between the fields of a CSV or TSV file; quotes count as in CSV. A
            backslash and a t mean a tab.
        encoding: Of text files; UTF-8 if not given.
        on_error: Receives each bad row. If it does not raise, reading goes on after the row; where
            that is impossible (an open quote, a broken stream), the rows end.

    Raises:
        InputError: No such file or column, no rows, a bad header, or a bad row.
        ConfigError: The separator is not one character, or the encoding is unknown.
    """
    choice = _Choice(name_of(path), dict(columns or {}), tuple(required), optional, tuple(extra))
    read = partial(_rows, path, choice, separator, encoding)
    empty = f"{name_of(path)}: no rows; the file is empty or holds a header only. Check it."
    if str(path) == "-":
        empty = "stdin has no rows. Name a file, or pipe one text a line."
        return guarded(read, on_error, empty)
    require_file(path, once=True)
    rows = guarded(read, on_error, empty)
    return _after_first(next(rows, None), rows)


def _after_first(first: Row | None, rows: Iterator[Row]) -> Iterator[Row]:
    if first is not None:
        yield first
        yield from rows


def column_names(
    path: str | Path, separator: str | None = None, encoding: str | None = None
) -> list[str]:
    """Return the file's own column names, of JSON Lines the first row's, or raise an InputError."""
    kind = _format_of(path)
    require_file(path, once=kind == "text")
    if kind == "text":
        return ["text"]
    if kind == "parquet":
        return list(open_parquet(path).schema_arrow.names)
    with closing(Lines(path, encoding)) as lines:
        if kind != "jsonl":
            return _header(lines, _csv_reader(kind, iter(lines), separator))
        for _, values in _objects(lines, iter(lines), raised):
            return list(values)
    raise InputError(f"{path}: an empty file; there is no row in it.")


def has_columns(path: str | Path) -> bool:
    """Return whether a path is a file in a format with columns."""
    return str(path) != "-" and suffix_of(path) in _FORMATS


@unreadable_as(InputError)
def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of the file's bytes in hexadecimal, or raise an InputError."""
    if str(path) == "-":
        raise InputError("Standard input is read once, and here it is read twice. Give a file.")
    require_file(path)
    return sha256_of(Path(path))


def _format_of(path: str | Path) -> str:
    suffix = suffix_of(path)
    if suffix in (".xlsx", ".xls", ".ods"):
        raise InputError(
            f'{path}: a spreadsheet. Save it as CSV, or convert it: python -c "import pandas; '
            f"pandas.read_excel('{path}').to_csv('rows.csv', index=False)\"."
        )
    return _FORMATS.get(suffix, "text")


def guarded(
    read: Callable[[OnError], Iterator[Row]], on_error: OnError, empty: str
) -> Iterator[Row]:
    """Yield the rows of `read`, which gets a function that takes bad rows.

    Raises:
        InputError: An error that ends the rows, if nothing came before it; or `empty` if there is
            no row and none was bad.
    """
    count = 0

    def report(error: InputError) -> None:
        nonlocal count
        count += 1
        on_error(error)

    try:
        for row in read(report):
            count += 1
            yield row
    except InputError as error:
        if not count:
            raise
        on_error(error)
    if not count:
        raise InputError(empty)


def _rows(
    path: str | Path,
    choice: _Choice,
    separator: str | None,
    encoding: str | None,
    report: OnError,
) -> Iterator[Row]:
    kind = _format_of(path)
    if kind == "parquet":
        yield from _parquet_rows(str(path), choice, report)
        return
    with closing(Lines(path, encoding)) as lines:
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
            yield from _object_rows(lines, source, choice, report)
        elif kind == "text":
            yield from _text_rows(lines, source, choice, report)
        else:
            yield from _table_rows(lines, _csv_reader(kind, source, separator), choice, report)


# The choice of columns


@dataclass(frozen=True)
class _Choice:
    """Which columns are kept, under which names; the fields are the arguments of `read_rows`."""

    name: str
    columns: dict[str, str]
    required: tuple[str, ...]
    optional: Sequence[str] | None
    extra: tuple[str, ...]

    def pick(self, names: Sequence[str], line: int | None = None) -> dict[str, str]:
        """Return the kept columns among `names`: canonical name -> the file's own."""
        known, where = frozenset(names), self.name if line is None else f"{self.name}:{line}"
        picked = {
            key: self.columns.get(key, key)
            for key in dict.fromkeys(chain(self.columns, self.required))
        }
        for key, own in [*picked.items(), *((None, own) for own in self.extra)]:
            if own not in known:
                # The first line of a file without a header is a text, so names are cut short.
                listed = ", ".join(printable(name, 30) for name in names[:20]) or "none"
                problem = f'no column "{printable(own)}"; the columns are {listed}'
                raise InputError(f"{where}: {problem}. {self._hint(own, key, names)}")
        for own in self.extra:
            picked.setdefault(own, own)
        taken = set(picked.values())
        for own in names if self.optional is None else self.optional:
            if own in known and own not in picked and own not in taken:
                picked[own] = own
        return picked

    def checked(self, row: Row) -> Row:
        """Return a row of JSON Lines or Parquet after its values and its texts were checked."""
        for key in self.required:
            if row.values[key] is None:
                problem = "is missing (null). Fill it in, or remove the row."
                raise InputError(f'{row.where}: "{key}" {problem}')
        for key in ("text", "text_pair"):
            value = row.values.get(key, "")
            if isinstance(value, list):
                value = row.values[key] = _joined(value, row.where, key)
            if isinstance(value, str):
                if len(value) > MAX_FIELD or "\0" in value:
                    problem = f"holds a NUL or more than {MAX_FIELD:,} characters."
                    raise InputError(f'{row.where}: "{key}" {problem}')
            elif value is not None or key == "text":
                problem = f"holds a value of type {type(value).__name__}; expected a string."
                raise InputError(f'{row.where}: "{key}" {problem}')
        return row

    def _hint(self, own: str, key: str | None, names: Sequence[str]) -> str:
        """Return what to do about the missing column `own`, whose canonical name is `key`."""
        # Columns with another use, such as the label, are not proposed.
        used = {self.columns.get(k, k) for k in (*self.columns, *self.required)} | {*self.extra}
        near = _similar(own, [name for name in names if name not in used])
        if suffix_of(self.name) not in _FORMATS and len(names) < 2:
            return "Only .csv, .tsv, .jsonl and .parquet files have columns."
        if len(names) == 1 and (mark := next((m for m in ";\t|," if m in names[0]), None)):
            return f"If fields end in {mark!r}, pass --separator {mark!r}."
        if key is not None:
            option = f"--{'label' if key == 'labels' else key.replace('_', '-')}-column"
            return f"Name the right one with {option} {near or 'NAME'}, or check --separator."
        return f"Did you mean {near}?" if near else "Check the name."


def _joined(symbols: list[Any], where: str, key: str) -> str:
    """Return a list of symbols or ids as one text with spaces between."""
    for symbol in symbols:
        if type(symbol) is not int and not (isinstance(symbol, str) and symbol.split() == [symbol]):
            raise InputError(
                f'{where}: "{key}" is a list with {printable(repr(symbol), 40)}; it may hold '
                "symbols without white space, and whole numbers."
            )
    return " ".join(map(str, symbols))


def _similar(wanted: str, names: Sequence[str]) -> str | None:
    """Return the name that `wanted` likely misspells, or that contains it as a whole word."""
    # difflib's own limit of 0.6 takes "intent" for "text".
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.75)
    near += [name for name in names if wanted.lower() in re.split(r"[\W_]+", name.lower())]
    return printable(near[0], 30) if near else None


def _without_repeats(names: Sequence[str], where: str) -> list[str]:
    name, count = Counter(names).most_common(1)[0] if names else ("", 1)
    if count > 1:
        raise InputError(
            f'{where}: the header names the column "{printable(name, 30)}" twice. Rename one.'
        )
    return list(names)


# CSV and TSV


def _csv_reader(kind: str, source: Iterator[str], separator: str | None) -> Any:
    # The limit is one for the whole process; the module's own is 128 KiB.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD))
    if separator is None and kind == "tsv":
        return csv.reader(source, delimiter="\t", quoting=csv.QUOTE_NONE)
    mark = "\t" if separator == r"\t" else separator or ","
    if len(mark) != 1 or mark in '"\r\n':
        raise ConfigError(
            f"--separator {printable(mark)!r}: give one character that is neither a quote nor a "
            "line break."
        )
    return csv.reader(source, strict=True, delimiter=mark)


def _records(lines: Lines, reader: Any, report: OnError) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the fields of each record."""
    while True:
        start = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if not lines.report_bad(reader.line_num, report):
                report(_csv_error(str(error), f"{name_of(lines.path)}:{start}"))
            continue
        if fields is None:
            return
        if lines.bad and lines.report_bad(reader.line_num, report):
            continue
        if fields:
            yield start, fields


def _csv_error(message: str, where: str) -> InputError:
    """Return the error for a message of the csv module; raise it where reading cannot go on."""
    if "unexpected end of data" in message or "field limit" in message:
        raise InputError(
            f"{where}: a quote opens in the row that begins here and is not closed, up to the end "
            f"of the file or for {MAX_FIELD:,} characters. Close it (a quote inside a quoted field "
            "is written twice)."
        )
    return InputError(
        f"{where}: not a CSV row, {message}. Inside a quoted field write a quote twice."
    )


def _header(lines: Lines, reader: Any) -> list[str]:
    # Without a header no row can be read, so an error is always raised.
    for line, names in _records(lines, reader, raised):
        return _without_repeats(names, f"{name_of(lines.path)}:{line}")
    raise InputError(f"{lines.path}: an empty file; expected a header with the names of columns.")


def _table_rows(lines: Lines, reader: Any, choice: _Choice, report: OnError) -> Iterator[Row]:
    path, names = str(lines.path), _header(lines, reader)
    places = [(key, names.index(own)) for key, own in choice.pick(names).items()]
    for line, fields in _records(lines, reader, report):
        if len(fields) == len(names):
            yield Row({key: fields[place] for key, place in places}, path, line)
        else:
            problem = f"{len(fields)} fields, but the header names {len(names)}"
            rule = "Quote a field that holds the separator, or name another with --separator."
            report(InputError(f"{name_of(path)}:{line}: {problem}. {rule}"))


# One text a line, and JSON Lines


def _text_rows(
    lines: Lines, source: Iterator[str], choice: _Choice, report: OnError
) -> Iterator[Row]:
    keys, path = list(choice.pick(["text"])), str(lines.path)
    for number, line in enumerate(source, 1):
        if not (lines.bad and lines.report_bad(number, report)):
            yield Row(dict.fromkeys(keys, chomp(line)), path, number)


def _objects(
    lines: Lines, source: Iterator[str], report: OnError
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON Lines file with their line numbers."""
    for number, line in enumerate(source, 1):
        if (lines.bad and lines.report_bad(number, report)) or line.isspace():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = f"broken JSON: {error}"
        else:
            if isinstance(values, dict):
                yield number, values
                continue
            problem = f"a JSON value of type {type(values).__name__}"
        rule = 'JSON Lines holds one object a line, as in {"text": "..."}.'
        report(InputError(f"{name_of(lines.path)}:{number}: {problem}. {rule}"))


def _object_rows(
    lines: Lines, source: Iterator[str], choice: _Choice, report: OnError
) -> Iterator[Row]:
    """Yield the rows of a JSON Lines file; its lines may differ in keys."""
    path = str(lines.path)
    known: tuple[str, ...] | None = None
    picked: dict[str, str] = {}

    def row_of(item: tuple[int, dict[str, Any]]) -> Row:
        nonlocal known, picked
        line, values = item
        names = tuple(values)
        if names != known:
            picked, known = choice.pick(names, line), names
        return choice.checked(Row({key: values[own] for key, own in picked.items()}, path, line))

    yield from check_each(_objects(lines, source, report), row_of, report)


# Parquet


def open_parquet(path: str | Path) -> Any:
    """Return the opened `pyarrow.parquet.ParquetFile`, or raise an InputError."""
    import pyarrow
    from pyarrow import parquet

    require_file(path)
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: not a Parquet file, or a damaged one: {str(error).rstrip('.')}."
        ) from error
    _without_repeats(file.schema_arrow.names, str(path))
    return file


def _parquet_rows(path: str, choice: _Choice, report: OnError) -> Iterator[Row]:
    """Yield the rows of a Parquet file; a row's line is its number, from 1."""
    import pyarrow

    number = 0
    try:
        with open_parquet(path) as file:
            picked = choice.pick(file.schema_arrow.names)
            wanted = sorted(set(picked.values()))
            for batch in file.iter_batches(_PARQUET_ROWS, columns=wanted, use_threads=False):
                for values in batch.to_pylist():
                    number += 1
                    row = Row({key: values[own] for key, own in picked.items()}, path, number)
                    yield from check_each([row], choice.checked, report)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"{path}:{number + 1}: Parquet data near this row cannot be read: {error}."
        ) from error


# Counting rows


def expected_rows(path: str | Path) -> Callable[[int], int | None]:
    """Return a function from the rows read so far to an estimate of all rows of the file.

    Exact for Parquet; otherwise the rows so far, divided by the share of the file's bytes that was
    read for them. None as long as nothing is known.
    """
    last: int | None = None
    if suffix_of(path) == ".parquet":
        with open_parquet(path) as file:
            last = file.metadata.num_rows

    def estimate(num_rows: int) -> int | None:
        nonlocal last
        share = share_read(path)
        # At 1 the last block is in memory, and how many of its rows are still to come is unknown.
        if num_rows and share is not None and share < 1:
            last = round(num_rows / share)
        return None if last is None else max(last, num_rows)

    return estimate
