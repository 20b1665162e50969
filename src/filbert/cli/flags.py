"""What several verbs share: how flags look, and how answers leave."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts import App

    from filbert.data.columns import ColumnNames


def print_json(content: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=str))


def flags_of(kind: type, *, required: Sequence[str] = ()) -> type:
    """Return a flat dataclass with one field per option of `kind`, for the command line parser.

    Args:
        kind: a class of options.
        required: options that must be given although they have a default.
    """
    from filbert.train.options import options_in

    options = options_in(kind).values()
    made = make_dataclass(
        f"{kind.__name__.removesuffix('Options')}Flags",
        [
            (one.name, one.type, field(default=MISSING if one.name in required else one.default))
            for one in options
        ],
        frozen=True,
        kw_only=True,
    )
    made.__module__ = kind.__module__  # cyclopts ignores classes of the standard library
    entries = "\n".join(f"    {one.name}: {one.doc}" for one in options)
    made.__doc__ = f"{kind.__doc__}\n\nAttributes:\n{entries}\n"
    return made


STDIO = "-"
# cyclopts takes a lone - for a misspelt flag, so `main` hands it over so.
_DISGUISED = "(standard input or output)"


def disguised(token: str) -> str:
    """A word of the command line as cyclopts takes it for a value; `undisguised` gives it back."""
    return _DISGUISED if token == STDIO else token


def undisguised(value: Any) -> Any:
    """The same value, list or dataclass of options with every - as the user typed it."""
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


# Flags that read better than the option they stand for: "as" is no name in Python.
SHORT_FLAGS = {"--as": "--merge-as"}


def unabbreviated(token: str) -> str:
    """A word of the command line with a short flag written out, as in --as NAME and --as=NAME."""
    flag, equals, value = token.partition("=")
    return SHORT_FLAGS.get(flag, flag) + equals + value


def files_last(app: App, tokens: Sequence[str]) -> tuple[str, ...]:
    """A command line with the words behind a list of names, as in `--labels a,b FILE`, at its end.

    A list takes all words up to the next flag; one with commas in it is complete, and what follows
    is a file or a model, where the verb of `app` takes such.
    """
    from filbert.train.options import NAME_LISTS

    lists = {f"--{name.replace('_', '-')}" for name in NAME_LISTS}
    if "--" in tokens or not any("," in token for token in tokens):
        return tuple(tokens)
    if all(argument.index is None for argument in app.assemble_argument_collection()):
        return tuple(tokens)
    kept, moved, is_complete = list[str](), list[str](), False
    for before, token in zip(["", *tokens], tokens, strict=False):
        flag, _, value = token.partition("=")
        is_flag = token.startswith("-") and token != STDIO
        if is_flag:
            is_complete = flag in lists and "," in value
        elif is_complete:
            moved.append(token)
            continue
        else:
            is_complete = before in lists and "," in token
        kept.append(token)
    return (*kept, "--", *moved) if moved else tuple(kept)


def columns_of(given: ColumnNames | None) -> ColumnNames:
    """Names of columns as a verb works with them: lists between commas are taken apart."""
    from filbert.data.columns import ColumnNames
    from filbert.train.options import NAME_LISTS, names_of

    names = given or ColumnNames()
    found = {name: getattr(names, name, None) for name in NAME_LISTS}
    lists: dict[str, Any] = {k: names_of(v) for k, v in found.items() if v is not None}
    return replace(names, **lists)


def metric_lines(exact: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """A line for every figure that both have: before and after."""
    return [
        f"  {name}  {value:.4f} -> {other[name]:.4f}"
        for name, value in exact.items()
        if isinstance(value, float) and isinstance(other.get(name), float)
    ]


def typed_text(given: str) -> str:
    """A text as the user typed it, or all of stdin.

    Raises:
        InputError: that is not UTF-8.
    """
    from filbert.errors import InputError

    if given != STDIO:
        return given
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError("The text on stdin is not UTF-8.") from error


def refuse_own_source(source: str, out: str | None) -> None:
    """Make sure that answers are not written over the file that is read.

    Raises:
        ConfigError: they would be.
    """
    from filbert.errors import ConfigError

    if out in (None, STDIO) or source == STDIO:
        return
    assert out is not None
    try:
        is_same = os.path.samefile(source, out)
    except OSError:  # one is not there
        return
    if is_same:
        raise ConfigError(
            f"--out {out} is the file that is read. Name another, or it would be lost."
        )


def refuse_stdout(given: Mapping[str, Any]) -> None:
    """Make sure that no folder to write is called -.

    Raises:
        ConfigError: one is.
    """
    from filbert.errors import ConfigError

    for name in ("out", "target"):
        for holder in (given, *(vars(v) for v in given.values() if is_dataclass(v))):
            if str(holder.get(name)) == STDIO:
                raise ConfigError(
                    f"- is standard output, and a folder is written here. Name one as {name}."
                )


def check_lines_file(out: str | None) -> None:
    """Refuse a name by which everyone would take JSON Lines for something else.

    Raises:
        ConfigError: it is one.
    """
    from filbert.errors import ConfigError

    ending = Path(out or "").suffix.lower()
    if ending in (".gz", ".bz2", ".xz", ".zst", ".parquet", ".csv", ".tsv", ".npy"):
        raise ConfigError(
            f"--out {out}: what is written is JSON Lines, not compressed. Name a file that ends in "
            ".jsonl."
        )


@contextmanager
def output(out: str | None) -> Iterator[IO[str]]:
    """Where answers go: stdout, or a file that appears under its name only when it is complete."""
    if out is None or out == STDIO:
        yield sys.stdout
        sys.stdout.flush()
        return
    # Half a surrogate pair, of a text that was cut, is written as JSON writes it.
    with (
        unfinished(Path(out)) as path,
        path.open("w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        yield file


def _way(path: Path) -> str:
    """What to do about a file that cannot be made."""
    return f"Make the folder {path.parent} first." if not path.parent.exists() else "Name another."


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; renamed to `path` at the end, removed when something fails.

    Raises:
        InputError: the place cannot be written to.
    """
    part = _begun(path)
    if part is None:
        yield path
        return
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def check_file(path: Path) -> None:
    """Make sure, before anything is computed, that `unfinished` will have a place to write to.

    Raises:
        InputError: it cannot be written to.
    """
    if (part := _begun(path)) is not None:
        part.unlink(missing_ok=True)


def _begun(path: Path) -> Path | None:
    """An empty file beside `path`; None where `path` is a device or a pipe, which is written to."""
    from filbert.errors import InputError

    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; --out names a file.")
        if path.exists() and not path.is_file():
            return None
        part.touch()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}. {_way(path)}") from error
    return part
