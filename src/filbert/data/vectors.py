"""Vector files, made of chunks of rows end to end: NPY, JSONL, Parquet.

While they are made, all three are a beginning and one piece of bytes a chunk, so that a file can be
cut back to the end of any chunk; `complete` makes the file of it.

N rows of a chunk, W the width of a vector.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from filbert.errors import ConfigError

KINDS = (".npy", ".parquet", ".jsonl")


def check_kind(out: Path, pooling: str | None) -> None:
    """Refuse a suffix that is not supported, before any work is done."""
    if out.suffix not in KINDS:
        raise ConfigError(f"--out {out}: the ending must be one of {', '.join(KINDS)}.")
    if out.suffix == ".npy" and pooling == "none":
        raise ConfigError(
            "--pooling none gives a matrix per text, which a .npy file cannot hold; "
            "use .jsonl or .parquet."
        )


@dataclass(frozen=True)
class VectorFile:
    """The format of a file, one of KINDS; `per_token`: a row is a matrix with a vector a token."""

    kind: str
    width: int
    per_token: bool = False

    @property
    def beginning(self) -> bytes:
        """The bytes before the first chunk."""
        return _npy_header(0, self.width) if self.kind == ".npy" else b""

    def piece(self, vectors: Sequence[np.ndarray], first: int) -> bytes:
        """Return the bytes of a chunk.

        Args:
            vectors: N of float32 (W,), or (tokens, W).
            first: Number of its first row in the file, from 0.
        """
        if self.kind == ".npy":
            return np.stack(vectors).astype("<f4").tobytes()
        if self.kind == ".jsonl":
            return b"".join(_json_line(vector, first + i) for i, vector in enumerate(vectors))
        import pyarrow

        # Arrow takes lists of one-dimensional arrays only.
        lists = [list(matrix) for matrix in vectors] if self.per_token else vectors
        rows = range(first, first + len(vectors))
        batch = pyarrow.record_batch([rows, lists], schema=self._schema)
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, self._schema) as stream:
            stream.write_batch(batch)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def complete(self, path: Path, sizes: Sequence[int], num_rows: int) -> Path:
        """Return the finished file, `path` itself or one next to it; `sizes`: bytes of chunks."""
        if self.kind == ".npy":
            with path.open("r+b") as file:
                file.write(_npy_header(num_rows, self.width))
        if self.kind != ".parquet":
            return path
        import pyarrow
        from pyarrow import parquet

        # Only the end of a Parquet file has the offsets of its rows, so a file that was cut off
        # could not be continued. Until all chunks are there, they are Arrow streams.
        whole = path.with_name(f"{path.name}.parquet")
        with (
            path.open("rb") as file,
            parquet.ParquetWriter(str(whole), self._schema) as writer,
        ):
            for size in sizes:
                with pyarrow.ipc.open_stream(file.read(size)) as stream:
                    writer.write_table(stream.read_all())
        return whole

    @property
    def _schema(self) -> Any:
        import pyarrow

        vector = pyarrow.list_(pyarrow.float32())
        if self.per_token:
            vector = pyarrow.list_(vector)
        return pyarrow.schema([("row", pyarrow.int64()), ("embedding", vector)])


def _npy_header(rows: int, width: int) -> bytes:
    """Return the head of NPY format 1.0; numpy gives it one length for every number of rows."""
    shape = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, shape)
    return header.getvalue()


def _json_line(vector: np.ndarray, row: int) -> bytes:
    # float32 needs nine digits to come back exactly.
    digits = np.array([f"{x:.9g}" for x in vector.ravel().tolist()], dtype=np.float64)
    content = {"row": row, "embedding": digits.reshape(vector.shape).tolist()}
    return json.dumps(content).encode() + b"\n"
