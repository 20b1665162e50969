"""Vector files, written row by row: NPY, Parquet, JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from filbert.errors import ConfigError

KINDS = (".npy", ".parquet", ".jsonl")
# 16 MB of float32: fixed memory, whatever the width and however long the texts.
_FLOATS_PER_GROUP = 2**22
# Fixed, so that the row count can be written over it when all rows are there.
_NPY_HEADER = 128


def check_kind(out: Path, pooling: str | None) -> None:
    """Refuse endings that are not supported, before any work is done."""
    if out.suffix not in KINDS:
        raise ConfigError(f"--out {out}: the ending must be one of {', '.join(KINDS)}.")
    if out.suffix == ".npy" and pooling == "none":
        raise ConfigError(
            "--pooling none gives a matrix per text, which a .npy file cannot hold; "
            "use .jsonl or .parquet."
        )


class VectorFile(Protocol):
    """Takes vectors in order."""

    def write(self, vector: np.ndarray) -> None:
        """Append the vector (or, with pooling none, the matrix) of one text."""
        ...


class _Npy:
    def __init__(self, file: IO[bytes], width: int) -> None:
        self.file, self.width, self.rows = file, width, 0
        self.write_header()

    def write_header(self) -> None:
        """NPY format 1.0: magic, version, header length, a Python dict padded with spaces."""
        shape = (
            f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({self.rows}, {self.width}), }}"
        )
        text = shape.ljust(_NPY_HEADER - 11) + "\n"
        self.file.write(
            b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("ascii")
        )

    def write(self, vector: np.ndarray) -> None:
        self.file.write(vector.astype("<f4").tobytes())
        self.rows += 1


class _Jsonl:
    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.row = file, 0

    def write(self, vector: np.ndarray) -> None:
        # float32 needs nine digits to come back exactly.
        digits = np.array([f"{x:.9g}" for x in vector.ravel().tolist()], dtype=np.float64)
        content = {"row": self.row, "embedding": digits.reshape(vector.shape).tolist()}
        self.file.write(json.dumps(content).encode() + b"\n")
        self.row += 1


class _Parquet:
    def __init__(self, writer: Any, schema: Any) -> None:
        self.writer, self.schema = writer, schema
        self.row, self.floats, self.group = 0, 0, list[np.ndarray]()

    def write(self, vector: np.ndarray) -> None:
        self.group.append(vector)
        self.floats += vector.size
        if self.floats >= _FLOATS_PER_GROUP:
            self.flush()

    def flush(self) -> None:
        import pyarrow

        if not self.group:
            return
        width = self.group[0].shape[-1]
        values = np.concatenate([vector.ravel() for vector in self.group])
        vectors = _lists(pyarrow.array(values), np.full(len(values) // width, width))
        if self.group[0].ndim == 2:
            vectors = _lists(vectors, np.array([len(matrix) for matrix in self.group]))
        rows = np.arange(self.row, self.row + len(self.group))
        self.writer.write_table(
            pyarrow.table({"row": rows, "embedding": vectors}, schema=self.schema)
        )
        self.row, self.floats = self.row + len(self.group), 0
        self.group.clear()


def _lists(values: Any, lengths: np.ndarray) -> Any:
    """An Arrow array of lists, from the end-to-end values and the length of each list."""
    import pyarrow

    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), values)


@contextmanager
def open_vectors(
    path: Path, kind: str, width: int, *, per_token: bool = False
) -> Iterator[VectorFile]:
    """A vector file of `kind` (.npy, .parquet, .jsonl).

    Args:
        path: the file to make.
        kind: its format, which its name may not show yet.
        width: floats per vector.
        per_token: rows are matrices, one vector a token, rather than vectors.
    """
    if kind == ".parquet":
        import pyarrow
        import pyarrow.parquet

        vector = pyarrow.list_(pyarrow.float32())
        if per_token:
            vector = pyarrow.list_(vector)
        schema = pyarrow.schema([("row", pyarrow.int64()), ("embedding", vector)])
        with pyarrow.parquet.ParquetWriter(str(path), schema) as writer:
            parquet = _Parquet(writer, schema)
            yield parquet
            parquet.flush()
        return
    with path.open("wb") as file:
        if kind == ".jsonl":
            yield _Jsonl(file)
            return
        npy = _Npy(file, width)
        yield npy
        file.seek(0)
        npy.write_header()
