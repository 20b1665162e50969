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
    """A label as text, without blanks around it: the numbers 1 and 1.0 and "1" are one label.

    Raises:
        ValueError: a list, an object, or a number that is none.
    """
    if isinstance(value, list | tuple | dict | set | bytes | np.ndarray) or value is None:
        raise ValueError(f"{type(value).__name__} is no label")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no label")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    name = str(value).strip(" ")
    if not name.isprintable() or len(name) > MAX_LABEL:
        raise ValueError(f"it has control characters, or more than {MAX_LABEL} characters")
    return name


def label_order(label: str) -> tuple[int, float, str]:
    """Numbers by value, then words by alphabet; "nan" and "inf" are words."""
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    # NaN is neither above nor below anything, so an order by it would be that of a set.
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)


def is_set(row: Row, column: str) -> bool:
    """Whether a 0/1 column holds 1.

    Raises:
        InputError: it holds something else; with file and line.
    """
    value = row.values.get(column)
    name = str(value).lower().removesuffix(".0")
    if name not in ("0", "1", "true", "false"):
        shown = f"holds {printable(repr(str(value)), 40)}"
        what = "is empty" if value is None or name == "" else shown
        raise InputError(
            f"{row.where}: column {printable(column)!r} {what}; a label column holds 0 or 1."
        )
    return name in ("1", "true")


def split_labels(row: Row) -> list[str]:
    """The labels of a multi-label row: a list, a JSON list in a text, or names between commas.

    There may be none in it.

    Raises:
        InputError: there is no value at all, broken JSON, or zeros and ones in the place of names;
            with file and line.
    """
    value = row.values.get("labels")
    if value is None:
        raise InputError(
            f"{row.where}: no labels. Give a list (possibly empty) in the column 'labels'."
        )
    parts = _written(row, value) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | np.ndarray):
        parts = [parts]
    names = [name_in(row, part) for part in parts]
    if len(set(names)) < len(names) and set(names) <= {"0", "1"}:
        raise InputError(
            f"{row.where}: the labels are {len(names)} zeros and ones. Give the names of those "
            "that are set, or a 0/1 column for each and --label-columns."
        )
    return list(dict.fromkeys(name for name in names if name))


def _written(row: Row, value: str) -> list[Any]:
    """The labels in a text."""
    if not value.lstrip().startswith("["):
        return list(value.split(","))
    try:
        found = json.loads(value)
    except ValueError as error:
        raise InputError(
            f"{row.where}: the labels begin like a JSON list and are none: "
            f'{printable(repr(value), 40)}. Write ["a", "b"].'
        ) from error
    assert isinstance(found, list)
    return found


def labels_in(row: Row, columns: Sequence[str] | None, *, multilabel: bool) -> list[str]:
    """The label names of a row: exactly one, or any number when multi-label.

    Args:
        row: to read.
        columns: 0/1 columns that stand for `label` or `labels`.
        multilabel: read `labels`.

    Raises:
        InputError: no label, or one that is malformed; with file and line.
    """
    if columns:
        return [name for name in columns if is_set(row, name)]
    if multilabel:
        return split_labels(row)
    return [label_in(row)]


def has_list(row: Row) -> bool:
    """Whether a row gives a list of labels and no single one."""
    return "labels" in row.values and "label" not in row.values


def label_in(row: Row) -> str:
    """The one label of a row.

    Raises:
        InputError: none, or one that is malformed; with file and line.
    """
    value = row.values.get("label")
    name = "" if value is None else name_in(row, value)
    if not name:
        raise InputError(f"{row.where}: no label. Fill the column, or drop the row.")
    return name


def name_in(row: Row, value: Any) -> str:
    """`label_name`, with file and line in the error.

    Raises:
        InputError: the value is no label.
    """
    try:
        return label_name(value)
    except ValueError as error:
        raise InputError(f"{row.where}: a label must be a text or a number; {error}.") from error


def check_names(
    labels: Sequence[str], counts: np.ndarray, num_rows: int, *, multilabel: bool
) -> None:
    """Refuse labels that nothing can be learnt from, or that can hardly be meant as they stand.

    Args:
        labels: C names.
        counts: training rows that have each label, (C,).
        num_rows: training rows.
        multilabel: whether rows have several.

    Raises:
        InputError: there are too few, "1" and "1.0" are two of them, or every row has "0" and
            "1", in some order.
    """
    if len(labels) < 2 and not multilabel:
        raise InputError(
            f"The training rows hold {len(labels)} label ({', '.join(labels) or 'none'}); "
            "a classifier needs at least two. Another column may be meant (--label-column), or "
            "rows in the order of their labels were cut: shuffle them first."
        )
    if not labels:
        raise InputError("The training rows hold no label at all.")
    numbers: dict[float, str] = {}
    for label in labels:
        is_word, number, _ = label_order(label)
        if is_word:
            continue
        if number in numbers:
            raise InputError(
                f"The labels {numbers[number]!r} and {label!r} are one number. Write it one way."
            )
        numbers[number] = label
    if multilabel and tuple(labels) == ("0", "1") and (counts == num_rows).all():
        raise InputError(
            "Every row has the labels 0 and 1, in some order. Give the names of those that are "
            "set, or a 0/1 column for each and --label-columns."
        )


def listed(labels: Sequence[str], most: int = 12) -> str:
    """The first labels, for an error's sentence."""
    shown = ", ".join(repr(label) for label in labels[:most])
    return f"[{shown}{', ...' if len(labels) > most else ''}]"


def loss_weights(
    asked: str | tuple[float, ...] | None,
    labels: tuple[str, ...],
    counts: np.ndarray,
    num_rows: int,
    *,
    multilabel: bool,
) -> tuple[float, ...] | None:
    """The weight of every label in the loss.

    Args:
        asked: None for no weights, "balanced", or the weights themselves.
        labels: C names.
        counts: training rows that have each label, (C,).
        num_rows: training rows.
        multilabel: the weights are then those of having the label against not having it.

    Raises:
        InputError: "balanced", and a label has no row, or of several labels one has all rows.
        ConfigError: the numbers are not as many as the labels.
    """
    if asked is None:
        return None
    if asked == "balanced":
        if not counts.all():
            missing = [label for label, n in zip(labels, counts, strict=True) if not n]
            raise InputError(
                f"--class-weights balanced: no training row has the label {missing[0]!r}."
            )
        if multilabel:
            if (counts == num_rows).any():
                always = labels[int(np.argmax(counts == num_rows))]
                raise InputError(
                    f"--class-weights balanced: every training row has the label {always!r}. "
                    "Leave it out, or give the weights as numbers."
                )
            return tuple((num_rows - counts) / counts)
        # As scikit-learn's "balanced": the mean weight of a training row is 1.
        return tuple(num_rows / (len(counts) * counts))
    if isinstance(asked, str) or len(asked) != len(labels):
        raise ConfigError(
            f"--class-weights is {asked!r}; give 'balanced' or {len(labels)} "
            f"numbers, for {list(labels)}."
        )
    return tuple(float(weight) for weight in asked)


def class_weights(given: str | None) -> str | tuple[float, ...] | None:
    """The flag's text: "balanced", or numbers between commas as numbers.

    Raises:
        ConfigError: it is neither.
    """
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
