"""What the counts of labels say about a data set."""

from __future__ import annotations

from collections import Counter
from functools import partial

from filbert.data.doctor_scan import Scan
from filbert.data.findings import Findings
from filbert.errors import printable

# A class below this share of the rows, and below half of an even share where there are many, is
# called rare: a classifier that never says it still looks good in accuracy (USERS section 1, row
# 25). A class with fewer rows than the second number is noted, since figures on it are luck.
RARE_SHARE = 0.05
FEW_ROWS = 10

_NAMES_SHOWN = 8


def judge_labels(scans: list[Scan], found: Findings, *, are_classes: bool) -> None:
    """Labels that train has not and, for classes, ones that are alone or rare.

    Args:
        scans: all files, read to the end.
        found: takes the findings.
        are_classes: a label is what a row is; else rows hold any number of things with labels.
    """
    train = [scan for scan in scans if scan.name == "train"]
    known: Counter[str] = Counter()
    for scan in train or scans:
        known.update(scan.label_counts())
    if train:
        for scan in scans:
            if scan.name != "train":
                _find_unseen(scan, known, found, are_classes=are_classes)
    if are_classes and known:
        _judge_classes(known, sum(len(scan.lines) for scan in train or scans), found)


def _find_unseen(scan: Scan, known: Counter[str], found: Findings, *, are_classes: bool) -> None:
    what = "rows with the label" if are_classes else "the label"
    for label, count in scan.label_counts().items():
        if label not in known:
            message = f'{scan.name}: {what} "{printable(label)}", which train has not.'
            found.add("error", "unseen_label", message, partial(scan.first_with, label), count)


def _judge_classes(known: Counter[str], rows: int, found: Findings) -> None:
    if len(known) == 1 and known.total() == rows:
        only = printable(next(iter(known)))
        found.add("error", "one_label", f'All rows have the same label, "{only}".')
        return
    share = min(RARE_SHARE, 0.5 / len(known))
    ranked = sorted(known.items(), key=lambda item: item[1])
    rare = [item for item in ranked if item[1] < share * rows]
    few = [item for item in ranked if share * rows <= item[1] < FEW_ROWS]
    if rare:
        message = f"Rare labels, below {share:.1%} of {rows:,} rows: {_counted(rare)}."
        found.add("warning", "imbalance", f"{message} Look at F1 and PR AUC, not at accuracy.")
    if few:
        message = f"Labels with fewer than {FEW_ROWS} rows: {_counted(few)}."
        found.add("note", "few_rows", f"{message} Their figures will be rough.")


def _counted(labels: list[tuple[str, int]]) -> str:
    listed = ", ".join(f'"{printable(label)}" ({n:,})' for label, n in labels[:_NAMES_SHOWN])
    more = len(labels) - _NAMES_SHOWN
    return listed + (f" and {more:,} more" if more > 0 else "")
