"""Labels as files hold them: one name however it is written, 0/1 columns, lists."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.errors import ConfigError, InputError, printable

# Labels of classes

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


# Labels that a user types


def complete_answer(
    prediction: Mapping[str, Any], where: str, labels: Sequence[str], *, multilabel: bool
) -> dict[str, Any]:
    """A prediction with `scores` for all labels and its `label` (`labels` when multi-label).

    One that names only its label is taken as sure of it; one that gives only scores, as choosing
    the highest (those from 0.5 when multi-label).

    Raises:
        InputError: what is missing, unknown or no probability, with file and line.
    """
    key = "labels" if multilabel else "label"
    scores, named = prediction.get("scores"), prediction.get(key)
    if named is None and scores is None:
        raise InputError(f"{where}: a prediction needs {key!r}, 'scores', or both.")
    try:
        given = named if multilabel and isinstance(named, list) else [named]
        chosen = [label_name(n) for n in given if n is not None]
        table = None if scores is None else {label_name(k): float(v) for k, v in scores.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{where}: the prediction cannot be read: {error}.") from error
    if not set(chosen) <= set(labels):
        raise InputError(f"{where}: {chosen} is not one of the labels {listed(labels)}.")
    if table is None:
        table = {label: float(label in chosen) for label in labels}
    if set(table) != set(labels):
        raise InputError(
            f"{where}: the scores are for {listed(sorted(table))}; "
            f"the labels are {listed(labels)}. Name all labels with --labels."
        )
    if not all(0.0 <= score <= 1.0 for score in table.values()):
        raise InputError(f"{where}: a score is not a probability from 0 to 1.")
    if named is None and multilabel:
        chosen = [label for label in labels if table[label] >= 0.5]
    elif named is None:
        chosen = [max(labels, key=table.__getitem__)]
    return {key: chosen if multilabel else chosen[0], "scores": table}


def answer(
    probabilities: np.ndarray,
    labels: Sequence[str],
    thresholds: Sequence[float] | None,
    *,
    multilabel: bool,
    positive: int | None,
) -> dict[str, Any]:
    """`scores` with the `label` (and its `score`) or `labels` that follow from them.

    Args:
        probabilities: float (C,).
        labels: C names.
        thresholds: one per label when multi-label (None: 0.5 for all); one for the positive class
            of two; None: the likeliest wins.
        multilabel: any number of labels.
        positive: the positive class of two; None for more.
    """
    scores = {label: float(p) for label, p in zip(labels, probabilities, strict=True)}
    if multilabel:
        least = thresholds or [0.5] * len(labels)
        given = [k for k, p, t in zip(labels, probabilities, least, strict=True) if p >= t]
        return {"labels": given, "scores": scores}
    best = int(probabilities.argmax())
    if positive is not None and thresholds:
        best = positive if probabilities[positive] >= thresholds[0] else 1 - positive
    return {"label": labels[best], "score": scores[labels[best]], "scores": scores}


# Indicator columns


@dataclass(frozen=True)
class Merge:
    """Which columns make which label.

    The labels are words, "malicious" and "not malicious", and not 1 and 0: predictions, confusion
    matrices and reports then say what they mean by themselves.

    Attributes:
        columns: of zeros and ones.
        name: the label of a row with a 1 in any of them, without blanks around it.
    """

    columns: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.strip(" "))
        if not self.columns:
            raise ConfigError("--merge-labels names no column.")
        if len(set(self.columns)) < len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise ConfigError(f"--merge-labels names the column {printable(twice)!r} twice.")
        try:
            is_label = bool(self.name.strip()) and bool(label_name(self.name))
        except ValueError:
            is_label = False
        if not is_label:
            raise ConfigError(f"--as {printable(self.name)!r} is no label; give a word.")

    @property
    def labels(self) -> tuple[str, str]:
        """Both labels, the one of the merged columns second: that is the positive class."""
        return (f"not {self.name}", self.name)

    def require_labels(self, labels: Sequence[str] | None) -> None:
        """Make sure that a model's labels are these two.

        Args:
            labels: of the model; None where a row has any number of them.

        Raises:
            ConfigError: they are not.
        """
        if labels is None or set(labels) != set(self.labels):
            found = (
                "any number of its labels a row" if labels is None else f"one of {listed(labels)}"
            )
            raise ConfigError(
                f"--merge-labels makes one label of {listed(self.labels)}; this model gives "
                f"{found}. Name the merged label with --as as it was in training."
            )

    def label_of(self, row: Row) -> str:
        """The label of a row.

        Raises:
            InputError: a column holds something else than 0 and 1; with file and line.
        """
        # All columns are looked at, whether or not the first one decides.
        return self.labels[max(is_set(row, column) for column in self.columns)]


def merge_labels(
    rows: Iterable[Row],
    columns: Sequence[str],
    as_: str,
    *,
    keep: Sequence[str] = (),
    on_error: OnError | None = None,
) -> Iterator[Row]:
    """The rows with one column `label` in place of several 0/1 columns.

    Args:
        rows: with these columns under their own names.
        columns: of zeros and ones.
        as_: the label of a row with a 1 in any of them; the others get "not " before it.
        keep: those of the columns that the rows keep beside the label.
        on_error: is given each bad row instead of it being raised.

    Raises:
        ConfigError: no column, one twice, or a name that cannot be a label.
        InputError: a value is neither 0 nor 1; with file, line and column.
    """
    merge = Merge(tuple(columns), as_)
    return _merged(rows, merge, frozenset(columns) - frozenset(keep), on_error)


def _merged(
    rows: Iterable[Row], merge: Merge, dropped: frozenset[str], on_error: OnError | None
) -> Iterator[Row]:
    for row in rows:
        try:
            label = merge.label_of(row)
        except InputError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        kept = {name: value for name, value in row.values.items() if name not in dropped}
        yield Row(kept | {"label": label}, row.path, row.line)
