"""Files that are either the old ones or the new ones, never a half-written mix.

New content goes to a temporary sibling, is flushed to the disk, and is renamed into place.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from secrets import token_hex
from typing import Any

from filbert.errors import FormatError, InputError

# A JSON text can take thirty times its size as objects. Names for 50,000 labels fit in.
MAX_JSON_BYTES = 4 * 2**20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def flush(path: Path) -> None:
    """Force a file, or a folder's list of names, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if not path.is_symlink():
            flush(path)
    flush(folder)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _make_parents(path: Path) -> list[Path]:
    """Create the missing folders above `path`; the list of them, outermost first."""
    missing = [parent for parent in path.parents if not parent.exists()][::-1]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot create {path.parent}: {error.strerror}.") from error
    return missing


@contextmanager
def _staged(target: Path, *, folder: bool, parent: Path | None = None) -> Iterator[Path]:
    """A temporary sibling of `target` that never outlives the block unless it was renamed."""
    created = _make_parents((parent or target.parent) / target.name)
    temporary = (parent or target.parent) / f".{target.name}.{token_hex(6)}.tmp"
    try:
        if folder:
            temporary.mkdir()
        yield temporary
    except BaseException as error:
        _delete(temporary)
        for path in reversed(created):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise InputError(
                f"No room left on the disk while writing {target}; nothing there was changed. "
                "Free some space and repeat."
            ) from error
        if isinstance(error, PermissionError) and str(temporary) in str(error.filename):
            raise InputError(f"Cannot write {target}: {error.strerror}.") from error
        raise


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file, or leave the old one as it was. Text is written as UTF-8.

    Raises:
        InputError: the disk is full, or the folder may not be written to.
    """
    path = Path(os.path.realpath(path))
    with _staged(path, folder=False) as temporary:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush(path.parent)


@contextmanager
def replace_files(folder: Path) -> Iterator[Path]:
    """A temporary folder whose files move into `folder` when the block succeeds.

    All are complete on the disk before the first one is renamed. Other files of `folder` stay; it
    is created when missing.

    Raises:
        InputError: the disk is full, or the folder may not be written to.
    """
    folder = Path(os.path.realpath(folder))
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder.")
    with _staged(folder, folder=True, parent=folder) as temporary:
        yield temporary
        _flush_tree(temporary)
        for path in sorted(temporary.iterdir()):
            path.replace(folder / path.name)
        temporary.rmdir()
        flush(folder)


@contextmanager
def replace_folder(target: Path, *, marker: str = "config.json") -> Iterator[Path]:
    """A temporary folder that takes the place of `target` when the block succeeds.

    The old folder is moved aside, then deleted; after a failure it is as it was.

    Args:
        target: the folder to make or to replace.
        marker: a non-empty `target` is replaced only if it holds this file, so that a mistyped name
            cannot cost somebody a home directory.

    Raises:
        InputError: the disk is full, the place may not be written to, or `target` is not ours to
            replace.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file, not a folder.")
    if target.is_dir() and any(target.iterdir()) and not (target / marker).is_file():
        raise InputError(
            f"{target} holds other files and no {marker}, so it is not replaced. "
            "Name another folder."
        )
    with _staged(target, folder=True) as temporary:
        yield temporary
        _flush_tree(temporary)
        old = target.with_name(f".{target.name}.{token_hex(6)}.old")
        if target.exists():
            target.rename(old)
        try:
            temporary.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        flush(target.parent)
        _delete(old)


def load_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        FormatError: No such file, not UTF-8, not JSON, or over 4 MiB.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FormatError(f"{path} is no plain file.")
        if path.stat().st_size > MAX_JSON_BYTES:
            raise FormatError(f"{path} has {path.stat().st_size:,} bytes; that is no {path.name}.")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not valid JSON: {str(error)[:200]}. Restore it.") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        FormatError: As `load_json`, or not an object.
    """
    value = load_json(path)
    if not isinstance(value, dict):
        raise FormatError(f"{path} holds a JSON {type(value).__name__}, not an object. Restore it.")
    return value


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file by new content, whole or not at all."""
    write_atomically(path, json.dumps(content, indent=2, default=list) + "\n")


def portable(given: Any) -> Any:
    """A path without the machine's folders: the last part of an absolute one, others as they are.

    For what is written into a folder that travels, such as a model's filbert.json.
    Lists are taken one by one; whatever is no text stays.
    """
    if isinstance(given, list | tuple):
        return [portable(item) for item in given]
    if not isinstance(given, str):
        return given
    path = PurePath(given)
    return path.name if path.is_absolute() or given.startswith("~") else given
