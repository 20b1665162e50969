"""Measure a model on labelled rows, or score predictions that were made elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from filbert.data.columns import ColumnNames
from filbert.data.records import Row, read_rows
from filbert.errors import ConfigError, InputError
from filbert.predict import Predictor
from filbert.tasks.base import Task


def evaluate_model(predictor: Predictor, path: str, names: ColumnNames) -> dict[str, Any]:
    """The task's metrics on the rows of a file.

    Raises:
        ConfigError: the model has no task head.
        InputError: a row is wrong, or a label is not one of the model's; with file and line.
    """
    task = predictor.task
    if task is None:
        raise ConfigError(
            "This model has no task head, so there is nothing to evaluate. Fine-tune it first."
        )
    task, names = task.reading(names)
    gold: list[Any] = []

    def passing() -> Iterator[Row]:
        for row in names.read(path):
            gold.append(task.gold(row))
            yield row

    predictions = list(predictor.predict_rows(passing()))
    return task.metrics(gold, predictions)


def score_predictions(
    task: Task, data: str, predictions: str, names: ColumnNames
) -> dict[str, Any]:
    """The task's metrics for predictions in the shape of INTERFACE, one JSON object a row.

    Raises:
        InputError: the files disagree, or a prediction lacks what the metrics need; with file and
            line.
    """
    rows = list(names.read(data))
    answers = list(read_rows(predictions))
    if len(answers) != len(rows):
        raise InputError(
            f"{predictions} holds {len(answers)} predictions for the {len(rows)} rows of {data}."
        )
    task = task.with_labels_of(rows, [answer.values for answer in answers])
    found = [task.check_prediction(answer.values, answer.where) for answer in answers]
    return task.metrics([task.gold(row) for row in rows], found)
