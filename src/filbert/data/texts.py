"""The text, pair of texts or choices in a row, and rows of texts without a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from filbert.data.columns import ColumnNames
from filbert.data.records import Row, column_names, read_rows
from filbert.data.streams import OnError, kind_of, shown
from filbert.errors import ConfigError, InputError, printable
from filbert.text.clean import Cleaning

# Texts

Text = str | tuple[str, str]


def text_of(row: Row, clean: Cleaning | None = None) -> Text:
    """The text of a row, or its pair of texts; as the model reads it where `clean` is given."""
    pair = row.values.get("text_pair")
    text: str = row.values["text"]
    return cleaned(text if pair is None else (text, pair), clean)


def holds_text(row: Row) -> bool:
    """Whether the text or the second text of a row holds anything but white space."""
    return any(str(row.values.get(name) or "").strip() for name in ("text", "text_pair"))


def cleaned(text: Text, clean: Cleaning | None) -> Text:
    """A text or both texts of a pair as the model reads them where `clean` is given."""
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
    """Rows with `text`, maybe `text_pair`, and the standard columns `labels`; see ColumnNames."""
    return names.read(
        path,
        required=("text", *labels),
        optional=("text_pair",),
        extra=extra,
        on_error=on_error,
    )


def has_lists_of_labels(
    path: str | Path, names: ColumnNames, instead_of: Sequence[str] = ()
) -> bool:
    """Whether the rows of a file have `labels`, lists of them, and no `label`.

    False where the user has named another column, where there is one of `instead_of`, and for
    standard input, which is read once.
    """
    if names.label_column or names.merge_labels or str(path) == "-":
        return False
    columns = column_names(path, names.separator, names.encoding)
    if "labels" not in columns or not {"label", *instead_of}.isdisjoint(columns):
        return False
    rows = read_rows(
        path,
        optional=("labels",),
        separator=names.separator,
        encoding=names.encoding,
        on_error=lambda _: None,
    )
    first = next(rows, None)
    value = None if first is None else first.values.get("labels")
    return isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("["))


def text_row(item: Any, index: int) -> Row:
    """The row of a text, of a pair, or of a mapping with `text` and maybe `text_pair`.

    Raises:
        InputError: it is none of these; with its index.
    """
    if isinstance(item, dict):
        item = (item.get("text"), item.get("text_pair"))
    text = _checked_text(item, index)
    values = {"text": text} if isinstance(text, str) else {"text": text[0], "text_pair": text[1]}
    return Row(values, "texts", index + 1)


def refuse_one_text(texts: Iterable[Any]) -> None:
    """Refuse a single text, whose letters would count as texts.

    Raises:
        InputError: it is one.
    """
    if isinstance(texts, str):
        raise InputError("This is one text; a list of texts is expected: [text].")


def checked_texts(texts: Iterable[Any]) -> Iterator[Text]:
    """Check and return texts and pairs, one by one.

    Raises:
        InputError: a bare string instead of a list, or something that is no text; with its index.
    """
    refuse_one_text(texts)
    for index, text in enumerate(texts):
        yield _checked_text(text, index)


def _checked_text(item: Any, index: int) -> Text:
    one, two = item if isinstance(item, list | tuple) and len(item) == 2 else (item, None)
    if not isinstance(one, str) or not isinstance(two, str | None):
        kind = type(item).__name__
        raise InputError(f"Item {index} is a {kind}; a text or a pair of texts is wanted.")
    return one if two is None else (one, two)


# Chunks

# Rows that are tokenised, sorted by length and answered together.
CHUNK_ROWS = 4_096
CHUNK_CHARACTERS = 16_000_000

Item = TypeVar("Item")


def characters_in(text: str | tuple[str, str]) -> int:
    """Size of a text, or of both texts of a pair."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])


def chunks(
    items: Iterable[Item], size_of: Callable[[Item], int], limit: int = CHUNK_CHARACTERS
) -> Iterator[list[Item]]:
    """Lists of at most CHUNK_ROWS items that end where their sizes reach `limit`."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += size_of(item)
        if len(chunk) >= CHUNK_ROWS or size >= limit:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


# Multiple choice

# A table has no lists, so its choices are in columns of their own.
_TABLES = (".csv", ".tsv")


def check_choice_columns(names: ColumnNames) -> None:
    """Check the names of the columns of choices.

    Raises:
        ConfigError: one column only, one twice, or a list in addition to the columns.
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
    """Rows with `context`, `choices` (a list of texts) and, if labelled, `label`.

    Args:
        path, names, on_error: as for `ColumnNames.read`; the choices come from a list or from
            `names.choice_columns`.
        labelled: whether `label` must be there.
        check: raises InputError for a row that cannot be used.

    Raises:
        ConfigError: the names do not go together.
        InputError: a row is wrong, unless `on_error` takes it; with file and line.
    """
    check_choice_columns(names)
    columns = names.choice_columns
    if columns is None and str(path) != "-" and kind_of(path)[0] in _TABLES:
        raise InputError(
            f"{shown(path)}: a table has one column per choice, and none are named. "
            "Pass --choice-columns, as in --choice-columns ending0,ending1."
        )
    required = ["context", *(["label"] if labelled else []), *(["choices"] if not columns else [])]
    rows = names.read(path, required=required, extra=columns or (), on_error=on_error)

    def checked() -> Iterator[Row]:
        for row in rows:
            if columns:
                kept = {key: row.values[key] for key in required}
                kept["choices"] = [row.values[own] for own in columns]
                row = Row(kept, row.path, row.line)
            try:
                check(row)
            except InputError as error:
                if on_error is None:
                    raise
                on_error(error)
            else:
                yield row

    return checked()


def choices_of(row: Row) -> list[str]:
    """The choices of a row that has a context too.

    Raises:
        InputError: one of them is no text, or there are fewer than two; with file and line.
    """
    return checked_choices(row.values.get("context"), row.values.get("choices"), row.where)


def checked_choices(context: Any, choices: Any, where: str) -> list[str]:
    """The choices; checks that context and choices are texts.

    Raises:
        InputError: they are not, or there are fewer than two choices; with `where`.
    """
    if not isinstance(context, str):
        raise InputError(f"{where}: the context is {_kind(context)}; expected a text.")
    if not isinstance(choices, list | tuple | np.ndarray):
        raise InputError(f"{where}: the choices are {_kind(choices)}; expected a list of texts.")
    for number, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise InputError(f"{where}: choice {number} is {_kind(choice)}; expected a text.")
    if len(choices) < 2:
        raise InputError(f"{where}: {counted(len(choices))}; at least two are needed.")
    return list(choices)


def chosen_index(row: Row, choices: Sequence[str]) -> int:
    """Which of the choices is the row's label, from 0.

    A whole number in range is the number of a choice; anything else must be the text of exactly one
    choice.

    Raises:
        InputError: it is neither, or there is no label; with file and line.
    """
    value = row.values.get("label")
    if value is None or value == "":
        raise InputError(f"{row.where}: no label. Fill the column, or drop the row.")
    number = whole_number(value)
    if number is not None and 0 <= number < len(choices):
        return number
    if list(choices).count(value) != 1:
        raise InputError(
            f"{row.where}: label {printable(repr(value), 40)} is neither a number from 0 to "
            f"{len(choices) - 1} nor the text of exactly one choice."
        )
    return choices.index(value)


def label_is_ambiguous(row: Row, choices: Sequence[str]) -> bool:
    """Whether a label written as text counts one choice and is the text of another."""
    value = row.values.get("label")
    if not isinstance(value, str) or value not in choices:
        return False
    number = whole_number(value)
    return number is not None and 0 <= number < len(choices) and choices[number] != value


def whole_number(value: Any) -> int | None:
    """A whole number, also as 2.0 or as text "2"; None for anything else."""
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    return None


def counted(count: int) -> str:
    """As in "1 choice"."""
    return f"{count} choice" + ("" if count == 1 else "s")


def _kind(value: Any) -> str:
    return "missing" if value is None else f"a value of type {type(value).__name__}"
