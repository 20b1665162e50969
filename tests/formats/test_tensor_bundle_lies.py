"""Indices that lie: put together by hand, or changed at random, with CRCs that are right."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from filbert.errors import FormatError
from filbert.formats.crc32c import crc32c, masked
from filbert.formats.sorted_table import write_table
from filbert.formats.tensor_bundle import TensorBundle, data_file, index_file
from filbert.protobuf import encode_field, encode_fixed32, varint

GOLDEN = Path(__file__).parents[1] / "golden" / "tensorflow"

DATA = np.arange(16, dtype="<f4").tobytes()
HEADER = encode_field(1, 1) + encode_field(3, encode_field(1, 1))


def dims(*sizes: int) -> bytes:
    return b"".join(encode_field(2, encode_field(1, size)) for size in sizes)


def tensor(
    *sizes: int, dtype: int = 1, shard: int = 0, offset: int = 0, size: int | None = None
) -> bytes:
    size = 4 * int(np.prod(sizes)) if size is None else size
    crc = masked(crc32c(DATA[max(offset, 0) : max(offset, 0) + max(size, 0)]))
    numbers = encode_field(3, shard) + encode_field(4, offset) + encode_field(5, size)
    return (
        encode_field(1, dtype)
        + encode_field(2, dims(*sizes))
        + numbers
        + encode_fixed32(6, struct.pack("<I", crc))
    )


def write(folder: Path, *entries: tuple[bytes, bytes], header: bytes = HEADER) -> Path:
    prefix = folder / "x.ckpt"
    data_file(prefix).write_bytes(DATA)
    index_file(prefix).write_bytes(write_table([(b"", header), *sorted(entries)]))
    return prefix


def refusal(prefix: Path) -> str:
    with pytest.raises(FormatError) as caught:
        bundle = TensorBundle.open(prefix)
        for name in bundle.shapes:
            bundle.read(name)
    assert str(prefix) in str(caught.value)
    assert len(str(caught.value)) < 500 + 2 * len(str(prefix))
    return str(caught.value)


def test_an_honest_index_is_read(tmp_path):
    entries = [(b"a", tensor(2, 4)), (b"b", tensor(4, 2, offset=32))]
    bundle = TensorBundle.open(write(tmp_path, *entries))
    assert bundle.read("b").tolist() == [[8, 9], [10, 11], [12, 13], [14, 15]]


def test_unknown_fields_are_skipped(tmp_path):
    unknown = encode_field(99, 5) + encode_field(98, b"text") + encode_fixed32(97, b"abcd")
    entry = tensor(2, 4) + unknown
    bundle = TensorBundle.open(write(tmp_path, (b"a", entry), header=HEADER + unknown))
    assert bundle.read("a").shape == (2, 4)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"", "has 0 data files"),
        (encode_field(1, 0), "has 0 data files"),
        (encode_field(1, -1), "has -1 data files"),
        (encode_field(1, 2**31), "has -2147483648 data files"),
        (encode_field(1, 2**31 - 1), r"x.ckpt.data-00000-of-2147483647 is missing"),
        (HEADER + encode_field(2, 1), "big-endian"),
        (HEADER + encode_field(3, encode_field(2, 2)), "needs a reader of version 2"),
        (encode_field(1, b"x"), "something else stands"),
        (HEADER + encode_field(3, 1), "a number stands"),
        (b"\x80", "in the middle of a number"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, says):
    assert says in refusal(write(tmp_path, (b"a", tensor(2, 4)), header=header))


def test_an_index_without_a_header_is_refused(tmp_path):
    prefix = write(tmp_path)
    index_file(prefix).write_bytes(write_table([(b"a", tensor(2, 4))]))
    assert "it has no header" in refusal(prefix)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (tensor(4, offset=2**62), "ends at byte 4,611,686,018,427,387,920"),
        (tensor(4, offset=2**63 - 1), "ends at byte"),
        (tensor(4, offset=52), "ends at byte 68"),
        (tensor(4, offset=-4), "lies at byte -4"),
        (tensor(4, size=-1), "with -1 bytes"),
        (tensor(4, size=2**63 - 1), "takes 16"),
        (tensor(4, size=12), "has 12 bytes, but its shape (4,) in float32 takes 16"),
        (tensor(4, shard=1), "in data file 1, but only 1 data files"),
        (tensor(4, shard=2**31), "of file -2147483648"),
        (tensor(-4, size=16), "its shape begins with [-4]"),
        (tensor(2**40, 2**40, size=16), "larger than any memory"),
        (tensor(0, 2**60, size=0), "larger than any memory"),
        (tensor(2**50, size=16), "takes 4503599627370496"),
        (tensor(*[1] * 33, size=4), "its shape begins with"),
        (tensor(4, dtype=0), "has dtype dtype 0, which holds no numbers"),
        (tensor(4, dtype=20), "has dtype resource"),
        (tensor(4, dtype=2**31), "has dtype dtype -2147483648"),
        (tensor(4) + encode_field(6, b"abc"), "lies at byte 0"),
        (tensor(4) + encode_field(6, b"abcd"), "the CRC of n is wrong"),
        (tensor(4) + encode_field(2, 1), "a number stands"),
        (tensor(4) + encode_field(2, encode_field(2, 1)), "a number stands"),
        (tensor(4) + encode_field(4, b""), "something else stands"),
        (tensor(4) + encode_field(2, encode_field(3, 1)), "its shape is not known"),
        (tensor(4)[:-1], "in the middle of a field"),
        (b"\xff" * 11, "does not end"),
    ],
)
def test_an_entry_that_lies_is_refused(tmp_path, entry, says):
    assert says in refusal(write(tmp_path, (b"n", entry)))


def test_tensors_that_overlap_are_refused(tmp_path):
    entries = [(b"a", tensor(8)), (b"b", tensor(8, offset=28))]
    assert "b begins at byte 28 of x.ckpt.data-00000-of-00001, inside another" in refusal(
        write(tmp_path, *entries)
    )
    entries = [(b"a", tensor(16)), (b"b", tensor(0, offset=8)), (b"c", tensor(8, offset=8))]
    assert "c begins at byte 8" in refusal(write(tmp_path, *entries))


def test_a_name_that_is_no_text_is_refused(tmp_path):
    assert "is not UTF-8" in refusal(write(tmp_path, (b"\xff\xfe", tensor(4))))


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path):
    assert "\\x1b[2J" in refusal(write(tmp_path, (b"\x1b[2J", tensor(4, offset=999))))


def text_entry(raw: bytes, folder: Path, *sizes: int) -> Path:
    entry = encode_field(1, 7) + encode_field(2, dims(*sizes)) + encode_field(5, len(raw))
    prefix = write(folder, (b"t", entry))
    data_file(prefix).write_bytes(raw)
    return prefix


@pytest.mark.parametrize(
    "raw", [b"", b"\x80", b"\x05", b"\x02ab", b"\xff\xff\xff\xff\x0fabcd", b"\x02\0\0\0\0ab"]
)
def test_a_damaged_text_is_refused(tmp_path, raw):
    bundle = TensorBundle.open(text_entry(raw, tmp_path))
    with pytest.raises(FormatError, match="t is damaged"):
        bundle.read_bytes("t")


def test_several_texts_are_refused(tmp_path):
    bundle = TensorBundle.open(text_entry(b"\0", tmp_path, 2**40))
    with pytest.raises(FormatError, match="not one string"):
        bundle.read_bytes("t")


def part(*extents: tuple[int, int]) -> bytes:
    inner = [encode_field(1, start) + encode_field(2, length) for start, length in extents]
    return encode_field(7, b"".join(encode_field(1, extent) for extent in inner))


def key(name: bytes, *extents: tuple[int, int]) -> bytes:
    """For numbers from 0 to 63: a byte each, beginning at 0x80."""
    numbers = bytes(0x80 | number for extent in extents for number in extent)
    return b"\0" + name + b"\0\1" + bytes([1, len(extents)]) + numbers


FIRST, SECOND = (key(b"p", (0, 2)), tensor(2)), (key(b"p", (2, 2)), tensor(2, offset=8))
SHIFTED = (key(b"p", (1, 2)), tensor(2, offset=8))
WHOLE = encode_field(1, 1) + encode_field(2, dims(4))


def test_parts_are_put_together(tmp_path):
    prefix = write(tmp_path, (b"p", WHOLE + part((0, 2)) + part((2, 2))), FIRST, SECOND)
    assert TensorBundle.open(prefix).read("p").tolist() == [0, 1, 2, 3]
    assert list(TensorBundle.open(prefix).shapes) == ["p"]


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([(b"p", WHOLE + part((0, 2))), FIRST], "do not make up its shape (4,)"),
        ([(b"p", WHOLE + part((0, 2)) + part((2, 2))), FIRST], "a part of 'p' is missing"),
        ([(b"p", WHOLE + part((0, 2)) * 2), FIRST], "parts of tensors that are not in it"),
        ([(b"p", WHOLE + part((0, 2)) * 2), FIRST, SECOND], "inside another tensor"),
        ([(b"p", WHOLE + part((0, 2)) + part((1, 2))), FIRST, SHIFTED], "parts of p overlap"),
        ([(b"p", WHOLE + part((0, 2)) * 4), FIRST, SECOND], "more parts than there are entries"),
        ([(b"p", WHOLE + part((0, 2)) * 5000)], "more than 4096 parts"),
        ([FIRST], "parts of tensors that are not in it"),
        ([(b"p", WHOLE + part((0, 5)))], "does not lie inside it"),
        ([(b"p", WHOLE + part((-1, 2)))], "does not lie inside it"),
        ([(b"p", WHOLE + part((2**62, 2**62)))], "does not lie inside it"),
        ([(b"p", WHOLE + part((0, 2), (0, 2)))], "does not lie inside it"),
        ([(b"p", WHOLE + part())], "another number of dimensions"),
        ([(b"p", WHOLE + part((0, -1)))], "a part of 'p' is missing"),
        ([(b"p", WHOLE + part((0, 2))), (FIRST[0], tensor(3))], "has another shape"),
    ],
)
def test_parts_that_lie_are_refused(tmp_path, entries, says):
    assert says in refusal(write(tmp_path, *entries))


def with_right_crcs(file: bytearray, blocks: list[tuple[int, int]]) -> bytes:
    for offset, size in blocks:
        end = offset + size + 1
        file[end : end + 4] = struct.pack("<I", masked(crc32c(bytes(file[offset:end]))))
    return bytes(file)


def blocks_of(file: bytes) -> list[tuple[int, int]]:
    """Offset and size of the three blocks of a table with one block of entries."""
    numbers, at = [], len(file) - 48
    for _ in range(4):
        number, at = varint(file, at)
        numbers.append(number)
    return [(0, numbers[0] - 5), (numbers[0], numbers[1]), (numbers[2], numbers[3])]


@pytest.mark.parametrize("checkpoint", ["objects", "partitioned", "odd_names", "sharded"])
def test_random_changes_end_in_an_answer_or_in_a_refusal(tmp_path, checkpoint):
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    path = index_file(tmp_path / f"{checkpoint}.ckpt")
    whole = path.read_bytes()
    assert with_right_crcs(bytearray(whole), blocks_of(whole)) == whole
    draw = random.Random(0)
    refused = 0
    for _ in range(250):
        file = bytearray(whole)
        for _ in range(draw.choice([1, 1, 2, 8])):
            file[draw.randrange(len(file))] = draw.choice(
                [0, 1, 127, 128, 255, draw.randrange(256)]
            )
        path.write_bytes(with_right_crcs(file, blocks_of(whole)))
        try:
            bundle = TensorBundle.open(tmp_path / f"{checkpoint}.ckpt")
            for name, dtype in bundle.dtypes.items():
                bundle.read_bytes(name) if dtype == "string" else bundle.read(name)
        except FormatError as error:
            refused += 1
            assert str(tmp_path) in str(error)
    assert 100 < refused < 250  # a changed name is only another name
