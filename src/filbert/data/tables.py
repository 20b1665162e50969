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
from pathlib import Path
from typing import Any, TypeAlias

from filbert.data.streams import ROWS_FOLDER
from filbert.errors import InputError

# A path, or rows in memory: a pandas or polars DataFrame, an Arrow table, a datasets.Dataset, a
# list of dicts or a dict of lists.
Rows: TypeAlias = str | os.PathLike[str] | Iterable[Any]

_ACCEPTED = (
    "Give a path, a pandas or polars DataFrame, an Arrow table, a datasets.Dataset, a list of "
    "dicts or a dict of lists."
)


@contextmanager
def as_files(options: Mapping[str, Any], names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Write the options that hold rows to temporary files, which are deleted at the end.

    Args:
        options: Values by name.
        names: Of the options that may hold rows. Paths, lists of paths, numbers and None stay.

    Raises:
        InputError: A value is no table, or a cell of it cannot be written as JSON.
    """
    given = {name: options[name] for name in names if options.get(name) is not None}
    changed = {name: os.fspath(v) for name, v in given.items() if isinstance(v, os.PathLike)}
    tables = {name: rows for name, rows in given.items() if not _is_plain_option(rows)}
    if not tables:
        yield {**options, **changed}
        return
    with tempfile.TemporaryDirectory(prefix=ROWS_FOLDER) as folder:
        for name, rows in tables.items():
            changed[name] = str(Path(folder, f"{name}.jsonl"))
            with Path(changed[name]).open("w", encoding="utf-8") as file:
                for number, row in enumerate(records(rows, name), 1):
                    cells = {
                        str(column): _as_json(value, f"{name}, row {number}, column {column!r}")
                        for column, value in row.items()
                    }
                    file.write(json.dumps(cells, ensure_ascii=False) + "\n")
        yield {**options, **changed}


def _is_plain_option(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, str | os.PathLike) for item in value)
    return isinstance(value, str | os.PathLike | int | float)


def items_of(values: Iterable[Any]) -> Iterable[Any]:
    """Return what a model answers one by one: a DataFrame is its rows, all else its items."""
    # A column has an Arrow stream, too, in pandas 3 and polars.
    return records(values) if hasattr(values, "columns") else values


def records(rows: Any, name: str = "data") -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table in memory as dicts, or raise an InputError if it is no table."""
    items: Any = rows
    if hasattr(rows, "itertuples"):  # pandas, whose cells may be of any type
        items = rows.to_dict("records")
    elif hasattr(rows, "__arrow_c_stream__"):  # pyarrow, polars
        import pyarrow

        items = pyarrow.table(rows).to_pylist()
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
    try:
        for cells in zip(*columns.values(), strict=True):
            yield dict(zip(columns, cells, strict=True))
    except (TypeError, ValueError):
        problem = "every column must be a list, and all lists of one length"
        raise InputError(f"{name}: {problem}. {_ACCEPTED}") from None


def _as_json(value: Any, where: str) -> Any:
    """Return a cell as JSON has it; NaN, NaT and pandas.NA are missing, dates become text."""
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        value = value.tolist()
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _as_json(item, where) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_as_json(item, where) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    kind = type(value).__name__
    raise InputError(f"{where}: a value of type {kind} is neither text, number nor list.")


def as_data_frame(answers: Sequence[Mapping[str, Any]], index: Any = None) -> Any:
    """Return answers, one a row, as a pandas DataFrame with a column for each score.

    `index` is that of the rows, if they came from pandas.
    """
    import pandas

    rows = []
    for answer in answers:
        row = {name: value for name, value in answer.items() if name != "scores"}
        scores = answer.get("scores", {})
        pairs = scores.items() if isinstance(scores, Mapping) else enumerate(scores)
        rows.append(row | {f"score_{name}": value for name, value in pairs})
    return pandas.DataFrame(rows, index=None if callable(index) else index)
