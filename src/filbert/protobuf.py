"""Reads and writes the wire format of protocol buffers: fields by number, without descriptors.

Source: "Encoding" in the Protocol Buffers documentation. Groups, which proto3 dropped, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_MAX_VARINT = 2**64


class Damaged(ValueError):
    """The bytes are not the expected message; the text describes the damage without the file."""


def fields(data: bytes | memoryview) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of one message in file order: varints as int in [0, 2**64), others as bytes.

    Raises:
        Damaged: The message is truncated, or holds something that is no field.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if not 0 < number < 2**29:
            raise Damaged(f"field number {number} at byte {at} is not possible")
        if kind == _VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = varint(data, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise Damaged(f"unknown field kind {kind} at byte {at}")
        if size > end - at:
            raise Damaged(f"it ends at byte {end}, in the middle of a field")
        yield number, bytes(data[at : at + size])
        at += size


def as_bytes(value: int | bytes) -> bytes:
    """Return the bytes of a field (a text or a message too), or raise Damaged for a number."""
    if isinstance(value, int):
        raise Damaged("a field holds a number where bytes are expected")
    return value


def as_number(value: int | bytes) -> int:
    """Return the value of an `int32` or `int64` field, or raise Damaged if it is no number."""
    if not isinstance(value, int):
        raise Damaged("a field holds bytes where a number is expected")
    return value - _MAX_VARINT if value >= _MAX_VARINT // 2 else value


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number at byte `at`, in [0, 2**64), and the byte after it, or raise Damaged."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Damaged(f"it ends at byte {len(data)}, in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= _MAX_VARINT:
                raise Damaged(f"a number at byte {at} has more than 64 bits")
            return value, at
    raise Damaged(f"a number at byte {at} does not end")


def encode_varint(value: int) -> bytes:
    """Return a number in [-2**63, 2**64) as a varint; negative ones as two's complement."""
    value %= _MAX_VARINT
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(number: int, value: int | bytes | str) -> bytes:
    """Return one field: an int as a varint, bytes and (UTF-8) text with their length."""
    if isinstance(value, int):
        return encode_varint(number << 3 | _VARINT) + encode_varint(value)
    data = value.encode() if isinstance(value, str) else value
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(data)) + data


def encode_fixed32(number: int, data: bytes) -> bytes:
    """Return one field of exactly four bytes: a `fixed32` or a `float`, little-endian."""
    return encode_varint(number << 3 | _FOUR_BYTES) + data
