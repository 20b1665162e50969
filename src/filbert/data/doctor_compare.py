"""What only shows when all rows of all files lie side by side: repeats, leaks, contradictions."""

from __future__ import annotations

from functools import partial

import numpy as np

from filbert.data.doctor_rows import Rows, rows_of
from filbert.data.doctor_scan import Scan
from filbert.data.findings import Findings


def compare_rows(scans: list[Scan], found: Findings, *, with_labels: bool) -> None:
    """Duplicates, texts on both sides of a split, and contradictory labels, from the digests
    alone; and rows of one file that are made of more texts than those of another.

    Args:
        scans: at least one, read to the end.
        found: takes the findings.
        with_labels: say where one text has two labels.
    """
    _compare_widths(scans, found)
    if not any(scan.lines for scan in scans):
        return
    rows = rows_of(scans, with_labels=with_labels)
    digests = rows.digests
    # Stable, so that the first of a group comes first.
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ranked = digests[order]
    same = (ranked[1:] == ranked[:-1]).all(axis=1) & ranked[1:].any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]])))
    groups = [order[begin : end + 1] for begin, end in edges.reshape(-1, 2)]
    for group in sorted(groups, key=lambda group: int(group[1])):
        _compare_group(group.tolist(), rows, found)


def _compare_group(group: list[int], rows: Rows, found: Findings) -> None:
    """`group` holds the numbers of all rows with one text, in order."""
    first_in: dict[str, int] = {}
    for index in group:
        split = rows.split(index)
        before = first_in.setdefault(split, index)
        if before != index:
            message = f"{split}: rows that repeat an earlier one."
            where = partial(rows.joined, index, "repeats", before)
            found.add("warning", "duplicate", message, where)
    source = first_in.get("train")
    if source is not None and len(first_in) > 1:
        for index in group:
            split = rows.split(index)
            if split != "train":
                message = (
                    f"{split}: rows whose text stands in train too; they make the score too good."
                )
                where = partial(rows.joined, index, "is", source)
                found.add("warning", "leakage", message, where)
    if rows.labels is None:
        return
    first = group[0]
    other = next((i for i in group if rows.labels[i] != rows.labels[first]), None)
    if other is not None:
        message = "Texts that carry different labels in different rows."
        where = partial(rows.joined, other, "contradicts", first)
        found.add("warning", "contradiction", message, where)


def _compare_widths(scans: list[Scan], found: Findings) -> None:
    """Where a file's rows all have as many sequences, such as choices, another's have too."""
    first = scans[0]
    for scan in scans[1:]:
        if len(first.num_sequences) == len(scan.num_sequences) == 1:
            wanted, given = min(first.num_sequences), min(scan.num_sequences)
            if wanted != given:
                message = (
                    f"{scan.name}: rows of {given} choices or texts, where {first.name} has "
                    f"{wanted} a row."
                )
                found.add("error", "uneven_rows", message, scan.where(0), len(scan.lines))
