"""Rows that are almost the same as others, within a file and between files."""

from __future__ import annotations

from functools import partial

import numpy as np

from filbert.data.doctor_rows import Rows, rows_of
from filbert.data.doctor_scan import Scan
from filbert.data.findings import Findings, Level, NearFile, NearPair, NearReport
from filbert.data.near_duplicates import NearDuplicates, between, near_duplicates, repeats_within

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
    counts = [len(scan.lines) for scan in scans]
    near = near_duplicates(texts, threshold=threshold, parts=counts)
    rows = rows_of(scans, with_labels=with_labels)
    # Equal for rows of the very same texts.
    _, text_of = np.unique(rows.digests, axis=0, return_inverse=True)
    text_of = text_of.reshape(-1)
    is_of = [rows.file_of == number for number in range(len(scans))]
    files = []
    for number, scan in enumerate(scans):
        others = {}
        for before, source in enumerate(scans[:number]):
            leaked, sources, _ = between(near, is_of[before], is_of[number])
            others[source.name] = len(leaked)
            if source.name == "train":
                is_equal = np.isin(text_of[leaked], text_of[is_of[before]])
                message = (
                    f"{scan.name}: rows that are almost the same as one of train (similarity "
                    f"{threshold:g} or more); they make the score too good."
                )
                leaks = np.stack([sources, leaked], axis=1)[~is_equal]
                _add(found, "warning", "near_leakage", message, rows, "is almost", leaks)
        files.append(NearFile(scan.name, len(repeats_within(near, is_of[number])), others))
    _find_pairs(near, rows, text_of, found, threshold)
    pairs = [
        NearPair(
            rows.place(one), rows.place(other), round(similarity, 4),
            None if rows.labels is None else bool(rows.labels[one] != rows.labels[other]),
        )
        for (one, other), similarity in zip(
            near.pairs[:MAX_PAIRS].tolist(), near.similarity[:MAX_PAIRS].tolist(), strict=True
        )
    ]  # fmt: skip
    return NearReport(threshold, tuple(files), len(near.pairs), tuple(pairs))


def _find_pairs(
    near: NearDuplicates, rows: Rows, text_of: np.ndarray, found: Findings, threshold: float
) -> None:
    """Pairs within a file, and pairs with different labels anywhere."""
    one, other = near.pairs.T
    differ = text_of[one] != text_of[other]
    for number, scan in enumerate(rows.scans):
        message = (
            f"{scan.name}: pairs of rows that are almost the same (similarity {threshold:g} or "
            "more)."
        )
        is_inside = (rows.file_of[one] == number) & (rows.file_of[other] == number)
        inside = near.pairs[differ & is_inside]
        _add(found, "note", "near_duplicate", message, rows, "is almost", inside)
    if rows.labels is not None:
        message = "Texts that are almost the same and carry different labels."
        against = near.pairs[differ & (rows.labels[one] != rows.labels[other])]
        _add(found, "warning", "near_contradiction", message, rows, "contradicts", against)


def _add(
    found: Findings, level: Level, kind: str, message: str, rows: Rows, verb: str, pairs: np.ndarray
) -> None:
    """A finding of each pair, int64 (P, 2); places are named of the first alone."""
    shown = pairs[: found.shown_at_most].tolist()
    for one, other in shown:
        found.add(level, kind, message, partial(rows.joined, other, verb, one))
    if len(shown) < len(pairs):
        found.add(level, kind, message, count=len(pairs) - len(shown))
