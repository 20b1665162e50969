"""The good rows of all files side by side: where each stands, which texts and labels it has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from filbert.data.doctor_scan import Scan


class Rows(NamedTuple):
    """All good rows of all files, n of them, file by file.

    Attributes:
        scans: one per file.
        file_of: int64 (n,), which file a row stands in.
        row_of: int64 (n,), its number among the good rows of that file.
        digests: uint64 (n, 2), of all its texts; zeros where they are empty.
        labels: int32 (n,), equal for rows of equal labels; None where that means nothing.
    """

    scans: list[Scan]
    file_of: np.ndarray
    row_of: np.ndarray
    digests: np.ndarray
    labels: np.ndarray | None

    def place(self, index: int) -> str:
        """The file and line of a row."""
        return self.scans[int(self.file_of[index])].where(int(self.row_of[index]))

    def split(self, index: int) -> str:
        """The name of a row's file."""
        return self.scans[int(self.file_of[index])].name

    def joined(self, one: int, verb: str, other: int) -> str:
        """Two places with a verb between them."""
        return f"{self.place(one)} {verb} {self.place(other)}"


def rows_of(scans: list[Scan], *, with_labels: bool) -> Rows:
    """All good rows of files that were read to the end; the labels where they mean something."""
    counts = [len(scan.lines) for scan in scans]
    sets: dict[tuple[str, ...], int] = {}
    return Rows(
        scans,
        np.repeat(np.arange(len(scans)), counts),
        np.concatenate([np.arange(count) for count in counts]),
        np.concatenate(
            [np.frombuffer(bytes(scan.digests), dtype=np.uint64).reshape(-1, 2) for scan in scans]
        ),
        np.concatenate([_shared_numbers(scan, sets) for scan in scans]) if with_labels else None,
    )


def _shared_numbers(scan: Scan, sets: dict[tuple[str, ...], int]) -> np.ndarray:
    numbers = [sets.setdefault(labels, len(sets)) for labels in scan.sets]
    return np.asarray(numbers, dtype=np.int32)[np.asarray(scan.label_sets, dtype=np.int32)]
