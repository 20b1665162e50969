"""What a model folder says about its use: the task it was trained for, and how long texts are."""

from __future__ import annotations

import logging
from pathlib import Path
from reprlib import repr as short
from typing import Any

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, FormatError, printable
from filbert.files import read_json
from filbert.model.config import EncoderConfig
from filbert.model.precision import Precision
from filbert.tasks.base import Task, changed, task_class, task_from_dict, task_names
from filbert.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

# The most that "auto" may change any metric on the dev rows, up or down: 0.3 points.
AUTO_MAY_CHANGE = 0.003


def task_of(
    checkpoint: Checkpoint, folder: Path, null_threshold: float | None = None
) -> Task | None:
    """The task that filbert.json describes, else the one a Hugging Face config implies.

    Args:
        checkpoint: the model.
        folder: where it is, for messages.
        null_threshold: allows "no answer" to questions, where the null score is above it.

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
    stored = recorded or _implied(checkpoint)
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
            # The encoder is of use all the same.
            log.warning("%s: no task, since %s", folder / "config.json", reason)
            return None
        raise FormatError(
            f"{folder / 'filbert.json'}: the task cannot be read: {reason}."
        ) from error
    return task


def as_model_reads(model: str, task: Task, *, keeps_cleaning: bool) -> tuple[Tokenizer, Task]:
    """Return a model's tokenizer, and the task with the model's cleaning unless it keeps its own.

    Raises:
        InputError, FormatError: there is no such model, or it cannot be read.
    """
    place = find_model(model)
    return read_tokenizer(place), task if keeps_cleaning else with_cleaning_of(task, place)


def with_cleaning_of(task: Task, folder: Path) -> Task:
    """The task with the cleaning of the model in a folder, where the task can clean texts.

    Raises:
        FormatError: filbert.json cannot be read, or names an unknown cleaning step.
    """
    path = folder / "filbert.json"
    if not task.spec.cleans or not path.is_file():
        return task
    stored = read_json(path).get("task")
    try:
        return changed(task, clean=stored.get("clean") if isinstance(stored, dict) else None)
    except ConfigError as error:
        raise FormatError(f"{path}: {error}") from error


def keeping_answers(fast: Precision, checkpoint: Checkpoint, task: Task | None) -> Precision:
    """What "auto" takes of a model: bf16 only where its answers have been seen to bear it.

    Vectors and masked words move by what docs/precision.md says; answers may change sides.

    Args:
        fast: the faster format on this machine.
        checkpoint: whose filbert.json has what bf16 does to the dev rows (`train.measure`).
        task: what the head answers; None where it answers nothing.
    """
    if fast.name != "bf16" or task is None:
        return fast
    found = _found(checkpoint, "bf16_loss")
    if found is None:
        reason = "the cost of bf16 for this model's answers was not measured"
    elif not found["loss"] <= AUTO_MAY_CHANGE:  # NaN is no promise either
        points, metric = 100 * found["loss"], found.get("metric")
        reason = f"bf16 costs {points:.2f} points of {metric} on its dev rows"
    elif not found["change"] <= AUTO_MAY_CHANGE:
        reason = f"bf16 moves a metric by {100 * found['change']:.2f} points on its dev rows"
    else:
        return fast
    log.info("precision auto: float32, since %s", printable(reason, 200))
    return Precision("float32", reason)


def _found(checkpoint: Checkpoint, name: str) -> dict[str, Any] | None:
    """What training noted on a precision, with its `loss` and `change`; None without such a note.

    Earlier versions wrote the fall alone.
    """
    noted = (checkpoint.filbert or {}).get(name)
    if not isinstance(noted, dict) or not isinstance(noted.get("loss"), int | float):
        return None
    change = noted.get("change")
    return noted | {"change": change if isinstance(change, int | float) else abs(noted["loss"])}


def int8_warning(
    precision: Precision, checkpoint: Checkpoint | None, task: Task | None
) -> str | None:
    """Return a warning if int8 is known to cost accuracy, or if its cost was not measured.

    Args:
        precision: that the model runs in.
        checkpoint: whose filbert.json holds what training, a conversion to int8 or an export found.
        task: what the head answers; None where it answers nothing.
    """
    provenance = (checkpoint.filbert if checkpoint is not None else None) or {}
    exported = provenance.get("onnx")
    if isinstance(exported, dict):
        if task is not None and exported.get("precision") == "int8" and "data" not in exported:
            return "int8 was not compared with float32 on labelled rows: filbert export --data FILE"
        return None
    if precision.name != "int8" or task is None or isinstance(provenance.get("int8"), dict):
        return None
    found = None if checkpoint is None else _found(checkpoint, "int8_loss")
    if found is None:
        return (
            "int8 was not compared with float32 on labelled rows: "
            "filbert convert --to int8 --data FILE compares them"
        )
    if found["loss"] <= AUTO_MAY_CHANGE:
        return None
    cost = f"{100 * found['loss']:.2f} points of {printable(str(found.get('metric')), 50)}"
    return (
        f"int8 costs {cost} on the dev rows of its training: filbert convert --to int8 chooses "
        "layers that stay float32"
    )


def _implied(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """What a head and its labels say about the task, as `Task.to_dict` would."""
    labels, problem = checkpoint.labels, checkpoint.problem_type
    if checkpoint.head == "tokens":
        return {"name": "tagging", "labels": labels} if labels is not None else None
    if checkpoint.head in ("spans", "choices"):
        return {"name": "span_qa" if checkpoint.head == "spans" else "multiple_choice"}
    if checkpoint.head != "sequence" or labels is None:
        return None
    multilabel = problem == "multi_label_classification"
    # One output without a word on the problem means regression, as in transformers.
    if problem == "regression" or (len(labels) == 1 and not multilabel):
        return {"name": "regression"} if len(labels) == 1 else None
    task = {"name": "classification", "labels": labels, "multilabel": multilabel}
    return task | {"declared": True}


def columns_of_training(
    checkpoint: Checkpoint | None, path: str | Path, names: ColumnNames
) -> ColumnNames:
    """Return names of columns; where the user gave none, those of training if the file has them.

    Args:
        checkpoint: The model, whose filbert.json records its options.
        path: The file that is to be read.
        names: The user's names.
    """
    options = (checkpoint and checkpoint.filbert or {}).get("options")
    if not isinstance(options, dict):
        return names
    # The folder may come from another source, so only texts and lists of texts are taken.
    sound = {
        name: value
        for name, value in options.items()
        if isinstance(value, str)
        or (isinstance(value, list) and all(isinstance(item, str) for item in value))
    }
    return names.or_recorded(sound, path)


def stored_max_length(checkpoint: Checkpoint, folder: Path) -> int | None:
    """The length that filbert.json says texts are cut to, in tokens; None without a word on it.

    Raises:
        FormatError: the position table does not serve it.
    """
    limit = (checkpoint.filbert or {}).get("max_length")
    if limit is not None and not _fits(limit, checkpoint.config):
        raise FormatError(
            f"{folder / 'filbert.json'}: max_length is {short(limit)}, not in "
            f"3..{checkpoint.config.max_tokens_per_sequence}, what this model serves."
        )
    return limit


def _fits(max_length: object, config: EncoderConfig) -> bool:
    return isinstance(max_length, int) and 3 <= max_length <= config.max_tokens_per_sequence


def check_max_length(max_length: int | None, config: EncoderConfig) -> int | None:
    """The same number, if the position table serves it.

    Raises:
        ConfigError: it does not.
    """
    positions = config.max_tokens_per_sequence
    if max_length is not None and not _fits(max_length, config):
        raise ConfigError(
            f"max_length {max_length!r} is not in 3..{positions}, what this model serves."
        )
    return max_length
