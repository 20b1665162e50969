"""What the index of a TensorFlow checkpoint says of one tensor, and the parts of a partitioned one.

Source: TensorFlow, core/protobuf/tensor_bundle.proto, core/framework/{types,tensor_shape,
tensor_slice}.proto, core/util/saved_tensor_slice_util.cc, core/lib/strings/ordered_code.cc.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from filbert.protobuf import Damaged, encode_field, encode_fixed32, fields, signed

_VERSION = 1  # of the format; kTensorBundleVersion

# DataType's numbers. Those of NumPy are read and written; bfloat16 is, in 16-bit words.
_NUMPY_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
_OTHER_DTYPES = {7: "string", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16"}
_OTHER_DTYPES |= {15: "qint16", 16: "quint16", 20: "resource", 21: "variant"}
_NUMBERS = {name: number for number, name in (_NUMPY_DTYPES | _OTHER_DTYPES).items()}

# NumPy before 2.0 has no more; and what must not overflow when sizes in bytes are computed.
_MAX_DIMENSIONS = 32
_MAX_ELEMENTS = 2**58
_MAX_SLICES = 4096

Extent = tuple[int, int]  # first row and number of rows; (0, -1) for a whole dimension
_WHOLE = (0, -1)


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """A tensor, or a part of one: where its bytes lie.

    Attributes:
        dtype: NumPy's, or TensorFlow's name of one that NumPy has not.
        crc: of the bytes, masked as it is stored.
        slices: of a partitioned tensor, whose own place and CRC mean nothing; else empty.
    """

    dtype: np.dtype[Any] | str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    slices: tuple[tuple[Extent, ...], ...] = ()


def storage_dtype(dtype: np.dtype[Any] | str) -> np.dtype[Any] | None:
    """NumPy's dtype of the words in the file, little-endian; None for what cannot be read."""
    if isinstance(dtype, str):
        return np.dtype("<u2") if dtype == "bfloat16" else None
    little: np.dtype[Any] = dtype.newbyteorder("<")
    return little


def decode_header(data: bytes) -> int:
    """The number of data files.

    Raises:
        Damaged: no header, of a big-endian machine, or of a newer format.
    """
    num_shards, endianness, version = 0, 0, b""
    for number, value in fields(data):
        if number == 1:
            num_shards = _int32(value)
        elif number == 2:
            endianness = _int32(value)
        elif number == 3:
            version += _bytes(value)
    oldest_reader = max([0, *(_int32(value) for number, value in fields(version) if number == 2)])
    if num_shards < 1:
        raise Damaged(f"it says that it has {num_shards} data files")
    if endianness:
        raise Damaged("it was written by a big-endian machine, which cannot be read here")
    if oldest_reader > _VERSION:
        raise Damaged(f"it needs a reader of version {oldest_reader}, and this one has {_VERSION}")
    return num_shards


def encode_header() -> bytes:
    """The header of a checkpoint in one data file."""
    return encode_field(1, 1) + encode_field(3, encode_field(1, _VERSION))


def decode_entry(data: bytes) -> BundleEntry:
    """One tensor of the index.

    Raises:
        Damaged: a part of it is missing, or impossible.
    """
    dtype = shard = offset = size = 0
    shape, crc = b"", b"\0\0\0\0"
    slices = []
    for number, value in fields(data):
        if number == 1:
            dtype = _int32(value)
        elif number == 2:
            shape += _bytes(value)  # two occurrences of a message are merged
        elif number == 3:
            shard = _int32(value)
        elif number == 4:
            offset = _int64(value)
        elif number == 5:
            size = _int64(value)
        elif number == 6:
            crc = _bytes(value)
        elif number == 7:
            slices.append(_bytes(value))
            if len(slices) > _MAX_SLICES:
                raise Damaged(f"it has more than {_MAX_SLICES} parts")
    if min(shard, offset, size) < 0 or len(crc) != 4:
        raise Damaged(f"it lies at byte {offset} of file {shard}, with {size} bytes")
    sizes = _shape(shape)
    return BundleEntry(
        dtype=np.dtype(_NUMPY_DTYPES[dtype])
        if dtype in _NUMPY_DTYPES
        else _OTHER_DTYPES.get(dtype, f"dtype {dtype}"),
        shape=sizes,
        shard=shard,
        offset=offset,
        size=size,
        crc=int.from_bytes(crc, "little"),
        slices=tuple(_slice(part, sizes) for part in slices),
    )


def encode_entry(entry: BundleEntry) -> bytes:
    """The same again; an unsliced tensor. Zeros are left out, as protocol buffers do."""
    sizes = b"".join(encode_field(2, encode_field(1, n) if n else b"") for n in entry.shape)
    data = encode_field(1, _NUMBERS[str(entry.dtype)]) + encode_field(2, sizes)
    for number, value in ((3, entry.shard), (4, entry.offset), (5, entry.size)):
        if value:
            data += encode_field(number, value)
    return data + (encode_fixed32(6, entry.crc.to_bytes(4, "little")) if entry.crc else b"")


def can_be_written(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this dtype have a number in the format."""
    return dtype.name in _NUMPY_DTYPES.values()


def slice_shape(part: tuple[Extent, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a part of a tensor of shape `shape`."""
    return tuple(
        n if extent == _WHOLE else extent[1] for extent, n in zip(part, shape, strict=True)
    )


def slice_index(part: tuple[Extent, ...]) -> tuple[slice, ...]:
    """NumPy's index of a part."""
    return tuple(
        slice(None) if extent == _WHOLE else slice(extent[0], sum(extent)) for extent in part
    )


def slice_key(name: bytes, part: tuple[Extent, ...]) -> bytes:
    """The key under which a part of a tensor is stored: an encoding that sorts as its values."""
    key = _ordered(0) + _ordered_text(name) + _ordered(len(part))
    return key + b"".join(_ordered_signed(number) for extent in part for number in extent)


def _ordered(number: int) -> bytes:
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([len(data)]) + data


def _ordered_text(text: bytes) -> bytes:
    escapes = {0x00: b"\0\xff", 0xFF: b"\xff\0"}
    return b"".join(escapes.get(byte, bytes([byte])) for byte in text) + b"\0\1"


def _ordered_signed(number: int) -> bytes:
    """7 bits a byte; as many leading ones as bytes, all inverted for a negative number."""
    size = (number if number >= 0 else ~number).bit_length() // 7 + 1
    bits = 8 * size
    lead = (1 << bits) - (1 << bits - size)
    return ((number & (1 << bits) - 1) ^ lead).to_bytes(size, "big")


def _shape(data: bytes) -> tuple[int, ...]:
    sizes = []
    for number, value in fields(data):
        if number == 3 and value:
            raise Damaged("its shape is not known")
        if number == 2:
            size = 0
            for inner, part in fields(_bytes(value)):
                if inner == 1:
                    size = _int64(part)
            sizes.append(size)
            if size < 0 or len(sizes) > _MAX_DIMENSIONS:
                raise Damaged(f"its shape begins with {sizes[-4:]}, which is not possible")
    if math.prod(size for size in sizes if size) > _MAX_ELEMENTS:
        raise Damaged("its shape is larger than any memory")
    return tuple(sizes)


def _slice(data: bytes, shape: tuple[int, ...]) -> tuple[Extent, ...]:
    part: list[Extent] = []
    for number, value in fields(data):
        if number != 1:
            continue
        start, length = _WHOLE
        for inner, extent in fields(_bytes(value)):
            if inner == 1:
                start = _int64(extent)
            elif inner == 2:
                length = _int64(extent)
        part.append((start, length))
        if len(part) > len(shape) or (
            (start, length) != _WHOLE
            and not (start >= 0 < length and start + length <= shape[len(part) - 1])
        ):
            raise Damaged("one of its parts does not lie inside it")
    if len(part) != len(shape):
        raise Damaged("one of its parts has another number of dimensions")
    return tuple(part)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise Damaged("a number stands where a message is expected")
    return value


def _int64(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise Damaged("something else stands where a number is expected")
    return signed(value)


def _int32(value: int | bytes) -> int:
    number = _int64(value) & 0xFFFFFFFF  # as protocol buffers cut longer numbers
    return number - 2**32 if number >= 2**31 else number
