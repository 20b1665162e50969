"""Reads the words of a command line: flags of option classes, -, short flags and lists."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from filbert.errors import InputError

if TYPE_CHECKING:
    from filbert.data.columns import ColumnNames
    from filbert.train.options import Option

STDIO = "-"
# cyclopts reads a lone - as a misspelt flag, so `main` passes this instead.
_DISGUISED = "(standard input or output)"


def flags_of(kind: type, *, required: Sequence[str] = ()) -> type:
    """Return a flat dataclass with one field per option of `kind`, for the command line parser.

    Args:
        kind: A class of options.
        required: Options that must be given although they have a default.
    """
    from filbert.train.options import options_in

    options = options_in(kind).values()
    flat = make_dataclass(
        f"{kind.__name__.removesuffix('Options')}Flags",
        [
            (
                one.name,
                _flag_type(one),
                field(default=MISSING if one.name in required else one.default),
            )
            for one in options
        ],
        frozen=True,
        kw_only=True,
    )
    flat.__module__ = kind.__module__  # cyclopts ignores classes of the standard library
    entries = "\n".join(f"    {one.name}: {one.doc}" for one in options)
    flat.__doc__ = f"{kind.__doc__}\n\nAttributes:\n{entries}\n"
    return flat


def _flag_type(option: Option) -> Any:
    """Return the type of an option with what the parser has to know about it."""
    from cyclopts import Parameter

    from filbert.train.options import NAME_LISTS

    if option.default is True:
        return Annotated[bool, Parameter(negative=f"--no-{option.name.replace('_', '-')}")]
    if option.name in NAME_LISTS:
        # Names stand between commas, so that a file may follow.
        return Annotated[option.type, Parameter(consume_multiple=False)]
    if option.name == "merge_as":  # "as" is no name in Python.
        return Annotated[option.type, Parameter(name=("--merge-as", "--as"))]
    return option.type


def disguised(token: str) -> str:
    """Return a word of the command line in the form that cyclopts accepts as a value."""
    return _DISGUISED if token == STDIO else token


def undisguised(value: Any) -> Any:
    """Return a value, list or dataclass of options with every - as the user typed it."""
    if isinstance(value, str):
        return STDIO if value == _DISGUISED else value
    if isinstance(value, Path):
        return Path(STDIO) if str(value) == _DISGUISED else value
    if isinstance(value, list | tuple):
        return type(value)(map(undisguised, value))
    if is_dataclass(value) and not isinstance(value, type):
        now = {part.name: getattr(value, part.name) for part in fields(value) if part.init}
        changed = {name: new for name, v in now.items() if (new := undisguised(v)) != v}
        return replace(value, **changed) if changed else value
    return value


def columns_of(given: Any) -> ColumnNames:
    """Return the names of columns, with lists between commas split."""
    from filbert.data.columns import ColumnNames
    from filbert.train.options import NAME_LISTS, names_of

    names = vars(given) if given else {}
    lists = {k: names_of(names[k]) for k in NAME_LISTS if names.get(k) is not None}
    return ColumnNames(**names | lists)


def typed_text(given: str) -> str:
    """Return a text as the user typed it, or all of stdin.

    Raises:
        InputError: Stdin is not UTF-8.
    """
    if given != STDIO:
        return given
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError("The text on stdin is not UTF-8.") from error
