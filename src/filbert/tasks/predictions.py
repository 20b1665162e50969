"""Predictions in files: what filbert writes next to them, and those that other programs made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from filbert.data import tags as schemes
from filbert.data.labels import complete_answer, has_list, label_order, listed
from filbert.data.pairs import complete_pair
from filbert.data.records import Row
from filbert.data.texts import choices_of, counted, whole_number
from filbert.errors import InputError, printable
from filbert.tasks.base import Prediction, Task, TaskSpec, changed
from filbert.tasks.regression import score_in
from filbert.tasks.rows import class_labels, known_labels

# Written files


def gold_json(task: Task, gold: Any) -> Any:
    """The expected answer of a row for JSON: label names, a number, tags or answers."""
    spec = task.spec
    if spec.row_format == "labelled":
        labels = spec.labels or ()
        if isinstance(gold, np.ndarray):
            return [label for label, has in zip(labels, gold, strict=True) if has]
        return labels[gold]
    if spec.row_format == "sentences":
        return gold.tags
    if spec.row_format == "questions":
        return list(gold.answers)
    return gold


def official_files(
    task: Task, gold: Sequence[Any], predictions: Sequence[Prediction]
) -> dict[str, dict[str, Any]]:
    """Further JSON files by name: for questions those of run_squad.py, as far as known."""
    if task.spec.row_format != "questions":
        return {}
    pairs = [(g.id, p) for g, p in zip(gold, predictions, strict=True)]
    logits = ("text", "start_logit", "end_logit")
    return {
        "predictions.json": {id: p["answer"] for id, p in pairs},
        "nbest_predictions.json": {
            id: [{k: e[k] for k in logits} | {"probability": e["score"]} for e in p["nbest"]]
            for id, p in pairs
            if "nbest" in p
        },
        "null_odds.json": {
            id: p["null_score"] for id, p in pairs if p.get("null_score") is not None
        },
    }


# Predictions of other programs


def complete_predictions(
    task: Task, rows: Sequence[Row], answers: Sequence[Row]
) -> tuple[Task, list[Prediction]]:
    """Make predictions of other programs complete enough for `metrics`.

    Args:
        task: without labels, unless the user declared them.
        rows: labelled.
        answers: the prediction for each of the rows, with file and line.

    Returns:
        The task with the labels of rows and predictions, and the predictions.

    Raises:
        InputError: what is missing or unknown, with file and line, or too few labels.
    """
    task = _with_labels(task, rows, answers)
    pairs = zip(rows, answers, strict=True)
    complete = _COMPLETE[task.spec.row_format]
    return task, [complete(task.spec, row, answer.values, answer.where) for row, answer in pairs]


def _with_labels(task: Task, rows: Sequence[Row], answers: Sequence[Row]) -> Task:
    spec = task.spec
    if spec.row_format == "labelled" and spec.labels is None:
        multilabel = spec.multilabel or any(map(has_list, rows))
        classes = {label for row in rows for label in class_labels(spec, row)}
        for answer in answers:
            scores = answer.values.get("scores")
            classes |= {str(label) for label in scores} if isinstance(scores, dict) else set()
        if len(classes) < 2 and not multilabel:
            raise InputError(
                f"Rows and predictions name {len(classes)} label; name all of them with --labels."
            )
        return changed(task, labels=sorted(classes, key=label_order), multilabel=multilabel)
    if spec.row_format == "sentences" and spec.labels is None:
        types, alone = schemes.kinds_in(map(task.gold, rows))
        for answer in answers:
            types |= schemes.types_in(schemes.check_answer(answer.values, answer.where))
        return changed(task, labels=schemes.tag_names(sorted(types), alone=alone))
    # The scale of the scores, or the number of choices.
    if spec.row_format in ("pairs", "choices") and not spec.whole_batch:
        return task.fit(rows)
    return task


def _complete_classes(
    spec: TaskSpec, row: Row, prediction: Mapping[str, Any], where: str
) -> Prediction:
    """All `scores`; a prediction without scores has probability 1 for its label."""
    return complete_answer(prediction, where, spec.labels or (), multilabel=spec.multilabel)


def _complete_score(
    spec: TaskSpec, row: Row, prediction: Mapping[str, Any], where: str
) -> Prediction:
    """`value` as a float."""
    if "value" not in prediction:
        raise InputError(f"{where}: a prediction needs 'value', a number.")
    score = score_in(prediction["value"])
    if score is None:
        value = printable(repr(prediction["value"]), 40)
        raise InputError(f"{where}: the value {value} is not a number.")
    return {"value": score}


def _complete_pair(
    spec: TaskSpec, row: Row, prediction: Mapping[str, Any], where: str
) -> Prediction:
    return complete_pair(prediction, where)


def _complete_tags(
    spec: TaskSpec, row: Row, prediction: Mapping[str, Any], where: str
) -> Prediction:
    """`tags` (of any scheme), or `entities` by offsets."""
    answer = schemes.check_answer(prediction, where)
    types = known_labels(spec)
    unknown = sorted(schemes.types_in(answer) - set(types))
    if unknown:
        raise InputError(f"{where}: entity type {unknown[0]!r} is not one of {listed(types)}.")
    return answer


def _complete_span(
    spec: TaskSpec, row: Row, prediction: Mapping[str, Any], where: str
) -> Prediction:
    """`answer` (or `prediction_text`) and maybe `null_score` (or `no_answer_probability`)."""
    answer = prediction.get("answer", prediction.get("prediction_text"))
    if not isinstance(answer, str):
        raise InputError(
            f'{where}: a prediction needs "answer" (or "prediction_text"), a text; "" says '
            "that there is no answer."
        )
    score = prediction.get("null_score", prediction.get("no_answer_probability"))
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise InputError(f'{where}: "null_score" is not a number.')
    if score is not None and not np.isfinite(score):
        raise InputError(f'{where}: "null_score" is {score}; give a finite number.')
    known = {"answer": answer} | ({} if score is None else {"null_score": float(score)})
    return {**prediction, **known}


def _complete_choice(
    spec: TaskSpec, row: Row, prediction: Mapping[str, Any], where: str
) -> Prediction:
    """`choice` and `scores`; a missing choice is the one with the highest score."""
    count = len(choices_of(row))
    choice, scores = prediction.get("choice"), prediction.get("scores")
    if choice is None and scores is None:
        raise InputError(f"{where}: a prediction needs 'choice', 'scores', or both.")
    if scores is not None:
        scores = _probabilities(scores, count, where)
        choice = scores.index(max(scores)) if choice is None else choice
    number = whole_number(choice)
    if number is None or not 0 <= number < count:
        raise InputError(f"{where}: the choice is not a number from 0 to {count - 1}.")
    return {"choice": number, "scores": scores}


def _probabilities(scores: Any, count: int, where: str) -> list[float]:
    try:
        values = [float(score) for score in scores]
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: the scores are not a list of numbers.") from error
    if len(values) != count:
        raise InputError(f"{where}: {len(values)} scores for {counted(count)}.")
    if not all(0.0 <= value <= 1.0 for value in values):
        raise InputError(f"{where}: a score is not a probability from 0 to 1.")
    return values


_COMPLETE = {
    "labelled": _complete_classes,
    "scored": _complete_score,
    "pairs": _complete_pair,
    "sentences": _complete_tags,
    "questions": _complete_span,
    "choices": _complete_choice,
}
