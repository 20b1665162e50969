"""The section of the worst errors: rows by number and line, with their texts only on request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.errors import ConfigError, FormatError, InputError
from filbert.files import read_json
from filbert.metrics.classification import SMALLEST_PROBABILITY
from filbert.report import numbers
from filbert.report.folder import RunFolder, gold_labels, predicted_labels
from filbert.report.predictions import Entity, mistakes, question_scores
from filbert.report.render import Section, Table, paragraph, section

if TYPE_CHECKING:
    from filbert.data.records import Row
    from filbert.tasks.base import Task

MOST_ERRORS = 25
MOST_ENTITIES = 4
# Length of an excerpt in characters, and how many of them are before the relevant position.
LONGEST, BEFORE = 300, 100

Prediction = dict[str, Any]
Passages = list[tuple[str, str]]
Columns = dict[str, Callable[[Prediction], str]]


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What the errors of a problem are, and how they are listed.

    Attributes:
        text: A sentence with {wrong} such as "12 of 400 test", {share}, {all} and {shown} rows.
        before: Heading -> text of a cell, left of the row number.
        after: The same, right of the line.
        order: A key to sort by, the worst error first; None if the prediction is correct.
        derived: Gives predictions with more keys, which need all predictions.
    """

    text: str
    before: Columns
    after: Columns
    order: Callable[[Prediction], Any]
    derived: Callable[[list[Prediction]], list[Prediction]] = list


def worst_errors(folder: RunFolder, *, show_texts: bool = False) -> Section | None:
    """The rows with the largest errors; their texts only with `show_texts`."""
    rule = rule_of(folder)
    if rule is None:
        return None
    keyed = [(rule.order(row), row) for row in rule.derived(folder.rows)]
    errors = [(key, row) for key, row in keyed if key is not None]
    shown = [row for _, row in sorted(errors, key=lambda pair: pair[0])[:MOST_ERRORS]]
    path = ((folder.run.get("data") or {}).get(folder.shown_split or "") or {}).get("path")
    about = rule.text.format(
        wrong=f"{len(errors):,} of {len(folder.rows):,} {folder.shown_split}",
        share=numbers.percent(len(errors) / len(folder.rows)),
        shown=len(shown),
        all=f"{len(folder.rows):,} {folder.shown_split}",
    )
    rows = [
        [*(show(row) for show in rule.before.values()),
         numbers.count(row.get("row")), numbers.count(row.get("line")),
         *(show(row) for show in rule.after.values()),
         numbers.count(row.get("num_tokens")), "cut" if row.get("truncated") else ""]
        for row in shown
    ]  # fmt: skip
    texts, why = passages(folder, shown) if show_texts and shown else ({}, "")
    below = [texts.get(row["row"], []) for row in shown] if texts else ()
    columns = [*rule.before, "row", "line", *rule.after, "tokens", ""]
    return section(
        "Worst errors",
        about + (f" Rows count from 0; lines are those of {path}." if path else ""),
        paragraph(why, "note"),
        Table(columns, rows, len(rule.before), "dense", below),
    )


def rule_of(folder: RunFolder) -> ErrorRule | None:
    """The rule of the run's problem; of embeddings, by what their rows have."""
    problem, rows = folder.problem or "", folder.rows
    if not rows:
        return None
    if problem == "embedding":
        if all("rank" in row for row in rows):
            return RULES["ranks"]
        return RULES["cosines"] if any(map(_has_gold, rows)) else None
    return RULES.get(problem)


def _has_gold(row: Prediction) -> bool:
    return row.get("gold") is not None and "value" in row


def _number(key: str) -> Callable[[Prediction], str]:
    """The cell of a number; `-` if there is none."""
    return lambda row: numbers.metric(None if row.get(key) is None else float(row[key]))


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


def _worst_label(row: Prediction) -> str:
    scores: dict[str, float] = row["scores"]
    return max(scores, key=lambda label: _label_loss(row, label))


def _labels(after: Columns) -> ErrorRule:
    def order(row: Prediction) -> float | None:
        is_right = set(predicted_labels(row)) == set(gold_labels(row))
        return None if is_right else -surprise(row)

    before: Columns = {
        "gold": lambda row: ", ".join(gold_labels(row)) or numbers.MISSING,
        "predicted": lambda row: ", ".join(predicted_labels(row)) or numbers.MISSING,
    }
    text = "{wrong} rows are wrong ({share}). Lowest probability of the gold label first."
    return ErrorRule(text, before, after, order)


# Other problems


def _ranked(rows: list[Prediction]) -> list[Prediction]:
    """Pairs with the ranks of their gold score and cosine, as the scale of cosines is arbitrary."""
    from scipy.stats import rankdata

    known = [row for row in rows if _has_gold(row)]
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


def _score(row: Prediction, key: str) -> float | None:
    """The score of the choice that `row[key]` names."""
    return float(row["scores"][row[key]]) if row.get("scores") else None


_SINGLE = _labels({"score of gold": lambda row: numbers.metric(float(row["scores"][row["gold"]]))})
RULES = {
    "binary": _SINGLE,
    "multiclass": _SINGLE,
    "multilabel": _labels({
        "worst label": _worst_label,
        "its score": lambda row: numbers.metric(float(row["scores"][_worst_label(row)])),
    }),
    "regression": ErrorRule(
        "The {shown} of {all} rows with the largest difference.",
        {"gold": _number("gold"), "predicted": _number("value")},
        {"difference": lambda row: f"{row['value'] - row['gold']:+.4f}"},
        lambda row: -abs(row["value"] - row["gold"]),
    ),
    "ranks": ErrorRule(
        "{wrong} rows do not rank their own pair first ({share}). Worst first.",
        {"rank of own pair": lambda row: f"{row['rank']:,} of {row['pool_size']:,}"},
        {"cosine": _number("value")},
        lambda row: (-row["rank"], row["value"]) if row["rank"] > 1 else None,
    ),
    "cosines": ErrorRule(
        "The {shown} of {all} rows with the largest difference of their ranks, lowest value first.",
        {"gold": _number("gold"), "cosine": _number("value")},
        {
            "rank by gold": lambda row: f"{round(row['gold_rank']):,}",
            "rank by cosine": lambda row: f"{round(row['value_rank']):,}",
        },
        lambda row: -abs(row["value_rank"] - row["gold_rank"]),
        _ranked,
    ),
    "tagging": ErrorRule(
        "{wrong} sentences have a wrong entity ({share}). Those with most errors first; words "
        "count from 1.",
        {
            "missed, at words": lambda row: _entities(row["missed"]),
            "spurious, at words": lambda row: _entities(row["spurious"]),
        },
        {"words": lambda row: numbers.count(len(row["tags"]))},
        lambda row: -len(row["missed"] + row["spurious"]) or None,
        _with_mistakes,
    ),
    "span_qa": ErrorRule(
        "{wrong} questions have no exact match ({share}). Lowest F1 first, then the highest score.",
        {
            "gold answer": lambda row: _length(row["gold"]),
            "predicted answer": lambda row: _length([row["answer"]]),
        },
        {
            "F1": lambda row: numbers.percent(row["f1"]),
            "predicted at": lambda row: (
                numbers.MISSING if row.get("start") is None else f"{row['start']}–{row['end']}"
            ),
            "score": _number("score"),
            "null score": _number("null_score"),
        },
        lambda row: None if row["exact"] else (row["f1"], -float(row.get("score") or 0.0)),
        _scored,
    ),
    "multiple_choice": ErrorRule(
        "{wrong} rows are wrong ({share}). Lowest score of the right answer first.",
        {"right": lambda row: str(row["gold"]), "chosen": lambda row: str(row["choice"])},
        {
            "score of right": lambda row: numbers.metric(_score(row, "gold")),
            "score of chosen": lambda row: numbers.metric(_score(row, "choice")),
        },
        lambda row: None if row["choice"] == row["gold"] else _score(row, "gold") or 0.0,
    ),
}  # fmt: skip


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

    facts = (folder.run.get("data") or {}).get(folder.shown_split or "") or {}
    path, digest = facts.get("path"), facts.get("sha256")
    if not path or not digest:
        return {}, "The texts are not shown: run.json does not name their file."
    if not Path(path).is_file():
        return {}, f"The texts are not shown: {path} does not exist."
    try:
        if file_digest(path) != digest:
            return {}, f"The texts are not shown: {path} has changed since the run."
        return _read(folder, path, {row["row"]: row for row in predictions}), ""
    except (InputError, ConfigError, FormatError, OSError, TypeError, ValueError,
            KeyError) as error:  # fmt: skip
        return {}, f"The texts are not shown: {path} cannot be read as in the run. {error}"


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

    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in (folder.run.get("options") or {}).items()
    }
    names = ColumnNames.recorded(given)
    chosen = {f.name: given[f.name] for f in fields(TaskOptions) if f.name in given}
    chosen["clean"] = None  # the original text is shown
    task = task_class(folder.run["task"]).from_options(TaskOptions(**chosen), names)
    show = _SHOWN.get(folder.problem or "", _sequences)
    found: dict[int, Passages] = {}
    split = folder.path / "split.json"
    parts = read_json(split)["parts"] if split.is_file() else {}
    # Numbers in a part of a file become numbers in the file.
    part = parts.get(folder.shown_split)
    in_file = {n if part is None else part[n]: n for n in wanted}
    for index, row in enumerate(read_task_rows(task, path, names)):
        if len(found) == len(wanted):
            break
        if index not in in_file:
            continue
        number = in_file[index]
        prediction = wanted[number]
        if row.line != prediction.get("line", row.line):
            raise ValueError(f"Row {number} is at line {row.line}, not {prediction['line']}.")
        found[number] = show(task, row, prediction)
    return found


def _sequences(task: Task, row: Row, prediction: Prediction) -> Passages:
    from filbert.tasks.rows import row_texts

    texts: list[str] = []
    for text in row_texts(task, row):
        texts += [text] if isinstance(text, str) else text
    names = ["text", "second text"] if len(texts) <= 2 else [str(i) for i in range(len(texts))]
    return [(name, excerpt(text)) for name, text in zip(names, texts, strict=False)]


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
    from filbert.tasks.rows import row_texts

    words, wrong = prediction["tokens"], mistakes(prediction)
    first = min((start for part in wrong for _, start, _ in part), default=0)
    at = sum(len(word) + 1 for word in words[:first])
    found = [("text", excerpt(t, at)) for t in row_texts(task, row) if isinstance(t, str)]
    for name, entities in zip(("missed", "spurious"), wrong, strict=True):
        if entities:
            text = " · ".join(f"{kind}: {' '.join(words[a:b])}" for kind, a, b in entities)
            found.append((name, excerpt(text)))
    return found


_SHOWN = {"span_qa": _question, "multiple_choice": _choice, "tagging": _sentence}
