"""Files as lines of text: compressed or not, in bounded memory, with line numbers."""

from __future__ import annotations

import bz2
import codecs
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

from filbert.errors import ConfigError, InputError

# The longest line or field, in characters; a character has at most four bytes.
MAX_FIELD = 4 * 2**20
_MAX_BYTES = 4 * MAX_FIELD

_BLOCK = 2**20
_BOM = b"\xef\xbb\xbf"
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_ZSTD = b"\x28\xb5\x2f\xfd"
# The first bytes of compressed files, and what opens them.
_UNPACKERS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
# The first bytes of files that are often taken for text.
_NOT_TEXT = {
    b"PAR1": "Parquet data; give it a name that ends in .parquet",
    b"PK\x03\x04": "a ZIP archive or an Excel file; unpack it or save it as CSV",
    b"\xff\xfe": "UTF-16 text; pass --encoding utf-16",
    b"\xfe\xff": "UTF-16 text; pass --encoding utf-16",
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
    """Check that a file exists and can be read; a pipe is only accepted if it is read `once`.

    Raises:
        InputError: A missing or unreadable file, a folder, or a pipe.
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
        raise InputError(f"{path}: a pipe; this file is read more than once. Save it first.")
    if not os.access(path, os.R_OK):
        raise unreadable(path, PermissionError(0, "Permission denied"))


def unreadable(path: str | Path, error: OSError | ValueError) -> InputError:
    """Return the error for a file that the system cannot read."""
    reason = error.strerror if isinstance(error, OSError) else None
    return InputError(f"{name_of(path)}: cannot be read: {reason or error}.")


class BadRow(InputError):
    """One row is wrong; the rows after it can still be read."""


class BadRowReporter:
    """Raises bad rows, or passes them to the caller and counts them."""

    def __init__(self, on_error: OnError | None) -> None:
        self.on_error = on_error
        self.count = 0

    def __call__(self, error: InputError) -> None:
        """Raise `error`, or pass it on."""
        if self.on_error is None:
            raise error
        self.count += 1
        self.on_error(error)


def chomp(line: str) -> str:
    """Return `line` without its newline, of either kind."""
    return line.removesuffix("\n").removesuffix("\r")


class Lines:
    """The lines of a file, each with its newline, as an iterable of str; can be iterated once.

    A line that cannot be used (bytes that are not UTF-8, a NUL, more than MAX_FIELD characters) is
    replaced by a harmless one, and `bad` holds the problem by line number. So readers that join
    lines, such as csv, count lines correctly.

    Args:
        path: "-" is standard input.
        encoding: Name of an encoding that Python knows; UTF-8 if not given.

    Raises:
        ConfigError: The encoding is unknown.
    """

    def __init__(self, path: str | Path, encoding: str | None = None) -> None:
        self.path = path
        self.bad: dict[int, str] = {}
        self._count = 0  # lines decoded
        self._blocks = blocks(path, encoding)
        self.close = self._blocks.close

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._pieces())

    def report_bad(self, start: int, end: int, report: BadRowReporter) -> bool:
        """Report the bad ones among lines start..end; return whether there were any."""
        numbers = [number for number in self.bad if start <= number <= end]
        for number in numbers:
            report(BadRow(f"{name_of(self.path)}:{number}: {self.bad.pop(number)}"))
        return bool(numbers)

    def _pieces(self) -> Iterator[Iterable[str]]:
        """Yield many whole lines at a time; a line that is too long is not kept in memory."""
        start, size = b"", 0  # the beginning of a line, and its size in bytes
        try:
            for block in self._blocks:
                if size > _MAX_BYTES and (first := block.find(b"\n") + 1):
                    yield self._too_long()
                    block, start, size = block[first:], b"", 0
                if end := block.rfind(b"\n") + 1:
                    yield self._decode(start + block[:end])
                    start, size = block[end:], len(block) - end
                else:
                    size += len(block)
                    start = b"" if size > _MAX_BYTES else start + block
        except DamagedFile as error:
            raise InputError(f"{error} Reading stops at line {self._count + 1}.") from error
        if size > _MAX_BYTES:
            yield self._too_long()
        elif start:
            yield self._decode(start)

    def _too_long(self) -> Iterable[str]:
        self._count += 1
        self.bad[self._count] = f"a line of more than {MAX_FIELD:,} characters. Is it one row?"
        return ["\n"]

    def _decode(self, piece: bytes) -> Iterable[str]:
        if len(piece) <= MAX_FIELD and b"\0" not in piece:
            try:
                text = piece.decode("utf-8")
            except UnicodeDecodeError:
                pass
            else:
                self._count += piece.count(b"\n")
                return io.StringIO(text, newline="\n")
        return chain.from_iterable(map(self._decode_line, io.BytesIO(piece)))

    def _decode_line(self, line: bytes) -> Iterable[str]:
        text = line.decode("utf-8", errors="replace")
        if len(chomp(text)) > MAX_FIELD:
            return self._too_long()
        self._count += 1
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            self.bad[self._count] = (
                f"the byte 0x{line[error.start]:02X} is not UTF-8. Name the encoding of the file, "
                "such as --encoding latin-1 or cp1252."
            )
        if "\0" in text:
            self.bad.setdefault(self._count, "a NUL character. Remove it.")
            text = text.replace("\0", "\ufffd")
        return [text]


# Bytes


class DamagedFile(InputError):
    """The compressed data of a file is cut off or damaged."""


def blocks(path: str | Path, encoding: str | None = None) -> Generator[bytes, None, None]:
    """Return the file's bytes in blocks: decompressed, as UTF-8, without a byte order mark.

    Raises:
        ConfigError: The encoding is unknown.
        InputError: The file cannot be read, is no text, or has another encoding.
    """
    return _text_blocks(path, None if encoding is None else _decoder(encoding))


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    try:
        "".encode(encoding)
        return codecs.getincrementaldecoder(encoding)()
    except (LookupError, UnicodeError):
        raise ConfigError(
            f"--encoding {encoding!r} is unknown; give one such as utf-8, latin-1 or cp1252."
        ) from None


def _text_blocks(
    path: str | Path, decoder: codecs.IncrementalDecoder | None
) -> Generator[bytes, None, None]:
    name, is_first = name_of(path), True
    try:
        with _opened(path) as file:
            for block in _unpacked(file):
                if decoder is not None:
                    block = decoder.decode(block).encode("utf-8", "surrogatepass")
                if is_first:
                    what = [text for magic, text in _NOT_TEXT.items() if block.startswith(magic)]
                    if what:
                        raise InputError(f"{name}: not text but {what[0]}.")
                    block, is_first = block.removeprefix(_BOM), False
                yield block
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(
            f"{name}: the byte 0x{byte:02X} is not {error.encoding}. Name another --encoding."
        ) from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DamagedFile(
            f"{name}: the compressed data is cut off or damaged. Fetch or make the file again."
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


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


def _unpacked(file: io.BufferedReader) -> Iterator[bytes]:
    head = file.peek(8) if hasattr(file, "peek") else b""
    if head.startswith(_ZSTD):
        yield from _zstd_blocks(file)
        return
    unpack = next((u for magic, u in _UNPACKERS.items() if head.startswith(magic)), nullcontext)
    # read1() returns what is available: a pipe may be slow, and damaged data has a good beginning.
    with unpack(file) as opened:
        while block := opened.read1(_BLOCK):
            yield block


def _zstd_blocks(file: io.BufferedReader) -> Iterator[bytes]:
    import zstandard

    # The library's own reader accepts a truncated file, so frames are followed here. A kilobyte at
    # a time, since zstd can expand four bytes to 128 KiB.
    frame = zstandard.ZstdDecompressor().decompressobj()
    is_inside = False
    while data := file.read(1024):
        while data:
            try:
                block = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
            is_inside = not frame.eof
            data = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            if block:
                yield block
    if is_inside:
        raise EOFError
