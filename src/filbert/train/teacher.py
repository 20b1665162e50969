"""The teacher of a task: read, checked against rows and student, and asked for its answers.

C labels, H width of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.data.labels import listed
from filbert.data.records import Row
from filbert.errors import ConfigError
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.speed.execution import run_model
from filbert.speed.precision import Precision
from filbert.tasks.base import Task, task_class

# What `Task.calibrate` fits on dev rows: the student's own dev rows decide it anew.
_FITTED = ("thresholds", "temperature", "null_threshold")
# Instead of logits for a word that the teacher's tokenizer drops: it calls it "O", without doubt.
_SURE = 20.0


@dataclass(frozen=True)
class TaskTeacher:
    """A fine-tuned model that a student learns from.

    Attributes:
        name: as the user called it.
        predictor: the model, its tokenizer and its own task, with thresholds.
        task: the student's: the same, without what was fitted on the teacher's dev rows.
    """

    name: str
    predictor: Predictor
    task: Task

    @property
    def model(self) -> Model:
        """Encoder and head, in eval mode."""
        assert isinstance(self.predictor.model, Model), "read by torch"
        return self.predictor.model


def read_teacher(name: str, *, task: str | None, precision: str, device: str) -> TaskTeacher:
    """Read a model and what it was trained for.

    Args:
        name: folder, built-in name or Hub id.
        task: what it must have been trained for, or None for anything.
        precision: its weights are in: float32 or bf16.
        device: where to.

    Raises:
        ConfigError: it was trained for no task, or for another one.
        InputError, FormatError: there is no such model, or it is damaged.
    """
    predictor = Predictor.load(name, precision=precision, device=device)
    if predictor.task is None:
        raise ConfigError(
            f"The teacher {name} was trained for no task, so it has no answers to learn. Fine-tune "
            "it first, or learn from raw text with --corpus."
        )
    if task is not None and task != predictor.task.name:
        raise ConfigError(
            f"The teacher {name} was trained for {predictor.task.name}, not for {task}. "
            "Take another teacher, or leave --task out."
        )
    described = {k: v for k, v in predictor.task.to_dict().items() if k not in _FITTED}
    return TaskTeacher(name, predictor, task_class(predictor.task.name).from_dict(described))


def check_labels(teacher: TaskTeacher, path: str, rows: Sequence[Row]) -> None:
    """Make sure that the teacher knows every label of some rows.

    Raises:
        ConfigError: it does not.
        InputError: a row has no label, or a malformed one; with file and line.
    """
    task: Any = teacher.task
    if task.labels is None:
        return
    known = set(getattr(task, "types", task.labels))
    blank = _blank(task)
    found = {label for row in rows for label in blank.labels_of(row)}
    if unknown := sorted(found - known):
        raise ConfigError(
            f"{path} holds the labels {listed(unknown)}, which the teacher {teacher.name} does not "
            f"know; it knows {listed(sorted(known))}. Take a teacher for these labels, or leave "
            "such rows out."
        )


def _blank(task: Any) -> Any:
    """The task before it knew any label."""
    content = {k: v for k, v in task.to_dict().items() if k not in ("labels", "positive")}
    return type(task).from_dict(content)


class StreamedAnswers:
    """A teacher's answers, computed when they are asked for.

    Args:
        teacher: whose.
        task: of both.
        own: the teacher's own examples of every row, where its vocabulary is another or it reads
            other lengths; None where it reads the student's.
    """

    def __init__(
        self, teacher: Predictor, task: Task, own: Mapping[int, Sequence[Example]] | None
    ) -> None:
        self.teacher = teacher
        self.task = task
        self.own = own

    def __call__(self, examples: Sequence[Example]) -> Tensor:
        """The answers to whole rows, one after the other; see `SoftLabels`."""
        return torch.cat(self.by_row(examples))

    def by_row(self, examples: Sequence[Example]) -> list[Tensor]:
        """The same, row by row.

        Returns:
            Float32 on the host: (1, C) for classification and regression; of the words, choices,
            tokens or texts of the row (n, C), (n,), (n, 2) or (n, H).
        """
        rows = [list(row) for _, row in groupby(examples, key=lambda example: example.row)]
        own = rows if self.own is None else [list(self.own[row[0].row]) for row in rows]
        pieces = iter(
            run_model(
                self.teacher.model,
                [example for row in own for example in row],
                max_tokens=self.teacher.max_tokens,
                precision=self.teacher.precision,
            )
        )
        return [
            self._answer([next(pieces) for _ in theirs], theirs, ours)
            for theirs, ours in zip(own, rows, strict=True)
        ]

    def _answer(
        self, pieces: list[Tensor], theirs: Sequence[Example], ours: Sequence[Example]
    ) -> Tensor:
        kind = self.task.head_kind
        if kind == "sequence":
            return torch.stack(pieces).mean(0, keepdim=True)
        if kind == "spans":
            return torch.cat(pieces)
        if kind != "tokens":
            return torch.stack(pieces)
        words = np.concatenate([example.source.words for example in ours])
        return self._by_word(pieces, theirs)[torch.from_numpy(words)]

    def _by_word(self, pieces: list[Tensor], examples: Sequence[Example]) -> Tensor:
        """(n, C) for all n words of a sentence, as `Tagging.decode` would judge them."""
        assert self.task.labels is not None
        leaders = examples[0].source.leaders
        table = torch.zeros(len(leaders), len(self.task.labels))
        if "O" in self.task.labels:
            table[:, self.task.labels.index("O")] = _SURE
        for piece, example in zip(pieces, examples, strict=True):
            shown = torch.from_numpy(example.source.words)
            table[shown] = piece[torch.from_numpy(example.source.rows)]
        led = torch.from_numpy(np.flatnonzero(leaders >= 0))
        table[led] = table[torch.from_numpy(leaders)[led]]
        return table


def exact_outputs(teacher: Predictor, examples: Sequence[Example]) -> list[Tensor]:
    """The teacher's outputs in float32, whatever its weights are in, for the final figures."""
    model = teacher.model
    if next(model.parameters()).dtype != torch.float32:
        assert teacher.checkpoint is not None
        head = model.head
        model = teacher.checkpoint.build().to(teacher.device)
        if teacher.checkpoint.head is None:
            model.head = head
    return run_model(
        model,
        examples,
        max_tokens=teacher.max_tokens,
        precision=Precision("float32", "final figures"),
    )
