"""Rows in memory: data frames, Arrow tables, data sets and lists of dicts, read or made into files.

filbert reads rows from files and names file and line in its messages. Rows in memory become JSON
Lines files, which exist as long as the call that reads them: row 3 is line 3.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from filbert.data.streams import ROWS_FOLDER
from filbert.errors import ConfigError, InputError

# A path, or rows in memory: a pandas or polars DataFrame, an Arrow table, a datasets.Dataset, a
# list of dicts or a dict of lists.
Rows: TypeAlias = str | os.PathLike[str] | Iterable[Any]

_ACCEPTED = (
    "Give a path, a pandas or polars DataFrame, an Arrow table, a datasets.Dataset, a list of "
    "dicts or a dict of lists."
)
_ABSENT = object()


@contextmanager
def as_files(options: Mapping[str, Any], names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Write the options that hold rows to temporary files, which are deleted at the end.

    Args:
        options: Values by name.
        names: Of the options that may hold rows. Paths, numbers and None stay as they are.

    Raises:
        InputError: A value is no table, or a cell of it cannot be written as JSON.
    """
    named = {name: options[name] for name in names if name in options}
    given = {
        name: rows
        for name, rows in named.items()
        if rows is not None
        and not isinstance(rows, str | os.PathLike | int | float)
        and not _are_paths(rows)
    }
    paths = {name: os.fspath(v) for name, v in named.items() if isinstance(v, os.PathLike)}
    if not given:
        yield {**options, **paths}
        return
    with tempfile.TemporaryDirectory(prefix=ROWS_FOLDER) as folder:
        for name, rows in given.items():
            paths[name] = str(Path(folder, f"{name}.jsonl"))
            with Path(paths[name]).open("w", encoding="utf-8") as file:
                for number, row in enumerate(records(rows, name), 1):
                    where = f"{name}, row {number}, column"
                    plain = {str(k): _plain(value, f"{where} {k!r}") for k, value in row.items()}
                    file.write(json.dumps(plain, ensure_ascii=False) + "\n")
        yield {**options, **paths}


def _are_paths(rows: Any) -> bool:
    """Whether a list holds names of files, as raw text may come in."""
    return isinstance(rows, list | tuple) and all(isinstance(r, str | os.PathLike) for r in rows)


def items_of(values: Any) -> Iterable[Any]:
    """Return what a model answers one by one: a DataFrame is its rows, all else its items."""
    is_table = hasattr(values, "to_dicts") or hasattr(values, "columns")
    return records(values) if is_table else values


def as_data_frame(answers: Sequence[Mapping[str, Any]], index: Any = None) -> Any:
    """Return answers as a pandas DataFrame, with a column for each score.

    Args:
        answers: Predictions, one a row.
        index: That of the rows, if they came from pandas.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigError("as_frame needs pandas. Run pip install pandas.") from error
    rows = []
    for answer in answers:
        row = {name: value for name, value in answer.items() if name != "scores"}
        scores = answer.get("scores", {})
        pairs = scores.items() if isinstance(scores, Mapping) else enumerate(scores)
        rows.append(row | {f"score_{name}": value for name, value in pairs})
    return pandas.DataFrame(rows, index=None if callable(index) else index)


def records(rows: Any, name: str = "data") -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table in memory as dicts.

    Raises:
        InputError: It is no table, or its columns differ in length.
    """
    items: Any = rows
    if hasattr(rows, "to_dicts"):  # polars
        items = rows.to_dicts()
    elif hasattr(rows, "to_pylist"):  # pyarrow
        items = rows.to_pylist()
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
        items = rows.to_dict("records")
    elif isinstance(rows, Mapping):
        items = _rows_of_columns(rows, name)
    elif isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise InputError(f"{name} is a {type(rows).__name__}, which has no rows. {_ACCEPTED}")
    for number, row in enumerate(items, 1):
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise InputError(f"{name}: row {number} is a {kind}, not a dict. {_ACCEPTED}")
        yield row


def _rows_of_columns(columns: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    for column, values in columns.items():
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            kind = type(values).__name__
            raise InputError(f"{name}: column {column!r} is a {kind}, not a list. {_ACCEPTED}")
    for cells in zip_longest(*columns.values(), fillvalue=_ABSENT):
        if any(cell is _ABSENT for cell in cells):
            raise InputError(f"{name}: the columns have different lengths. Make them equal.")
        yield dict(zip(columns, cells, strict=True))


def _plain(value: Any, where: str) -> Any:
    """Return a cell as JSON has it; NaN, NaT and pandas.NA are missing, dates become text.

    Raises:
        InputError: JSON has no such value; with its row and column.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist(), where)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, where) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item, where) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    kind = type(value).__name__
    raise InputError(f"{where}: a value of type {kind} is neither text, number nor list.")
