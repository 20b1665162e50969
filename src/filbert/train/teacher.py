"""The teacher of a distillation on labelled rows, and its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from filbert.data.examples import Example, rows_of
from filbert.data.labels import listed
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.inference.forward import run_model
from filbert.inference.predictor import Predictor
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.tasks.base import Task, changed, task_from_dict, task_to_dict
from filbert.tasks.rows import row_labels
from filbert.tasks.soft_labels import by_row
from filbert.train.distill_options import StudentOptions

# Entries of a task that `calibrate` sets; the student is calibrated on its own dev rows.
_FITTED = ("thresholds", "temperature", "null_threshold")


@dataclass(frozen=True)
class TaskTeacher:
    """A fine-tuned model that a student learns from.

    Attributes:
        name: As the user named it.
        predictor: The model, its tokenizer and its task, with thresholds.
        task: The task of the student: the same, without calibration.
    """

    name: str
    predictor: Predictor
    task: Task

    @property
    def model(self) -> Model:
        """Encoder and head of the teacher, in eval mode."""
        assert isinstance(self.predictor.model, Model), "read by torch"
        return self.predictor.model


def read_teacher(options: StudentOptions, *, precision: str, device: str) -> TaskTeacher:
    """Read a teacher and its task.

    Args:
        options: Name the teacher, and the task that it must have been trained for.
        precision: Number format of its weights: float32 or bf16.
        device: The device to put it on.

    Raises:
        ConfigError: It was trained for no task, or for another one.
        InputError, FormatError: The model does not exist or is damaged.
    """
    name, task = options.teacher, options.task
    predictor = Predictor.load(name, precision=precision, device=device)
    if predictor.task is None:
        raise ConfigError(
            f"The teacher {name} was trained for no task, so it has no answers to learn. Fine-tune "
            "it first, or learn from raw text with --corpus."
        )
    if task is not None and task != predictor.task.spec.name:
        raise ConfigError(
            f"The teacher {name} was trained for {predictor.task.spec.name}, not for {task}. "
            "Take another teacher, or leave --task out."
        )
    described = {k: v for k, v in task_to_dict(predictor.task).items() if k not in _FITTED}
    return TaskTeacher(name, predictor, task_from_dict(type(predictor.task), described))


def check_labels(teacher: TaskTeacher, path: str, rows: Sequence[Row]) -> None:
    """Check that the teacher knows every label of some rows.

    Raises:
        ConfigError: It does not know a label.
        InputError: A row has no label or a malformed one; the message names file and line.
    """
    if teacher.task.spec.labels is None:
        return
    known = set(teacher.task.spec.row_format.known_labels(teacher.task.spec))
    blank = changed(teacher.task, labels=None, positive=None)
    found = {label for row in rows for label in row_labels(blank, row)}
    if unknown := sorted(found - known):
        raise ConfigError(
            f"{path} holds the labels {listed(unknown)}, which the teacher {teacher.name} does not "
            f"know; it knows {listed(sorted(known))}. Use a teacher for these labels, or leave "
            "such rows out."
        )


def teacher_answers(teacher: Predictor, task: Task, examples: Sequence[Example]) -> Tensor:
    """Compute the outputs of a teacher for whole rows, in the form of `soft_labels.by_row`.

    Args:
        teacher: The model, which reads the same tokens as the student.
        task: The task of teacher and student.
        examples: Of the student.

    Returns:
        Float32 on the CPU: (R, C) for classification and regression, with the windows of a row
        averaged; (S,) for choices; (K, C) for the words of tagging; (T, 2) for spans; (S, H) for
        vectors.
    """
    outputs = run_model(
        teacher.model, examples, max_tokens=teacher.max_tokens, precision=teacher.precision
    )
    kind = task.spec.head_kind
    if kind == "spans":
        return torch.cat(outputs)
    if kind == "tokens":
        pairs = zip(outputs, examples, strict=True)
        return torch.cat([output[torch.from_numpy(e.source.rows)] for output, e in pairs])
    return by_row(task, torch.stack(outputs), rows_of(examples))


def exact_outputs(teacher: Predictor, examples: Sequence[Example]) -> list[Tensor]:
    """Compute the outputs of the teacher in float32, for the final metrics."""
    model = teacher.model
    if next(model.parameters()).dtype != torch.float32:
        assert teacher.checkpoint is not None
        head = model.head
        model = teacher.checkpoint.build().to(teacher.device)
        if teacher.checkpoint.head is None:
            model.head = head
    precision = Precision("float32", "final metrics")
    return run_model(model, examples, max_tokens=teacher.max_tokens, precision=precision)
