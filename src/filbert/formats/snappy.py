"""Undo Snappy's compression of small blocks, for the index files that use it.

Source: google/snappy, format_description.txt.
"""

from __future__ import annotations

from filbert.protobuf import Damaged, varint

_MAX_RATIO = 24  # the densest element gives 64 bytes for 3


def decompress(data: bytes, max_size: int) -> bytes:
    """The content of a raw Snappy block, of at most `max_size` bytes.

    Raises:
        Damaged: it is cut off, points before its beginning, or is longer or shorter than it says.
    """
    size, at = varint(data, 0)
    if size > min(max_size, _MAX_RATIO * len(data)):
        raise Damaged(f"a compressed block of {len(data)} bytes says that it unpacks to {size}")
    out = bytearray()
    while at < len(data):
        tag, kind = data[at], data[at] & 3
        extra = (max(0, (tag >> 2) - 59), 1, 2, 4)[kind]
        number = int.from_bytes(data[at + 1 : at + 1 + extra], "little")
        at += 1 + extra
        if at > len(data):
            raise Damaged("a compressed block is cut off")
        if kind == 0:
            length = (number if extra else tag >> 2) + 1
            piece = data[at : at + length]
            at += length
        else:
            length = (tag >> 2 & 7) + 4 if kind == 1 else (tag >> 2) + 1
            back = number + (tag >> 5 << 8) if kind == 1 else number
            if not 0 < back <= len(out):
                raise Damaged("a compressed block refers to bytes before its beginning")
            start = len(out) - back
            piece = bytes(out[start : start + length])
            piece = (piece * (length // len(piece) + 1))[:length]  # a copy may reach into itself
        if len(piece) != length or len(out) + length > size:
            raise Damaged("a compressed block does not unpack to the size that it says")
        out += piece
    if len(out) != size:
        raise Damaged("a compressed block does not unpack to the size that it says")
    return bytes(out)
