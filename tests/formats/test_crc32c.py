"""CRC-32C against its definition bit by bit, and published check values."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.formats.crc32c import crc32c, masked


def by_definition(data: bytes) -> int:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # the check value of the catalogue of CRCs, and RFC 3720, B.4
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"", 0),
    ],
)
def test_published_check_values_come_out(data, crc):
    assert crc32c(data) == crc


# Around where it changes its way: all bits; folds of bytes; folds of words of 8 bytes, in chunks.
@pytest.mark.parametrize(
    "size", [1, 2, 3, 4, 5, 700, 10007, 10008, 10009, 14331, 80063, 80064, 80065, 540_001]
)
def test_it_is_the_crc_at_every_size(size):
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data) == by_definition(data)


def test_a_flipped_bit_anywhere_changes_it():
    data = bytearray(np.random.default_rng(0).bytes(100_000))
    right = crc32c(bytes(data))
    for at in [*range(0, 100_000, 9973), 99_999]:
        data[at] ^= 0x10
        assert crc32c(bytes(data)) != right
        data[at] ^= 0x10


def test_views_and_arrays_are_read_where_they_lie():
    data = np.random.default_rng(1).bytes(100_003)
    right = by_definition(data[3:])
    assert crc32c(memoryview(data)[3:]) == right
    array = np.frombuffer(data, np.uint8)[3:]
    assert crc32c(array) == right
    assert crc32c(array.view(np.float32).reshape(5, -1)) == right


def test_the_mask_is_the_one_of_the_format():
    # The first block of an index that TensorFlow wrote, in tests/golden, relies on it as well.
    assert masked(0) == 0xA282EAD8
    assert masked(0x8000) == 0xA282EAD9
