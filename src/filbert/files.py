"""Atomic writes, locks, JSON files and hashes; and the cores of this machine.

New content is written to a temporary sibling, flushed to the disk, and renamed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path, PurePath
from secrets import token_hex
from typing import Any

from filbert.errors import ConfigError, FilbertError, FormatError, InputError

# The colours, the type and the logo of every page.
THEME = Path(__file__).with_name("theme")
# A JSON text can take thirty times its size as objects. Names for 50,000 labels fit in.
MAX_JSON_BYTES = 4 * 2**20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
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


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def staged(target: Path, *, folder: bool) -> Iterator[Path]:
    """Yield a temporary sibling of `target`, which is deleted unless the block renames it."""
    created = [parent for parent in target.parents if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot create {target.parent}: {error.strerror}.") from error
    temporary = target.with_name(f".{target.name}.{token_hex(6)}.tmp")
    try:
        if folder:
            temporary.mkdir()
        yield temporary
    except BaseException as error:
        _delete(temporary)
        for path in created:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise InputError(
                f"No space left on the disk while writing {target}; nothing there was changed. "
                "Free some space and repeat."
            ) from error
        if isinstance(error, PermissionError) and str(temporary) in str(error.filename):
            raise InputError(f"Cannot write {target}: {error.strerror}.") from error
        raise


def check_writable(path: Path) -> None:
    """Raise an InputError unless a file can be written, before anything is computed for it."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; --out names a file.")
    if not path.parent.exists():
        raise InputError(f"{path} cannot be written. Make the folder {path.parent} first.")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written. Name another place.")


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file as a whole (text as UTF-8), or raise an InputError, as for a full disk."""
    path = Path(os.path.realpath(path))
    with staged(path, folder=False) as temporary:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush(path.parent)


@contextmanager
def replace_folder(target: Path, *, marker: str = "config.json") -> Iterator[Path]:
    """Yield a temporary folder that replaces `target` when the block succeeds.

    The old folder is renamed, then deleted; after a failure it is unchanged. One that is not empty
    must hold the file `marker`, so that a mistyped name cannot delete a home directory.

    Raises:
        InputError: The disk is full, the folder is not writable, or `target` has no marker.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file, not a folder.")
    if target.is_dir() and any(target.iterdir()) and not (target / marker).is_file():
        raise InputError(
            f"{target} holds other files and no {marker}, so it is not replaced. "
            "Name another folder."
        )
    with staged(target, folder=True) as temporary:
        yield temporary
        for path in (*sorted(temporary.rglob("*")), temporary):
            if not path.is_symlink():
                flush(path)
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


def check_target(target: Path, place: Path, *, overwrite: bool) -> None:
    """Raise an InputError if a folder exists, or holds the model at `place`, its source."""
    home = (place if place.is_dir() else place.parent).resolve()
    resolved = target.resolve()
    if home == resolved or resolved in home.parents:
        raise InputError(f"{target} holds the source. Name another folder to write to.")
    is_empty = target.is_dir() and not any(target.iterdir())
    if target.exists() and not is_empty and not overwrite:
        raise InputError(f"{target} exists. Name another folder, or add --overwrite.")


def load_json(path: Path, *, most: int = MAX_JSON_BYTES) -> Any:
    """Return the value in a JSON file.

    Raises:
        FormatError: No such file, not UTF-8, not JSON, or over `most` bytes.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FormatError(f"{path} is no plain file.")
        if path.stat().st_size > most:
            raise FormatError(f"{path} has {path.stat().st_size:,} bytes; that is no {path.name}.")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not valid JSON: {str(error)[:200]}. Restore it.") from error


def read_json(path: Path, *, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file, or raise a FormatError as `load_json` does."""
    value = load_json(path, most=most)
    if not isinstance(value, dict):
        raise FormatError(f"{path} holds a JSON {type(value).__name__}, not an object. Restore it.")
    return value


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file as a whole."""
    write_atomically(path, json.dumps(content, indent=2, default=list) + "\n")


def cache_folder() -> Path:
    """Return the folder of what was measured or made for this machine, which may be deleted."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "filbert"


def measured_once(
    name: str, machine: dict[str, Any], measure: Callable[[], dict[str, dict[str, float]]]
) -> tuple[dict[str, dict[str, float]], str]:
    """Return times by two names from the cache folder, and the date; else measure them "now".

    They depend on `machine`. A file that is damaged or cannot be written is no error.
    """
    digest = hashlib.sha256(json.dumps(machine).encode()).hexdigest()[:16]
    # Without a home directory: RuntimeError.
    with suppress(FilbertError, OSError, RuntimeError, LookupError, AttributeError, TypeError):
        content = read_json(cache_folder() / f"{name}-{digest}.json")
        if min(time for part in content["values"].values() for time in part.values()) > 0:
            return content["values"], str(content["date"])
    values = measure()
    with suppress(FilbertError, OSError, RuntimeError):
        content = {"machine": machine, "date": str(date.today()), "values": values}
        write_json(cache_folder() / f"{name}-{digest}.json", content)
    return values, "now"


def portable(given: Any) -> Any:
    """Return the last part of an absolute path, and other values unchanged; also in containers.

    For files in a folder that is copied to other machines, such as a model's filbert.json.
    """
    if isinstance(given, dict):
        return {key: portable(value) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [portable(item) for item in given]
    if not isinstance(given, str):
        return given
    path = PurePath(given)
    return path.name if path.is_absolute() or given.startswith("~") else given


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Create the folder if needed and lock it; yield the descriptor of the lock.

    Children that inherit the descriptor hold the lock too; a kill releases it.

    Raises:
        InputError: It cannot be created.
        ConfigError: Another process holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder}: another filbert is writing there. Wait for it.") from None
        yield descriptor
    except OSError as error:
        if error.errno in _NO_ROOM and error.filename is None:
            error.filename = str(folder)  # an error while writing to an open file names none
        raise
    finally:
        os.close(descriptor)


_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
# The value of --threads, for the processes that a command starts.
THREADS_VARIABLE = "FILBERT_THREADS"


def cpu_quota() -> int | None:
    """Return the cores of a container's CPU quota, rounded up; None without a quota.

    Source: the kernel's admin-guide/cgroup-v2.rst, cpu.max.
    """
    try:
        quota, period = map(int, _CPU_QUOTA.read_text().split())
        return max(1, math.ceil(quota / period))
    except (OSError, ValueError):  # no such file, or "max"
        return None


def available_cores() -> int:
    """Return the number of cores that this process may use, within a container's CPU quota."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(cores, cpu_quota() or cores)
