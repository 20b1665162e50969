"""The texts of a row: one or a pair; and numbers in rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from filbert.data.columns import ColumnNames, first_value
from filbert.data.records import Row, column_names
from filbert.data.streams import OnError, raised
from filbert.errors import InputError, printable
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
    on_error: OnError = raised,
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
    """Return the row of a text, a pair or a mapping with `text`, or raise an InputError."""
    if isinstance(item, dict):
        if item.get("text") is None:
            keys = printable(", ".join(map(str, item)), 200)
            raise InputError(f"Item {index} has no 'text'; its keys are {keys}.")
        item = (item.get("text"), item.get("text_pair"))
    text = _checked_text(item, index)
    values = {"text": text} if isinstance(text, str) else {"text": text[0], "text_pair": text[1]}
    return Row(values, "texts", index + 1)


def refuse_one_text(texts: Iterable[Any]) -> None:
    """Raise an InputError for one text, whose letters would count as texts, and for no list."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        kind = "one text" if isinstance(texts, str) else f"a {type(texts).__name__}"
        raise InputError(f"This is {kind}; a list of texts is expected: [text].")


def checked_texts(texts: Iterable[Any]) -> Iterator[Text]:
    """Yield texts and pairs, or raise an InputError with the index of something else."""
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


# Numbers


def as_number(value: Any) -> float:
    """Return the value as a float; nan for anything else, also for True and for "1_000"."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, str) and "_" in value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
