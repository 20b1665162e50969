"""Sorted tables of keys and values, the file format of LevelDB and of TensorFlow's index files.

A table is blocks of entries, a block that lists them, and a footer. A key leaves out what it shares
with the key before it, except at restart points. Every block carries its CRC-32C. Source: LevelDB,
doc/table_format.md; TensorFlow, core/lib/io/{table_builder,block_builder,format}.cc.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from filbert.errors import FormatError, printable, unreadable_as
from filbert.formats.crc32c import crc32c, masked
from filbert.formats.snappy import decompress
from filbert.protobuf import Damaged, encode_varint, varint

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5  # kind of compression, CRC
_PLAIN, _SNAPPY = 0, 1

# As TensorFlow writes: table_options.h. A block is closed by the entry that makes it this long.
_BLOCK_SIZE = 262_144
_RESTART_INTERVAL = 16

# What a file may cost. An encoder of 24 layers with its optimizer's state takes 100 kB.
MAX_FILE_BYTES = 2 * 2**20
MAX_ENTRIES = 25_000
_MAX_UNPACKED_BYTES = 16 * 2**20  # keys without their compression, and blocks without theirs

Entry = tuple[bytes, bytes]


@unreadable_as(FormatError)
def read_table(path: Path) -> list[Entry]:
    """All (key, value) of the table at `path`, keys ascending.

    Raises:
        FormatError: no such file, or one that is damaged or larger than an index can be.
    """
    if not path.is_file():
        raise FormatError(f"{path} is missing or is no file.")
    if os.path.getsize(path) > MAX_FILE_BYTES:
        raise FormatError(
            f"{path} has {os.path.getsize(path):,} bytes; no index of a checkpoint is that large."
        )
    try:
        return _entries(path.read_bytes())
    except Damaged as error:
        raise FormatError(
            f"{path} is not a whole index of a TensorFlow checkpoint: {error}. "
            "Download or copy it again."
        ) from error


def write_table(entries: Iterable[Entry]) -> bytes:
    """The file of a table, byte for byte as TensorFlow writes it: uncompressed blocks.

    Args:
        entries: keys strictly ascending.
    """
    file = bytearray()
    data, index, last = _Block(_RESTART_INTERVAL), _Block(1), b""
    pending: bytes | None = None  # where the last block lies, while no later key is known
    for key, value in entries:
        if data.entries and len(key) + len(value) >= 2 * _BLOCK_SIZE:
            pending = data.write(file)
        if pending is not None:
            index.add(_separator(last, key), pending)
            pending = None
        data.add(key, value)
        last = key
        if data.size >= _BLOCK_SIZE:
            pending = data.write(file)
    if data.entries:
        pending = data.write(file)
    described = _Block(_RESTART_INTERVAL).write(file)
    if pending is not None:
        index.add(_successor(last), pending)
    footer = described + index.write(file)
    return bytes(file) + footer.ljust(_FOOTER - 8, b"\0") + struct.pack("<Q", _MAGIC)


class _Block:
    """A block that is being written."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._clear()

    def _clear(self) -> None:
        self.entries, self._restarts, self._since, self._last = bytearray(), [0], 0, b""

    @property
    def size(self) -> int:
        """Bytes that the block would have if it were closed now."""
        return len(self.entries) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._since < self._interval:
            shared = len(os.path.commonprefix([self._last, key]))
        else:
            self._restarts.append(len(self.entries))
            self._since = 0
        for number in (shared, len(key) - shared, len(value)):
            self.entries += encode_varint(number)
        self.entries += key[shared:] + value
        self._last = key
        self._since += 1

    def write(self, file: bytearray) -> bytes:
        """Append the block with its trailer, begin a new one, and give where it lies."""
        restarts = [*self._restarts, len(self._restarts)]
        content = bytes(self.entries) + struct.pack(f"<{len(restarts)}I", *restarts)
        handle = encode_varint(len(file)) + encode_varint(len(content))
        content += bytes([_PLAIN])
        file += content + struct.pack("<I", masked(crc32c(content)))
        self._clear()
        return handle


def _separator(last: bytes, following: bytes) -> bytes:
    """A short key that is not below `last` and below `following`."""
    at = len(os.path.commonprefix([last, following]))
    if at < min(len(last), len(following)) and last[at] + 1 < following[at]:
        return last[:at] + bytes([last[at] + 1])
    return last


def _successor(last: bytes) -> bytes:
    """A short key that is not below `last`."""
    at = len(last) - len(last.lstrip(b"\xff"))
    return last[:at] + bytes([last[at] + 1]) if at < len(last) else last


def _entries(file: bytes) -> list[Entry]:
    if len(file) < _FOOTER or struct.unpack("<Q", file[-8:])[0] != _MAGIC:
        raise Damaged("its last bytes are not those of a table")
    budget = _Budget()
    body = len(file) - _FOOTER
    described, at = _handle(file, body)
    listed, _ = _handle(file, at)
    _content(file, described, body, budget)  # nothing is ever described, but its CRC is checked
    entries: list[Entry] = []
    free = 0  # blocks follow each other; one that is listed twice would be paid for twice
    upper = b""
    for bound, where in _block(_content(file, listed, body, budget), budget):
        handle, end = _handle(where, 0)
        if handle[0] < free or end != len(where):
            raise Damaged("its blocks overlap or do not follow each other")
        free = handle[0] + handle[1] + _TRAILER
        block = _block(_content(file, handle, body, budget), budget)
        if not block or (entries and block[0][0] <= upper) or block[-1][0] > bound:
            raise Damaged("its blocks do not hold the keys that its list of blocks says")
        entries += block
        upper = bound
    return entries


class _Budget:
    """What may still be unpacked, so that a small file cannot fill the memory."""

    def __init__(self) -> None:
        self._entries, self._bytes = MAX_ENTRIES, _MAX_UNPACKED_BYTES

    @property
    def bytes_left(self) -> int:
        return self._bytes

    def spend(self, num_bytes: int, num_entries: int = 0) -> None:
        self._entries -= num_entries
        self._bytes -= num_bytes
        if self._entries < 0:
            raise Damaged(f"it has more than {MAX_ENTRIES:,} entries")
        if self._bytes < 0:
            raise Damaged(f"it unpacks to more than {_MAX_UNPACKED_BYTES:,} bytes")


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and where the next thing begins."""
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return (offset, size), at


def _content(file: bytes, handle: tuple[int, int], body: int, budget: _Budget) -> bytes:
    """A block without its trailer, checked and unpacked."""
    offset, size = handle
    end = offset + size
    if end + _TRAILER > body:
        raise Damaged(f"a block of {size} bytes at byte {offset} does not lie in the file")
    (stored,) = struct.unpack_from("<I", file, end + 1)
    if masked(crc32c(file[offset : end + 1])) != stored:
        raise Damaged(f"the CRC of the block at byte {offset} is wrong")
    block, kind = file[offset:end], file[end]
    if kind == _SNAPPY:
        block = decompress(block, budget.bytes_left)
    elif kind != _PLAIN:
        raise Damaged(f"the block at byte {offset} has unknown compression {kind}")
    budget.spend(len(block))
    return block


def _block(block: bytes, budget: _Budget) -> list[Entry]:
    """The entries of a block, and all rules that its writer had to keep."""
    (num_restarts,) = struct.unpack("<I", block[-4:]) if len(block) >= 4 else (0,)
    end = len(block) - 4 - 4 * num_restarts
    if num_restarts < 1 or end < 0:
        raise Damaged(f"a block of {len(block)} bytes says that it has {num_restarts} restarts")
    restarts = struct.unpack_from(f"<{num_restarts}I", block, end)
    entries: list[Entry] = []
    whole = set() if end else {0}  # where an entry has its whole key
    key, at = b"", 0
    while at < end:
        begin = at
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or unshared + size > end - at:
            raise Damaged("an entry is longer than its block")
        if not shared:
            whole.add(begin)
        budget.spend(shared + unshared, 1)
        grown = key[:shared] + block[at : at + unshared]
        if entries and grown <= key:
            raise Damaged(f"its keys are not in order at {printable(repr(grown)[2:-1])}")
        at += unshared
        key = grown
        entries.append((key, block[at : at + size]))
        at += size
    if not whole.issuperset(restarts) or restarts[0] or list(restarts) != sorted(set(restarts)):
        raise Damaged("a block's restarts are not where its entries begin")
    return entries
