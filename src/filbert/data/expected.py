"""How many rows a file will have, while it is being read."""

from __future__ import annotations

from pathlib import Path

from filbert.data.streams import kind_of, share_read


class ExpectedRows:
    """The number of rows of a file: known for Parquet, else a guess that gets better.

    The guess is the rows so far, divided by the share of the file's bytes that was read for them;
    of a compressed file, of its compressed bytes. There is none for standard input.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._last: int | None = None
        self.is_exact = kind_of(path) == (".parquet", None)
        if self.is_exact:
            from filbert.data.objects import open_parquet

            with open_parquet(path) as file:
                self._last = file.metadata.num_rows

    def after(self, rows: int) -> int | None:
        """The number of all rows, when so many have been read; None if nobody can know."""
        share = None if self.is_exact else share_read(self._path)
        # At 1 the last block is in memory, and how many of its rows are still to come is unknown.
        if rows and share is not None and 0 < share < 1:
            self._last = round(rows / share)
        return None if self._last is None else max(self._last, rows)
