"""Files as lines of UTF-8 text: compressed or not, in bounded memory, with line numbers."""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast
from weakref import ref

from filbert.errors import InputError

# The longest line or field that is read, in characters. Longer ones are always a file gone wrong.
MAX_FIELD = 4 * 2**20

_BLOCK = 2**20
_BOM = b"\xef\xbb\xbf"

# What a file begins with when its name promises text and its content is something else.
_MAGIC = {
    b"\x1f\x8b": "gzip data; give it a name that ends in .gz",
    b"\xfd7zXZ\x00": "xz data; give it a name that ends in .xz",
    b"\x28\xb5\x2f\xfd": "zstd data; give it a name that ends in .zst",
    b"PAR1": "Parquet data; give it a name that ends in .parquet",
    b"PK\x03\x04": "a ZIP archive (an Excel file is one too); unpack it or save it as CSV",
    b"BZh": "bzip2 data; unpack it, or pack it with gzip, xz or zstd",
    b"%PDF": "a PDF document; save its text as a text file",
    b"\xff\xfe": "UTF-16 text; convert it with: iconv -f utf-16 -t utf-8",
    b"\xfe\xff": "UTF-16 text; convert it with: iconv -f utf-16 -t utf-8",
}

OnError = Callable[[InputError], None]

_COMPRESSED = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}


def shown(path: str | Path) -> str:
    """How a path is called in messages: "-" is stdin."""
    return "stdin" if str(path) == "-" else str(path)


def kind_of(path: str | Path) -> tuple[str, str | None]:
    """Suffix of the format, and compression: "train.csv.gz" -> (".csv", "gzip")."""
    name = Path(Path(path).name.lower())
    packed = _COMPRESSED.get(name.suffix)
    return (Path(name.stem).suffix if packed else name.suffix), packed


def require_file(path: str | Path, *, once: bool = False) -> None:
    """Refuse what is not there, may not be read, or is no file.

    Args:
        path: of the file.
        once: it will be read a single time, so a pipe will do.

    Raises:
        InputError: a missing or unreadable file, a folder, or a pipe unless `once`.
    """
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
        raise InputError(
            f"{path}: a pipe or a device; this file is read more than once. "
            "Save it first, or use - for a stream."
        )
    if not os.access(path, os.R_OK):
        raise unreadable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def unreadable(path: str | Path, error: OSError | ValueError) -> InputError:
    """The sentence for a file that the system does not give out."""
    reason = error.strerror if isinstance(error, OSError) else None
    return InputError(f"{shown(path)}: cannot be read: {reason or error}.")


class BadRow(InputError):
    """One row is wrong; the rows after it can still be read."""


class Report:
    """Raises bad rows, or hands them to the caller and counts them."""

    def __init__(self, on_error: OnError | None) -> None:
        self.on_error = on_error
        self.count = 0

    def __call__(self, error: InputError) -> None:
        """Raise `error`, or hand it over."""
        if self.on_error is None:
            raise error
        self.count += 1
        self.on_error(error)


def chomp(line: str) -> str:
    """`line` without its newline, of either kind."""
    return line.removesuffix("\n").removesuffix("\r")


class Lines:
    """The lines of a file, each with its newline, as an iterable of str; iterate once.

    A line that cannot be used (bytes that are not UTF-8, a NUL, more than MAX_FIELD characters) is
    given in a harmless form, and `bad` says what is wrong with it, by line number. So readers that
    join lines, such as csv, keep their place.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.bad: dict[int, str] = {}
        self._count = 0  # lines handed out or about to be
        self._offset = 0  # bytes before them
        # Weak, since it knows these lines: who lets go of both has closed the file.
        self._source: ref[Generator[bytes, None, None]] | None = None

    def close(self) -> None:
        """Close the file, also where an error keeps what reads it from being forgotten."""
        source = None if self._source is None else self._source()
        if source is not None:
            source.close()

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._pieces())

    def report_bad(self, start: int, end: int, report: Report) -> bool:
        """Report the bad ones among lines start..end; whether there were any."""
        found = [number for number in self.bad if start <= number <= end]
        for number in found:
            report(BadRow(f"{shown(self.path)}:{number}: {self.bad.pop(number)}"))
        return bool(found)

    def _pieces(self) -> Iterator[Iterable[str]]:
        held: list[bytes] = []
        size = 0
        skipped = 0
        source = self.blocks()
        self._source = ref(source)
        for block in source:
            end = block.rfind(b"\n") + 1
            if not end:
                size += len(block)
                if size > 4 * MAX_FIELD:  # no character has more than four bytes
                    skipped, held = size, []
                else:
                    held.append(block)
                continue
            if skipped:
                first = block.index(b"\n") + 1
                yield self._skip(skipped + first)
                block, end, skipped = block[first:], end - first, 0
            held.append(block[:end])
            piece = b"".join(held)
            held, size = [block[end:]], len(block) - end
            if piece:
                yield self._decode(piece)
        if skipped:
            yield self._skip(size)
        elif size:
            yield self._decode(b"".join(held))

    def _skip(self, size: int) -> Iterable[str]:
        self._count += 1
        self._offset += size
        self.bad[self._count] = _too_long(f"more than {4 * MAX_FIELD:,} bytes")
        return ["\n"]

    def _decode(self, piece: bytes) -> Iterable[str]:
        text = None
        if len(piece) <= MAX_FIELD and b"\0" not in piece:
            try:
                text = piece.decode("utf-8")
            except UnicodeDecodeError:
                text = None
        if text is not None:
            self._count += piece.count(b"\n")
            self._offset += len(piece)
            return io.StringIO(text, newline="\n")
        return [self._mend(line) for line in io.BytesIO(piece)]

    def _mend(self, line: bytes) -> str:
        self._count += 1
        start, self._offset = self._offset, self._offset + len(line)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            self.bad[self._count] = (
                f"byte {start + error.start} of the file (from 0) is 0x{line[error.start]:02X}, "
                "not UTF-8. Convert the file, for example with iconv -f latin1 -t utf-8."
            )
            text = line.decode("utf-8", errors="replace")
        if "\0" in text:
            self.bad.setdefault(
                self._count, f"a NUL character at column {text.index(chr(0)) + 1}. Remove it."
            )
            text = text.replace("\0", "\ufffd")
        length = len(chomp(text))
        if length > MAX_FIELD:
            self.bad.setdefault(self._count, _too_long(f"{length:,} characters"))
            text = "\n"
        return text

    def blocks(self) -> Generator[bytes, None, None]:
        """The file's bytes, decompressed, without a byte order mark."""
        name = shown(self.path)
        kind = kind_of(self.path)[1]
        read = 0
        try:
            for block in _raw_blocks(self.path, kind):
                if not read:
                    for magic, what in _MAGIC.items():
                        if block.startswith(magic):
                            if kind and what.split()[0] in _COMPRESSED.values():
                                raise InputError(f"{name}: packed twice; unpack it once.")
                            # UTF-16 is text, and so has lines.
                            line = ":1" if what.startswith("UTF-16") else ""
                            raise InputError(f"{name}{line}: not text but {what}.")
                    if b"\r" in block[:-1] and b"\n" not in block:
                        raise InputError(
                            f"{name}: ends its lines with CR only; convert it, for example with "
                            "tr '\\r' '\\n'."
                        )
                    if block.startswith(_BOM):
                        block = block[len(_BOM) :]
                        self._offset = len(_BOM)
                read += 1
                yield block
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, _BrokenZstd) as error:
            if not read and not isinstance(error, EOFError):
                raise InputError(
                    f"{name}: not a {kind} file, in spite of its name. Rename it."
                ) from error
            raise InputError(
                f"{name}:{self._count + 1}: the {kind} data breaks off or is damaged near this "
                "line. Reading stops here; fetch or make the file again."
            ) from error
        except OSError as error:
            raise unreadable(self.path, error) from error


class _BrokenZstd(Exception):
    """The zstd data is damaged or ends too early."""


def _too_long(size: str) -> str:
    return f"a line of {size}; the limit is {MAX_FIELD:,}. Is it really one row?"


_UNPACKED: dict[str | None, Callable[[BinaryIO], Any]] = {
    None: nullcontext,
    "gzip": gzip.open,
    "xz": lzma.open,
}

# What is being read now, by path: so that somebody else can say how far it is.
_READING: dict[str, BinaryIO] = {}


def share_read(path: str | Path) -> float | None:
    """How much of a file that is being read has been read, from 0 to 1, in bytes on the disk.

    None where that is unknown: standard input, a pipe, a file that nobody reads now.
    """
    try:
        file = _READING[str(path)]
        size = os.fstat(file.fileno()).st_size
        return file.tell() / size if size else None
    except (KeyError, OSError, ValueError):  # not opened, no place in it, closed
        return None


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    with open(path, "rb") as file:
        _READING[str(path)] = file
        try:
            yield file
        finally:
            if _READING.get(str(path)) is file:
                del _READING[str(path)]


def _raw_blocks(path: str | Path, kind: str | None) -> Iterator[bytes]:
    # read1() gives what is there now: a pipe may be slow, and behind a break nothing good is lost.
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("Standard input is closed. Give a file.")
        piped = cast(io.BufferedReader, sys.stdin.buffer)
        while block := piped.read1(_BLOCK):
            yield block
    elif kind == "zstd":
        yield from _zstd_blocks(Path(path))
    else:
        with _opened(path) as file, _UNPACKED[kind](file) as opened:
            while block := opened.read1(_BLOCK):
                yield block


def _zstd_blocks(path: Path) -> Iterator[bytes]:
    import zstandard

    # The library's own reader takes a cut-off file for a whole one, so frames are followed here. A
    # kilobyte at a time, since zstd can blow up four bytes to 128 KiB.
    frame = zstandard.ZstdDecompressor().decompressobj()
    inside = False
    with _opened(path) as stream:
        while data := stream.read(1024):
            while data:
                try:
                    block = frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise _BrokenZstd(str(error)) from error
                inside = not frame.eof
                data = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                if block:
                    yield block
    if inside:
        raise EOFError
