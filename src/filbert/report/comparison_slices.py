"""Part of a study's report about parts of the test rows: by length, by who is meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from filbert.report import canvas, comparison_grids, numbers, page
from filbert.report.comparison_sections import folded, remark
from filbert.report.comparison_study import Study
from filbert.report.comparison_words import figure, interval
from filbert.report.page import Html, Section
from filbert.report.sections import drawn

# As many fit beside each other as can be read on a phone.
MOST_SLICES = 6
METRICS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "false_positive_rate": "false positive rate",
    "roc_auc": "ROC AUC",
    "pr_auc": "PR AUC",
    "precision": "precision",
    "recall": "recall",
    "accuracy": "accuracy",
}
FALLING = {"false_positive_rate"}
# A column of yes and no is shown by its "yes" rows, so that many columns fit into one picture.
YES_OR_NO = {"yes", "no", "not stated"}

Part = dict[str, Any]


def slices(study: Study) -> Section | None:
    """Quality on parts of the rows, as pictures and in numbers."""
    parts: list[Part] = list(study.results.get("slices") or ())
    names = [one.name for one in study.measured]
    known = [key for key in METRICS if any(_number(p, n, key) is not None
                                           for p in parts for n in names)]  # fmt: skip
    if not known:
        return None
    drawn_metrics = [known[0], *(key for key in known if key == "false_positive_rate")]
    figures = []
    for number, (by, some) in enumerate(_pictures(parts), start=1):
        for metric in drawn_metrics:
            values = [[_number(part, name, metric) for _, part in some] for name in names]
            columns = [_column(name, part) for name, part in some]
            plot = comparison_grids.slices(names, columns, np.array(values, dtype=float),
                                           falling=metric in FALLING)  # fmt: skip
            heading = METRICS[metric]
            caption = f"{heading[0].upper()}{heading[1:]} by {by}."
            if metric in FALLING:
                caption += " Less is better."
            figures.append(drawn(study, f"slices_{number}_{metric}", plot, caption=caption,
                                 alt=f"{heading} by {by}"))  # fmt: skip
    text = "n: rows of the slice. "
    if any(part.get("positives") is not None for part in parts):
        text += (
            "+: positive ones among them. F1 and PR AUC grow with the share of positives, so "
            "compare contestants within a slice, not slices with each other. "
        )
    text += "Small slices swing by chance."
    table = _table(study, parts, known)
    return page.section("Where they fail", page.gallery(figures), remark(text),
                        folded("Slices in numbers", table))  # fmt: skip


def _pictures(parts: list[Part]) -> Iterator[tuple[str, list[tuple[str, Part]]]]:
    """(what the slices are by, (name, slice) of those in one picture)."""
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(str(part["by"]), []).append(part)
    columns = {by for by, some in groups.items() if {str(p["slice"]) for p in some} <= YES_OR_NO}
    found: dict[str, list[tuple[str, Part]]] = {}
    for by, some in groups.items():
        if len(columns) > 1 and by in columns:
            yes = [(by, part) for part in some if part["slice"] == "yes"]
            found.setdefault("column, where it says yes", []).extend(yes)
        else:
            found[by] = [(str(part["slice"]), part) for part in some]
    for by, named in found.items():
        for start in range(0, len(named), MOST_SLICES):
            yield by, named[start : start + MOST_SLICES]


def _column(name: str, part: Part) -> str:
    lines = [*_folded(canvas.plain(name, 22)), f"n {part['rows']:,}"]
    if part.get("positives") is not None:
        lines.append(f"+ {part['positives']:,}")
    return "\n".join(lines)


def _folded(name: str) -> list[str]:
    """A name on at most two lines."""
    if len(name) <= 11:
        return [name]
    at = max(name.rfind(sign, 0, 12) for sign in " _-")
    return [name[: at + 1].strip(), name[at + 1 :]] if at > 2 else [name[:11], name[11:]]


def _table(study: Study, parts: list[Part], metrics: list[str]) -> Html:
    lines: list[list[object]] = []
    for part in parts:
        for one in study.measured:
            cells = []
            for metric in metrics:
                text = figure(_number(part, one.name, metric), study.digits)
                known = (part.get("intervals") or {}).get(one.name) or {}
                low, high = known.get(metric) or (None, None)
                cells.append(f"{text} {interval(low, high, study.digits)}".rstrip())
            lines.append([part["by"], part["slice"], one.name, numbers.count(part["rows"]),
                          numbers.count(part.get("positives")), *cells])  # fmt: skip
    head = ["by", "slice", "contestant", "rows", "positives", *(METRICS[key] for key in metrics)]
    return page.table(head, lines, num_text_columns=3, kind="dense")


def _number(part: Part, name: str, metric: str) -> float | None:
    found = (part["contestants"].get(name) or {}).get(metric)
    return None if found is None else float(found)
