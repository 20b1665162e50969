"""Part of the report that lists the worst errors by row and line; their texts only when asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filbert.metrics.classification import SMALLEST_PROBABILITY
from filbert.report import numbers, page, texts
from filbert.report.answer_sections import question_scores
from filbert.report.folder import RunFolder, gold_labels, predicted_labels
from filbert.report.page import Html, Section
from filbert.report.tagging_sections import mistakes

MOST_ERRORS = 25
MOST_ENTITIES = 4

Cells = Sequence[object]


@dataclass(frozen=True, slots=True)
class Listing:
    """The errors of a run.

    Attributes:
        text: what they are, how many, in which order.
        head: headings before and behind "row" and "line".
        errors: predictions, the worst first, and what stands under the headings.
    """

    text: str
    head: tuple[Sequence[str], Sequence[str]]
    errors: Sequence[tuple[dict[str, Any], tuple[Cells, Cells]]]


def worst_errors(folder: RunFolder, *, show_texts: bool = False) -> Section | None:
    """The rows on which the model was furthest off, by number; with texts only if asked."""
    listed = _LISTINGS.get(folder.problem or "")
    if not folder.rows or listed is None:
        return None
    listing = listed(folder)
    if listing is None:
        return None
    path = ((folder.run.get("data") or {}).get(folder.shown_split or "") or {}).get("path")
    text = listing.text + (f" Rows count from 0; lines are those of {path}." if path else "")
    shown = listing.errors[:MOST_ERRORS]
    lines = [
        [
            *before,
            numbers.count(row.get("row")),
            numbers.count(row.get("line")),
            *behind,
            numbers.count(row.get("num_tokens")),
            "cut" if row.get("truncated") else "",
        ]
        for row, (before, behind) in shown
    ]
    before, behind = listing.head
    head = [*before, "row", "line", *behind, "tokens", ""]
    below: list[Html] = []
    remarks = [page.element("p", text, class_="remark")]
    if show_texts and shown:
        found, why = texts.passages(folder, [row for row, _ in shown])
        if why:
            remarks.append(page.element("p", why, class_="note"))
        else:
            below = [_passages(found.get(row["row"], [])) for row, _ in shown]
    body = Html("")
    if lines:
        body = page.table(head, lines, num_text_columns=len(before), kind="dense", below=below)
    return page.section("Worst errors", *remarks, body)


def _passages(found: list[texts.Passage]) -> Html:
    return page.join(
        page.element("p", page.element("b", name), text, dir="auto") for name, text in found
    )


# Classification


def _labels(folder: RunFolder) -> Listing:
    wrong = [row for row in folder.rows if set(predicted_labels(row)) != set(gold_labels(row))]
    wrong.sort(key=lambda row: -surprise(row))
    of = ["worst label", "its score"] if folder.problem == "multilabel" else ["score of gold"]
    errors = [
        (
            row,
            (
                [
                    ", ".join(labels(row)) or numbers.MISSING
                    for labels in (gold_labels, predicted_labels)
                ],
                _worst_label(row),
            ),
        )
        for row in wrong
    ]
    return Listing(_wrong(folder, len(wrong)), (["gold", "predicted"], of), errors)


def surprise(row: dict[str, Any]) -> float:
    """Negative log-likelihood of what is true, in nats; for multi-label summed over labels."""
    if "labels" in row:
        return sum(_cell_loss(row, label) for label in row["scores"])
    return -float(np.log(max(row["scores"][row["gold"]], SMALLEST_PROBABILITY)))


def _cell_loss(row: dict[str, Any], label: str) -> float:
    score = float(row["scores"][label])
    right = score if label in row["gold"] else 1 - score
    return -float(np.log(max(right, SMALLEST_PROBABILITY)))


def _worst_label(row: dict[str, Any]) -> list[str]:
    """The score of the gold label; for multi-label the label furthest off, and its score."""
    if "labels" not in row:
        return [numbers.metric(float(row["scores"][row["gold"]]))]
    label = max(row["scores"], key=lambda label: _cell_loss(row, label))
    return [label, numbers.metric(float(row["scores"][label]))]


# Other tasks


def _scores(folder: RunFolder) -> Listing:
    far = sorted(folder.rows, key=lambda row: -abs(row["value"] - row["gold"]))
    errors = [
        (
            row,
            (
                [numbers.metric(float(row["gold"])), numbers.metric(float(row["value"]))],
                [f"{row['value'] - row['gold']:+.4f}"],
            ),
        )
        for row in far
    ]
    head = (["gold", "predicted"], ["difference"])
    return Listing(_furthest(folder, "largest difference"), head, errors)


def _pairs(folder: RunFolder) -> Listing | None:
    if all("rank" in row for row in folder.rows):
        lost = [row for row in folder.rows if row["rank"] > 1]
        lost.sort(key=lambda row: (-row["rank"], row["value"]))
        errors: list[tuple[dict[str, Any], tuple[Cells, Cells]]] = [
            (
                row,
                (
                    [f"{row['rank']:,} of {row['pool_size']:,}"],
                    [numbers.metric(float(row["value"]))],
                ),
            )
            for row in lost
        ]
        text = f"{_share(folder, len(lost))} do not find their own pair first. Worst first."
        return Listing(text, (["rank of own pair"], ["cosine"]), errors)
    known = [row for row in folder.rows if row.get("gold") is not None and "value" in row]
    if not known:
        return None
    # The scale of cosines is free, so it is their order that is compared.
    gold, found = (_places([row[key] for row in known]) for key in ("gold", "value"))
    order = np.argsort(-np.abs(found - gold), kind="stable").tolist()
    errors = [
        (
            known[i],
            (
                [numbers.metric(float(known[i]["gold"])), numbers.metric(float(known[i]["value"]))],
                [f"{round(gold[i]):,}", f"{round(found[i]):,}"],
            ),
        )
        for i in order
    ]
    text = _furthest(folder, "largest distance between the places in both orders, lowest first")
    head = (["gold", "cosine"], ["place by gold", "place by cosine"])
    return Listing(text, head, errors)


def _sentences(folder: RunFolder) -> Listing:
    found = [(row, mistakes(row)) for row in folder.rows]
    wrong = [(row, wrong) for row, wrong in found if wrong.missed or wrong.invented]
    wrong.sort(key=lambda pair: -len(pair[1].missed) - len(pair[1].invented))
    errors = [
        (row, ([_entities(part) for part in both], [numbers.count(len(row["tags"]))]))
        for row, both in wrong
    ]
    text = (
        f"{_share(folder, len(wrong), 'sentences')} hold a wrong entity. Those with most of them "
    )
    text += "first; words count from 1."
    return Listing(text, (["missed, at words", "invented, at words"], ["words"]), errors)


def _entities(found: list[tuple[str, int, int]]) -> str:
    told = [
        f"{kind} {start + 1}" + (f"–{end}" if end > start + 1 else "")
        for kind, start, end in found[:MOST_ENTITIES]
    ]
    if len(found) > MOST_ENTITIES:
        told.append(f"and {len(found) - MOST_ENTITIES} more")
    return ", ".join(told) or numbers.MISSING


def _questions(folder: RunFolder) -> Listing:
    scores = question_scores(folder.rows)
    wrong = [
        (f1, row)
        for (exact, f1), row in zip(scores.tolist(), folder.rows, strict=True)
        if not exact
    ]
    wrong.sort(key=lambda pair: (pair[0], -float(pair[1].get("score") or 0.0)))
    # Nothing of the answers themselves: they are texts of the data.
    errors = [
        (
            row,
            (
                [
                    f"{min(map(len, row['gold'])):,} characters" if row["gold"] else "none",
                    f"{len(row['answer']):,} characters" if row["answer"] else "none",
                ],
                [
                    numbers.percent(f1),
                    _at(row),
                    numbers.metric(row.get("score")),
                    numbers.metric(row.get("null_score")),
                ],
            ),
        )
        for f1, row in wrong
    ]
    text = f"{_share(folder, len(wrong), 'questions')} have no exact match. Those without a common "
    text += "word first, and of them the surest."
    head = (["right answer", "given answer"], ["F1", "given at", "score", "null score"])
    return Listing(text, head, errors)


def _at(row: dict[str, Any]) -> str:
    if row.get("start") is None:
        return numbers.MISSING
    return f"{row['start']}–{row['end']}"


def _choices(folder: RunFolder) -> Listing:
    wrong = [row for row in folder.rows if row["choice"] != row["gold"]]

    def score(row: dict[str, Any], place: int) -> float | None:
        return float(row["scores"][place]) if row.get("scores") else None

    wrong.sort(key=lambda row: score(row, row["gold"]) or 0.0)
    errors = [
        (
            row,
            (
                [str(row["gold"]), str(row["choice"])],
                [numbers.metric(score(row, row[key])) for key in ("gold", "choice")],
            ),
        )
        for row in wrong
    ]
    head = (["right", "chosen"], ["score of right", "score of chosen"])
    return Listing(_wrong(folder, len(wrong)), head, errors)


def _places(values: Sequence[float]) -> np.ndarray:
    """Places in rising order from 1, equal values sharing their mean, float64 (N,)."""
    _, inverse, counts = np.unique(
        np.asarray(values, dtype=float), return_inverse=True, return_counts=True
    )
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])


def _wrong(folder: RunFolder, count: int) -> str:
    return f"{_share(folder, count, wrong=True)}. Worst first."


def _share(folder: RunFolder, count: int, what: str = "rows", *, wrong: bool = False) -> str:
    share = numbers.percent(count / len(folder.rows))
    middle = " are wrong" if wrong else ""
    return f"{count:,} of {len(folder.rows):,} {folder.shown_split} {what}{middle} ({share})"


def _furthest(folder: RunFolder, what: str) -> str:
    shown = min(MOST_ERRORS, len(folder.rows))
    return f"The {shown} of {len(folder.rows):,} {folder.shown_split} rows with the {what}."


_LISTINGS: dict[str, Callable[[RunFolder], Listing | None]] = {
    "binary": _labels,
    "multiclass": _labels,
    "multilabel": _labels,
    "regression": _scores,
    "tagging": _sentences,
    "span_qa": _questions,
    "multiple_choice": _choices,
    "embedding": _pairs,
}
