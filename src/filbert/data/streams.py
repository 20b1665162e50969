"""Files as lines of text: compressed or not, in bounded memory, with line numbers."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from filbert.errors import ConfigError, InputError

T = TypeVar("T")
R = TypeVar("R")

# The longest line or field, in characters.
MAX_FIELD = 4 * 2**20
# Bytes that are decoded at once.
_BLOCK = 2**16
BOM = "\ufeff"
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_ZSTD = b"\x28\xb5\x2f\xfd"
# The first bytes of compressed files, and what opens them.
_UNPACKERS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
# What files begin with that are often taken for text, as `open_text` decodes it.
_NOT_TEXT = {
    "PAR1": "Parquet data; give it a name that ends in .parquet",
    "PK\x03\x04": "a ZIP archive or an Excel file; unpack it or save it as CSV",
}

OnError = Callable[[InputError], None]

# Prefix of the temporary folders that hold rows from memory.
ROWS_FOLDER = "filbert-rows-"


def name_of(path: str | Path) -> str:
    """Return the name of a path in messages; rows from memory have the name of their option."""
    if Path(path).parent.name.startswith(ROWS_FOLDER):
        return Path(path).stem
    return "stdin" if str(path) == "-" else str(path)


def suffix_of(path: str | Path) -> str:
    """Return the suffix of the format: ".csv" for "train.csv.gz"."""
    name = Path(Path(path).name.lower())
    return Path(name.stem).suffix if name.suffix in _COMPRESSED else name.suffix


def require_file(path: str | Path, *, once: bool = False) -> None:
    """Raise an InputError unless a file exists and can be read; a pipe only if read `once`."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        base = "" if os.path.isabs(path) else f" in {os.getcwd()}"
        raise InputError(f"{path}: no such file{base}. Check the path.") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: a folder, not a file. Name the file in it.")
    if not stat.S_ISREG(mode) and not once:
        raise InputError(f"{path}: a pipe; this file is read more than once. Save it first.")
    if not os.access(path, os.R_OK):
        raise unreadable(path, PermissionError(0, "Permission denied"))


def unreadable(path: str | Path, error: OSError | ValueError) -> InputError:
    """Return the error for a file that the system cannot read."""
    reason = error.strerror if isinstance(error, OSError) else None
    return InputError(f"{name_of(path)}: cannot be read: {reason or error}.")


def raised(error: InputError) -> None:
    """Raise the error: the default `OnError`, with which the first bad row ends the rows."""
    raise error


def check_each(items: Iterable[T], check: Callable[[T], R], on_error: OnError) -> Iterator[R]:
    """Yield `check` of each item; an InputError that it raises is passed to `on_error`."""
    for item in items:
        try:
            checked = check(item)
        except InputError as error:
            on_error(error)
        else:
            yield checked


def chomp(line: str) -> str:
    """Return `line` without its newline, of either kind."""
    return line.removesuffix("\n").removesuffix("\r")


class Lines:
    """The lines of a file, each with its newline, as an iterable of str; can be iterated once.

    A line that cannot be used (bytes of another encoding, a NUL, more than MAX_FIELD characters) is
    replaced by a harmless one, and `bad` holds the problem by line number. So readers that join
    lines, such as csv, count lines correctly.

    Args:
        path: "-" is standard input.
        encoding: Name of an encoding that Python supports; UTF-8 if not given.

    Raises:
        ConfigError: The encoding is unknown.
    """

    def __init__(self, path: str | Path, encoding: str | None = None) -> None:
        _check_encoding(encoding)
        self.path = path
        self.bad: dict[int, str] = {}
        self._encoding = encoding
        self._lines = self._read()
        self.close = self._lines.close

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def report_bad(self, last: int, report: OnError) -> bool:
        """Report the bad lines up to line `last`; return whether there were any."""
        numbers = [number for number in self.bad if number <= last]
        for number in numbers:
            report(InputError(f"{name_of(self.path)}:{number}: {self.bad.pop(number)}"))
        return bool(numbers)

    def _read(self) -> Generator[str, None, None]:
        number = 0
        try:
            with open_text(self.path, self._encoding) as file:
                for line in iter(partial(file.readline, MAX_FIELD + 2), ""):
                    number += 1
                    if number == 1:
                        refuse_binary(self.path, line)
                        line = line.removeprefix(BOM)
                    is_clean = line.isascii() or not _BAD_BYTE.search(line)
                    if len(line) > MAX_FIELD or "\0" in line or not is_clean:
                        line = self._replaced(number, line, file)
                    yield line
        except DamagedFile as error:
            raise InputError(f"{error} Reading stops at line {number + 1}.") from error

    def _replaced(self, number: int, line: str, file: io.TextIOWrapper) -> str:
        """Note what is wrong with a line, and return one to read in its place."""
        if len(chomp(line)) > MAX_FIELD:
            while line and not line.endswith("\n"):
                line = file.readline(MAX_FIELD)
            self.bad[number] = f"a line of more than {MAX_FIELD:,} characters. Is it one row?"
            return "\n"
        if byte := _BAD_BYTE.search(line):
            self.bad[number] = _not_in(self._encoding, byte[0])
        elif "\0" in line:
            self.bad[number] = "a NUL character. Remove it."
        return _BAD_BYTE.sub("\ufffd", line).replace("\0", "\ufffd")


# Text


class DamagedFile(InputError):
    """The compressed data of a file is cut off or damaged."""


# The form in which bytes that are not of the encoding are decoded.
_BAD_BYTE = re.compile("[\udc00-\udcff]")
_MARK = "filbert.byte"


def _marked(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(chr(0xDC00 + byte) for byte in wrong), error.end


codecs.register_error(_MARK, _marked)


def _not_in(encoding: str | None, mark: str) -> str:
    return (
        f"the byte 0x{ord(mark) - 0xDC00:02X} is not {encoding or 'UTF-8'}. Name the encoding of "
        "the file, such as --encoding latin-1 or cp1252."
    )


def _check_encoding(encoding: str | None) -> None:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding)
    except (LookupError, ValueError):
        raise ConfigError(
            f"--encoding {encoding!r} is unknown; give one such as utf-8, latin-1 or cp1252."
        ) from None


def refuse_binary(path: str | Path, start: str) -> None:
    """Raise an InputError for a file whose text begins as those of other formats do."""
    for magic, what in _NOT_TEXT.items():
        if start.startswith(magic):
            raise InputError(f"{name_of(path)}: not text but {what}.")


def read_text(path: str | Path) -> str:
    """Return a whole UTF-8 file, decompressed, or raise an InputError, with the line."""
    with open_text(path) as file:
        text = file.read().removeprefix(BOM)
    refuse_binary(path, text[:8])
    if byte := _BAD_BYTE.search(text):
        line = text.count("\n", 0, byte.start()) + 1
        raise InputError(f"{name_of(path)}:{line}: {_not_in(None, byte[0])}")
    return text


@contextmanager
def open_text(path: str | Path, encoding: str | None = None) -> Iterator[io.TextIOWrapper]:
    """Open a file as text: decompressed, newlines as they are, perhaps with a byte order mark.

    A byte that is not of the encoding becomes U+DC00 plus its value, which no text contains. A file
    that is damaged or cannot be read is an InputError.
    """
    try:
        with _opened(path) as file, _unpacked(file) as unpacked:
            text = io.TextIOWrapper(unpacked, encoding or "utf-8", _MARK, newline="\n")
            text._CHUNK_SIZE = _BLOCK  # type: ignore[attr-defined]
            try:
                yield text
            finally:
                if str(path) == "-":
                    text.detach()  # so that standard input stays open
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        # Errors about compressed data have no number of the system.
        if getattr(error, "errno", None) is not None:
            raise unreadable(path, cast(OSError, error)) from error
        raise DamagedFile(
            f"{name_of(path)}: the compressed data is cut off or damaged. Fetch or make the file "
            "again."
        ) from error


# The files that are being read, by path, for `share_read`.
_READING: dict[str, BinaryIO] = {}


@contextmanager
def _opened(path: str | Path) -> Iterator[io.BufferedReader]:
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("Standard input is closed. Give a file.")
        yield cast(io.BufferedReader, sys.stdin.buffer)
        return
    with open(path, "rb") as file:
        _READING[str(path)] = file
        try:
            yield file
        finally:
            _READING.pop(str(path), None)


def share_read(path: str | Path) -> float | None:
    """Return the share of a file's bytes on disk that has been read; None if that is unknown."""
    try:
        file = _READING[str(path)]
        return file.tell() / os.fstat(file.fileno()).st_size
    except (KeyError, OSError, ValueError, ZeroDivisionError):  # a pipe, or a closed file
        return None


def _unpacked(file: io.BufferedReader) -> Any:
    """Return the decompressed file, as a context manager."""
    head = file.peek(8) if hasattr(file, "peek") else b""
    if head.startswith(_ZSTD):
        # Unlike zstandard's own reader, Arrow's refuses a file that is cut off.
        import pyarrow

        return pyarrow.CompressedInputStream(file, "zstd")
    unpack = next((u for magic, u in _UNPACKERS.items() if head.startswith(magic)), nullcontext)
    return unpack(file)
