"""Reads and writes TensorFlow checkpoints of version 2 ("tensor bundles") without TensorFlow.

A checkpoint is PREFIX.index, a sorted table in LevelDB's format that describes every tensor, and
one or several data files PREFIX.data-0000i-of-0000n that hold the tensors' bytes. Uncompressed
tables and unpartitioned tensors of numbers are supported, which is how BERT, ALBERT and ELECTRA
were published. Sources: TensorFlow, core/util/tensor_bundle/tensor_bundle.cc,
core/protobuf/tensor_bundle.proto, core/lib/io/{table_builder,block_builder,format}.cc; LevelDB,
doc/table_format.md.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filbert.errors import FormatError, printable, unreadable_as
from filbert.protobuf import (
    Damaged,
    as_bytes,
    as_number,
    encode_field,
    encode_fixed32,
    encode_varint,
    fields,
    varint,
)

# Limits of an index. An encoder of 24 layers with its optimizer's state takes 100 kB.
MAX_FILE_BYTES = 2 * 2**20
MAX_ENTRIES = 25_000
_MAX_KEY_BYTES = 4096
_MAX_DIMENSIONS = 32
_MAX_ELEMENTS = 2**58  # keeps sizes in bytes below 2**63

_FORMAT_VERSION = 1  # kTensorBundleVersion
# Numbers of DataType in core/framework/types.proto. NumPy has all of these except bfloat16.
_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
    8: "complex64", 9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128",
    19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
_NOT_IN_NUMPY = ("string", "bfloat16")
_NUMBERS = {name: number for number, name in _DTYPES.items() if name not in _NOT_IN_NUMPY}


def data_file(prefix: Path, shard: int = 0, num_shards: int = 1) -> Path:
    """Return the path of one data file of the checkpoint `prefix`."""
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")


@dataclass(frozen=True, slots=True)
class Entry:
    """The description of one tensor, with its data file; `crc` is masked, as it is stored."""

    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    size: int
    crc: int

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        """NumPy's dtype of the words in the file; None if the tensor holds no numbers."""
        if self.dtype == "bfloat16":
            return np.dtype("<u2")
        return np.dtype(self.dtype).newbyteorder("<") if self.dtype in _NUMBERS else None


@dataclass(frozen=True)
class TensorBundle:
    """A checkpoint with a checked index; tensors are read on demand."""

    index: Path
    entries: dict[str, Entry]
    _maps: dict[Path, NDArray[np.uint8]] = field(default_factory=dict, repr=False)

    @classmethod
    @unreadable_as(FormatError)
    def open(cls, prefix: Path) -> TensorBundle:
        """Read the index and check that the data files hold every tensor it describes.

        Raises:
            FormatError: A file is missing, damaged, truncated or inconsistent with the index.
        """
        index = Path(f"{prefix}.index")
        table = read_table(index)
        try:
            num_shards = _decode_header(table.pop(b"", b""))
            entries = dict(_decode_named(*item, prefix, num_shards) for item in table.items())
        except Damaged as error:
            raise FormatError(
                f"{index} cannot be read as a checkpoint's index: {error}."
            ) from error
        _check_files(index, entries)
        return cls(index, entries)

    @unreadable_as(FormatError)
    def read(self, name: str) -> NDArray[Any]:
        """Return a tensor after checking its CRC-32C; bfloat16 is converted to float32.

        The array is a read-only view of the mapped file, or a copy if the tensor is not aligned to
        its word size.

        Raises:
            FormatError: The CRC is wrong, or the tensor holds no numbers.
        """
        entry = self.entries[name]
        path, dtype = entry.path, entry.stored_dtype
        if dtype is None:
            raise FormatError(
                f"{path}: {printable(name)} has dtype {entry.dtype}, which is not numeric."
            )
        raw = np.zeros(0, np.uint8)
        if entry.size and path.stat().st_size:  # NumPy cannot map an empty file
            if path not in self._maps:
                self._maps[path] = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
            raw = self._maps[path][entry.offset : entry.offset + entry.size]
        if len(raw) != entry.size or masked(crc32c(raw)) != entry.crc:
            raise FormatError(
                f"{path}: the CRC of {printable(name)} is wrong; the file is damaged. Download or "
                "copy it again."
            )
        if entry.offset % dtype.itemsize:
            raw = raw.copy()
        array = raw.view(dtype).reshape(entry.shape)
        if entry.dtype == "bfloat16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array


def write_bundle(prefix: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a checkpoint with one data file, byte for byte as TensorFlow's Saver does.

    Tensors are stored in the order of their names. The two files are written in place; the folder
    must exist.
    """
    header = encode_field(1, 1) + encode_field(3, encode_field(1, _FORMAT_VERSION))
    entries, offset, path = [(b"", header)], 0, data_file(prefix)
    with path.open("wb") as file:
        for name in sorted(tensors):
            array = np.asarray(tensors[name], order="C")
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            raw = array.reshape(-1).view(np.uint8)
            file.write(raw.data)
            crc = masked(crc32c(raw))
            entry = Entry(array.dtype.name, array.shape, path, offset, len(raw), crc)
            entries.append((name.encode(), _encode_entry(entry)))
            offset += len(raw)
    Path(f"{prefix}.index").write_bytes(write_table(entries))


# The entries of the index.


def _check_files(index: Path, entries: Mapping[str, Entry]) -> None:
    """Check that every tensor is inside its data file and has the size of its shape."""
    paths = {entry.path for entry in entries.values()}
    if missing := sorted(path.name for path in paths if not path.is_file()):
        raise FormatError(
            f"{', '.join(missing[:3])} not found next to {index}. All data files must be in one "
            "folder with the index."
        )
    sizes = {path: path.stat().st_size for path in paths}
    for name, entry in entries.items():
        path, end = entry.path, entry.offset + entry.size
        if (dtype := entry.stored_dtype) is not None:
            expected = math.prod(entry.shape) * dtype.itemsize
            if expected != entry.size:
                raise FormatError(
                    f"{index}: {printable(name)} has {entry.size} bytes, but its shape "
                    f"{entry.shape} in {entry.dtype} takes {expected}."
                )
        if end > sizes[path]:
            raise FormatError(
                f"{path} has {sizes[path]:,} bytes, but {printable(name)} ends at byte {end:,} "
                f"according to {index.name}. The file is truncated, or belongs to another index."
            )


def _decode_header(data: bytes) -> int:
    """Return the number of data files."""
    values = dict(fields(data))
    num_shards, version = as_number(values.get(1, 0)), dict(fields(as_bytes(values.get(3, b""))))
    if not 0 < num_shards <= 100_000:
        raise Damaged(f"its header gives {num_shards} data files")
    if values.get(2) or as_number(version.get(2, 0)) > _FORMAT_VERSION:
        raise Damaged(f"it is big-endian, or newer than version {_FORMAT_VERSION} of the format")
    return num_shards


def _decode_named(key: bytes, value: bytes, prefix: Path, num_shards: int) -> tuple[str, Entry]:
    name = printable(repr(key)[2:-1])
    try:
        return key.decode("utf-8"), _decode_entry(value, prefix, num_shards)
    except UnicodeDecodeError as error:
        raise Damaged(f"the name {name} is not UTF-8") from error
    except Damaged as error:
        raise Damaged(f"the entry of {name!r} is damaged: {error}") from error


def _decode_entry(data: bytes, prefix: Path, num_shards: int) -> Entry:
    values = dict(fields(data))
    if 7 in values:
        raise Damaged("the tensor is partitioned, which is not supported")
    sizes = []
    for number, value in fields(as_bytes(values.get(2, b""))):
        if number == 2:
            sizes.append(as_number(dict(fields(as_bytes(value))).get(1, 0)))
        elif number == 3 and value:
            raise Damaged("its shape is unknown")
    too_large = math.prod(size for size in sizes if size) > _MAX_ELEMENTS
    if len(sizes) > _MAX_DIMENSIONS or min(sizes, default=0) < 0 or too_large:
        raise Damaged(f"the shape {sizes[:4]} is impossible")
    shard, offset, size = (as_number(values.get(number, 0)) for number in (3, 4, 5))
    crc = as_bytes(values.get(6, b"\0\0\0\0"))
    if min(shard, offset, size) < 0 or len(crc) != 4:
        raise Damaged(f"byte {offset} of file {shard} with {size} bytes is impossible")
    number = as_number(values.get(1, 0))
    return Entry(
        dtype=_DTYPES.get(number, f"number {number}"),
        shape=tuple(sizes),
        path=data_file(prefix, shard, num_shards),
        offset=offset,
        size=size,
        crc=int.from_bytes(crc, "little"),
    )


def _encode_entry(entry: Entry) -> bytes:
    # Zeros are left out, as protocol buffers do.
    sizes = b"".join(encode_field(2, encode_field(1, n) if n else b"") for n in entry.shape)
    data = encode_field(1, _NUMBERS[entry.dtype]) + encode_field(2, sizes)
    for number, value in ((4, entry.offset), (5, entry.size)):
        data += encode_field(number, value) if value else b""
    return data + (encode_fixed32(6, entry.crc.to_bytes(4, "little")) if entry.crc else b"")


# The sorted table. A table is blocks of entries, a block that lists them, and a footer. A key
# leaves out the prefix that it shares with the key before it, except at restart points. Every
# block has a trailer: the kind of compression and a CRC-32C.

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER, _TRAILER = 48, 5
# From this size on TensorFlow starts a second block (table_options.h).
_BLOCK_SIZE = 262_144
_RESTART_INTERVAL = 16


@unreadable_as(FormatError)
def read_table(path: Path) -> dict[bytes, bytes]:
    """Return the keys, in ascending order, and values of a table.

    Raises:
        FormatError: The file is missing, damaged, or larger than an index can be.
    """
    if not path.is_file():
        raise FormatError(f"{path} is missing or is not a file.")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise FormatError(
            f"{path} has {path.stat().st_size:,} bytes; an index has at most {MAX_FILE_BYTES:,}."
        )
    file = path.read_bytes()
    table: dict[bytes, bytes] = {}
    last = None
    try:
        if len(file) < _FOOTER or not file.endswith(_MAGIC):
            raise Damaged("it does not end as a table does")
        _, at = _block(file, file, len(file) - _FOOTER)  # properties, which TensorFlow leaves empty
        blocks, _ = _block(file, file, at)
        for _, handle in _entries(blocks):
            for key, value in _entries(_block(file, handle, 0)[0]):
                if last is not None and key <= last:
                    raise Damaged(f"its keys are not in order at {printable(repr(key)[2:-1])}")
                table[key], last = value, key
                if len(table) > MAX_ENTRIES:
                    raise Damaged(f"it has more than {MAX_ENTRIES:,} entries")
    except Damaged as error:
        raise FormatError(
            f"{path} is not a whole index of a TensorFlow checkpoint: {error}. "
            "Download or copy it again."
        ) from error
    return table


def _block(file: bytes, handles: bytes, at: int) -> tuple[bytes, int]:
    """Return the entries of the block that the handle at byte `at` gives, and the handle's end."""
    offset, at = varint(handles, at)
    size, at = varint(handles, at)
    end = offset + size
    if end + _TRAILER > len(file) - _FOOTER or size < 4:
        raise Damaged(f"a block of {size} bytes at byte {offset} is not inside the file")
    if masked(crc32c(file[offset : end + 1])) != int.from_bytes(file[end + 1 : end + 5], "little"):
        raise Damaged(f"the CRC of the block at byte {offset} is wrong")
    # The restart points, which only a search needs, and their number are the block's end.
    restarts = 4 * int.from_bytes(file[end - 4 : end], "little") + 4
    if file[end] or restarts > size:
        raise Damaged(f"the block at byte {offset} is compressed or damaged")
    return file[offset : end - restarts], at


def _entries(block: bytes) -> Iterable[tuple[bytes, bytes]]:
    if not block:
        raise Damaged("a block is empty")
    key, at = b"", 0
    while at < len(block):
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or unshared + size > len(block) - at:
            raise Damaged("an entry is longer than its block")
        if shared + unshared > _MAX_KEY_BYTES:
            raise Damaged(f"a name has more than {_MAX_KEY_BYTES} bytes")
        key = key[:shared] + block[at : at + unshared]
        at += unshared + size
        yield key, block[at - size : at]


def write_table(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the file of a table, byte for byte as TensorFlow writes it.

    Keys are strictly ascending. The entries must fit into one block, as those of 3,000 tensors do.
    """
    file, last = bytearray(), entries[-1][0]
    handle = _append_block(file, entries)
    assert len(file) < _BLOCK_SIZE, "the index would need a second block"
    footer = _append_block(file, [])
    # A short key behind the last one. Names are UTF-8, which has no byte of 255.
    footer += _append_block(file, [(bytes([last[0] + 1]) if last else b"", handle)])
    return bytes(file) + footer.ljust(_FOOTER - len(_MAGIC), b"\0") + _MAGIC


def _append_block(file: bytearray, entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Append a block with its trailer to `file`, and return its handle."""
    content, restarts, last = bytearray(), [0], b""
    for number, (key, value) in enumerate(entries):
        shared = len(os.path.commonprefix([last, key]))
        if number and number % _RESTART_INTERVAL == 0:
            restarts.append(len(content))
            shared = 0
        for size in (shared, len(key) - shared, len(value)):
            content += encode_varint(size)
        content += key[shared:] + value
        last = key
    content += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    handle = encode_varint(len(file)) + encode_varint(len(content))
    content += b"\0"  # not compressed
    file += content + struct.pack("<I", masked(crc32c(bytes(content))))
    return handle


# CRC-32C at memory speed in NumPy: 1 GB/s, where a table in Python does 10 MB/s. A CRC is the
# remainder of a polynomial over GF(2). Modulo CRC-32C's polynomial (Castagnoli, 0x82F63B78)
#     x**5685 = x**1362 + x**426 + 1,
# found by search. Squaring keeps a sum of powers a sum of powers, so the same holds with every
# exponent times 2**n: words can be replaced by themselves XORed onto three later places, thousands
# at a time. Only the last few thousand bytes are processed bit by bit.

_POLYNOMIAL = 0x82F63B78
_TOP, _MIDDLE, _LOW = 5685, 1362, 426
_FOLD = _TOP - _MIDDLE  # words that can be folded at once, because none is XORed onto another
_MAX_REST = _TOP + _FOLD


def crc32c(data: bytes | memoryview | NDArray[Any]) -> int:
    """Return the CRC-32C of contiguous bytes, or of an array's bytes, in [0, 2**32)."""
    message, is_begun = np.frombuffer(data, np.uint8), False
    for word in (np.dtype(np.uint64), np.dtype(np.uint8)):
        if len(message) >= _MAX_REST * word.itemsize:
            message = _folded(message, word, 0 if is_begun else 0xFF)
            is_begun = True
    end = np.concatenate([message, np.zeros(4, np.uint8)])
    if not is_begun:
        end[:4] ^= 0xFF
    bits = np.unpackbits(end, bitorder="little")
    powers = _powers()[len(_powers()) - len(bits) :]
    return int(np.bitwise_xor.reduce(powers[bits.view(bool)])) ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return the form in which a CRC is stored with its data.

    Source: TensorFlow, tsl/lib/hash/crc32c.h; a CRC over a stored CRC detects less.
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _folded(message: NDArray[Any], word: np.dtype[Any], flip: int) -> NDArray[Any]:
    """Return a shorter message with the same remainder, of _TOP to _MAX_REST words.

    Args:
        message: uint8, of at least _MAX_REST words.
        flip: XORed onto the first four bytes, which are inverted at a message's start.
    """
    count = len(message) // word.itemsize
    words = message[: count * word.itemsize].view(word).copy()
    words.view(np.uint8)[:4] ^= flip
    end = (count - _TOP) // _FOLD * _FOLD
    for first in range(0, end, _FOLD):
        for power in (_MIDDLE, _LOW, 0):
            to = first + _TOP - power
            words[to : to + _FOLD] ^= words[first : first + _FOLD]
    return np.concatenate([words[end:].view(np.uint8), message[count * word.itemsize :]])


@cache
def _powers() -> NDArray[Any]:
    """Return x**k modulo the polynomial, reflected uint32, highest k first."""
    count = 8 * (_MAX_REST + 4)
    powers = np.empty(count, np.uint32)
    value = 1 << 31
    for k in range(count):
        powers[count - 1 - k] = value
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return powers
