"""Parts of the report about questions: answers by their length, and when there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from filbert.metrics.squad import answer_scores, normalize
from filbert.report import numbers, page, score_plots
from filbert.report.folder import RunFolder
from filbert.report.page import Section
from filbert.report.prediction_sections import of_split
from filbert.report.sections import drawn

# Words of the shortest gold answer: groups from each number to the next.
LENGTHS = (1, 2, 3, 4, 6, 11)


def answers(folder: RunFolder) -> Section | None:
    """Exact match and F1 by the length of the answer and of the context; the decision of v2.0."""
    if folder.problem != "span_qa" or not folder.rows:
        return None
    scores = question_scores(folder.rows)
    groups = [_length_group(row["gold"]) for row in folder.rows]
    order = sorted(set(groups), key=lambda name: (name == "none", _first(name)))
    plot = _bars(groups, order, scores, "words of the shortest gold answer, 'none': unanswerable")
    figures = [
        drawn(
            folder, "answers_by_length", plot, alt="F1 and exact match by length of the answer",
            caption="Percent, by how long the right answer is. n: questions.",
        )
    ]  # fmt: skip
    sizes = np.array([row["num_tokens"] for row in folder.rows])
    borders = sorted({int(border) for border in np.quantile(sizes, [0.25, 0.5, 0.75])})
    names = [f"to {border:,}" for border in borders] + [f"over {borders[-1]:,}"]
    groups = [names[i] for i in np.searchsorted(borders, sizes)]
    order = [name for name in names if name in groups]
    if len(order) > 1:
        plot = _bars(groups, order, scores, "tokens of question and context")
        caption = "Percent, by how much had to be read: four groups of about equal size."
        alt = "F1 and exact match by length of the context"
        figures.append(drawn(folder, "answers_by_context", plot, alt=alt, caption=caption))
    parts = [page.gallery(figures)]
    if any(not row["gold"] for row in folder.rows):
        parts += [page.element("h3", "Whether there is an answer"), _decision(folder)]
    return page.section("Answers", of_split(folder, "questions"), *parts)


def question_scores(rows: list[dict[str, Any]]) -> np.ndarray:
    """Exact match and F1 of every question, float64 (N, 2), in [0, 1]."""
    # With unanswerable questions "" may be right: the rules of SQuAD v2.0.
    empty = any(not row["gold"] for row in rows)
    scores = [answer_scores(row["gold"], row["answer"], empty_can_match=empty) for row in rows]
    return np.array(scores, dtype=float).reshape(len(rows), 2)


def threshold_of(folder: RunFolder) -> float | None:
    """Above this score of "no answer" the answer is empty: as told, else as the answers show."""
    told = folder.run.get("null_threshold")
    if told is not None:
        return float(told)
    given = [row["null_score"] for row in folder.rows if row["answer"]]
    refused = [row["null_score"] for row in folder.rows if not row["answer"]]
    if not given or not refused or max(given) > min(refused):
        return None
    return (float(max(given)) + float(min(refused))) / 2


def _decision(folder: RunFolder) -> page.Html:
    has_answer = np.array([bool(row["gold"]) for row in folder.rows])
    is_given = np.array([bool(row["answer"]) for row in folder.rows])
    null_scores = np.array([row["null_score"] for row in folder.rows], dtype=float)
    plot = score_plots.null_histogram(null_scores, has_answer, threshold_of(folder))
    caption = (
        "By how much “no answer” beats the best span. Right of the threshold, which was chosen on "
        "dev, the answer is empty."
    )
    alt = "Histogram of the score of no answer"
    figure = drawn(folder, "null_scores", plot, alt=alt, caption=caption)
    lines = [
        [
            name,
            numbers.count(int((gold & is_given).sum())),
            numbers.count(int((gold & ~is_given).sum())),
        ]
        for name, gold in (("answerable", has_answer), ("unanswerable", ~has_answer))
    ]
    table = page.table(["questions", "answered", "left empty"], lines)
    return page.gallery([figure, table])


def _bars(groups: list[str], order: list[str], scores: np.ndarray, xlabel: str) -> Any:
    at = np.array([order.index(name) for name in groups])
    sizes = np.bincount(at, minlength=len(order))
    exact, f1 = (
        np.bincount(at, weights=scores[:, column], minlength=len(order)) / sizes
        for column in (0, 1)
    )
    shares = {"F1": f1.tolist(), "exact match": exact.tolist()}
    return score_plots.share_bars(order, shares, sizes.tolist(), xlabel=xlabel, ylabel="")


def _length_group(gold: list[str]) -> str:
    if not gold:
        return "none"
    words = max(min(len(normalize(text).split()) for text in gold), 1)
    start = max(length for length in LENGTHS if length <= words)
    if start == LENGTHS[-1]:
        return f"{start}+"
    end = LENGTHS[LENGTHS.index(start) + 1] - 1
    return str(start) if end == start else f"{start}–{end}"


def _first(name: str) -> int:
    digits = name.rstrip("+").partition("–")[0]
    return int(digits) if digits.isdigit() else 0
