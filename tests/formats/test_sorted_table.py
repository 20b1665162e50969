"""Sorted tables: what is written is read, and whatever lies is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.errors import FormatError
from filbert.formats import snappy, sorted_table
from filbert.formats.crc32c import crc32c, masked
from filbert.formats.sorted_table import read_table, write_table
from filbert.protobuf import Damaged, encode_varint

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)


def entry(key: bytes, value: bytes = b"", shared: int = 0, unshared: int | None = None) -> bytes:
    sizes = (shared, len(key) if unshared is None else unshared, len(value))
    return b"".join(map(encode_varint, sizes)) + key + value


def block(*entries: bytes, restarts: tuple[int, ...] = (0,), count: int | None = None) -> bytes:
    count = len(restarts) if count is None else count
    return b"".join(entries) + struct.pack(f"<{len(restarts)}II", *restarts, count)


class File:
    """A table that is put together block by block, with CRCs that are right."""

    def __init__(self) -> None:
        self.data = b""

    def add(self, content: bytes, kind: int = 0) -> bytes:
        handle = encode_varint(len(self.data)) + encode_varint(len(content))
        content += bytes([kind])
        self.data += content + struct.pack("<I", masked(crc32c(content)))
        return handle

    def close(self, listed: bytes, described: bytes | None = None) -> bytes:
        described = self.add(block()) if described is None else described
        return self.data + (described + listed).ljust(40, b"\0") + MAGIC


def one_block(content: bytes, kind: int = 0, bound: bytes = b"\xff") -> bytes:
    file = File()
    handle = file.add(content, kind)
    return file.close(file.add(block(entry(bound, handle))))


def refusal(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "x.ckpt.index"
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))
    return str(caught.value)


def read(tmp_path: Path, data: bytes) -> list[tuple[bytes, bytes]]:
    path = tmp_path / "x.ckpt.index"
    path.write_bytes(data)
    return read_table(path)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.binary(max_size=12), st.binary(max_size=40), max_size=60))
def test_what_was_written_is_read_again(tmp_path_factory, table):
    entries = sorted(table.items())
    assert read(tmp_path_factory.mktemp("table"), write_table(entries)) == entries


def test_entries_go_over_several_blocks(tmp_path):
    entries = [(f"{i:06}".encode(), bytes(1000)) for i in range(600)]
    entries[300] = (entries[300][0], bytes(600_000))  # has a block to itself
    data = write_table(entries)
    assert read(tmp_path, data) == entries
    assert data.count(bytes(600_000)) == 1


@pytest.mark.parametrize(("size", "num_blocks"), [(262_143, 1), (262_144, 2)])
def test_a_block_is_closed_at_256_kibibytes(size, num_blocks):
    overhead = 3 + 2 + 1 + 8  # three numbers, of which the last takes 3 bytes; a key; restarts
    data = write_table([(b"a", bytes(size - overhead)), (b"b", b"")])
    assert struct.unpack_from("<I", data, len(data) - 48 - 5 - 4) == (num_blocks,)


def test_a_file_of_anything_else_is_refused(tmp_path):
    for data in (b"", b"x" * 47, b"x" * 4000, MAGIC, bytes(40) + MAGIC[::-1]):
        assert "its last bytes are not those of a table" in refusal(tmp_path, data)
    with pytest.raises(FormatError, match="is missing"):
        read_table(tmp_path / "nothing.index")
    with pytest.raises(FormatError, match="is no file"):
        read_table(tmp_path)


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    data = write_table([(b"", b"header"), (b"name", b"entry")])
    for size in range(len(data)):
        refusal(tmp_path, data[:size])


def test_every_byte_is_guarded_by_a_crc_or_a_check(tmp_path):
    data = write_table([(b"%d" % i, b"value %d" % i) for i in range(9)])
    unused = data[-48:-8].rstrip(b"\0")  # zeros behind the handles mean nothing
    for at in range(len(data)):
        if len(data) - 48 + len(unused) <= at < len(data) - 8:
            continue
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        refusal(tmp_path, bytes(damaged))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (block(entry(b"b"), entry(b"a")), "not in order at a"),
        (block(entry(b"a"), entry(b"a")), "not in order"),
        (block(entry(b"a"), entry(b"", shared=1)), "not in order"),
        (block(entry(b"a"), entry(b"b", shared=2)), "longer than its block"),
        (block(entry(b"a", unshared=2**40)), "longer than its block"),
        (block(entry(b"a", unshared=200)), "longer than its block"),
        (block(b"\x80"), "longer than its block"),
        (block(b"\xff" * 10 + b"\x01"), "does not end"),
        (block(entry(b"a"), restarts=(1,)), "restarts are not where"),
        (block(entry(b"a"), restarts=(0, 400)), "restarts are not where"),
        (block(entry(b"a"), restarts=(0, 2**32 - 1)), "restarts are not where"),
        (block(entry(b"a"), restarts=(0, 0)), "restarts are not where"),
        (block(entry(b"a"), entry(b"b", shared=1), restarts=(0, 4)), "restarts are not where"),
        (block(entry(b"a"), count=3), "says that it has 3 restarts"),
        (block(entry(b"a"), count=2**32 - 1), "says that it has 4294967295 restarts"),
        (block(entry(b"a"), count=0), "says that it has 0 restarts"),
        (b"ab", "a block of 2 bytes says"),
        (b"", "a block of 0 bytes says"),
        (block(), "do not hold the keys"),
        (block(entry(b"\xff\xff")), "do not hold the keys"),
    ],
)
def test_a_block_that_lies_is_refused(tmp_path, content, says):
    assert says in refusal(tmp_path, one_block(content))


def test_a_block_with_an_unknown_compression_is_refused(tmp_path):
    assert "unknown compression 2" in refusal(tmp_path, one_block(block(entry(b"a")), kind=2))


@pytest.mark.parametrize("offset", [10**4, 2**63, 2**64 - 1])
@pytest.mark.parametrize("size", [0, 10, 2**63, 2**64 - 1])
def test_a_block_beyond_the_file_is_refused(tmp_path, offset, size):
    handle = encode_varint(offset) + encode_varint(size)
    file = File()
    assert "does not lie in the file" in refusal(tmp_path, file.close(handle))
    file = File()
    file.add(block(entry(b"a")))
    listed = file.add(block(entry(b"b", handle)))
    assert "does not lie in the file" in refusal(tmp_path, file.close(listed))
    file = File()
    listed = file.add(block())
    assert "does not lie in the file" in refusal(tmp_path, file.close(listed, handle))


def test_blocks_that_are_listed_twice_or_backwards_are_refused(tmp_path):
    file = File()
    first, second = file.add(block(entry(b"a"))), file.add(block(entry(b"c")))
    for handles in [(first, first), (second, first)]:
        again = File()
        again.data = file.data
        listed = again.add(block(entry(b"c", handles[0]), entry(b"d", handles[1])))
        assert "overlap or do not follow" in refusal(tmp_path, again.close(listed))


def test_blocks_whose_keys_overlap_are_refused(tmp_path):
    file = File()
    first, second = file.add(block(entry(b"a"), entry(b"d"))), file.add(block(entry(b"d")))
    listed = file.add(block(entry(b"d", first), entry(b"e", second)))
    assert "do not hold the keys" in refusal(tmp_path, file.close(listed))


def test_a_handle_with_something_behind_it_is_refused(tmp_path):
    file = File()
    listed = file.add(block(entry(b"b", file.add(block(entry(b"a"))) + b"x")))
    assert "blocks overlap or do not follow" in refusal(tmp_path, file.close(listed))


def test_a_small_file_cannot_fill_the_memory_with_shared_prefixes(tmp_path):
    long = b"k" * 60_000
    content = block(entry(long), *(entry(b"%04d" % i, shared=60_000) for i in range(4000)))
    assert "unpacks to more than" in refusal(tmp_path, one_block(content))


def test_there_is_a_limit_to_the_number_of_entries_and_to_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sorted_table, "MAX_ENTRIES", 5)
    assert len(read(tmp_path, write_table([(b"%d" % i, b"") for i in range(4)]))) == 4
    data = write_table([(b"%d" % i, b"") for i in range(5)])  # and one in the list of blocks
    assert "more than 5 entries" in refusal(tmp_path, data)
    monkeypatch.setattr(sorted_table, "MAX_FILE_BYTES", len(data) - 1)
    assert "no index of a checkpoint is that large" in refusal(tmp_path, data)


# By hand from the format's description: literals, and copies of all kinds.
PACKED = (
    b"\x1c"  # 28 bytes
    + b"\x0cabcd"  # 4 literal bytes
    + b"\x01\x04"  # copy of 4 bytes, 4 back
    + b"\x1e\x01\x00"  # copy of 8 bytes, 1 back: reaches into itself
    + b"\x0f\x10\x00\x00\x00"  # copy of 4 bytes, 16 back, with an offset of 4 bytes
    + b"\xf0\x07efghijkl"  # 8 literal bytes, with a length of its own
)


def test_a_compressed_block_is_unpacked():
    assert snappy.decompress(PACKED, 28) == b"abcdabcd" + b"d" * 8 + b"abcd" + b"efghijkl"
    assert snappy.decompress(b"\0", 0) == b""


def test_a_compressed_block_is_read(tmp_path):
    content = block(entry(b"key", b"value"))
    packed = encode_varint(len(content)) + bytes([(len(content) - 1) << 2]) + content
    assert read(tmp_path, one_block(packed, kind=1)) == [(b"key", b"value")]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "in the middle of a number"),
        (b"\x05", "size that it says"),
        (PACKED[:-1], "size that it says"),
        (PACKED + b"\0a", "size that it says"),
        (b"\x1b" + PACKED[1:], "size that it says"),
        (b"\x1d" + PACKED[1:], "size that it says"),
        (b"\x04\x01\x01", "before its beginning"),
        (b"\x08\x0cabcd\x01\x05", "before its beginning"),
        (b"\x08\x0cabcd\x01\x00", "before its beginning"),
        (b"\x08\x0cabcd\x0d", "cut off"),
        (b"\x08\xfc\xff\xff", "cut off"),
        (encode_varint(2**40) + b"\0a", "says that it unpacks to 1099511627776"),
        (encode_varint(200) + b"\0a", "says that it unpacks to 200"),
    ],
)
def test_a_damaged_compressed_block_is_refused(data, says):
    with pytest.raises(Damaged, match=says):
        snappy.decompress(data, 2**20)


def test_a_compressed_block_unpacks_to_no_more_than_is_allowed():
    with pytest.raises(Damaged, match="says that it unpacks to 28"):
        snappy.decompress(PACKED, 27)


def test_the_documents_name_the_bounds() -> None:
    text = (Path(__file__).parents[2] / "docs" / "safety.md").read_text(encoding="utf-8")
    bounds = f"{sorted_table.MAX_FILE_BYTES // 2**20} MiB, {sorted_table.MAX_ENTRIES:,} entries"
    assert f"| the index of a TensorFlow checkpoint | {bounds}" in text
