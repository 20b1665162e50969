"""Files as lines of UTF-8 text: compressed or not, in bounded memory, with line numbers."""

from __future__ import annotations

import codecs
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

from filbert.errors import ConfigError, InputError

# The longest line or field that is read, in characters; a character has at most four bytes.
MAX_FIELD = 4 * 2**20
_MAX_BYTES = 4 * MAX_FIELD

_BLOCK = 2**20
_BOM = b"\xef\xbb\xbf"
_COMPRESSED = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}

# What a file begins with if its name promises text and its content is something else.
_MAGIC = {
    b"\x1f\x8b": "gzip data; give it a name that ends in .gz",
    b"\xfd7zXZ\x00": "xz data; give it a name that ends in .xz",
    b"\x28\xb5\x2f\xfd": "zstd data; give it a name that ends in .zst",
    b"PAR1": "Parquet data; give it a name that ends in .parquet",
    b"PK\x03\x04": "a ZIP archive (an Excel file is one too); unpack it or save it as CSV",
    b"BZh": "bzip2 data; unpack it, or pack it with gzip, xz or zstd",
    b"%PDF": "a PDF document; save its text as a text file",
    b"\xff\xfe": "UTF-16 text; pass --encoding utf-16 or run iconv -f utf-16 -t utf-8",
    b"\xfe\xff": "UTF-16 text; pass --encoding utf-16 or run iconv -f utf-16 -t utf-8",
}

OnError = Callable[[InputError], None]


# How the temporary folders begin that hold rows from memory.
ROWS_FOLDER = "filbert-rows-"


def shown(path: str | Path) -> str:
    """The name of a path in messages: "-" is stdin, rows from memory have their option's name."""
    if Path(path).parent.name.startswith(ROWS_FOLDER):
        return Path(path).stem
    return "stdin" if str(path) == "-" else str(path)


def kind_of(path: str | Path) -> tuple[str, str | None]:
    """Suffix of the format, and compression: "train.csv.gz" -> (".csv", "gzip")."""
    name = Path(Path(path).name.lower())
    packed = _COMPRESSED.get(name.suffix)
    return (Path(name.stem).suffix if packed else name.suffix), packed


def require_file(path: str | Path, *, once: bool = False) -> None:
    """Check that a file exists and can be read; a pipe is only accepted if it is read `once`.

    Raises:
        InputError: a missing or unreadable file, a folder, or a pipe.
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
    """The error for a file that the system cannot read."""
    reason = error.strerror if isinstance(error, OSError) else None
    return InputError(f"{shown(path)}: cannot be read: {reason or error}.")


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
    """`line` without its newline, of either kind."""
    return line.removesuffix("\n").removesuffix("\r")


class Lines:
    """The lines of a file, each with its newline, as an iterable of str; iterate once.

    A line that cannot be used (bytes that are not UTF-8, a NUL, more than MAX_FIELD characters) is
    given in a harmless form, and `bad` holds the problem by line number. So readers that join
    lines, such as csv, count lines correctly.

    Args:
        path: "-" is standard input.
        encoding: Of the text, a name that Python knows; UTF-8 if not given.

    Raises:
        ConfigError: The encoding is unknown.
    """

    def __init__(self, path: str | Path, encoding: str | None = None) -> None:
        self.path = path
        self._decoder = None if encoding is None else _decoder(encoding)
        self.bad: dict[int, str] = {}
        self._count = 0  # lines decoded
        self._offset = 0  # bytes before the next line
        # Weak, since the generator refers to these lines: the file is closed with the last reader.
        self._source: ref[Generator[bytes, None, None]] | None = None

    def close(self) -> None:
        """Close the file, also if the traceback of an error still refers to the reader."""
        source = None if self._source is None else self._source()
        if source is not None:
            source.close()

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._pieces())

    def report_bad(self, start: int, end: int, report: BadRowReporter) -> bool:
        """Report the bad ones among lines start..end; returns whether there were any."""
        numbers = [number for number in self.bad if start <= number <= end]
        for number in numbers:
            report(BadRow(f"{shown(self.path)}:{number}: {self.bad.pop(number)}"))
        return bool(numbers)

    def _pieces(self) -> Iterator[Iterable[str]]:
        """Many whole lines at a time; of a line that is too long nothing is kept."""
        held, size = b"", 0  # the beginning of a line, and its size in bytes
        source = self.blocks()
        self._source = ref(source)
        for block in source:
            if size > _MAX_BYTES and (first := block.find(b"\n") + 1):
                yield self._skip(size + first)
                block, held, size = block[first:], b"", 0
            if end := block.rfind(b"\n") + 1:
                yield self._decode(held + block[:end])
                held, size = block[end:], len(block) - end
            else:
                size += len(block)
                held = b"" if size > _MAX_BYTES else held + block
        if size > _MAX_BYTES:
            yield self._skip(size)
        elif held:
            yield self._decode(held)

    def _skip(self, size: int) -> Iterable[str]:
        self._count += 1
        self._offset += size
        self.bad[self._count] = _too_long(f"more than {_MAX_BYTES:,} bytes")
        return ["\n"]

    def _decode(self, piece: bytes) -> Iterable[str]:
        if len(piece) <= MAX_FIELD and b"\0" not in piece:
            try:
                text = piece.decode("utf-8")
            except UnicodeDecodeError:
                pass
            else:
                self._count += piece.count(b"\n")
                self._offset += len(piece)
                return io.StringIO(text, newline="\n")
        return [self._decode_line(line) for line in io.BytesIO(piece)]

    def _decode_line(self, line: bytes) -> str:
        self._count += 1
        start, self._offset = self._offset, self._offset + len(line)
        text = line.decode("utf-8", errors="replace")
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            self.bad[self._count] = (
                f"byte {start + error.start} of the file (from 0) is 0x{line[error.start]:02X}, "
                "not UTF-8. Name its encoding, such as --encoding latin-1 or cp1252, or convert "
                "the file, for example with iconv -f latin1 -t utf-8."
            )
        if "\0" in text:
            problem = f"a NUL character at column {text.index(chr(0)) + 1}. Remove it."
            self.bad.setdefault(self._count, problem)
            text = text.replace("\0", "\ufffd")
        length = len(chomp(text))
        if length > MAX_FIELD:
            self.bad.setdefault(self._count, _too_long(f"{length:,} characters"))
            text = "\n"
        return text

    def _recoded(self, block: bytes) -> bytes:
        assert self._decoder is not None
        try:
            return self._decoder.decode(block).encode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{shown(self.path)}: byte 0x{error.object[error.start]:02X} is not "
                f"{error.encoding}. Name another --encoding."
            ) from error

    def blocks(self) -> Generator[bytes, None, None]:
        """The file's bytes, decompressed, without a byte order mark."""
        name = shown(self.path)
        kind = kind_of(self.path)[1]
        is_first = True
        try:
            for block in _raw_blocks(self.path, kind):
                if self._decoder is not None:
                    block = self._recoded(block)
                if is_first:
                    _check_first_block(block, name, kind)
                    if block.startswith(_BOM):
                        block = block[len(_BOM) :]
                        self._offset = len(_BOM)
                    is_first = False
                yield block
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, _BrokenZstd) as error:
            if is_first and not isinstance(error, EOFError):
                raise InputError(
                    f"{name}: not a {kind} file, in spite of its name. Rename it."
                ) from error
            raise InputError(
                f"{name}:{self._count + 1}: the {kind} data breaks off or is damaged near this "
                "line. Reading stops here; fetch or make the file again."
            ) from error
        except OSError as error:
            raise unreadable(self.path, error) from error


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    try:
        "".encode(encoding)
        return codecs.getincrementaldecoder(encoding)()
    except (LookupError, UnicodeError):
        raise ConfigError(
            f"--encoding {encoding!r} is unknown; give one such as utf-8, latin-1 or cp1252."
        ) from None


def _check_first_block(block: bytes, name: str, kind: str | None) -> None:
    what = next((what for magic, what in _MAGIC.items() if block.startswith(magic)), None)
    if what is not None:
        if kind and what.split()[0] in _COMPRESSED.values():
            raise InputError(f"{name}: packed twice; unpack it once.")
        line = ":1" if what.startswith("UTF-16") else ""
        raise InputError(f"{name}{line}: not text but {what}.")
    if b"\r" in block[:-1] and b"\n" not in block:
        raise InputError(
            f"{name}: ends its lines with CR only; convert it, for example with tr '\\r' '\\n'."
        )


class _BrokenZstd(Exception):
    """The zstd data is damaged or ends too early."""


def _too_long(size: str) -> str:
    return f"a line of {size}; the limit is {MAX_FIELD:,}. Is it really one row?"


_UNPACKED: dict[str | None, Callable[[BinaryIO], Any]] = {
    None: nullcontext,
    "gzip": gzip.open,
    "xz": lzma.open,
}

# The files that are being read, by path, for `share_read`.
_READING: dict[str, BinaryIO] = {}


def share_read(path: str | Path) -> float | None:
    """The share of a file's bytes on disk that has been read, from 0 to 1.

    None if that is unknown: standard input, a pipe, a file that is not being read.
    """
    try:
        file = _READING[str(path)]
        size = os.fstat(file.fileno()).st_size
        return file.tell() / size if size else None
    except (KeyError, OSError, ValueError):  # not opened, not seekable, closed
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
    # read1() returns what is available: a pipe may be slow, and damaged data has a good beginning.
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

    # The library's own reader accepts a truncated file, so frames are followed here. A kilobyte at
    # a time, since zstd can expand four bytes to 128 KiB.
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
