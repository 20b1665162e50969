"""The text or pair of texts in a row, and the row around a text that came without a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filbert.data.columns import ColumnNames
from filbert.data.records import Row, column_names, read_rows
from filbert.data.streams import OnError
from filbert.errors import InputError
from filbert.text.clean import Cleaning

Text = str | tuple[str, str]


def text_of(row: Row, clean: Cleaning | None = None) -> Text:
    """The text of a row, or its pair of texts; as the model reads it where `clean` is given."""
    pair = row.values.get("text_pair")
    text: str = row.values["text"]
    return cleaned(text if pair is None else (text, pair), clean)


def holds_text(row: Row) -> bool:
    """Whether anything but white space stands in the text or the second text of a row."""
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
    columns = column_names(path, names.separator)
    if "labels" not in columns or not {"label", *instead_of}.isdisjoint(columns):
        return False
    rows = read_rows(path, optional=("labels",), separator=names.separator, on_error=lambda _: None)
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
    parts = tuple(item) if isinstance(item, list | tuple) else (item, None)
    if len(parts) != 2 or not isinstance(parts[0], str) or not isinstance(parts[1], str | None):
        kind = type(item).__name__
        raise InputError(f"Item {index} is a {kind}; a text or a pair of texts is wanted.")
    values = {"text": parts[0]} | ({} if parts[1] is None else {"text_pair": parts[1]})
    return Row(values, "texts", index + 1)


def refuse_one_text(texts: Iterable[Any]) -> None:
    """Make sure that it is not a text itself, whose letters would count as texts.

    Raises:
        InputError: it is.
    """
    if isinstance(texts, str):
        raise InputError(
            "A list of texts is wanted, and this is one text. Put it in a list: [text]."
        )


def checked_texts(texts: Iterable[Any]) -> Iterator[Text]:
    """The same texts and pairs, each looked at.

    Raises:
        InputError: a bare string instead of a list, or something that is no text; with its index.
    """
    refuse_one_text(texts)
    for index, text in enumerate(texts):
        if isinstance(text, list | tuple) and len(text) == 2:
            if isinstance(text[0], str) and isinstance(text[1], str):
                yield (text[0], text[1])
                continue
            if isinstance(text[0], str) and text[1] is None:
                yield text[0]
                continue
        if not isinstance(text, str):
            kind = type(text).__name__
            raise InputError(f"Item {index} is a {kind}; a text or a pair of texts is wanted.")
        yield text
