"""CRC-32C, the checksum in TensorFlow's files, at memory speed in NumPy.

A CRC is the remainder of a polynomial over GF(2), one coefficient a bit, first byte first and
lowest bit first. Modulo CRC-32C's polynomial (Castagnoli, reflected 0x82F63B78)

    x**5685 = x**1362 + x**426 + 1,

found by search; no multiple of lower degree has so few terms so far apart. Squaring keeps a sum of
powers a sum of powers, so the same holds with every exponent times 2**n: the words at the front of
a message can be exchanged for themselves XORed onto three places further on, thousands at a time,
without any table. Only the last few thousand bytes are taken bit by bit.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_TOP, _MIDDLE, _LOW = 5685, 1362, 426
_BLOCK = _TOP - _MIDDLE  # words that can be exchanged at once: none of them lands among them
_CHUNK = 12  # blocks that are copied and folded while they are in the processor's cache
_MAX_REST = _TOP + _BLOCK


def crc32c(data: bytes | memoryview | NDArray[Any]) -> int:
    """The CRC-32C of contiguous bytes, or of an array's bytes, in [0, 2**32)."""
    raw = np.frombuffer(data, np.uint8)
    message, begun = raw, False
    for word in (np.dtype(np.uint64), np.dtype(np.uint8)):
        if len(message) >= _MAX_REST * word.itemsize:
            message = _folded(message, word, 0 if begun else 0xFF)
            begun = True
    end = np.concatenate([message, np.zeros(4, np.uint8)])
    if not begun:
        end[:4] ^= 0xFF
    bits = np.unpackbits(end, bitorder="little")
    powers = _powers()[len(_powers()) - len(bits) :]
    return int(np.bitwise_xor.reduce(powers[bits.view(bool)])) ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """The form in which a CRC is stored beside its data: rotated by 15 bits, plus a constant.

    Source: TensorFlow, tsl/lib/hash/crc32c.h; the CRC of bytes that hold a CRC is a poor one.
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _folded(message: NDArray[Any], word: np.dtype[Any], flip: int) -> NDArray[Any]:
    """A shorter message with the same remainder, of at least _TOP and below _MAX_REST words.

    Args:
        message: uint8, of at least _MAX_REST words.
        flip: XORed onto the first four bytes, where the CRC asks for it.
    """
    size = word.itemsize
    num_blocks = (len(message) - _TOP * size) // (_BLOCK * size)
    chunk = np.zeros((_CHUNK * _BLOCK + _TOP), word)
    chunk.view(np.uint8)[:4] = flip
    at = 0
    while num_blocks:
        now = min(num_blocks, _CHUNK)
        ahead = now * _BLOCK  # words that go; behind them lies what they leave behind
        part = message[at : at + ahead * size]
        chunk.view(np.uint8)[: len(part)] ^= part
        for first in range(0, ahead, _BLOCK):
            words = chunk[first : first + _BLOCK]
            for power in (_MIDDLE, _LOW, 0):
                to = first + _TOP - power
                chunk[to : to + _BLOCK] ^= words
        chunk[:_TOP] = chunk[ahead : ahead + _TOP].copy()
        chunk[_TOP:] = 0
        at += ahead * size
        num_blocks -= now
    rest: NDArray[Any] = message[at:].copy()
    rest[: _TOP * size] ^= chunk[:_TOP].view(np.uint8)
    return rest


@cache
def _powers() -> NDArray[Any]:
    """x**k modulo the polynomial, reflected uint32, highest k first, for the longest rest."""
    count = 8 * (_MAX_REST + 4)
    powers = np.empty(count, np.uint32)
    value = 1 << 31
    for k in range(count):
        powers[count - 1 - k] = value
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return powers
