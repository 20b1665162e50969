"""JSON Lines and Parquet files as rows: values keep their types, so they are checked here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filbert.data.row import Choice, Row, refuse_repeats
from filbert.data.streams import (
    MAX_FIELD,
    BadRow,
    Lines,
    Report,
    require_file,
    shown,
    unreadable,
)
from filbert.errors import InputError, printable

# Canonical columns that must hold text where they hold anything.
TEXT_COLUMNS = ("text", "text_pair")

# Parquet rows that are unpacked at once. A dictionary column repeats a long text for a few bytes on
# the disk: with 1,024 rows of 4 MB, 900 bytes became 4 GB. 1,024 would read a tenth faster.
_BATCH = 8


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
            for batch in file.iter_batches(_BATCH, columns=wanted, use_threads=False):
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
