"""Names of columns: the user's, those of a recorded run, and those recognised by content."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from filbert.data.labels import MAX_LABEL, is_set
from filbert.data.records import Row, column_names, has_columns, read_rows
from filbert.data.streams import OnError, check_each, name_of, raised
from filbert.errors import ConfigError, InputError, printable

# Rows whose values are looked at to recognise columns.
_SAMPLE = 1_000
# A numeric column with more values than this is a measurement and not a class.
_MOST_NUMBERS = 20


# Standard names of the columns that a model reads.
INPUT_COLUMNS = ("text", "text_pair", "tokens", "question", "context", "choices")


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """The user's names for the columns that a task reads.

    Attributes:
        text_column: name of the column with the text.
        text_pair_column: name of the column with the second text; a column `text_pair` is read
            when there is one.
        label_column: name of the column with the label, the list of labels or the score.
        label_columns: one 0/1 column per label: multi-label.
        merge_labels: 0/1 columns that become one label: whether any of them is 1.
        merge_as: the name of that label; other rows get "not" and the name.
        tokens_column: name of the column with the words of a tagged sentence.
        tags_column: name of the column with the tags of those words.
        spans_column: name of the column with labelled character spans.
        id_column: name of the column with a question's id.
        question_column: name of the column with the question.
        context_column: name of the column with the text that a question or a choice is about.
        answers_column: name of the column with the answers.
        choices_column: name of the column with the list of choices.
        choice_columns: one column per choice, instead of a list.
        separator: character between the fields of CSV and TSV files, such as ";".
        encoding: of CSV, TSV, JSON Lines and text files, such as latin-1 or cp1252; UTF-8 when not
            given.
    """

    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str | None = None
    label_columns: tuple[str, ...] | None = None
    merge_labels: tuple[str, ...] | None = None
    merge_as: str | None = None
    tokens_column: str | None = None
    tags_column: str | None = None
    spans_column: str | None = None
    id_column: str | None = None
    question_column: str | None = None
    context_column: str | None = None
    answers_column: str | None = None
    choices_column: str | None = None
    choice_columns: tuple[str, ...] | None = None
    separator: str | None = None
    encoding: str | None = None

    @staticmethod
    def recorded(options: Any) -> ColumnNames:
        """Return the names among recorded options, which may come from anywhere."""
        named: dict[str, Any] = {}
        for field in fields(ColumnNames) if isinstance(options, dict) else ():
            value = options.get(field.name)
            if isinstance(value, list) and all(isinstance(item, str) for item in value):
                named[field.name] = tuple(value)
            elif isinstance(value, str):
                named[field.name] = value
        return ColumnNames(**named)

    def or_recorded(self, options: Any, path: str | Path) -> ColumnNames:
        """Return these names; where the user gave none, those of a recorded training run.

        The recorded names are left out unless the file has the recorded columns of the texts.
        """
        given = {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != f.default}
        merged = replace(ColumnNames.recorded(options), **given)
        if not has_columns(path) or merged == self:
            return self
        wanted = {*map(merged.given, INPUT_COLUMNS), *(merged.choice_columns or ())} - {None}
        with suppress(InputError):
            if wanted <= {*column_names(path, merged.separator, merged.encoding)}:
                return merged
        return self

    def own(self, name: str) -> str:
        """Return the file's own name of a standard column."""
        return self.given(name) or name

    def given(self, name: str) -> str | None:
        """Return the same if the user has named it, else None."""
        own: str | None = getattr(self, f"{'label' if name == 'labels' else name}_column", None)
        return own

    @property
    def merged(self) -> tuple[str, str] | None:
        """The labels that 0/1 columns are merged into, if any: "not malicious" and "malicious".

        Raises:
            ConfigError: One of the two options is missing or wrong.
        """
        columns, name = self.merge_labels, self.merge_as
        if columns is None and name is None:
            return None
        if columns is None or name is None:
            raise ConfigError(
                "--merge-labels names 0/1 columns, and --as the label that they become; give both, "
                "as in --merge-labels toxic,insult --as malicious."
            )
        if self.label_column is not None:
            raise ConfigError(
                "--merge-labels and --label-column both say where the label is; give one of them."
            )
        if not columns or len(set(columns)) < len(columns):
            names = printable(", ".join(columns)) or "nothing"
            raise ConfigError(f"--merge-labels names {names}; give different columns.")
        name = name.strip(" ")
        if not name or not name.isprintable() or len(name) > MAX_LABEL:
            raise ConfigError(f"--as {printable(name)!r} is no label; give a word.")
        return (f"not {name}", name)

    def refuse_label_columns(self, instead: str) -> None:
        """Raise a ConfigError for 0/1 columns: the rows of the task hold `instead`."""
        if self.label_columns or self.merged:
            option = "--merge-labels" if self.merged else "--label-columns"
            raise ConfigError(f"{option} is for classification; {instead}.")

    def declared_labels(
        self, labels: Sequence[str] | None, *, multilabel: bool
    ) -> tuple[str, ...] | None:
        """Return the labels in order, as far as options name them.

        They are `labels`, the 0/1 columns, or the two that merged columns make.

        Raises:
            ConfigError: Two options name the labels, or one label is named twice.
        """
        merged = self.merged
        if bool(merged) + bool(labels) + bool(self.label_columns) > 1 or (merged and multilabel):
            raise ConfigError(
                "--labels, --label-columns and --merge-labels all name the labels; give one of "
                "them. --merge-labels excludes --multilabel."
            )
        names = tuple(merged or labels or self.label_columns or ())
        if len(set(names)) < len(names):
            raise ConfigError(f"The labels {list(names)} name one label twice.")
        return names or None

    def read(
        self,
        path: str | Path,
        *,
        required: Sequence[str],
        optional: Sequence[str] = (),
        extra: Sequence[str] = (),
        on_error: OnError = raised,
    ) -> Iterator[Row]:
        """Return the rows of a file under the standard names; see `read_rows`.

        A required `label` comes from the columns of `merge_labels` where these are given.

        Args:
            required: Standard names that must be there.
            optional: Standard names that are read where they are there; required once the user
                has named their column.
        """
        named = [name for name in optional if self.given(name) is not None]
        merged = self.merged if "label" in required else None
        columns = (self.merge_labels or ()) if merged else ()
        wanted = [name for name in (*required, *named) if not merged or name != "label"]
        rows = read_rows(
            path,
            columns={name: self.own(name) for name in wanted},
            required=wanted,
            optional=[name for name in optional if name not in named],
            extra=(*extra, *columns),
            separator=self.separator,
            encoding=self.encoding,
            on_error=on_error,
        )
        if not merged:
            return rows
        dropped = frozenset(columns) - frozenset(extra)

        def with_label(row: Row) -> Row:
            # A list, so that all columns are checked.
            label = merged[any([is_set(row, column) for column in columns])]
            kept = {name: value for name, value in row.values.items() if name not in dropped}
            return Row(kept | {"label": label}, row.path, row.line)

        return check_each(rows, with_label, on_error)


def first_value(path: str | Path, names: ColumnNames, column: str) -> Any:
    """Return the value of a standard column in the first good row of a file; None without it."""
    files = ColumnNames(separator=names.separator, encoding=names.encoding)
    rows = files.read(path, required=(), optional=(column,), on_error=lambda _: None)
    return next((row.values.get(column) for row in rows), None)


# Columns recognised by their content


def recognised(
    path: str | Path,
    names: ColumnNames,
    *,
    num_texts: int,
    label: str | None,
    apart: Sequence[str] = (),
) -> ColumnNames:
    """Return names of columns, with those of text and label found by content where needed.

    A column is only searched if the user has not named it and the file does not have the standard
    name. Texts are the longest strings. Classes are columns in which few values repeat; a score is
    a column of numbers that does not just count the rows.

    Args:
        num_texts: 1, or 2 for pairs.
        label: "class", "number", or None if no label is read.
        apart: Columns with another use.

    Raises:
        InputError: Several columns may be meant.
    """
    if not has_columns(path):
        return names
    known = column_names(path, names.separator, names.encoding)
    wants_text = names.own("text") == "text" and "text" not in known
    has_label = names.label_column or names.label_columns or names.merge_labels
    wants_label = bool(label) and not has_label and not {"label", "labels"} & {*known}
    given = {names.text_column, names.text_pair_column, names.label_column} - {None, "text"}
    is_clear = not wants_text and not wants_label
    # The reader reports which of the given columns is missing.
    if is_clear or len(known) < num_texts + bool(label) or not given <= {*known}:
        return names
    rows = read_rows(
        path, separator=names.separator, encoding=names.encoding, on_error=lambda _: None
    )
    sample = [row.values for row in islice(rows, _SAMPLE)]
    used = {names.own("text"), names.own("text_pair"), names.own("label"), *apart}
    columns = {
        name: [row[name] for row in sample if row.get(name) not in (None, "")]
        for name in known
        if name not in used
    }
    texts = _longest_texts(columns, num_texts) if wants_text else []
    rest = {name: values for name, values in columns.items() if name not in texts}
    labels = [n for n, v in rest.items() if (_is_class if label == "class" else _is_score)(v)]
    if (wants_text and len(texts) != num_texts) or (wants_label and len(labels) != 1):
        roles = ({"text": texts} if wants_text else {}) | ({"label": labels} if wants_label else {})
        raise _unclear(path, known, roles)
    named: dict[str, Any] = dict(zip(("text_column", "text_pair_column"), texts, strict=False))
    if wants_label:
        named["label_column"] = labels[0]
    return replace(names, **named)


def recognition_line(given: ColumnNames, used: ColumnNames) -> str:
    """Describe the columns that `recognised` added, for the user."""
    roles = {"text_column": "text", "text_pair_column": "second text", "label_column": "label"}
    new = {role: getattr(used, name) for name, role in roles.items()}
    new = {role: own for role, own in new.items() if own not in vars(given).values()}
    named = " and ".join(f'"{printable(own, 40)}" as {role}' for role, own in new.items())
    return f"Using column {named}."


def _longest_texts(columns: Mapping[str, Sequence[Any]], count: int) -> list[str]:
    """Return the `count` columns with the longest strings, or more if others are as long."""
    lengths = {
        name: fmean(map(len, values))
        for name, values in columns.items()
        if values and all(isinstance(value, str) for value in values) and not _numbers(values)
    }
    # Addresses and ids may be longer than the texts, but have no blanks.
    with_blanks = [n for n in lengths if fmean(" " in text for text in columns[n]) > 0.5]
    ranked = sorted(with_blanks or lengths, key=lambda name: -lengths[name])
    others = [name for name in ranked[count:] if 2 * lengths[name] > lengths[ranked[count - 1]]]
    others = [name for name in others if not _is_class(columns[name])]
    return sorted([*ranked[:count], *others], key=[*columns].index)


def _is_class(values: Sequence[Any]) -> bool:
    """Return whether few values repeat."""
    if not all(isinstance(value, str | int | float) for value in values):
        return False
    distinct, numbers = len({*values}), _numbers(values)
    if numbers and (distinct > _MOST_NUMBERS or any(number % 1 for number in numbers)):
        return False
    return distinct == 2 or 2 < distinct <= len(values) / 3


def _is_score(values: Sequence[Any]) -> bool:
    """Return whether the values are numbers that do not just count the rows."""
    numbers = _numbers(values)
    return len({*numbers}) > 1 and not all(b - a == 1 for a, b in pairwise(numbers))


def _numbers(values: Sequence[Any]) -> list[float]:
    """Return the values as numbers; [] if one of them is none."""
    try:
        return [float(value) for value in values if not isinstance(value, bool)]
    except (TypeError, ValueError):
        return []


def _unclear(
    path: str | Path, known: Sequence[str], candidates: Mapping[str, Sequence[str]]
) -> InputError:
    """Return the error for roles with no candidate, or with several."""
    problems, flags = [], []
    for role, names in candidates.items():
        some = " or ".join(f'"{printable(name, 30)}"' for name in names[:8])
        problems.append(f"the {role} may be {some}" if some else f"none looks like a {role}")
        flags.append(f"--{role}-column {shlex.quote(names[0]) if names else 'NAME'}")
    columns = ", ".join(printable(name, 30) for name in known[:20])
    texts = candidates.get("text", ())
    pair = f" For pairs, add --text-pair-column {shlex.quote(texts[1])}." if texts[1:] else ""
    return InputError(
        f"{name_of(path)}: the columns are {columns}; {' and '.join(problems)}. Name them, as in "
        f"{' '.join(flags)}.{pair}"
    )
