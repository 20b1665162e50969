"""The data doctor's report on a terminal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from filbert.data.findings import NearReport, Problem, Report, Split

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_LABELS_SHOWN = 6


def print_report(report: Report, console: Console) -> None:
    """Counts and lengths per file, then the findings, the most serious first.

    What no file of the task has, such as labels, gets no column.
    """
    columns = {
        "": [split.name for split in report.splits],
        "rows": [f"{split.rows:,}" for split in report.splits],
        "labels": [_labels(split) for split in report.splits],
        **_lengths(report),
        "cut": [
            "" if split.truncated is None else f"{split.truncated / max(1, split.rows):.1%}"
            for split in report.splits
        ],
    }
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    table = Table(box=None, pad_edge=False)
    for heading in columns:
        table.add_column(heading, justify="left" if heading in ("", "labels") else "right")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    console.print(table, highlight=False, markup=False)
    units = {split.lengths.unit for split in report.splits if split.lengths}
    if units:
        cuts = any(split.truncated is not None for split in report.splits)
        what = "cut at" if cuts else "longer rows are read in windows of"
        limit = f"; {what} {report.max_length}" if "tokens" in units else ""
        console.print(f"Lengths are in {units.pop()}{limit}.", style="dim", highlight=False)
    if report.near_duplicates is not None:
        for sentence in near_sentences(report.near_duplicates):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    short = _short_names(report)
    for problem in report.problems:
        console.print(problem.level, style=_STYLES[problem.level], end=" ")
        console.print(_sentence(problem, short), highlight=False, markup=False, soft_wrap=True)
    if not report.problems:
        console.print("Nothing is wrong with it.")


def near_sentences(near: NearReport) -> list[str]:
    """For each file how many of its rows repeat, or nearly repeat, one of its own or of another."""
    sentences = []
    for file in near.files:
        where = {"an earlier one": file.repeats} | {f"one of {k}": n for k, n in file.near.items()}
        counts = "; ".join(f"{place}: {count:,}" for place, count in where.items())
        sentences.append(f"{file.name}: rows that repeat or nearly repeat {counts}.")
    return sentences


def _labels(split: Split) -> str:
    shown = [f"{name} {count:,}" for name, count in split.label_counts.items()]
    more = len(shown) - _LABELS_SHOWN
    return ", ".join(shown[:_LABELS_SHOWN]) + (f", {more} more" if more > 0 else "")


def _lengths(report: Report) -> dict[str, list[str]]:
    found = [split.lengths for split in report.splits]
    return {
        "length: half": [f"{one.p50:,}" if one else "" for one in found],
        "95 %": [f"{one.p95:,}" if one else "" for one in found],
        "longest": [f"{one.max:,}" if one else "" for one in found],
    }


def _short_names(report: Report) -> dict[str, str]:
    """Files without their folders, where that leaves them apart; --json keeps the folders."""
    names = {split.path: Path(split.path).name for split in report.splits}
    times = Counter(names.values())
    return {path: name for path, name in names.items() if times[name] == 1}


def _sentence(problem: Problem, short: dict[str, str]) -> str:
    message = problem.message.rstrip(".")
    times = f" ({problem.count:,} times)" if problem.count > 1 else ""
    shown = [place.rstrip(".") for place in problem.where]
    # Longer paths first: one may be the end of another.
    for path in sorted(short, key=len, reverse=True):
        shown = [place.replace(f"{path}:", f"{short[path]}:") for place in shown]
    more = f"; and {problem.count - len(shown):,} more" if problem.count > len(shown) > 0 else ""
    places = f": {'; '.join(shown)}{more}" if shown else ""
    return f"{message}{times}{places}."
