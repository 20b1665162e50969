"""Rows from CSV, TSV, JSON Lines, Parquet or one text a line; compressed or not; streamed.

A CSV file follows RFC 4180: a quoted field may hold commas, quotes (doubled) and newlines. A TSV
file is split at every tab and nothing else: quotes are ordinary characters. The first line of both
names the columns. Blank lines are skipped in all formats but one text a line, where a blank line is
an empty text.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from filbert.data.streams import (
    MAX_FIELD,
    BadRow,
    Lines,
    OnError,
    Report,
    chomp,
    kind_of,
    require_file,
    share_read,
    shown,
    unreadable,
)
from filbert.errors import ConfigError, InputError, printable

# Rows and the choice of columns

# Endings of files whose rows have columns.
WITH_COLUMNS = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: canonical column name -> value, and where it stands.

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


def refuse_repeats(names: Sequence[str], where: str) -> None:
    """Refuse a column name that stands twice in the header or schema at `where`.

    Raises:
        InputError: there is one.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(
                f'{where}: the header names the column "{printable(name, 30)}" twice. Rename one.'
            )
        seen.add(name)


@dataclass(frozen=True)
class Choice:
    """Which columns are kept, under which names."""

    name: str
    columns: dict[str, str]
    required: tuple[str, ...]
    optional: Sequence[str] | None
    extra: tuple[str, ...]

    def pick(self, names: Sequence[str], line: int | None = None) -> dict[str, str]:
        """Kept columns among `names`, of the file or of one line: canonical name -> its own."""
        known = frozenset(names)
        wanted = dict.fromkeys(chain(self.columns, self.required))
        picked = {key: self.columns.get(key, key) for key in wanted}
        for key, own in picked.items():
            if own not in known:
                flag = "label" if key == "labels" else key.replace("_", "-")
                others = {*picked.values(), *self.extra} - {own}
                raise self._missing(own, names, line, f"--{flag}-column", others)
        for own in self.extra:
            if own not in known:
                raise self._missing(own, names, line, None)
            if picked.get(own, own) != own:
                where = self.name if line is None else f"{self.name}:{line}"
                raise InputError(
                    f'{where}: the column "{printable(own)}" cannot be read beside '
                    f'"{printable(picked[own])}", which stands for {own} here. Rename it.'
                )
            picked[own] = own
        taken = set(picked.values())
        for own in names if self.optional is None else self.optional:
            if own in known and own not in picked and own not in taken:
                picked[own] = own
        return picked

    def _missing(
        self,
        own: str,
        names: Sequence[str],
        line: int | None,
        option: str | None,
        others: Collection[str] = (),
    ) -> InputError:
        """The error for a column that is missing.

        Args:
            own: The column's name, which is not among `names`.
            names: The columns that exist.
            line: Where; None for the whole file.
            option: The option that names this column, if there is one.
            others: Columns with another use, such as the label; none of them is proposed.
        """
        where = self.name if line is None else f"{self.name}:{line}"
        free = [name for name in names if name not in others]
        near = [printable(name, 30) for name in _similar(own, free)]
        own = printable(own)
        if not names:
            return InputError(f'{where}: no column "{own}"; the object is empty, {{}}.')
        # The first line of a file without a header is a text, so names are cut short.
        known = ", ".join(printable(name, 30) for name in names[:20])
        known += f" and {len(names) - 20} more" if len(names) > 20 else ""
        if names == ["text"] and line is None and kind_of(self.name)[0] not in WITH_COLUMNS:
            hint = (
                "A file of this name is read as one text a line; rows with columns come from .csv, "
                ".tsv, .jsonl or .parquet files."
            )
        elif len(names) == 1 and (marks := [mark for mark in ";\t|" if mark in names[0]]):
            hint = (
                "A .csv file is split at commas and a .tsv file at tabs; name another separator "
                f"with --separator '{printable(marks[0])}'."
            )
        elif near and option:
            several = ", or --multilabel where it holds lists" if near[0] == "labels" else ""
            hint = f"If {near[0]} is meant, pass {option} {near[0]}{several}."
        elif near:
            hint = f"Did you mean {near[0]}?"
        elif option:
            hint = f"Name the right one with {option} NAME; the first line must name the columns."
        else:
            hint = "Names are compared letter by letter."
        return InputError(f'{where}: no column "{own}"; the columns are {known}. {hint}')


def _similar(wanted: str, names: Sequence[str]) -> list[str]:
    """Names that `wanted` is likely a misspelling of, or that contain it as a whole word."""
    # difflib's own limit of 0.6 takes "intent" for "text".
    if near := difflib.get_close_matches(wanted, names, n=1, cutoff=0.75):
        return near
    word = re.compile(rf"(?<![^\W\d_]){re.escape(wanted)}(?![^\W\d_])", re.IGNORECASE)
    return [name for name in names if word.search(name)]


# CSV and TSV

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


# JSON Lines and Parquet

# Canonical columns that must hold text where they hold anything.
TEXT_COLUMNS = ("text", "text_pair")

# Parquet rows that are unpacked at once. A dictionary column repeats a long text for a few bytes on
# the disk: with 1,024 rows of 4 MB, 900 bytes became 4 GB. 1,024 would read a tenth faster.
_BATCH_ROWS = 8


def objects(
    lines: Lines, source: Iterator[str], report: Report
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file, with their line numbers."""
    name = shown(lines.path)
    for number, line in enumerate(source, 1):
        if lines.bad and lines.report_bad(number, number, report):
            continue
        if line.isspace():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            where = f"{name}:{number}"
            is_whole = line.lstrip()[0] == "[" or line.strip() == "{"
            hint = _ARRAY if is_whole else " Fix the line."
            report(BadRow(f"{where}: broken JSON at column {error.colno}: {error.msg}.{hint}"))
            continue
        except (ValueError, RecursionError) as error:  # a number or a nesting without end
            report(BadRow(f"{name}:{number}: JSON that cannot be read: {error}."))
            continue
        if isinstance(values, dict):
            yield number, values
            continue
        found = _JSON_NAMES.get(type(values), "a number")
        report(
            BadRow(
                f"{name}:{number}: {found}; expected an object. JSON Lines holds one object "
                'with named values a line, as in {"text": "..."}.'
            )
        )


_ARRAY = " JSON Lines holds one object a line, with no brackets or commas around them."
_JSON_NAMES = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}


def object_rows(
    path: str, objects: Iterator[tuple[int, dict[str, Any]]], choice: Choice, report: Report
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


def parquet_rows(path: str, choice: Choice, report: Report) -> Iterator[Row]:
    """Rows of a Parquet file; a row's line is its number, from 1."""
    import pyarrow

    number = 0
    try:
        with open_parquet(path) as file:
            picked = choice.pick(file.schema_arrow.names)
            wanted = sorted(set(picked.values()))
            for batch in file.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
                columns = {key: batch.column(own) for key, own in picked.items()}
                for index in range(batch.num_rows):
                    number += 1
                    row = _parquet_row(columns, index, path, number, report)
                    if row is not None and _usable(row, choice, report):
                        yield row
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"{path}:{number + 1}: the Parquet data is damaged near this row. Reading stops here; "
            "fetch or make the file again."
        ) from error


def _parquet_row(
    columns: dict[str, Any], index: int, path: str, number: int, report: Report
) -> Row | None:
    """One row of a batch; None, and reported, where a value has no meaning in Python."""
    row = Row({}, path, number)
    for key, column in columns.items():
        try:
            row.values[key] = column[index].as_py()
        except UnicodeDecodeError:
            wrong = "text that is not UTF-8"
        except (ValueError, OverflowError):  # after the year 9999, nanoseconds, an odd zone
            wrong = f"a value of type {column.type} that Python cannot hold"
        else:
            continue
        report(BadRow(f'{row.where}: "{printable(key)}" holds {wrong}.'))
        return None
    return row


def open_parquet(path: str | Path) -> Any:
    """The opened file, a `pyarrow.parquet.ParquetFile`.

    Raises:
        InputError: no such file, one that cannot be read, another format, or a column name twice.
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
    refuse_repeats(file.schema_arrow.names, str(path))
    return file


def _usable(row: Row, choice: Choice, report: Report) -> bool:
    """Whether typed values are there and are text where text is needed; if not, it is reported."""
    for key in choice.required:
        if row.values[key] is None:
            report(
                BadRow(f'{row.where}: "{key}" is missing (null). Fill it in, or remove the row.')
            )
            return False
    for key in TEXT_COLUMNS:
        value = row.values.get(key)
        if isinstance(value, str):
            if len(value) > MAX_FIELD:
                wrong = f"{len(value):,} characters; the limit is {MAX_FIELD:,}"
            elif "\0" in value:
                wrong = f"a NUL character at place {value.index(chr(0)) + 1}; remove it"
            else:
                continue
        elif value is None and (key != "text" or key not in row.values):
            continue
        else:
            wrong = "null" if value is None else f"a value of type {type(value).__name__}"
            wrong += "; expected a string"
        report(BadRow(f'{row.where}: "{key}" holds {wrong}.'))
        return False
    return True


# Counting rows


class ExpectedRows:
    """The number of rows of a file: known for Parquet, else a guess that gets better.

    The guess is the rows so far, divided by the share of the file's bytes that was read for them;
    of a compressed file, of its compressed bytes. There is none for standard input.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._last: int | None = None
        self.is_exact = kind_of(path) == (".parquet", None)
        if self.is_exact:
            with open_parquet(path) as file:
                self._last = file.metadata.num_rows

    def after(self, rows: int) -> int | None:
        """The number of all rows, when so many have been read; None if nobody can know."""
        share = None if self.is_exact else share_read(self._path)
        # At 1 the last block is in memory, and how many of its rows are still to come is unknown.
        if rows and share is not None and 0 < share < 1:
            self._last = round(rows / share)
        return None if self._last is None else max(self._last, rows)


# Files

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
