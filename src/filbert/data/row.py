"""A row, and the choice of columns that makes one from a file's own."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from filbert.data.streams import kind_of, shown
from filbert.errors import InputError, printable

# Endings of files whose rows have columns.
WITH_COLUMNS = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: canonical column name -> value, and where it stands.

    `path` is as the user gave it; `line` counts from 1 and is where the row starts (in Parquet: the
    row).
    """

    values: dict[str, Any]
    path: str
    line: int

    @property
    def where(self) -> str:
        """File and line, as in "train.csv:217"."""
        return f"{shown(self.path)}:{self.line}"


def refuse_repeats(names: Sequence[str], where: str) -> None:
    """Refuse a column name that stands twice in the header or schema at `where`.

    Raises:
        InputError: there is one.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(
                f'{where}: the header names the column "{printable(name, 30)}" twice. Rename one.'
            )
        seen.add(name)


@dataclass(frozen=True)
class Choice:
    """Which columns are kept, under which names."""

    name: str
    columns: dict[str, str]
    required: tuple[str, ...]
    optional: Sequence[str] | None
    extra: tuple[str, ...]

    def pick(self, names: Sequence[str], line: int | None = None) -> dict[str, str]:
        """Kept columns among `names`, of the file or of one line: canonical name -> its own."""
        known = frozenset(names)
        wanted = dict.fromkeys(chain(self.columns, self.required))
        picked = {key: self.columns.get(key, key) for key in wanted}
        for key, own in picked.items():
            if own not in known:
                flag = "label" if key == "labels" else key.replace("_", "-")
                others = {*picked.values(), *self.extra} - {own}
                raise self._missing(own, names, line, f"--{flag}-column", others)
        for own in self.extra:
            if own not in known:
                raise self._missing(own, names, line, None)
            if picked.get(own, own) != own:
                where = self.name if line is None else f"{self.name}:{line}"
                raise InputError(
                    f'{where}: the column "{printable(own)}" cannot be read beside '
                    f'"{printable(picked[own])}", which stands for {own} here. Rename it.'
                )
            picked[own] = own
        taken = set(picked.values())
        for own in names if self.optional is None else self.optional:
            if own in known and own not in picked and own not in taken:
                picked[own] = own
        return picked

    def _missing(
        self,
        own: str,
        names: Sequence[str],
        line: int | None,
        option: str | None,
        others: Collection[str] = (),
    ) -> InputError:
        """The error for a column that is missing.

        Args:
            own: The column's name, which is not among `names`.
            names: The columns that exist.
            line: Where; None for the whole file.
            option: The option that names this column, if there is one.
            others: Columns with another use, such as the label; none of them is proposed.
        """
        where = self.name if line is None else f"{self.name}:{line}"
        free = [name for name in names if name not in others]
        near = [printable(name, 30) for name in _similar(own, free)]
        own = printable(own)
        if not names:
            return InputError(f'{where}: no column "{own}"; the object is empty, {{}}.')
        # The first line of a file without a header is a text, so names are cut short.
        known = ", ".join(printable(name, 30) for name in names[:20])
        known += f" and {len(names) - 20} more" if len(names) > 20 else ""
        if names == ["text"] and line is None and kind_of(self.name)[0] not in WITH_COLUMNS:
            hint = (
                "A file of this name is read as one text a line; rows with columns come from .csv, "
                ".tsv, .jsonl or .parquet files."
            )
        elif len(names) == 1 and (marks := [mark for mark in ";\t|" if mark in names[0]]):
            hint = (
                "A .csv file is split at commas and a .tsv file at tabs; name another separator "
                f"with --separator '{printable(marks[0])}'."
            )
        elif near and option:
            several = ", or --multilabel where it holds lists" if near[0] == "labels" else ""
            hint = f"If {near[0]} is meant, pass {option} {near[0]}{several}."
        elif near:
            hint = f"Did you mean {near[0]}?"
        elif option:
            hint = f"Name the right one with {option} NAME; the first line must name the columns."
        else:
            hint = "Names are compared letter by letter."
        return InputError(f'{where}: no column "{own}"; the columns are {known}. {hint}')


def _similar(wanted: str, names: Sequence[str]) -> list[str]:
    """Names that `wanted` is likely a misspelling of, or that contain it as a whole word."""
    # difflib's own limit of 0.6 takes "intent" for "text".
    if near := difflib.get_close_matches(wanted, names, n=1, cutoff=0.75):
        return near
    word = re.compile(rf"(?<![^\W\d_]){re.escape(wanted)}(?![^\W\d_])", re.IGNORECASE)
    return [name for name in names if word.search(name)]
