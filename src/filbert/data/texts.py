"""The texts of a row: one, a pair with or without a score, or a context with choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from filbert.data.columns import ColumnNames, first_value
from filbert.data.records import Row, column_names
from filbert.data.streams import BadRowReporter, OnError, check_each, name_of, suffix_of
from filbert.errors import ConfigError, InputError, printable
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import T, Text, chunked

# Texts


def text_of(row: Row, clean: Cleaning | None = None) -> Text:
    """Return the text of a row, or its pair of texts; as the model reads it if `clean` is given."""
    pair = row.values.get("text_pair")
    text: str = row.values["text"]
    return cleaned(text if pair is None else (text, pair), clean)


def holds_text(row: Row) -> bool:
    """Return whether the text or the second text of a row holds anything but white space."""
    return any(str(row.values.get(name) or "").strip() for name in ("text", "text_pair"))


def cleaned(text: Text, clean: Cleaning | None) -> Text:
    """Return a text or both texts of a pair as the model reads them if `clean` is given."""
    if clean is None:
        return text
    return clean(text) if isinstance(text, str) else (clean(text[0]), clean(text[1]))


def read_texts(
    path: str | Path,
    names: ColumnNames,
    *labels: str,
    extra: Sequence[str] = (),
    on_error: OnError | None = None,
) -> Iterator[Row]:
    """Return rows with `text`, maybe `text_pair`, and the standard columns `labels`."""
    required, optional = ("text", *labels), ("text_pair",)
    return names.read(path, required=required, optional=optional, extra=extra, on_error=on_error)


def has_lists_of_labels(
    path: str | Path, names: ColumnNames, instead_of: Sequence[str] = ()
) -> bool:
    """Return whether the rows of a file have `labels`, lists of them, and no `label`.

    False where the user has named another column, where there is one of `instead_of`, and for
    standard input, which is read once.
    """
    if names.label_column or names.merge_labels or str(path) == "-":
        return False
    columns = column_names(path, names.separator, names.encoding)
    if "labels" not in columns or not {"label", *instead_of}.isdisjoint(columns):
        return False
    value = first_value(path, names, "labels")
    return isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("["))


def text_row(item: Any, index: int) -> Row:
    """Return the row of a text, of a pair, or of a mapping with `text` and maybe `text_pair`.

    Raises:
        InputError: It is none of these; with its index.
    """
    if isinstance(item, dict):
        if item.get("text") is None:
            keys = printable(", ".join(map(str, item)), 200)
            raise InputError(f"Item {index} has no 'text'; its keys are {keys}.")
        item = (item.get("text"), item.get("text_pair"))
    text = _checked_text(item, index)
    values = {"text": text} if isinstance(text, str) else {"text": text[0], "text_pair": text[1]}
    return Row(values, "texts", index + 1)


def refuse_one_text(texts: Iterable[Any]) -> None:
    """Refuse a single text, whose letters would count as texts, and what has no items.

    Raises:
        InputError: It is one of these.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        kind = "one text" if isinstance(texts, str) else f"a {type(texts).__name__}"
        raise InputError(f"This is {kind}; a list of texts is expected: [text].")


def checked_texts(texts: Iterable[Any]) -> Iterator[Text]:
    """Check and yield texts and pairs, one by one.

    Raises:
        InputError: A bare string instead of a list, or something that is no text; with its index.
    """
    refuse_one_text(texts)
    for index, text in enumerate(texts):
        yield _checked_text(text, index)


def _checked_text(item: Any, index: int) -> Text:
    one, two = item if isinstance(item, list | tuple) and len(item) == 2 else (item, None)
    if not isinstance(one, str) or not isinstance(two, str | None):
        kind = type(item).__name__
        raise InputError(f"Item {index} is a {kind}; a text or a pair of texts is expected.")
    return one if two is None else (one, two)


# Rows that are tokenised, sorted by length and answered together.
CHUNK_ROWS = 4_096
CHUNK_CHARACTERS = 16_000_000


def chunks(
    items: Iterable[T], size_of: Callable[[T], int], size: int = CHUNK_CHARACTERS
) -> Iterator[list[T]]:
    """Yield items in lists of at most CHUNK_ROWS that end where their sizes reach `size`."""
    return chunked(items, size_of, size=size, count=CHUNK_ROWS)


# Pairs with a score


def require_pair(row: Row) -> None:
    """Check that there is a second text.

    Raises:
        InputError: There is none; with file and line.
    """
    if row.values.get("text_pair") in (None, ""):
        raise InputError(
            f"{row.where}: no second text. Sentence vectors are trained on pairs; fill the column "
            "'text_pair', or drop the row."
        )


def score_of(row: Row) -> float | None:
    """Return the label as a number; None without one.

    Raises:
        InputError: It is no finite number; with file and line.
    """
    value = row.values.get("label")
    if value is None or value == "":
        return None
    number = as_number(value)
    if not math.isfinite(number):
        raise InputError(
            f"{row.where}: label {printable(repr(value), 40)} is not a number. A label says how "
            "similar both texts are."
        )
    return number


def as_number(value: Any) -> float:
    """Return the value as a float; nan for anything else, also for True and for "1_000"."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, str) and "_" in value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def scale_of(rows: Iterable[Row]) -> float:
    """Return what the scores of the training rows are divided by to become cosines.

    1.0 if all are between -1 and 1, 5.0 if all are between 0 and 5 (as in STS-B), else the largest.

    Raises:
        InputError: A score is no number, or there are negative scores and scores above 1.
    """
    scores = [(score, row.where) for row in rows if (score := score_of(row)) is not None]
    smallest, where = min(scores, default=(0.0, ""))
    largest = max(scores, default=(0.0, ""))[0]
    if smallest >= -1 and largest <= 1:
        return 1.0
    if smallest < 0:
        raise InputError(
            f"{where}: label {smallest:g}, but the largest is {largest:g}. A label is the wanted "
            "cosine of both texts, from -1 to 1, or a score from 0 upwards."
        )
    return 5.0 if largest <= 5 else largest


def complete_pair(prediction: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return `value` of a foreign prediction for a pair, and `rank` and `pool_size` if both exist.

    Raises:
        InputError: What is missing or impossible, with file and line.
    """
    keys = ("value", "rank", "pool_size")
    value, rank, size = (as_number(prediction.get(key)) for key in keys)
    if not math.isfinite(value):
        raise InputError(f"{where}: a prediction needs 'value', the cosine of a pair, a number.")
    if prediction.get("rank") is None or prediction.get("pool_size") is None:
        return {"value": value}
    if not 1 <= rank <= size < math.inf:
        raise InputError(f"{where}: 'rank' must be a number from 1 to 'pool_size'.")
    return {"value": value, "rank": int(rank), "pool_size": int(size)}


# Multiple choice


def check_choice_columns(names: ColumnNames) -> None:
    """Check the names of the columns of choices.

    Raises:
        ConfigError: One column only, one twice, or a list in addition to the columns.
    """
    columns = names.choice_columns
    if columns is None:
        return
    if names.choices_column is not None or len(columns) < 2 or len(set(columns)) < len(columns):
        raise ConfigError(
            f"--choice-columns names {', '.join(columns) or 'nothing'}; it takes two or more "
            "different columns and excludes --choices-column."
        )


def read_choices(
    path: str | Path,
    names: ColumnNames,
    *,
    labelled: bool,
    check: Callable[[Row], object],
    on_error: OnError | None = None,
) -> Iterator[Row]:
    """Return rows with `context`, `choices` (a list of texts) and, if labelled, `label`.

    Args:
        path, names, on_error: As for `ColumnNames.read`; the choices come from a list or from
            `names.choice_columns`.
        check: Raises InputError for a row that cannot be used.

    Raises:
        ConfigError: The names contradict each other.
        InputError: A row is wrong, unless `on_error` takes it; with file and line.
    """
    check_choice_columns(names)
    columns = names.choice_columns
    if columns is None and suffix_of(path) in (".csv", ".tsv"):
        raise InputError(
            f"{name_of(path)}: a table has one column per choice, and none are named. "
            "Pass --choice-columns, as in --choice-columns ending0,ending1."
        )
    required = ["context", *(["label"] if labelled else []), *(["choices"] if not columns else [])]
    rows = names.read(path, required=required, extra=columns or (), on_error=on_error)

    def checked(row: Row) -> Row:
        if columns:
            values = {key: row.values[key] for key in required}
            values["choices"] = [row.values[own] for own in columns]
            row = Row(values, row.path, row.line)
        check(row)
        return row

    return check_each(rows, checked, BadRowReporter(on_error))


def choices_of(row: Row) -> list[str]:
    """Return the choices of a row that has a context too.

    Raises:
        InputError: One of them is no text, or there are fewer than two; with file and line.
    """
    return checked_choices(row.values.get("context"), row.values.get("choices"), row.where)


def checked_choices(context: Any, choices: Any, where: str) -> list[str]:
    """Return the choices; check that context and choices are texts.

    Raises:
        InputError: They are not, or there are fewer than two choices; with `where`.
    """
    is_list = isinstance(choices, list | tuple | np.ndarray) and len(choices) >= 2
    if not isinstance(context, str) or not is_list or not all(isinstance(c, str) for c in choices):
        raise InputError(f"{where}: expected a context, a text, and a list of two or more choices.")
    return list(choices)


def chosen_index(row: Row, choices: Sequence[str]) -> int:
    """Return which of the choices is the row's label, from 0.

    A whole number in range is the number of a choice; anything else must be the text of exactly one
    choice.

    Raises:
        InputError: It is neither, or there is no label; with file and line.
    """
    value: Any = row.values.get("label")
    number = whole_number(value)
    if number is not None and 0 <= number < len(choices):
        return number
    if list(choices).count(value) != 1:
        raise InputError(
            f"{row.where}: label {printable(repr(value), 40)} is neither a number from 0 to "
            f"{len(choices) - 1} nor the text of exactly one choice."
        )
    return choices.index(value)


def whole_number(value: Any) -> int | None:
    """Return a whole number, also of 2.0 or the text "2"; None for anything else."""
    number = as_number(value)
    return int(number) if number.is_integer() else None


def counted(count: int) -> str:
    """Return a number of choices, as in "1 choice"."""
    return f"{count} choice" + ("" if count == 1 else "s")
