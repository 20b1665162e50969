"""Rows that are almost the same as others, within a file and between files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from filbert.data.doctor_scan import Scan
from filbert.data.findings import Findings, NearFile, NearPair, NearReport
from filbert.data.near_duplicates import NearDuplicates, between, near_duplicates

# What --json lists at most; the counts know of all.
MAX_PAIRS = 10_000


def compare_near(
    scans: list[Scan], found: Findings, *, threshold: float, with_labels: bool
) -> NearReport:
    """Near-duplicates within and between files, by counts and places.

    A finding is only made of rows whose texts differ; equal ones are found without being asked for.

    Args:
        scans: read to the end, with their texts.
        found: takes the findings.
        threshold: similarity from which on two texts are near-duplicates.
        with_labels: say where the labels of the two differ.
    """
    texts = [text for scan in scans for text in scan.texts or ()]
    near = near_duplicates(texts, threshold=threshold)
    rows = _Rows(scans, with_labels=with_labels)
    files = []
    for number, scan in enumerate(scans):
        mine = rows.file_of == number
        others = {}
        for before, source in enumerate(scans[:number]):
            leaked = between(near, rows.file_of == before, mine)
            if source.name == "train":
                _find_leaks(leaked, rows, scan, threshold, found)
            others[source.name] = len(leaked[0])
        repeats = _repeats_within(near, np.flatnonzero(mine))
        files.append(NearFile(scan.name, len(repeats), others))
    for one, other in near.pairs.tolist():
        if rows.file_of[one] == rows.file_of[other] and rows.differ(one, other):
            scan = scans[int(rows.file_of[one])]
            message = (
                f"{scan.name}: pairs of rows that are almost the same (similarity {threshold:g} or "
                "more)."
            )
            place = partial(_joined, rows.place, other, "is almost", one)
            found.add("note", "near_duplicate", message, place)
        if rows.differ(one, other) and rows.labels_differ(one, other):
            message = "Texts that are almost the same and carry different labels."
            place = partial(_joined, rows.place, other, "contradicts", one)
            found.add("warning", "near_contradiction", message, place)
    pairs = [
        NearPair(
            rows.place(one), rows.place(other), round(similarity, 4), rows.labels_differ(one, other)
        )
        for (one, other), similarity in zip(
            near.pairs[:MAX_PAIRS].tolist(), near.similarity.tolist(), strict=False
        )
    ]
    return NearReport(threshold, tuple(files), len(near.pairs), tuple(pairs))


class _Rows:
    """All good rows of all files, in order; `file_of` is int64 (n,)."""

    def __init__(self, scans: list[Scan], *, with_labels: bool) -> None:
        self.scans = scans
        counts = [len(scan.lines) for scan in scans]
        self.file_of = np.repeat(np.arange(len(scans)), counts)
        self.first = np.concatenate([[0], np.cumsum(counts)])
        self.with_labels = with_labels
        self.numbers: list[dict[int, tuple[str, ...]]] = [
            {number: names for names, number in scan.sets.items()} for scan in scans
        ]

    def _at(self, row: int) -> tuple[int, int]:
        file = int(self.file_of[row])
        return file, row - int(self.first[file])

    def place(self, row: int) -> str:
        file, index = self._at(row)
        return self.scans[file].where(index)

    def differ(self, one: int, other: int) -> bool:
        """Whether the texts are not the very same."""
        return self._digest(one) != self._digest(other)

    def _digest(self, row: int) -> bytes:
        file, index = self._at(row)
        return bytes(self.scans[file].digests[16 * index : 16 * index + 16])

    def labels_differ(self, one: int, other: int) -> bool | None:
        if not self.with_labels:
            return None
        return self._labels(one) != self._labels(other)

    def _labels(self, row: int) -> tuple[str, ...]:
        file, index = self._at(row)
        return self.numbers[file][self.scans[file].label_sets[index]]


def _find_leaks(
    leaked: tuple[np.ndarray, np.ndarray, np.ndarray],
    rows: _Rows,
    scan: Scan,
    threshold: float,
    found: Findings,
) -> None:
    for row, source in zip(leaked[0].tolist(), leaked[1].tolist(), strict=True):
        if rows.differ(row, source):
            message = (
                f"{scan.name}: rows that are almost the same as one of train (similarity "
                f"{threshold:g} or more); they make the score too good."
            )
            place = partial(_joined, rows.place, row, "is almost", source)
            found.add("warning", "near_leakage", message, place)


def _repeats_within(near: NearDuplicates, mine: np.ndarray) -> np.ndarray:
    """The rows of one file that follow another row of it in their cluster."""
    _, first = np.unique(near.clusters[mine], return_index=True)
    return np.delete(mine, first)


def _joined(place: Callable[[int], str], one: int, verb: str, other: int) -> str:
    return f"{place(one)} {verb} {place(other)}"
