"""TensorFlow's checkpoints: files written by TensorFlow, byte-equal files of ours, and damage."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from filbert.checkpoints import tensor_bundle
from filbert.checkpoints.tensor_bundle import (
    TensorBundle,
    crc32c,
    data_file,
    masked,
    read_table,
    write_bundle,
    write_table,
)
from filbert.errors import FormatError
from filbert.protobuf import encode_field, encode_fixed32

GOLDEN = Path(__file__).parents[1] / "golden" / "tensorflow"
EXPECTED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text("utf-8"))
CHECKPOINTS = ("small", "sharded")
DTYPES = ["float16", "float32", "float64", "bool"]
DTYPES += [f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_what_tensorflow_wrote_is_read_as_tensorflow_reads_it(checkpoint):
    bundle = TensorBundle.open(GOLDEN / f"{checkpoint}.ckpt")
    found = {
        name: [list(entry.shape), entry.dtype, sha256(bundle.read(name).tobytes())]
        for name, entry in bundle.entries.items()
    }
    assert found == EXPECTED[checkpoint]
    assert list(found) == sorted(found)


def test_the_same_tensors_give_the_files_that_tensorflow_wrote_byte_for_byte(tmp_path):
    golden = GOLDEN / "small.ckpt"
    bundle = TensorBundle.open(golden)
    write_bundle(tmp_path / "x", {name: bundle.read(name) for name in reversed(bundle.entries)})
    assert (tmp_path / "x.index").read_bytes() == Path(f"{golden}.index").read_bytes()
    assert data_file(tmp_path / "x").read_bytes() == data_file(golden).read_bytes()


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=4, min_side=0))
        ),
        max_size=20,
    )
)
def test_what_was_written_is_read_again(tmp_path_factory, tensors):
    prefix = tmp_path_factory.mktemp("bundle") / "x.ckpt"
    write_bundle(prefix, tensors)
    bundle = TensorBundle.open(prefix)
    assert bundle.entries.keys() == tensors.keys()
    for name, array in tensors.items():
        assert bundle.read(name).tobytes() == array.tobytes()
        assert (bundle.read(name).dtype, bundle.entries[name].shape) == (array.dtype, array.shape)


# Damaged files.


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    return tmp_path / "golden"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_a_flipped_bit_in_any_tensor_is_found_by_its_crc(golden, checkpoint):
    bundle = TensorBundle.open(golden / f"{checkpoint}.ckpt")
    for path in sorted({entry.path for entry in bundle.entries.values()}):
        for at in range(0, path.stat().st_size, 1 + path.stat().st_size // 20):
            flip(path, at)
            damaged = TensorBundle.open(golden / f"{checkpoint}.ckpt")
            refused = []
            for name in damaged.entries:
                try:
                    damaged.read(name)
                except FormatError as error:
                    refused.append(str(error))
            assert len(refused) == 1
            assert path.name in refused[0]
            flip(path, at)


def test_missing_files_are_named(golden):
    (golden / "small.ckpt.index").unlink()
    with pytest.raises(FormatError, match=r"small\.ckpt\.index is missing"):
        TensorBundle.open(golden / "small.ckpt")
    data_file(golden / "sharded.ckpt", 1, 3).unlink()
    with pytest.raises(FormatError, match=r"sharded\.ckpt\.data-00001-of-00003 not found"):
        TensorBundle.open(golden / "sharded.ckpt")


def test_a_truncated_data_file_is_refused_when_opened(golden):
    path = data_file(golden / "small.ckpt")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"has 12,893 bytes, but uint8/4 ends at byte 12,894"):
        TensorBundle.open(golden / "small.ckpt")


# Indexes that were put together by hand, or changed at random, with correct CRCs.

DATA = np.arange(16, dtype="<f4").tobytes()
HEADER = encode_field(1, 1) + encode_field(3, encode_field(1, 1))


def dims(*sizes: int) -> bytes:
    return b"".join(encode_field(2, encode_field(1, size)) for size in sizes)


def tensor(
    *sizes: int, dtype: int = 1, shard: int = 0, offset: int = 0, size: int | None = None
) -> bytes:
    size = 4 * int(np.prod(sizes)) if size is None else size
    crc = masked(crc32c(DATA[max(offset, 0) : max(offset, 0) + max(size, 0)]))
    return (
        encode_field(1, dtype)
        + encode_field(2, dims(*sizes))
        + encode_field(3, shard)
        + encode_field(4, offset)
        + encode_field(5, size)
        + encode_fixed32(6, struct.pack("<I", crc))
    )


def write(folder: Path, *entries: tuple[bytes, bytes], header: bytes = HEADER) -> Path:
    prefix = folder / "x.ckpt"
    data_file(prefix).write_bytes(DATA)
    Path(f"{prefix}.index").write_bytes(write_table([(b"", header), *sorted(entries)]))
    return prefix


def refusal(prefix: Path) -> str:
    with pytest.raises(FormatError) as caught:
        bundle = TensorBundle.open(prefix)
        for name in bundle.entries:
            bundle.read(name)
    assert str(prefix) in str(caught.value)
    assert len(str(caught.value)) < 500 + 2 * len(str(prefix))
    return str(caught.value)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (tensor(4, offset=2**62), "ends at byte 4,611,686,018,427,387,920"),
        (tensor(4, offset=52), "ends at byte 68"),
        (tensor(4, offset=-4), "byte -4 of file 0"),
        (tensor(4, size=-1), "-1 bytes"),
        (tensor(4, size=12), "has 12 bytes, but its shape (4,) in float32 takes 16"),
        (tensor(4, shard=1), "data-00001-of-00001 not found"),
        (tensor(-4, size=16), "the shape [-4] is impossible"),
        (tensor(2**40, 2**40, size=16), "is impossible"),
        (tensor(0, 2**60, size=0), "is impossible"),
        (tensor(*[1] * 33, size=4), "is impossible"),
        (tensor(4, dtype=7), "has dtype string, which is not numeric"),
        (tensor(4, dtype=20), "has dtype number 20"),
        (tensor(4) + encode_field(6, b"abc"), "is impossible"),
        (tensor(4) + encode_field(6, b"abcd"), "the CRC of n is wrong"),
        (tensor(4) + encode_field(7, b""), "partitioned"),
        (tensor(4) + encode_field(2, 1), "a number where bytes"),
        (tensor(4) + encode_field(4, b""), "bytes where a number"),
        (tensor(4) + encode_field(2, encode_field(3, 1)), "its shape is unknown"),
        (tensor(4)[:-1], "in the middle of a field"),
        (b"\xff" * 11, "does not end"),
    ],
)
def test_an_impossible_entry_is_refused(tmp_path, entry, says):
    assert says in refusal(write(tmp_path, (b"n", entry)))


# The sorted table.


def table_refusal(folder: Path, data: bytes) -> str:
    path = folder / "x.ckpt.index"
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(max_size=12).map(str.encode), st.binary(max_size=40), min_size=1))
def test_a_table_that_was_written_is_read_again(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("table") / "x.index"
    path.write_bytes(write_table(sorted(table.items())))
    assert read_table(path) == table


def test_a_file_that_is_no_table_is_refused(tmp_path):
    for data in (b"", b"x" * 47, b"x" * 4000):
        assert "does not end as a table does" in table_refusal(tmp_path, data)
    with pytest.raises(FormatError, match="is not a file"):
        read_table(tmp_path)


def test_the_number_of_entries_and_the_size_of_the_file_are_limited(tmp_path, monkeypatch):
    data = write_table([(b"%d" % i, b"") for i in range(6)])
    monkeypatch.setattr(tensor_bundle, "MAX_ENTRIES", 5)
    assert "more than 5 entries" in table_refusal(tmp_path, data)
    monkeypatch.setattr(tensor_bundle, "MAX_FILE_BYTES", len(data) - 1)
    assert "an index has at most" in table_refusal(tmp_path, data)


# CRC-32C.


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
        (b"", 0),
    ],
)
def test_published_check_values_are_computed(data, crc):
    assert crc32c(data) == crc


# The sizes at which it changes its method: bits; folds of bytes; folds of 8-byte words, in chunks.
@pytest.mark.parametrize("size", [1, 4, 5, 700, 10007, 10008, 14331, 80063, 80064, 540_001])
def test_it_is_the_crc_at_every_size(size):
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data) == by_definition(data)
