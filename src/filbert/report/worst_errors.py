"""The section of the worst errors: rows by number and line, with their texts only on request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.errors import ConfigError, FormatError, InputError
from filbert.metrics.classification import SMALLEST_PROBABILITY
from filbert.report import numbers
from filbert.report.folder import RunFolder, gold_labels, predicted_labels
from filbert.report.predictions import Entity, mistakes, question_scores
from filbert.report.render import Section, Table, section

if TYPE_CHECKING:
    from filbert.data.records import Row
    from filbert.tasks.base import Task

MOST_ERRORS = 25
MOST_ENTITIES = 4
# Length of an excerpt in characters, and how many of them are before the relevant position.
LONGEST, BEFORE = 300, 100

Prediction = dict[str, Any]
Passages = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Listing:
    """The errors of a run in a table.

    Attributes:
        text: What is listed, and in which order.
        head: Headings before and after the columns "row" and "line".
        errors: Predictions, the worst first, and the cells below these headings.
    """

    text: str
    head: tuple[list[str], list[str]]
    errors: list[tuple[Prediction, list[str], list[str]]]


def worst_errors(folder: RunFolder, *, show_texts: bool = False) -> Section | None:
    """The rows with the largest errors; their texts only with `show_texts`."""
    make = _LISTINGS.get(folder.problem or "")
    listing = make(folder) if make and folder.rows else None
    if listing is None:
        return None
    path = ((folder.run.get("data") or {}).get(folder.shown_split or "") or {}).get("path")
    shown = listing.errors[:MOST_ERRORS]
    rows = [
        [*before, numbers.count(row.get("row")), numbers.count(row.get("line")), *after,
         numbers.count(row.get("num_tokens")), "cut" if row.get("truncated") else ""]
        for row, before, after in shown
    ]  # fmt: skip
    before, after = listing.head
    texts: dict[int, Passages] = {}
    why = ""
    if show_texts and shown:
        texts, why = passages(folder, [row for row, _, _ in shown])
    return section(
        "worst_errors",
        "Worst errors",
        text=listing.text + (f" Rows count from 0; lines are those of {path}." if path else ""),
        why_no_texts=why,
        table=Table(
            [*before, "row", "line", *after, "tokens", ""],
            rows,
            len(before),
            "dense",
            passages=[texts.get(row["row"], []) for row, _, _ in shown] if texts else (),
        ),
    )


def _share(folder: RunFolder, count: int, of_what: str) -> str:
    share = numbers.percent(count / len(folder.rows))
    return f"{count:,} of {len(folder.rows):,} {folder.shown_split} {of_what} ({share})."


def _largest(folder: RunFolder, what: str) -> str:
    shown = min(MOST_ERRORS, len(folder.rows))
    return f"The {shown} of {len(folder.rows):,} {folder.shown_split} rows with the {what}."


def _labels(folder: RunFolder) -> Listing:
    wrong = [row for row in folder.rows if set(predicted_labels(row)) != set(gold_labels(row))]
    wrong.sort(key=lambda row: -surprise(row))
    errors = []
    for row in wrong:
        names = [
            ", ".join(found(row)) or numbers.MISSING for found in (gold_labels, predicted_labels)
        ]
        if "labels" in row:
            worst = max(row["scores"], key=lambda label: _label_loss(row, label))
            after = [worst, numbers.metric(float(row["scores"][worst]))]
        else:
            after = [numbers.metric(float(row["scores"][row["gold"]]))]
        errors.append((row, names, after))
    columns = ["worst label", "its score"] if folder.problem == "multilabel" else ["score of gold"]
    text = (
        _share(folder, len(wrong), "rows are wrong")
        + " Lowest probability of the gold label first."
    )
    return Listing(text, (["gold", "predicted"], columns), errors)


def surprise(row: Prediction) -> float:
    """Negative log-likelihood of the gold label in nats; summed over labels for multi-label."""
    if "labels" in row:
        return sum(_label_loss(row, label) for label in row["scores"])
    return -float(np.log(max(row["scores"][row["gold"]], SMALLEST_PROBABILITY)))


def _label_loss(row: Prediction, label: str) -> float:
    score = float(row["scores"][label])
    probability = score if label in row["gold"] else 1 - score
    return -float(np.log(max(probability, SMALLEST_PROBABILITY)))


def _regression(folder: RunFolder) -> Listing:
    rows = sorted(folder.rows, key=lambda row: -abs(row["value"] - row["gold"]))
    errors = [
        (row, [numbers.metric(float(row[key])) for key in ("gold", "value")],
         [f"{row['value'] - row['gold']:+.4f}"])
        for row in rows
    ]  # fmt: skip
    text = _largest(folder, "largest difference")
    return Listing(text, (["gold", "predicted"], ["difference"]), errors)


def _pairs(folder: RunFolder) -> Listing | None:
    if all("rank" in row for row in folder.rows):
        lost = [row for row in folder.rows if row["rank"] > 1]
        lost.sort(key=lambda row: (-row["rank"], row["value"]))
        ranked = [
            (row, [f"{row['rank']:,} of {row['pool_size']:,}"],
             [numbers.metric(float(row["value"]))])
            for row in lost
        ]  # fmt: skip
        text = _share(folder, len(lost), "rows do not rank their own pair first") + " Worst first."
        return Listing(text, (["rank of own pair"], ["cosine"]), ranked)
    known = [row for row in folder.rows if row.get("gold") is not None and "value" in row]
    if not known:
        return None
    # The scale of cosines is arbitrary, so their order is compared.
    gold, cosine = (mean_ranks([row[key] for row in known]) for key in ("gold", "value"))
    errors = [
        (known[i], [numbers.metric(float(known[i][key])) for key in ("gold", "value")],
         [f"{round(gold[i]):,}", f"{round(cosine[i]):,}"])
        for i in np.argsort(-np.abs(cosine - gold), kind="stable").tolist()
    ]  # fmt: skip
    text = _largest(folder, "largest difference of their ranks, lowest value first")
    return Listing(text, (["gold", "cosine"], ["rank by gold", "rank by cosine"]), errors)


def mean_ranks(values: list[float]) -> np.ndarray:
    """Ranks in ascending order from 1; equal values share their mean rank. float64 (N,)."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=float)


def _tagging(folder: RunFolder) -> Listing:
    found = [(row, *mistakes(row)) for row in folder.rows]
    wrong = [(row, missed, invented) for row, missed, invented in found if missed or invented]
    wrong.sort(key=lambda one: -len(one[1]) - len(one[2]))
    errors = [
        (row, [_entities(missed), _entities(invented)], [numbers.count(len(row["tags"]))])
        for row, missed, invented in wrong
    ]
    text = _share(folder, len(wrong), "sentences have a wrong entity")
    text += " Those with most errors first; words count from 1."
    return Listing(text, (["missed, at words", "spurious, at words"], ["words"]), errors)


def _entities(entities: list[Entity]) -> str:
    names = [
        f"{kind} {start + 1}" + (f"–{end}" if end > start + 1 else "")
        for kind, start, end in entities[:MOST_ENTITIES]
    ]
    if len(entities) > MOST_ENTITIES:
        names.append(f"and {len(entities) - MOST_ENTITIES} more")
    return ", ".join(names) or numbers.MISSING


def _questions(folder: RunFolder) -> Listing:
    scores = question_scores(folder.rows).tolist()
    wrong = [(f1, row) for (exact, f1), row in zip(scores, folder.rows, strict=True) if not exact]
    wrong.sort(key=lambda pair: (pair[0], -float(pair[1].get("score") or 0.0)))
    # Answers are texts of the data, so only their lengths are shown.
    errors = [
        (
            row,
            [
                f"{min(map(len, row['gold'])):,} characters" if row["gold"] else "none",
                f"{len(row['answer']):,} characters" if row["answer"] else "none",
            ],
            [
                numbers.percent(f1),
                numbers.MISSING if row.get("start") is None else f"{row['start']}–{row['end']}",
                numbers.metric(row.get("score")),
                numbers.metric(row.get("null_score")),
            ],
        )
        for f1, row in wrong
    ]
    text = _share(folder, len(wrong), "questions have no exact match")
    text += " Lowest F1 first, then the highest score."
    head = (["gold answer", "predicted answer"], ["F1", "predicted at", "score", "null score"])
    return Listing(text, head, errors)


def _choices(folder: RunFolder) -> Listing:
    def score(row: Prediction, key: str) -> float | None:
        return float(row["scores"][row[key]]) if row.get("scores") else None

    wrong = [row for row in folder.rows if row["choice"] != row["gold"]]
    wrong.sort(key=lambda row: score(row, "gold") or 0.0)
    keys = ("gold", "choice")
    errors = [
        (row, [str(row[key]) for key in keys], [numbers.metric(score(row, key)) for key in keys])
        for row in wrong
    ]
    text = _share(folder, len(wrong), "rows are wrong") + " Lowest score of the right answer first."
    head = (["right", "chosen"], ["score of right", "score of chosen"])
    return Listing(text, head, errors)


_LISTINGS: dict[str, Callable[[RunFolder], Listing | None]] = {
    "binary": _labels,
    "multiclass": _labels,
    "multilabel": _labels,
    "regression": _regression,
    "tagging": _tagging,
    "span_qa": _questions,
    "multiple_choice": _choices,
    "embedding": _pairs,
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
    except (
        InputError,
        ConfigError,
        FormatError,
        OSError,
        TypeError,
        ValueError,
        KeyError,
    ) as error:
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
    last = max(wanted, default=-1)
    for number, row in enumerate(read_task_rows(task, path, names)):
        if number > last:
            break
        prediction = wanted.get(number)
        if prediction is None:
            continue
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
