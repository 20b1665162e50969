"""What several verbs share: how flags look, and how answers leave."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def names_of(given: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """A list flag: `--labels a,b`, `--labels a b` and `--labels a --labels b` mean the same."""
    if given is None:
        return None
    return tuple(part.strip() for item in given for part in item.split(",") if part.strip())


def print_json(content: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=str))


@contextmanager
def output(out: str | None) -> Iterator[IO[str]]:
    """Where answers go: stdout, or a file that appears under its name only when it is complete."""
    if out is None or out == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    with unfinished(Path(out)) as path, path.open("w", encoding="utf-8") as file:
        yield file


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; renamed to `path` at the end, removed when something fails.

    Raises:
        InputError: the folder does not exist.
    """
    from filbert.errors import InputError

    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} in.")
    if path.is_dir():
        raise InputError(f"{path} is a folder; --out names a file.")
    if path.exists() and not path.is_file():  # a device or a pipe: there is nothing to replace
        yield path
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
