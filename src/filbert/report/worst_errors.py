"""The section of the worst errors: rows by number and line, with their texts only on request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.errors import FilbertError, InputError
from filbert.files import read_json
from filbert.metrics.classification import SMALLEST_PROBABILITY
from filbert.report import numbers
from filbert.report.folder import Prediction, RunFolder, gold_labels, predicted_labels
from filbert.report.predictions import Entity, mistakes, question_scores
from filbert.report.render import Section, Table, paragraph, section

if TYPE_CHECKING:
    from filbert.data.records import Row
    from filbert.tasks.base import Task

MOST_ERRORS, MOST_RIGHT = 25, 12
MOST_ENTITIES = 4
# Length of an excerpt in characters, and how many of them are before the relevant position.
LONGEST, BEFORE = 300, 100

Passages = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What the errors of a problem are, and how they are listed.

    Attributes:
        order: What is listed first, in words.
        key: A key to sort by, the worst error first; None if the prediction is correct.
        cells: Text of each cell by heading.
        derived: Gives predictions with more keys, which need all predictions.
    """

    order: str
    key: Callable[[Prediction], Any]
    cells: Callable[[Prediction], dict[str, str]]
    derived: Callable[[list[Prediction]], list[Prediction]] = list


def worst_errors(folder: RunFolder, *, show_texts: bool = False) -> Section | None:
    """The rows with the largest errors; their texts only with `show_texts`."""
    rule = rule_of(folder)
    if rule is None:
        return None
    keyed = [(rule.key(row), row) for row in rule.derived(folder.rows)]
    errors = sorted(((k, row) for k, row in keyed if k is not None), key=lambda pair: pair[0])
    shown = [row for _, row in errors[:MOST_ERRORS]]
    cells = [
        {"row": numbers.count(row.get("row")), "line": numbers.count(row.get("line"))}
        | rule.cells(row)
        | {"tokens": f"{numbers.count(row.get('num_tokens'))}{' cut' * bool(row.get('truncated'))}"}
        for row in shown
    ]
    texts, why = passages(folder, shown) if show_texts and shown else ({}, "")
    below = [texts.get(row["row"], []) for row in shown] if texts else ()
    is_labelled = bool(texts) and folder.problem in ("binary", "multiclass", "multilabel")
    share = numbers.percent(len(errors) / len(folder.rows))
    path = folder.data.get("path")
    return section(
        "Worst errors",
        f"{len(errors):,} of {len(folder.rows):,} {folder.split} rows are not exactly right "
        f"({share}). {rule.order} first."
        + (f" Rows count from 0; lines are those of {path}." if path else ""),
        paragraph(why, "note"),
        Table([*cells[0]] if cells else [], [[*one.values()] for one in cells], passages=below),
        _right_answers(folder, [row for key, row in keyed if key is None]) if is_labelled else "",
    )


def _right_answers(folder: RunFolder, rows: list[Prediction]) -> Table:
    """The texts of some rows with the right labels, at even distances."""
    shown = rows[:: max(1, len(rows) // MOST_RIGHT)][:MOST_RIGHT]
    texts, _ = passages(folder, shown)
    cells = [[numbers.count(row.get("row")), ", ".join(gold_labels(row))] for row in shown]
    below = [texts.get(row["row"], []) for row in shown]
    title = "Some rows that are exactly right"
    return Table(["row", "gold"], cells, 2, title=title, passages=below)


def rule_of(folder: RunFolder) -> ErrorRule | None:
    """The rule of the run's problem; of embeddings, by what their rows have."""
    rows = folder.rows
    if not rows or folder.problem != "embedding":
        return RULES.get(folder.problem or "") if rows else None
    if all("rank" in row for row in rows):
        return RULES["ranks"]
    return RULES["cosines"] if any(row.get("gold") is not None for row in rows) else None


def _number(value: Any) -> str:
    return numbers.metric(None if value is None else float(value))


# Classification


def surprise(row: Prediction) -> float:
    """Negative log-likelihood of the gold label in nats; summed over labels for multi-label."""
    if "labels" in row:
        return sum(_label_loss(row, label) for label in row["scores"])
    return -float(np.log(max(row["scores"][row["gold"]], SMALLEST_PROBABILITY)))


def _label_loss(row: Prediction, label: str) -> float:
    score = float(row["scores"][label])
    probability = score if label in row["gold"] else 1 - score
    return -float(np.log(max(probability, SMALLEST_PROBABILITY)))


def _surprise_if_wrong(row: Prediction) -> float | None:
    is_right = set(predicted_labels(row)) == set(gold_labels(row))
    return None if is_right else -surprise(row)


def _label_cells(row: Prediction) -> dict[str, str]:
    cells = {
        "gold": ", ".join(gold_labels(row)) or numbers.MISSING,
        "predicted": ", ".join(predicted_labels(row)) or numbers.MISSING,
    }
    if "labels" not in row:
        return cells | {"score of gold": _number(row["scores"][row["gold"]])}
    worst = max(row["scores"], key=lambda label: _label_loss(row, label))
    return cells | {"worst label": worst, "its score": _number(row["scores"][worst])}


# Other problems


def _ranked(rows: list[Prediction]) -> list[Prediction]:
    """Pairs with the ranks of their gold score and cosine, as the scale of cosines is arbitrary."""
    from scipy.stats import rankdata

    known = [row for row in rows if row.get("gold") is not None]
    ranks = [rankdata([row[key] for row in known]).tolist() for key in ("gold", "value")]
    return [
        row | {"gold_rank": gold, "value_rank": value}
        for row, gold, value in zip(known, *ranks, strict=True)
    ]


def _with_mistakes(rows: list[Prediction]) -> list[Prediction]:
    return [row | dict(zip(("missed", "spurious"), mistakes(row), strict=True)) for row in rows]


def _entities(entities: list[Entity]) -> str:
    names = [
        f"{kind} {start + 1}" + (f"–{end}" if end > start + 1 else "")
        for kind, start, end in entities[:MOST_ENTITIES]
    ]
    if len(entities) > MOST_ENTITIES:
        names.append(f"and {len(entities) - MOST_ENTITIES} more")
    return ", ".join(names) or numbers.MISSING


def _scored(rows: list[Prediction]) -> list[Prediction]:
    scores = question_scores(rows).tolist()
    return [row | {"exact": exact, "f1": f1} for row, (exact, f1) in zip(rows, scores, strict=True)]


def _length(texts: list[str]) -> str:
    """Answers are texts of the data, so only their lengths are shown."""
    return f"{min(map(len, texts)):,} characters" if any(texts) else "none"


def _score(row: Prediction, key: str) -> float:
    """The score of the choice that `row[key]` names."""
    return float(row["scores"][row[key]]) if row.get("scores") else 0.0


_LABELS = ErrorRule("Lowest probability of the gold label", _surprise_if_wrong, _label_cells)
RULES = {
    "binary": _LABELS,
    "multiclass": _LABELS,
    "multilabel": _LABELS,
    "regression": ErrorRule(
        "Largest difference",
        lambda row: -abs(row["value"] - row["gold"]) or None,
        lambda row: {
            "gold": _number(row["gold"]),
            "predicted": _number(row["value"]),
            "difference": f"{row['value'] - row['gold']:+.4f}",
        },
    ),
    "ranks": ErrorRule(
        "Worst rank of the own pair",
        lambda row: (-row["rank"], row["value"]) if row["rank"] > 1 else None,
        lambda row: {
            "rank of own pair": f"{row['rank']:,} of {row['pool_size']:,}",
            "cosine": _number(row["value"]),
        },
    ),
    "cosines": ErrorRule(
        "Largest difference of the ranks by gold score and by cosine",
        lambda row: -abs(row["value_rank"] - row["gold_rank"]) or None,
        lambda row: {
            "gold": _number(row["gold"]),
            "cosine": _number(row["value"]),
            "rank by gold": f"{row['gold_rank']:,.0f}",
            "rank by cosine": f"{row['value_rank']:,.0f}",
        },
        _ranked,
    ),
    "tagging": ErrorRule(
        "Most errors (words count from 1)",
        lambda row: -len(row["missed"] + row["spurious"]) or None,
        lambda row: {
            "missed, at words": _entities(row["missed"]),
            "spurious, at words": _entities(row["spurious"]),
            "words": numbers.count(len(row["tags"])),
        },
        _with_mistakes,
    ),
    "span_qa": ErrorRule(
        "Lowest F1, then highest score",
        lambda row: None if row["exact"] else (row["f1"], -float(row.get("score") or 0.0)),
        lambda row: {
            "gold answer": _length(row["gold"]),
            "predicted answer": _length([row["answer"]]),
            "F1": numbers.percent(row["f1"]),
            "score": _number(row.get("score")),
            "null score": _number(row.get("null_score")),
        },
        _scored,
    ),
    "multiple_choice": ErrorRule(
        "Lowest score of the right answer",
        lambda row: None if row["choice"] == row["gold"] else _score(row, "gold"),
        lambda row: {
            "right": str(row["gold"]),
            "chosen": str(row["choice"]),
            "score of right": _number(_score(row, "gold")),
            "score of chosen": _number(_score(row, "choice")),
        },
    ),
}


# Texts of the rows


def passages(
    folder: RunFolder, predictions: Collection[Prediction]
) -> tuple[dict[int, Passages], str]:
    """Excerpts of the texts of some predictions, read again from the data file.

    The file is only read if its sha256 is that of the run; other texts would not belong to these
    predictions.

    Returns:
        (name, excerpt) pairs by row number, and the reason when there are none.
    """
    from filbert.data.records import file_digest

    path = folder.data.get("path")
    try:
        if path is None or not Path(path).is_file():
            raise InputError(f"{path} does not exist.")
        if file_digest(path) != folder.data.get("sha256"):
            raise InputError(f"{path} has changed since the run.")
        return _read(folder, path, {row["row"]: row for row in predictions}), ""
    except FilbertError as error:
        return {}, f"The texts are not shown: {error}"


def excerpt(text: str, at: int = 0) -> str:
    """At most LONGEST characters of a text, around the character `at`."""
    if len(text) <= LONGEST:
        return text
    start = max(min(at - BEFORE, len(text) - LONGEST), 0)
    end = start + LONGEST
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _read(folder: RunFolder, path: str, wanted: dict[int, Prediction]) -> dict[int, Passages]:
    from filbert.data.columns import ColumnNames
    from filbert.tasks.base import TaskOptions, task_class
    from filbert.tasks.rows import read_task_rows

    options = folder.run.get("options") or {}
    names = ColumnNames.recorded(options)
    chosen: dict[str, Any] = {
        f.name: tuple(value) if isinstance(value := options[f.name], list) else value
        for f in fields(TaskOptions)
        if f.name in options and f.name != "clean"  # the original text is shown
    }
    task = task_class(folder.run["task"]).from_options(TaskOptions(**chosen), names)
    show = _SHOWN.get(folder.problem or "", _sequences)
    division = folder.path / "split.json"
    part = read_json(division)["parts"].get(folder.split) if division.is_file() else None
    # Numbers in a part of a file become numbers in the file.
    in_file = {number if part is None else part[number]: number for number in wanted}
    return {
        in_file[index]: show(task, row, wanted[in_file[index]])
        for index, row in enumerate(read_task_rows(task, path, names))
        if index in in_file
    }


def _sequences(task: Task, row: Row, prediction: Prediction) -> Passages:
    from filbert.tasks.rows import row_texts

    texts: list[str] = []
    for text in row_texts(task, row):
        texts += [text] if isinstance(text, str) else text
    names = ("text", "second text")[: len(texts)]
    return [(name, excerpt(text)) for name, text in zip(names, texts, strict=True)]


def _question(task: Task, row: Row, prediction: Prediction) -> Passages:
    gold = row.values.get("answers") or []
    at = gold[0]["answer_start"] if gold else prediction.get("start") or 0
    right = " / ".join(dict.fromkeys(answer["text"] for answer in gold)) or "no answer"
    return [
        ("question", excerpt(row.values["question"])),
        ("gold", excerpt(right)),
        ("predicted", excerpt(prediction["answer"] or "no answer")),
        ("context", excerpt(row.values["context"], at)),
    ]


def _choice(task: Task, row: Row, prediction: Prediction) -> Passages:
    choices = row.values["choices"]
    return [
        ("context", excerpt(row.values["context"])),
        ("right", excerpt(choices[prediction["gold"]])),
        ("chosen", excerpt(choices[prediction["choice"]])),
    ]


def _sentence(task: Task, row: Row, prediction: Prediction) -> Passages:
    words, wrong = prediction["tokens"], mistakes(prediction)
    first = min((start for part in wrong for _, start, _ in part), default=0)
    shown = [("text", excerpt(" ".join(words), sum(len(word) + 1 for word in words[:first])))]
    for name, entities in zip(("missed", "spurious"), wrong, strict=True):
        if entities:
            text = " · ".join(f"{kind}: {' '.join(words[a:b])}" for kind, a, b in entities)
            shown.append((name, excerpt(text)))
    return shown


_SHOWN = {"span_qa": _question, "multiple_choice": _choice, "tagging": _sentence}
