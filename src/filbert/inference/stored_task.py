"""What a model folder records about its use: task, text length, columns."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import find_model, is_google, read_tokenizer
from filbert.checkpoints.sentence_transformers import SentenceVectors, score_activation
from filbert.data.columns import INPUT_COLUMNS, ColumnNames
from filbert.errors import ConfigError, FormatError, printable
from filbert.files import read_json
from filbert.tasks.base import Task, changed, task_class, task_from_dict, task_names
from filbert.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


def task_of(
    checkpoint: Checkpoint, folder: Path, null_threshold: float | None = None
) -> Task | None:
    """Return the task that filbert.json describes, else the one that a Hugging Face config implies.

    Questions with a null score above `null_threshold` get no answer.

    Raises:
        FormatError: filbert.json describes no built-in task, or other labels than config.json.
        ConfigError: `null_threshold` is not a finite number, or given for another task.
    """
    task = _described(checkpoint, folder)
    if null_threshold is None:
        return task
    if task is None or task.spec.row_format.name != "questions":
        raise ConfigError(
            "null_threshold is for question answering (span_qa), and this model has another task "
            "or none. Leave it out."
        )
    try:
        return changed(task, has_unanswerable=True, null_threshold=null_threshold)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def _described(checkpoint: Checkpoint, folder: Path) -> Task | None:
    recorded = (checkpoint.filbert or {}).get("task")
    stored = recorded or _implied(checkpoint, folder)
    if stored is None:
        return None
    try:
        # A folder may name a built-in task only: a module of its choosing must never be imported.
        if stored["name"] not in task_names():
            raise ValueError(f"{stored['name']!r} is not one of {task_names()}")
        task = task_from_dict(task_class(stored["name"]), stored)
        spec = task.spec
        if spec.head_kind in ("sequence", "tokens") and spec.num_labels is None:
            raise ValueError("it names no labels")
        if None not in (checkpoint.labels, spec.labels) and spec.labels != checkpoint.labels:
            raise ValueError(f"its labels {spec.labels} are not those of config.json")
        if spec.head_kind != checkpoint.head:
            raise ValueError(f"{spec.name} needs the head {spec.head_kind!r}")
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = printable(str(error).rstrip("."), 300)
        if recorded is None:
            # The encoder can be used without a task.
            log.warning("%s: no task, since %s", folder / "config.json", reason)
            return None
        path = folder / "filbert.json"
        raise FormatError(f"{path}: the task cannot be read: {reason}.") from error
    return task


def _implied(checkpoint: Checkpoint, folder: Path) -> dict[str, Any] | None:
    """Return what a head and its labels imply about the task, in the form of `Task.to_dict`."""
    labels, problem = checkpoint.labels, checkpoint.problem_type
    if checkpoint.head == "tokens":
        return {"name": "tagging", "labels": labels} if labels is not None else None
    if checkpoint.head in ("spans", "choices"):
        return {"name": "span_qa" if checkpoint.head == "spans" else "multiple_choice"}
    if checkpoint.head != "sequence" or labels is None:
        return None
    multilabel = problem == "multi_label_classification"
    # One output without a problem type means regression, as in transformers.
    if problem == "regression" or (len(labels) == 1 and not multilabel):
        if len(labels) > 1:
            return None
        activation = None if is_google(folder) else score_activation(folder)
        return {"name": "regression", "activation": activation or "Identity"}
    task = {"name": "classification", "labels": labels, "multilabel": multilabel}
    return task | {"declared": True}


def as_model_reads(model: str, task: Task, *, keeps_cleaning: bool) -> tuple[Tokenizer, Task]:
    """Return a model's tokenizer, and the task with its cleaning unless the task keeps its own."""
    place = find_model(model)
    path, tokenizer = place / "filbert.json", read_tokenizer(place)
    if keeps_cleaning or not task.spec.cleans or not path.is_file():
        return tokenizer, task
    stored = read_json(path).get("task")
    try:
        clean = stored.get("clean") if isinstance(stored, dict) else None
        return tokenizer, changed(task, clean=clean)
    except ConfigError as error:
        raise FormatError(f"{path}: {error}") from error


def columns_of_training(
    checkpoint: Checkpoint, path: str | Path, names: ColumnNames
) -> ColumnNames:
    """Return names of columns; where the user gave none, those of training if the file has them."""
    return names.or_recorded((checkpoint.filbert or {}).get("options"), path)


def as_standard_columns(checkpoint: Checkpoint, row: Any) -> Any:
    """Return a row with the standard names for the text columns of training that it has.

    What is no mapping is returned as it is.
    """
    if not isinstance(row, dict):
        return row
    names = ColumnNames.recorded((checkpoint.filbert or {}).get("options"))
    own = {name: names.given(name) for name in INPUT_COLUMNS}
    return row | {name: row[column] for name, column in own.items() if column in row}


def stored_max_length(checkpoint: Checkpoint, folder: Path, vectors: SentenceVectors) -> int | None:
    """Return the tokens that texts are truncated to by filbert.json, else by `vectors`, if any."""
    limit = (checkpoint.filbert or {}).get("max_length")
    try:
        checkpoint.config.check_max_length(limit)
    except ConfigError as error:
        raise FormatError(f"{folder / 'filbert.json'}: {error}") from error
    if limit is None and vectors.max_length is not None:
        limit = min(vectors.max_length, checkpoint.config.max_tokens_per_sequence)
    return limit
