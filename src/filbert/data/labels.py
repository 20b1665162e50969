"""Labels as files hold them: one name however it is written, 0/1 columns, lists."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from filbert.data.records import Row
from filbert.errors import ConfigError, InputError, printable

MAX_LABEL = 200


def label_name(value: Any) -> str:
    """Return a label as text (1, 1.0 and "1" are one), or raise a ValueError if it is no label."""
    if isinstance(value, list | tuple | dict | set | bytes | np.ndarray) or value is None:
        raise ValueError(f"{type(value).__name__} is no label")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no label")
        if value.is_integer():
            return str(int(value))
    name = str(value).strip(" ")
    if not name.isprintable() or len(name) > MAX_LABEL:
        raise ValueError(f"it has control characters, or more than {MAX_LABEL} characters")
    return name


def label_order(label: str) -> tuple[int, float, str]:
    """Return a sort key: numbers by value, then words by alphabet; "nan" and "inf" are words."""
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)


def listed(labels: Sequence[str]) -> str:
    """Return the first twelve labels, for messages."""
    first = ", ".join(repr(label) for label in labels[:12])
    return f"[{first}{', ...' if len(labels) > 12 else ''}]"


# Labels of a row


def labels_in(row: Row, columns: Sequence[str] | None, *, multilabel: bool) -> list[str]:
    """Return the labels of a row, exactly one unless multi-label, or raise an InputError.

    Args:
        columns: 0/1 columns that replace `label` or `labels`, unless the row has a list instead.
        multilabel: Whether to read `labels`.
    """
    if columns and (columns[0] in row.values or not has_list(row)):
        return [name for name in columns if is_set(row, name)]
    if multilabel or has_list(row):
        return _labels_of_list(row)
    value = row.values.get("label")
    name = "" if value is None else _name_in(row, value)
    if not name:
        raise InputError(f"{row.where}: no label. Fill the column, or drop the row.")
    return [name]


def has_list(row: Row) -> bool:
    """Return whether a row gives a list of labels and no single one."""
    return "labels" in row.values and "label" not in row.values


def _labels_of_list(row: Row) -> list[str]:
    """Return the names in a list, in a JSON list in a text, or between commas."""
    value = row.values.get("labels")
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if value is None:
        raise InputError(f'{row.where}: no labels. Give a list (possibly empty), as ["a", "b"].')
    parts = value.split(",") if isinstance(value, str) else value
    names = [
        _name_in(row, part)
        for part in (parts if isinstance(parts, list | tuple | np.ndarray) else [parts])
    ]
    if len(names) > 1 and set(names) <= {"0", "1"}:
        raise InputError(
            f"{row.where}: the labels are zeros and ones. Give the names of those that are set, or "
            "a 0/1 column for each and --label-columns."
        )
    return list(dict.fromkeys(name for name in names if name))


def is_set(row: Row, column: str) -> bool:
    """Return whether a 0/1 column holds 1, or raise an InputError for other values."""
    value = row.values.get(column)
    name = str(value).lower().removesuffix(".0")
    if name not in ("0", "1", "true", "false"):
        raise InputError(
            f"{row.where}: column {printable(column)!r} holds {printable(repr(value), 40)}; "
            "a label column holds 0 or 1."
        )
    return name in ("1", "true")


def _name_in(row: Row, value: Any) -> str:
    try:
        return label_name(value)
    except ValueError as error:
        raise InputError(f"{row.where}: a label must be a text or a number; {error}.") from error


# Labels of a data set


def check_names(labels: Sequence[str], *, multilabel: bool) -> None:
    """Raise an InputError for too few labels to train on, or if "1" and "1.0" are two of them."""
    if len(labels) < (1 if multilabel else 2):
        raise InputError(
            f"The training rows hold {len(labels)} label ({', '.join(labels) or 'none'}); "
            "a classifier needs at least two. Another column may be meant (--label-column), or "
            "rows in the order of their labels were cut: shuffle them first."
        )
    numbers: dict[float, str] = {}
    for label in labels:
        is_word, number, _ = label_order(label)
        if not is_word and numbers.setdefault(number, label) != label:
            raise InputError(
                f"The labels {numbers[number]!r} and {label!r} are one number. Write it one way."
            )


def class_weights(given: str | None) -> str | tuple[float, ...] | None:
    """Parse the option, "balanced" or numbers between commas, or raise a ConfigError."""
    if given is None or given == "balanced":
        return given
    try:
        weights = tuple(float(part) for part in given.split(","))
    except ValueError:
        weights = ()
    if not any(weights) or not all(math.isfinite(w) and w >= 0 for w in weights):
        raise ConfigError(
            f"class_weights is {given!r}; give 'balanced', or one number per label between commas, "
            f"none below zero and not all of them zero."
        )
    return weights


def loss_weights(
    given: str | tuple[float, ...] | None,
    labels: tuple[str, ...],
    counts: np.ndarray,
    num_rows: int,
    *,
    multilabel: bool,
) -> tuple[float, ...] | None:
    """Return the weight of every label in the loss.

    Args:
        counts: Training rows that have each label, (C,).
        multilabel: Whether the weights are those of having the label against not having it.

    Raises:
        InputError: "balanced", and a label has no row, or of several labels one has all rows.
        ConfigError: Not as many numbers as labels.
    """
    if given is None:
        return None
    if given != "balanced":
        if len(given) != len(labels):
            raise ConfigError(
                f"--class-weights is {given!r}; give 'balanced' or {len(labels)} numbers, for "
                f"{list(labels)}."
            )
        return tuple(map(float, given))
    extreme = (counts == 0) | (multilabel & (counts == num_rows))
    if extreme.any():
        number = int(np.argmax(extreme))
        raise InputError(
            f"--class-weights balanced: {'every' if counts[number] else 'no'} training row has the "
            f"label {labels[number]!r}. Leave it out, or give the weights as numbers."
        )
    if multilabel:
        return tuple((num_rows - counts) / counts)
    # As scikit-learn's "balanced": the mean weight of a training row is 1.
    return tuple(num_rows / (len(counts) * counts))
