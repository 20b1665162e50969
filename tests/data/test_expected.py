"""How many rows there will be, seen from the middle of a file."""

from __future__ import annotations

import gzip
import itertools
import lzma
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from filbert.data.records import ExpectedRows, read_rows
from filbert.data.streams import share_read

ROWS = 200_000
PACK = {
    "": lambda content: content,
    ".gz": lambda content: gzip.compress(content, 1),
    ".xz": lambda content: lzma.compress(content, preset=0),
    ".zst": zstandard.ZstdCompressor(level=1).compress,
}


def texts() -> bytes:
    """Lines that do not compress to nothing, some 8 MB of them."""
    return b"".join(b"%x the film was good\n" % (n * 2654435761 % 2**60) for n in range(ROWS))


@pytest.mark.parametrize("ending", PACK)
def test_the_rows_are_guessed_from_the_share_of_bytes_that_is_read(tmp_path: Path, ending: str):
    path = tmp_path / f"rows.txt{ending}"
    path.write_bytes(PACK[ending](texts()))
    expected = ExpectedRows(path)
    assert expected.after(0) is None
    rows = read_rows(path)
    assert sum(1 for _ in itertools.islice(rows, ROWS // 2)) == ROWS // 2
    guess = expected.after(ROWS // 2)
    # A block of a megabyte is read at once, an eighth of the file.
    assert guess is not None
    assert guess == pytest.approx(ROWS, rel=0.35)
    assert sum(1 for _ in rows) == ROWS - ROWS // 2
    assert expected.after(ROWS) >= ROWS
    assert share_read(path) is None, "nobody reads it now"


def test_parquet_knows_its_rows(tmp_path: Path):
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"] * 70}), path)
    assert ExpectedRows(path).after(0) == 70


def test_of_standard_input_and_a_missing_file_nobody_knows():
    assert ExpectedRows("-").after(100) is None
    assert ExpectedRows("nowhere.txt").after(100) is None
