"""Parts of the report about tagging: entity types one by one, their confusion, kinds of errors."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from filbert.metrics.entities import entities_of, entity_metrics, split
from filbert.report import numbers, page, prediction_plots
from filbert.report.folder import RunFolder
from filbert.report.page import Section
from filbert.report.prediction_plots import MOST_LABELS
from filbert.report.prediction_sections import of_split
from filbert.report.sections import drawn

NONE = "no entity"
KINDS = {
    "right": "right",
    "type": "right words, wrong type",
    "borders": "right type, wrong borders",
    "both": "some right words, wrong type and borders",
    "missed": "missed: nothing was found there",
    "invented": "invented: nothing is there",
}


class Mistakes(NamedTuple):
    """Entities of one sentence that are wrong, as (type, first word, word behind the last)."""

    missed: list[tuple[str, int, int]]
    invented: list[tuple[str, int, int]]


def entities(folder: RunFolder) -> Section | None:
    """Precision, recall and F1 of every entity type, and what is taken for what."""
    if folder.problem != "tagging" or not folder.rows:
        return None
    types = per_type(folder)
    if not types:
        return None
    frequent = sorted(types, key=lambda kind: -types[kind]["support"])[:MOST_LABELS]
    shown = [kind for kind in types if kind in frequent]
    only = f" The {MOST_LABELS} most frequent types." if len(shown) < len(types) else ""
    plot = prediction_plots.label_bars(
        shown, [types[kind]["f1"] for kind in shown], [types[kind]["support"] for kind in shown]
    )
    words = _stand_alone(folder)
    kind, unit = ("tag", "words") if words else ("entity type", "gold entities")
    caption = f"F1 of every {kind}; n: {unit}.{only}"
    figures = [drawn(folder, "label_f1", plot, alt=f"F1 of every {kind}", caption=caption)]
    counts, names = confusion_by_word(folder, shown), [*shown, "another" if words else NONE]
    if words and not (counts[-1].any() or counts[:, -1].any()):
        counts, names = counts[:-1, :-1], shown
    plot = prediction_plots.confusion_plot(counts, names)
    of = "their tag" if words else "the type of the entity they are in"
    caption = f"Words by {of}; colour: share of the gold {kind.split()[-1]}.{only}"
    figures.append(drawn(folder, "confusion", plot, alt="Confusion of types", caption=caption))
    keys = ("precision", "recall", "f1", "support")
    rows = [
        [kind, *(numbers.metric(scores[key]) for key in keys)] for kind, scores in types.items()
    ]
    lines = page.table([kind.split()[-1], "precision", "recall", "F1", unit], rows)
    if words:
        content = page.join([page.gallery(figures), lines])
        return page.section("Tags", of_split(folder, "sentences"), content)
    found = kinds_of_errors(folder)
    total = max(sum(found[kind] for kind in KINDS if kind != "invented"), 1)
    kinds = [
        [text, numbers.count(found[kind]), numbers.percent(found[kind] / total)]
        for kind, text in KINDS.items()
    ]
    head = ["what became of the gold entities", "entities", "of gold"]
    tables = [
        page.element("div", page.element("h3", "Type by type"), lines),
        page.element("div", page.element("h3", "Kinds of errors"), page.table(head, kinds)),
    ]
    content = page.join([page.gallery(figures), page.gallery(tables)])
    return page.section("Entities", of_split(folder, "sentences"), content)


def _stand_alone(folder: RunFolder) -> bool:
    """Whether the tags are for their words alone, as parts of speech are."""
    return any(not split(tag)[0] for row in folder.rows for tag in row["gold"] if tag != "O")


def per_type(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Scores of every entity type, as measured, or counted if run.json does not hold them."""
    metrics = (folder.run.get("metrics") or {}).get(folder.shown_split) or {}
    measured: dict[str, dict[str, Any]] | None = metrics.get("per_label")
    if measured is not None:
        return measured
    found = entity_metrics(
        [row["gold"] for row in folder.rows], [row["tags"] for row in folder.rows]
    )
    counted: dict[str, dict[str, Any]] = found["per_label"]
    return counted


def confusion_by_word(folder: RunFolder, types: list[str]) -> np.ndarray:
    """Words by gold (down) and predicted type (across), the last one "no entity".

    int64 (C + 1, C + 1); types beyond `types` count as none.
    """
    number = {kind: c for c, kind in enumerate(types)}
    pairs: Counter[tuple[int, int]] = Counter()
    for row in folder.rows:
        for gold, given in zip(row["gold"], row["tags"], strict=True):
            pairs[number.get(_type(gold), len(types)), number.get(_type(given), len(types))] += 1
    counts = np.zeros((len(types) + 1, len(types) + 1), dtype=np.int64)
    for place, count in pairs.items():
        counts[place] = count
    return counts


def kinds_of_errors(folder: RunFolder) -> Counter[str]:
    """Gold entities by what became of them, and invented ones; keys of KINDS."""
    counts: Counter[str] = Counter()
    for row in folder.rows:
        gold, given = entities_of(row["gold"]), entities_of(row["tags"])
        for one in gold:
            counts[_kind(one, given)] += 1
        for one in given:
            if not any(_overlap(one, other) for other in gold):
                counts["invented"] += 1
    return counts


def mistakes(row: dict[str, Any]) -> Mistakes:
    """The gold entities of a row that were not found, and the found ones that are not gold."""
    gold, given = entities_of(row["gold"]), entities_of(row["tags"])
    right = {*gold} & {*given}
    return Mistakes([e for e in gold if e not in right], [e for e in given if e not in right])


def _kind(one: tuple[str, int, int], given: list[tuple[str, int, int]]) -> str:
    if one in given:
        return "right"
    near = [other for other in given if _overlap(one, other)]
    if any(other[1:] == one[1:] for other in near):
        return "type"
    if any(other[0] == one[0] for other in near):
        return "borders"
    return "both" if near else "missed"


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[1] < other[2] and other[1] < one[2]


def _type(tag: str) -> str:
    return NONE if tag == "O" else split(tag)[1]
