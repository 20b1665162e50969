"""The data doctor's report on a terminal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console

from filbert.cli.output import print_table
from filbert.data.findings import Problem, Report, SplitReport

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_LABELS_SHOWN = 6


def print_report(report: Report, console: Console) -> None:
    """Counts and lengths per file, then the findings, the most serious first.

    A column that is empty for all files, such as labels, is left out.
    """
    splits = report.splits
    lengths = [split.lengths for split in splits]
    columns = {
        "": [split.name for split in splits],
        "rows": [f"{split.rows:,}" for split in splits],
        "labels": [_labels(split) for split in splits],
        "length: median": [f"{one.p50:,}" if one else "" for one in lengths],
        "95 %": [f"{one.p95:,}" if one else "" for one in lengths],
        "longest": [f"{one.max:,}" if one else "" for one in lengths],
        "cut": [
            "" if split.truncated is None else f"{split.truncated / max(1, split.rows):.1%}"
            for split in splits
        ],
    }
    columns = {heading: cells for heading, cells in columns.items() if any(cells)}
    texts = [number for number, heading in enumerate(columns) if heading in ("", "labels")]
    rows = list(zip(*columns.values(), strict=True))
    print_table(list(columns), rows, texts=texts, console=console)
    units = {one.unit for one in lengths if one}
    if units:
        cuts = any(split.truncated is not None for split in splits)
        what = "cut at" if cuts else "longer rows are read in windows of"
        limit = f"; {what} {report.max_length}" if "tokens" in units else ""
        console.print(f"Lengths are in {units.pop()}{limit}.", style="dim", highlight=False)
    near = report.near_duplicates
    for file in () if near is None else near.files:
        counts = "".join(f"; one of {name}: {count:,}" for name, count in file.near.items())
        line = f"{file.name}: rows that repeat or nearly repeat an earlier one: {file.repeats:,}"
        console.print(f"{line}{counts}.", highlight=False, markup=False, soft_wrap=True)
    # Files without their folders, if their names are different; --json keeps the folders.
    times = Counter(Path(split.path).name for split in splits)
    long = {split.path for split in splits if times[Path(split.path).name] == 1}
    for problem in report.problems:
        console.print(problem.level, style=_STYLES[problem.level], end=" ")
        console.print(_sentence(problem, long), highlight=False, markup=False, soft_wrap=True)
    if not report.problems:
        console.print("Nothing is wrong with it.")


def _labels(split: SplitReport) -> str:
    counts = [f"{name} {count:,}" for name, count in split.label_counts.items()]
    more = len(counts) - _LABELS_SHOWN
    return ", ".join(counts[:_LABELS_SHOWN]) + (f", {more} more" if more > 0 else "")


def _sentence(problem: Problem, long: set[str]) -> str:
    times = f" ({problem.count:,} times)" if problem.count > 1 else ""
    places = [place.rstrip(".") for place in problem.where]
    # Longer paths first: one may be the end of another.
    for path in sorted(long, key=len, reverse=True):
        places = [place.replace(f"{path}:", f"{Path(path).name}:") for place in places]
    more = problem.count - len(places)
    listed = f": {'; '.join(places)}" if places else ""
    listed += f"; and {more:,} more" if places and more > 0 else ""
    return f"{problem.message.rstrip('.')}{times}{listed}."
