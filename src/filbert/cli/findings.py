"""The data doctor's report on a terminal."""

from __future__ import annotations

import re

from rich.console import Console
from rich.table import Table

from filbert.data.findings import Problem, Report

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def print_report(report: Report, console: Console) -> None:
    """Counts and lengths per file, then the findings, the most serious first."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "rows", "labels", "length: half", "95 %", "longest", "cut"):
        table.add_column(heading, justify="left" if heading in ("", "labels") else "right")
    for split in report.splits:
        labels = ", ".join(
            f"{name} {count:,}" for name, count in list(split.label_counts.items())[:6]
        )
        more = len(split.label_counts) - 6
        lengths = split.lengths
        cells = ["", "", ""]
        if lengths:
            cells = [f"{lengths.p50:,}", f"{lengths.p95:,}", f"{lengths.max:,}"]
        cut = "" if split.truncated is None else f"{split.truncated / max(1, split.rows):.1%}"
        table.add_row(
            split.name,
            f"{split.rows:,}",
            labels + (f", {more} more" if more > 0 else ""),
            *cells,
            cut,
        )
    console.print(table, highlight=False, markup=False)
    units = {split.lengths.unit for split in report.splits if split.lengths}
    if units:
        limit = f"; cut at {report.max_length}" if "tokens" in units else ""
        console.print(f"Lengths are in {units.pop()}{limit}.", style="dim", highlight=False)
    for problem in report.problems:
        console.print(problem.level, style=_STYLES[problem.level], end=" ")
        console.print(_sentence(problem), highlight=False, markup=False, soft_wrap=True)
    if not report.problems:
        console.print("Nothing is wrong with it.")


def _sentence(problem: Problem) -> str:
    message = problem.message.rstrip(".")
    times = f" ({problem.count:,} times)" if problem.count > 1 else ""
    # Folders are left out here; --json keeps them.
    shown = [re.sub("^[^:]*/", "", place.rstrip(".")) for place in problem.where]
    more = f"; and {problem.count - len(shown):,} more" if problem.count > len(shown) > 0 else ""
    places = f": {'; '.join(shown)}{more}" if shown else ""
    return f"{message}{times}{places}."
