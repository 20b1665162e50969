"""Part of a study's report about single rows: where contestants disagree, where all are wrong.

Rows stand by number; their texts are shown only when they are asked for.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from filbert.report import numbers, page
from filbert.report.comparison_study import Study
from filbert.report.comparison_words import listed
from filbert.report.page import Html, Section
from filbert.report.texts import Passage, excerpt

MOST_ROWS = 20


def hard_rows(study: Study, *, show_texts: bool = False) -> Section | None:
    """The rows that split the contestants most evenly, and those that all of them get wrong."""
    shown = [one.name for one in study.answered]
    if len(shown) < 2:
        return None
    first = study.answers[shown[0]]
    same = [name for name in shown if np.array_equal(study.answers[name].rows, first.rows)
            and np.array_equal(study.answers[name].gold, first.gold)]  # fmt: skip
    if len(same) < 2:
        return None
    right = np.stack([study.answers[name].called == first.gold for name in same])
    num_right = right.sum(0)
    split = np.minimum(num_right, len(same) - num_right)
    # Confidence in the wrong answer, so that the surest common errors come first.
    of_gold = np.mean(
        [study.answers[n].probabilities[np.arange(len(first.gold)), first.gold] for n in same], 0
    )
    disputed = np.flatnonzero(split > 0)
    disputed = disputed[np.lexsort((first.rows[disputed], -split[disputed]))]
    lost = np.flatnonzero(num_right == 0)
    lost = lost[np.lexsort((first.rows[lost], of_gold[lost]))]
    listings = {
        "Most disputed": (disputed, "split the contestants; the most evenly split first."),
        "Wrong by all": (lost, "are wrong by all contestants; the surest errors first."),
    }
    parts: list[object] = []
    for title, (at, what) in listings.items():
        share = numbers.percent(len(at) / len(first.gold))
        text = f"{len(at):,} of {len(first.gold):,} test rows ({share}) {what}"
        parts += [page.element("h3", title), page.element("p", text, class_="remark")]
        if len(at):
            parts.append(_table(study, same, right, of_gold, at[:MOST_ROWS], show_texts=show_texts))
    parts.append(
        page.element(
            "p",
            "Rows count from 0 in data/test.jsonl.gz. "
            + ("" if show_texts else "Their texts are shown only with --show-texts."),
            class_="remark",
        )
    )
    if study.notes_on_texts:
        parts.append(page.element("p", study.notes_on_texts, class_="note"))
    return page.section("Rows to look at", *parts)


def _table(
    study: Study,
    names: Sequence[str],
    right: np.ndarray,
    of_gold: np.ndarray,
    at: np.ndarray,
    *,
    show_texts: bool,
) -> Html:
    first = study.answers[names[0]]
    lines = []
    for n in at.tolist():
        winners = [name for name, is_right in zip(names, right[:, n], strict=True) if is_right]
        lines.append([
            study.labels[first.gold[n]],
            listed(winners) if winners else "none",
            f"{len(winners)} of {len(names)}",
            numbers.count(int(first.rows[n])),
            f"{of_gold[n]:.3f}",
        ])  # fmt: skip
    below: list[Html] = []
    if show_texts:
        gold = {int(first.rows[n]): study.labels[first.gold[n]] for n in at}
        found, study.notes_on_texts = passages(study, gold)
        if not study.notes_on_texts:
            below = [
                page.join(page.element("p", page.element("b", name), text, dir="auto")
                          for name, text in found[int(first.rows[n])])
                for n in at
            ]  # fmt: skip
    head = ["gold", "right are", "right", "row", "mean score of gold"]
    return page.table(head, lines, num_text_columns=2, kind="dense", below=below)


def passages(study: Study, wanted: Mapping[int, str]) -> tuple[dict[int, list[Passage]], str]:
    """Texts by row number out of data/test.jsonl.gz, and why there are none (empty if there are).

    `wanted` holds the gold label of each row, by its number.

    A row whose label is not the gold label of the predictions means that the file is another one:
    then no text is shown at all.
    """
    path = study.path / "data" / "test.jsonl.gz"
    if not path.is_file():
        return {}, f"The texts are not shown: {path.name} is gone."
    found: dict[int, list[Passage]] = {}
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if number in wanted:
                    row: dict[str, Any] = json.loads(line)
                    if str(row["label"]) != wanted[number]:
                        return {}, f"The texts are not shown: row {number} of {path.name} has " \
                                   "another label than the predictions."  # fmt: skip
                    names = [key for key in ("text", "text_pair") if row.get(key) is not None]
                    found[number] = [(n.replace("_", " "), excerpt(str(row[n]))) for n in names]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return {}, f"The texts are not shown: {path.name} cannot be read."
    if len(found) < len(wanted):
        return {}, f"The texts are not shown: {path.name} has fewer rows than the predictions."
    return found, ""
