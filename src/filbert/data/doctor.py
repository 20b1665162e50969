"""What is wrong with a data set, before anything is trained: found in one pass, by file and line.

Nothing that is reported holds any text of the data, only places, counts and label names. A row
costs some 32 bytes of memory while reading (a digest of its texts, its line, its labels' number,
its length) and some 50 more for the moment in which all rows are compared. The texts themselves are
kept only to look for near-duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from filbert.data.columns import ColumnNames
from filbert.data.doctor_compare import compare_rows
from filbert.data.doctor_labels import judge_labels
from filbert.data.doctor_near import compare_near
from filbert.data.doctor_scan import Scan
from filbert.data.findings import Findings, Report
from filbert.data.judge import Judge
from filbert.data.near_duplicates import bands_for
from filbert.text.tokenizer import Tokenizer

__all__ = ["Judge", "Report", "check"]


def check(
    files: Sequence[tuple[str, str | Path]],
    judge: Judge,
    names: ColumnNames,
    *,
    tokenizer: Tokenizer | None,
    max_length: int,
    max_findings_shown: int = 5,
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
        scan.run(names, progress)
        scans.append(scan)
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
