"""Labels as files hold them: one name however it is written, 0/1 columns, lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from filbert.data.records import Row
from filbert.errors import InputError


def label_name(value: Any) -> str:
    """A label as text: 1, 1.0 and "1" are one label, true and "true" another."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def label_order(label: str) -> tuple[int, float, str]:
    """Numbers by value, then words by alphabet."""
    try:
        return (0, float(label), label)
    except ValueError:
        return (1, 0.0, label)


def is_set(row: Row, column: str) -> bool:
    """Whether a 0/1 column holds 1.

    Raises:
        InputError: it holds something else; with file and line.
    """
    value = row.values.get(column)
    name = label_name(value) if value is not None else ""
    if name not in ("0", "1", "true", "false"):
        raise InputError(
            f"{row.where}: column {column!r} holds {name[:40]!r}; a label column holds 0 or 1."
        )
    return name in ("1", "true")


def split_labels(row: Row) -> list[str]:
    """The labels of a multi-label row: a list, or names between commas; possibly none.

    Raises:
        InputError: there is no value at all; with file and line.
    """
    value = row.values.get("labels")
    if value is None:
        raise InputError(
            f"{row.where}: no labels. Give a list (possibly empty) in the column 'labels'."
        )
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | np.ndarray):
        parts = [parts]
    return list(dict.fromkeys(name for name in (label_name(p).strip() for p in parts) if name))


def listed(labels: Sequence[str], most: int = 12) -> str:
    """The first labels, for an error's sentence."""
    shown = ", ".join(repr(label) for label in labels[:most])
    return f"[{shown}{', ...' if len(labels) > most else ''}]"
