"""What files are made with: folders as tables of contents by file name, protocol buffers."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Files = dict[str, bytes]


class Fixed(int):
    """A number that is written in four bytes."""


def folder_files(fill: Callable[[Path], object]) -> Files:
    """The content of a folder that `fill` has written."""
    with tempfile.TemporaryDirectory() as place:
        fill(Path(place))
        return {
            str(path.relative_to(place)): path.read_bytes()
            for path in sorted(Path(place).rglob("*"))
            if path.is_file()
        }


def encode_fields(fields: list[tuple[int, Any]]) -> bytes:
    """A protocol buffer message: int as varint, float or Fixed as four bytes, else with length."""
    data = b""
    for number, value in fields:
        if isinstance(value, float):
            data += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, Fixed):
            data += varint(number << 3 | 5) + (value % 2**32).to_bytes(4, "little")
        elif isinstance(value, int):
            data += varint(number << 3) + varint(value)
        else:
            inner = encode_fields(value) if isinstance(value, list) else value
            content = inner.encode("utf-8", "replace") if isinstance(inner, str) else inner
            data += varint(number << 3 | 2) + varint(len(content)) + content
    return data


def varint(value: int) -> bytes:
    """A number as a varint; one too large loses its upper bits, a negative one becomes large."""
    data = b""
    value %= 2**70
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])
