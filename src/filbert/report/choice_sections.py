"""Part of the report about multiple choice: whether the place of a choice matters."""

from __future__ import annotations

import numpy as np

from filbert.report import numbers, page, prediction_plots, score_plots
from filbert.report.folder import RunFolder
from filbert.report.page import Section
from filbert.report.prediction_plots import MOST_LABELS
from filbert.report.prediction_sections import of_split
from filbert.report.sections import drawn


def choices(folder: RunFolder) -> Section | None:
    """Right and chosen places, and the accuracy by the place of the right choice."""
    if folder.problem != "multiple_choice" or not folder.rows:
        return None
    counts = places(folder)
    num_rows = int(counts.sum())
    names = [str(place) for place in range(len(counts))]
    gold, chosen, right = counts.sum(1), counts.sum(0), counts.diagonal()
    figures = []
    if len(counts) <= MOST_LABELS:
        plot = prediction_plots.confusion_plot(counts, names)
        caption = (
            "Rows by the place of the right and of the chosen one; a good model sees no place."
        )
        alt = "Places of right and chosen choices"
        figures.append(drawn(folder, "confusion", plot, alt=alt, caption=caption))
        known = np.flatnonzero(gold)
        plot = score_plots.share_bars(
            [names[place] for place in known],
            {"accuracy": (right[known] / gold[known]).tolist()},
            gold[known].tolist(),
            xlabel="place of the right choice",
            ylabel="accuracy",
        )
        caption = "Percent right, by where the right choice stands. n: rows."
        alt = "Accuracy by place of the right choice"
        figures.append(drawn(folder, "accuracy_by_place", plot, alt=alt, caption=caption))
    lines = [
        [
            name,
            numbers.count(int(gold[place])),
            numbers.percent(gold[place] / num_rows),
            numbers.count(int(chosen[place])),
            numbers.percent(chosen[place] / num_rows),
            numbers.metric(float(right[place] / gold[place]) if gold[place] else None),
        ]
        for place, name in enumerate(names)
    ]
    head = ["place", "right", "share", "chosen", "share", "accuracy"]
    table = page.table(head, lines)
    remark = page.element("p", "Places are counted from 0, as in the data.", class_="remark")
    return page.section("Choices", of_split(folder), remark, page.gallery(figures), table)


def places(folder: RunFolder) -> np.ndarray:
    """Rows by the place of the right (down) and of the chosen one (across), int64 (C, C)."""
    pairs = [(int(row["gold"]), int(row["choice"])) for row in folder.rows]
    size = 1 + max(max(pair) for pair in pairs)
    size = max(size, *(len(row.get("scores") or ()) for row in folder.rows))
    counts = np.zeros((size, size), dtype=np.int64)
    for pair in pairs:
        counts[pair] += 1
    return counts
