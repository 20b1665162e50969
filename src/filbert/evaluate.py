"""Measure a model on labelled rows, or score predictions that were made elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filbert.data.columns import ColumnNames
from filbert.data.records import Row, read_rows
from filbert.data.squad import read_no_answer_scores, read_predictions
from filbert.errors import ConfigError, InputError
from filbert.formats.files import write_json
from filbert.predict import Predictor
from filbert.tasks.base import Task
from filbert.tasks.span_qa import SpanQA


def evaluate_model(
    predictor: Predictor, path: str, names: ColumnNames, out: Path | None = None
) -> dict[str, Any]:
    """The task's metrics on the rows of a file.

    Args:
        predictor: of a model with a task.
        path: of the labelled rows.
        names: of its columns.
        out: a folder for metrics.json and what else the task writes.

    Raises:
        ConfigError: the model has no task head.
        InputError: a row is wrong, or a label is not one of the model's; with file and line.
    """
    if predictor.task is None:
        raise ConfigError(
            "This model has no task head, so there is nothing to evaluate. Fine-tune it first."
        )
    task = predictor.task.reading(names)
    gold: list[Any] = []

    def passing() -> Iterator[Row]:
        for row in task.read(path, names):
            gold.append(task.gold(row))
            yield row

    predictions = list(predictor.predict_rows(passing()))
    return _measured(task, gold, predictions, out)


def score_predictions(
    task: Task,
    data: str,
    predictions: str,
    names: ColumnNames,
    out: Path | None = None,
    null_odds: str | None = None,
) -> dict[str, Any]:
    """The task's metrics for predictions made elsewhere.

    Args:
        task: as the user described it; labels are taken from rows and predictions unless declared.
        data: the labelled rows.
        predictions: JSON Lines in the order of the rows, or one JSON object from the rows' ids to
            answers.
        names: the columns of `data`.
        out: a folder for metrics.json and what else the task writes.
        null_odds: with answers by id: SQuAD's JSON of how sure there is none, by the same ids.

    Raises:
        ConfigError: `null_odds` without answers by id.
        InputError: the two files disagree, or a prediction lacks what the metrics need; with file
            and line.
    """
    rows = list(task.read(data, names))
    by_id = read_predictions(predictions) if isinstance(task, SpanQA) else None
    if isinstance(task, SpanQA) and by_id is not None:
        questions = [task.gold(row) for row in rows]
        odds = read_no_answer_scores(null_odds) if null_odds is not None else None
        metrics = task.metrics_by_id(questions, by_id, odds)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            write_json(out / "metrics.json", metrics)
        return metrics
    if null_odds is not None:
        raise ConfigError("--null-odds goes with predictions in one JSON object, id to answer.")
    answers = list(read_rows(predictions))
    if len(answers) != len(rows):
        raise InputError(
            f"{predictions} holds {len(answers)} predictions for the {len(rows)} rows of {data}. "
            "Make one for each row."
        )
    task = task.with_labels_of(rows, [answer.values for answer in answers])
    checked = [task.check_prediction(answer.values, answer.where) for answer in answers]
    return _measured(task, [task.gold(row) for row in rows], checked, out)


def _measured(
    task: Task, gold: list[Any], predictions: list[dict[str, Any]], out: Path | None
) -> dict[str, Any]:
    metrics = task.metrics(gold, predictions)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in ({"metrics.json": metrics} | task.files(gold, predictions)).items():
            write_json(out / name, content)
    return metrics
