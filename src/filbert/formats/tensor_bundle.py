"""TensorFlow's checkpoint files, read and written without TensorFlow.

A checkpoint (version 2, a "tensor bundle") is PREFIX.index, a sorted table of what lies where, and
data files PREFIX.data-0000i-of-0000n that hold nothing but the tensors' bytes. Source: TensorFlow,
core/util/tensor_bundle/tensor_bundle.cc.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filbert.errors import FormatError, printable, unreadable_as
from filbert.formats.bundle_entries import (
    BundleEntry,
    can_be_written,
    decode_entry,
    decode_header,
    encode_entry,
    encode_header,
    slice_index,
    slice_key,
    slice_shape,
    storage_dtype,
)
from filbert.formats.crc32c import crc32c, masked
from filbert.formats.sorted_table import read_table, write_table
from filbert.protobuf import Damaged, varint


def index_file(prefix: Path) -> Path:
    """Where the index of the checkpoint `prefix` lies."""
    return prefix.with_name(f"{prefix.name}.index")


def data_file(prefix: Path, shard: int = 0, num_shards: int = 1) -> Path:
    """Where one of the data files of the checkpoint `prefix` lies."""
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")


@dataclass(frozen=True)
class TensorBundle:
    """A checkpoint whose index was read and checked, and none of its tensors yet.

    Attributes:
        prefix: of its files' names.
        shapes: by tensor name, in the index's order, which is that of the names' bytes.
        dtypes: by tensor name; a string for what NumPy has not: "bfloat16", "string", "resource".
        files: by tensor name, its data file; of a partitioned tensor, that of its first part.
    """

    prefix: Path
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype[Any] | str]
    files: dict[str, Path]
    _entries: dict[str, BundleEntry] = field(repr=False)
    _parts: dict[str, tuple[BundleEntry, ...]] = field(repr=False)  # of partitioned tensors
    _num_shards: int = field(repr=False)
    _maps: dict[Path, NDArray[np.uint8]] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, prefix: Path) -> TensorBundle:
        """Read the index, and make sure that all it names lies in the data files.

        Raises:
            FormatError: a file is missing, damaged, cut off or lies about what is where.
        """
        index = index_file(prefix)
        table = dict(read_table(index))
        try:
            if b"" not in table:
                raise Damaged("it has no header")
            num_shards = decode_header(table.pop(b""))
            named, parts = _partitioned(_decoded(table))
        except Damaged as error:
            raise FormatError(
                f"{index} is not the index of a TensorFlow checkpoint that can be read: {error}."
            ) from error
        first = {name: parts[name][0] if name in parts else named[name] for name in named}
        bundle = cls(
            prefix=prefix,
            shapes={name: entry.shape for name, entry in named.items()},
            dtypes={name: entry.dtype for name, entry in named.items()},
            files={name: data_file(prefix, e.shard, num_shards) for name, e in first.items()},
            _entries=named,
            _parts=parts,
            _num_shards=num_shards,
        )
        bundle._check_places()
        return bundle

    def read(self, name: str) -> NDArray[Any]:
        """A tensor, after checking its CRC-32C.

        Returns:
            A read-only view of the mapped file. A copy, which may be written to, where there can be
            no view: bfloat16 as float32, partitioned tensors in one piece, and what does not lie at
            a multiple of its word's size.

        Raises:
            FormatError: a wrong CRC, or a dtype without numbers.
        """
        entry = self._entries[name]
        if storage_dtype(entry.dtype) is None:
            raise FormatError(
                f"{self.files[name]}: {printable(name)} has dtype {entry.dtype}, which holds no "
                "numbers that can be read."
            )
        if name not in self._parts:
            return self._array(name, entry)
        values = [self._array(name, part) for part in self._parts[name]]
        whole = np.empty(entry.shape, values[0].dtype)
        filled = np.zeros(entry.shape, np.bool_)
        for part, value in zip(entry.slices, values, strict=True):
            at = slice_index(part)
            whole[at] = value
            filled[at] = True
        if not filled.all():  # with the right number of elements: some are there twice
            raise FormatError(f"{index_file(self.prefix)}: the parts of {printable(name)} overlap.")
        return whole

    def read_bytes(self, name: str) -> bytes:
        """The content of a scalar string tensor, after checking its CRC-32C.

        Raises:
            FormatError: a wrong CRC, another dtype, or more than one string.
        """
        entry = self._entries[name]
        where = f"{self.files[name]}: {printable(name)}"
        if entry.dtype != "string" or entry.shape:
            raise FormatError(f"{where} is {entry.dtype} {entry.shape}, not one string.")
        raw = bytes(self._raw(entry))
        try:
            length, at = varint(raw, 0)
        except Damaged as error:
            raise FormatError(f"{where} is damaged: {error}.") from error
        text = raw[at + 4 :]
        if length != len(text) or len(raw) < at + 4:
            raise FormatError(f"{where} is damaged: its length is not the one that it says.")
        # The CRC is over the length as a number of 4 bytes (8, should 4 not do), not as it is
        # stored, and over the length's own CRC.
        counted = length.to_bytes(4 if length < 2**32 else 8, "little")
        crc = masked(crc32c(counted)).to_bytes(4, "little")
        if crc != raw[at : at + 4] or masked(crc32c(counted + crc + text)) != entry.crc:
            raise FormatError(f"{where} is damaged: its CRC is wrong. Download or copy it again.")
        return text

    def _array(self, name: str, entry: BundleEntry) -> NDArray[Any]:
        dtype = storage_dtype(entry.dtype)
        assert dtype is not None
        raw = self._raw(entry)
        if masked(crc32c(raw)) != entry.crc:
            raise FormatError(
                f"{data_file(self.prefix, entry.shard, self._num_shards)}: the CRC of "
                f"{printable(name)} is wrong; the file is damaged. Download or copy it again."
            )
        if entry.offset % dtype.itemsize:
            raw = raw.copy()
        array = raw.view(dtype).reshape(entry.shape)
        if entry.dtype == "bfloat16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array

    def _raw(self, entry: BundleEntry) -> NDArray[np.uint8]:
        path = data_file(self.prefix, entry.shard, self._num_shards)
        if not entry.size:
            return np.zeros(0, np.uint8)
        if path not in self._maps:
            self._maps[path] = _mapped(path)
        raw = self._maps[path][entry.offset : entry.offset + entry.size]
        if len(raw) != entry.size:
            raise FormatError(f"{path} has changed since the checkpoint was opened.")
        return raw

    @unreadable_as(FormatError)
    def _check_places(self) -> None:
        index = index_file(self.prefix)
        stored = [(e, name) for name, e in self._entries.items() if name not in self._parts]
        stored += [(part, name) for name, parts in self._parts.items() for part in parts]
        stored.sort(key=lambda pair: (pair[0].shard, pair[0].offset, pair[0].size))
        sizes = self._shard_sizes({entry.shard for entry, _ in stored})
        shard, free = 0, 0
        for entry, name in stored:
            dtype = storage_dtype(entry.dtype)
            free = free if entry.shard == shard else 0
            shard = entry.shard
            path = data_file(self.prefix, shard, self._num_shards)
            said = None if dtype is None else math.prod(entry.shape) * dtype.itemsize
            if said is not None and said != entry.size:
                raise FormatError(
                    f"{index}: {printable(name)} has {entry.size} bytes, but its shape "
                    f"{entry.shape} in {entry.dtype} takes {said}."
                )
            if entry.offset + entry.size > sizes[shard]:
                raise FormatError(
                    f"{path} has {sizes[shard]:,} bytes, but {printable(name)} ends at byte "
                    f"{entry.offset + entry.size:,} by {index.name}. The file was cut off, or "
                    "belongs to another index."
                )
            if entry.size and entry.offset < free:
                raise FormatError(
                    f"{index}: {printable(name)} begins at byte {entry.offset} of {path.name}, "
                    "inside another tensor."
                )
            free = max(free, entry.offset + entry.size)

    def _shard_sizes(self, shards: Iterable[int]) -> dict[int, int]:
        """The sizes of data files in bytes, by number."""
        index = index_file(self.prefix)
        paths = {s: data_file(self.prefix, s, self._num_shards) for s in sorted(shards)}
        if outside := [shard for shard in paths if shard >= self._num_shards]:
            raise FormatError(
                f"{index} has tensors in data file {outside[0]}, but only {self._num_shards} data "
                "files, counted from 0."
            )
        if missing := [path for path in paths.values() if not path.is_file()]:
            listed = ", ".join(path.name for path in missing[:3])
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise FormatError(
                f"{listed}{more} {'is' if len(missing) == 1 else 'are'} missing beside {index}. "
                "All data files must lie in one folder with the index."
            )
        return {shard: path.stat().st_size for shard, path in paths.items()}


def write_bundle(prefix: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a checkpoint in one data file, byte for byte as TensorFlow's Saver does.

    Tensors are stored in the order of their names. The two files are written in place; the folder
    must exist.

    Raises:
        ValueError: a dtype that has no place in the format, or a name that has none.
    """
    entries, offset = [(b"", encode_header())], 0
    with data_file(prefix).open("wb") as file:
        for name in sorted(tensors):
            array = np.asarray(tensors[name], order="C")
            if not name or name.startswith("\0") or not can_be_written(array.dtype):
                raise ValueError(f"{name!r} with dtype {array.dtype} cannot be written")
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            raw = array.reshape(-1).view(np.uint8)
            file.write(raw.data)
            crc = masked(crc32c(raw))
            entry = BundleEntry(array.dtype, array.shape, 0, offset, len(raw), crc)
            entries.append((name.encode(), encode_entry(entry)))
            offset += len(raw)
    index_file(prefix).write_bytes(write_table(entries))


def _decoded(table: Mapping[bytes, bytes]) -> dict[bytes, BundleEntry]:
    stored = {}
    num_parts = 0
    for key, value in table.items():
        try:
            entry = stored[key] = decode_entry(value)
            num_parts += len(entry.slices)
            if num_parts > len(table):  # each has an entry of its own
                raise Damaged("more parts than there are entries")
        except Damaged as error:
            name = printable(key.decode("utf-8", "backslashreplace"))
            raise Damaged(f"the entry of {name!r} is damaged: {error}") from error
    return stored


def _partitioned(
    stored: dict[bytes, BundleEntry],
) -> tuple[dict[str, BundleEntry], dict[str, tuple[BundleEntry, ...]]]:
    """The tensors by name, and the parts of those that are partitioned."""
    named, parts = {}, {}
    used = 0
    for key, entry in stored.items():
        if key.startswith(b"\0"):  # a part
            continue
        try:
            name = key.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Damaged(f"the name {repr(key)[:60]} is not UTF-8") from error
        named[name] = entry
        if entry.slices:
            parts[name] = _parts(name, key, entry, stored)
            used += len(entry.slices)
    if used != len(stored) - len(named):
        raise Damaged("it holds parts of tensors that are not in it")
    return named, parts


def _parts(
    name: str, key: bytes, entry: BundleEntry, stored: Mapping[bytes, BundleEntry]
) -> tuple[BundleEntry, ...]:
    found = []
    for part in entry.slices:
        piece = stored.get(slice_key(key, part))
        if (
            piece is None
            or piece.slices
            or piece.dtype != entry.dtype
            or piece.shape != slice_shape(part, entry.shape)
        ):
            raise Damaged(f"a part of {printable(name)!r} is missing, or has another shape")
        found.append(piece)
    if sum(math.prod(piece.shape) for piece in found) != math.prod(entry.shape):
        raise Damaged(f"the parts of {printable(name)!r} do not make up its shape {entry.shape}")
    return tuple(found)


@unreadable_as(FormatError)
def _mapped(path: Path) -> NDArray[np.uint8]:
    try:
        return np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    except ValueError as error:  # empty by now
        raise FormatError(f"{path} has changed since the checkpoint was opened.") from error
