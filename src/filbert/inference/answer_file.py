"""Files of answers: JSON Lines, CSV and Parquet.

While they are made, all three hold JSON Lines, so that a file can be cut back to the end of any
chunk; `complete` makes the file of them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filbert.errors import InputError

TABLES = (".csv", ".parquet")


def rounded(value: Any) -> Any:
    """Return a value with all floats in it rounded to six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def answer_line(answer: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """Return an answer as a line of JSON, the kept columns of its row first.

    A kept column with the name of an answer's key is called `input_` and its name.
    """
    before = {f"input_{k}" if k in answer else k: v for k, v in kept.items()}
    return json.dumps(before | rounded(answer), ensure_ascii=False, default=str) + "\n"


def complete(path: Path, kind: str, sizes: Sequence[int]) -> Path:
    """Return the finished file: `path` itself, or one next to it.

    Raises:
        InputError: A column holds values of several types, which a Parquet file cannot.
    """
    if kind not in TABLES:
        return path
    whole = path.with_name(path.name + kind)
    if kind == ".parquet":
        _write_parquet(path, whole, sizes)
        return whole
    with whole.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, row in enumerate(row for rows in _chunks(path, sizes) for row in rows):
            if number == 0:
                writer.writerow(row)
            writer.writerow([_cell(value) for value in row.values()])
    return whole


def _write_parquet(path: Path, whole: Path, sizes: Sequence[int]) -> None:
    import pyarrow
    from pyarrow import parquet

    try:
        # A column may be empty, or hold whole numbers only, in some of the chunks.
        schemas = [pyarrow.Table.from_pylist(rows).schema for rows in _chunks(path, sizes)]
        schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
        with parquet.ParquetWriter(str(whole), schema) as writer:
            for rows in _chunks(path, sizes):
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise InputError(
            f"A Parquet file cannot hold these answers: {error}. Write a .jsonl or .csv file."
        ) from error


def _chunks(path: Path, sizes: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    with path.open("rb") as file:
        for size in sizes:
            yield [_flat(json.loads(line)) for line in file.read(size).splitlines()]


def _flat(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return scores by label as one column each, and other lists and mappings as JSON."""
    row: dict[str, Any] = {}
    for key, value in answer.items():
        if key == "scores" and isinstance(value, dict):
            row |= {f"score_{label}": score for label, score in value.items()}
        elif isinstance(value, dict | list):
            row[key] = json.dumps(value, ensure_ascii=False)
        else:
            row[key] = value
    # An unpaired surrogate has no UTF-8.
    return {
        key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for key, value in row.items()
    }


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)
