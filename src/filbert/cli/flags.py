"""What several verbs share: how flags look, and how answers leave."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def print_json(content: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=str))


# cyclopts takes a lone - for a misspelt flag, so `main` hands it over in disguise.
STDIO = "\0stdio"


# Flags that read better than the option they stand for: "as" is no name in Python.
SHORT_FLAGS = {"--as": "--merge-as"}


def unabbreviated(token: str) -> str:
    """A word of the command line with a short flag written out, as in --as NAME and --as=NAME."""
    flag, equals, value = token.partition("=")
    return SHORT_FLAGS.get(flag, flag) + equals + value


def file_name(given: str) -> str:
    """A file name as the user typed it."""
    return "-" if given == STDIO else given


@contextmanager
def output(out: str | None) -> Iterator[IO[str]]:
    """Where answers go: stdout, or a file that appears under its name only when it is complete."""
    if out is None or out == STDIO:
        yield sys.stdout
        sys.stdout.flush()
        return
    with unfinished(Path(out)) as path, path.open("w", encoding="utf-8") as file:
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
    from filbert.errors import InputError

    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; --out names a file.")
        replaceable = path.is_file() or not path.exists()
        if replaceable:
            part.touch()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}. {_way(path)}") from error
    if not replaceable:  # a device or a pipe
        yield path
        return
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
