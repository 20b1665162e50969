"""What is wrong with a data set, before anything is trained: found in one pass, by file and line.

Nothing that is reported holds any text of the data, only places, counts and label names. A row
costs some 32 bytes of memory while reading (a digest of its texts, its line, its labels' number,
its length) and some 50 more for the moment in which all rows are compared. The texts themselves are
kept only to look for near-duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from filbert.data.columns import ColumnNames
from filbert.data.doctor_compare import compare_rows
from filbert.data.doctor_labels import judge_labels
from filbert.data.doctor_near import compare_near
from filbert.data.doctor_scan import Scan
from filbert.data.findings import Findings, Report
from filbert.data.judge import Judge
from filbert.data.near_duplicates import bands_for
from filbert.data.records import Row
from filbert.text.tokenizer import Tokenizer

__all__ = ["Judge", "Report", "check", "check_rows"]

# Of each problem.
MAX_FINDINGS_SHOWN = 5
# The similarity from which on two texts are near-duplicates.
NEAR_THRESHOLD = 0.8
# `check_rows` looks for near-duplicates up to these sizes only: 20,000 comments of 400 characters
# take 1.3 s of one core, everything else 0.2 s.
NEAR_ROWS = 20_000
NEAR_CHARACTERS = 10_000_000


def check(
    files: Sequence[tuple[str, str | Path]],
    judge: Judge,
    names: ColumnNames,
    *,
    tokenizer: Tokenizer | None,
    max_length: int,
    max_findings_shown: int = MAX_FINDINGS_SHOWN,
    near_threshold: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Look through labelled data of any task.

    Args:
        files: (split, path); the split named "train" is what the others are compared with.
        judge: the task that the rows are for.
        names: the user's names of the columns.
        tokenizer: without it lengths are counted in words, and nothing is said about cutting.
        max_length: in tokens, specials included.
        max_findings_shown: places that are named of each problem.
        near_threshold: also look for texts that are at least so alike; see `near_duplicates`.
        progress: is told how many further rows were read, now and then.

    Raises:
        InputError: a file that is not there, has no such column, or holds no row at all.
        ConfigError: the threshold is not one.
    """
    if near_threshold is not None:
        bands_for(near_threshold)
    found = Findings(max_findings_shown)
    scans = []
    for split, path in files:
        scan = Scan(split, path, judge, tokenizer, max_length, found)
        scan.texts = None if near_threshold is None else []
        rows = judge.read(path, names, labelled=True, on_error=scan.bad)
        scan.run(rows, progress)
        scans.append(scan)
    return _report(scans, found, judge, max_length, near_threshold)


def check_rows(splits: Mapping[str, tuple[str, Sequence[Row]]], judge: Judge) -> Report:
    """Check labelled rows that were read already, without a tokenizer: lengths are in words.

    Args:
        splits: Path and rows by the name of the split.
        judge: The task.
    """
    found = Findings(MAX_FINDINGS_SHOWN)
    is_small = sum(len(rows) for _, rows in splits.values()) <= NEAR_ROWS
    scans = []
    for split, (path, rows) in splits.items():
        scan = Scan(split, path, judge, None, 0, found, texts=[] if is_small else None)
        scan.run(rows)
        scans.append(scan)
    is_small &= sum(len(text) for scan in scans for text in scan.texts or ()) <= NEAR_CHARACTERS
    return _report(scans, found, judge, 0, NEAR_THRESHOLD if is_small else None)


def _report(
    scans: list[Scan],
    found: Findings,
    judge: Judge,
    max_length: int,
    near_threshold: float | None,
) -> Report:
    """Compare the rows of all files and put the findings together."""
    compare_rows(scans, found, with_labels=judge.labels_are_classes)
    near = None
    if near_threshold is not None:
        with_labels = judge.labels_are_classes
        near = compare_near(scans, found, threshold=near_threshold, with_labels=with_labels)
    for scan in scans:
        scan.judge_lengths()
    if judge.head_kind in ("sequence", "tokens"):
        judge_labels(scans, found, are_classes=judge.labels_are_classes)
    return Report(tuple(scan.split() for scan in scans), found.problems(), max_length, near)
