"""Measure a model on labelled rows or text, or score predictions that were made elsewhere."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

from filbert.data.columns import ColumnNames
from filbert.data.records import Row, read_rows
from filbert.data.squad import read_no_answer_scores, read_predictions
from filbert.errors import ConfigError, InputError
from filbert.files import write_json
from filbert.inference.fill import has_masked_lm
from filbert.inference.masked_text import text_metrics
from filbert.inference.predictor import Predictor
from filbert.inference.stored_task import columns_of_training
from filbert.metrics.squad import metrics_by_id
from filbert.tasks.base import Task, TaskOptions, changed
from filbert.tasks.rows import complete_predictions, read_task_rows

log = logging.getLogger(__name__)

# A task, the expected answers and the predictions.
Answered = tuple[Task, list[Any], list[dict[str, Any]]]
Folder = str | os.PathLike[str] | None


def evaluate_model(
    predictor: Predictor,
    path: str,
    names: ColumnNames,
    out: Folder = None,
    *,
    options: TaskOptions | None = None,
    max_length: int | None = None,
    answers: list[Answered] | None = None,
) -> dict[str, Any]:
    """Return the task's metrics on the rows of a file, or those of filled masks on text.

    A question answering model that always answers may give "no answer" if some rows have none.

    Args:
        out: a folder for metrics.json and what else the task writes.
        max_length: of text, tokens of a row; those of the model's pre-training when not given.
        answers: gets what the metrics are computed from, if the model has a task.

    Raises:
        ConfigError: the model has neither a task head nor a masked-LM head.
        InputError: a row is wrong, or a label is not one of the model's; with file and line.
    """
    task = with_asked(predictor.task, options or TaskOptions())
    if task is None and has_masked_lm(predictor.model):
        return _kept(text_metrics(predictor, path, names.own("text"), max_length), {}, out)
    if task is None:
        raise ConfigError("This model has no task head to evaluate. Fine-tune it first.")
    names = columns_of_training(predictor.checkpoint, path, names)
    rows: Iterable[Row] = read_task_rows(task, path, names)
    if task.spec.always_answers:
        rows = list(rows)
        task = task.fit(rows)
        if not task.spec.always_answers:
            log.info(
                'Some questions have no answer: "no answer" is allowed, with null threshold 0 as '
                "in the official script. --null-threshold sets another."
            )
    predictor = copy(predictor)
    predictor.task = task
    gold: list[Any] = []

    def passing() -> Iterator[Row]:
        for row in rows:
            gold.append(task.gold(row))
            yield row

    predictions = list(predictor.predict_rows(passing()))
    num_cut = sum(bool(prediction.get("truncated")) for prediction in predictions)
    if num_cut:
        limit = predictor.max_length
        log.warning(
            f"{num_cut:,} of {len(predictions):,} rows have more than {limit} tokens and were cut"
        )
    if answers is not None:
        answers.append((task, gold, predictions))
    return _measured(task, gold, predictions, out)


def with_asked(task: Task | None, options: TaskOptions) -> Task | None:
    """Return the task of a model with another `positive` class; its predictions stay the same.

    With `repair_tags` its rows may have tags of other schemes, or broken ones.
    """
    positive = options.positive
    if options.repair_tags:
        if task is None or task.spec.row_format.name != "sentences":
            raise ConfigError("--repair-tags is for tagging, and this model tags nothing.")
        task = changed(task, repair_tags=True)
    if positive is None:
        return task
    if task is None or task.spec.positive is None:
        raise ConfigError(
            "--positive names one of two classes, and this model does not choose between two. "
            "Leave it out."
        )
    if positive == task.spec.positive:
        return task
    # A probability above a threshold is below the complement for the other class.
    thresholds = task.spec.thresholds and tuple(1 - t for t in task.spec.thresholds)
    return changed(task, positive=positive, thresholds=thresholds)


def score_predictions(
    task: Task,
    data: str,
    predictions: str,
    names: ColumnNames,
    out: Folder = None,
    null_odds: str | None = None,
    answers: list[Answered] | None = None,
) -> dict[str, Any]:
    """Return the task's metrics for predictions made elsewhere.

    Args:
        task: as the user described it; labels are taken from rows and predictions unless declared.
        predictions: JSON Lines in the order of the rows, or one JSON object from the rows' ids to
            answers.
        null_odds: with answers by id: SQuAD's JSON of how sure there is none, by the same ids.
        answers: gets what the metrics are computed from, unless it is answers by id.

    Raises:
        ConfigError: `null_odds` without answers by id.
        InputError: the two files disagree, or a prediction lacks what the metrics need; with file
            and line.
    """
    rows = list(read_task_rows(task, data, names))
    by_id = read_predictions(predictions) if task.spec.row_format.name == "questions" else None
    if by_id is not None:
        questions = [task.gold(row) for row in rows]
        odds = read_no_answer_scores(null_odds) if null_odds is not None else None
        return _kept(metrics_by_id(questions, by_id, odds), {}, out)
    if null_odds is not None:
        raise ConfigError("--null-odds is for predictions in one JSON object, id to answer.")
    others = list(read_rows(predictions))
    if len(others) != len(rows):
        raise InputError(
            f"{predictions} holds {len(others)} predictions for the {len(rows)} rows of {data}. "
            "Make one for each row."
        )
    for row, other in zip(rows, others, strict=True):
        _check_order(row, other)
    task, checked = complete_predictions(task, rows, others)
    gold = [task.gold(row) for row in rows]
    if answers is not None:
        answers.append((task, gold, checked))
    return _measured(task, gold, checked, out)


def _check_order(row: Row, answer: Row) -> None:
    """Refuse a prediction whose own id or text is of another row."""
    for key, what in (("id", "another id"), ("tokens", "other words")):
        own, predicted = row.values.get(key), answer.values.get(key)
        if own is None or predicted is None:
            continue
        if key == "tokens" and (isinstance(own, str) or isinstance(predicted, str)):
            continue
        if (list(own) != list(predicted)) if key == "tokens" else (str(own) != str(predicted)):
            raise InputError(
                f"{answer.where}: this prediction has {what} than {row.where}. Put the "
                "predictions in the order of the rows."
            )


def _measured(
    task: Task, gold: list[Any], predictions: list[dict[str, Any]], out: Folder
) -> dict[str, Any]:
    return _kept(
        task.metrics(gold, predictions), task.spec.row_format.official_files(gold, predictions), out
    )


def _kept(metrics: dict[str, Any], more: dict[str, dict[str, Any]], out: Folder) -> dict[str, Any]:
    """Return the same metrics, and write them with `more` to `out` if it is given."""
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        for name, content in ({"metrics.json": metrics} | more).items():
            write_json(Path(out, name), content)
    return metrics
