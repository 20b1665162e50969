"""The teacher of a distillation on labelled rows, and its outputs: computed or read from a cache.

C labels, H width of a vector.

A cache folder holds:

    manifest.json                 identifies the teacher and the rows
    answers-00000.safetensors     outputs of the first rows end to end, and where each row ends

A file appears only when it is complete, so an interrupted run continues after the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from filbert.data.examples import Example
from filbert.data.labels import listed
from filbert.data.records import Row
from filbert.errors import ConfigError, FormatError
from filbert.files import read_json, write_atomically, write_json
from filbert.inference.forward import run_model
from filbert.inference.predictor import Predictor
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.tasks.base import Task, changed, task_from_dict, task_to_dict
from filbert.tasks.rows import row_labels
from filbert.train.distill_options import StudentOptions
from filbert.train.log import progress_bar

# Entries of a task that `calibrate` sets; the student is calibrated on its own dev rows.
_FITTED = ("thresholds", "temperature", "null_threshold")
# Logit of "O" for a word that the tokenizer of the teacher drops.
_SURE = 20.0
_ROWS_PER_FILE = 2_048
_MANIFEST = "manifest.json"


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


class StreamedAnswers:
    """Outputs of a teacher, computed when they are needed.

    Args:
        teacher: The model.
        task: The task of teacher and student.
        own: Examples of every row in tokens of the teacher; None if both read the same tokens.
    """

    def __init__(
        self, teacher: Predictor, task: Task, own: Mapping[int, Sequence[Example]] | None
    ) -> None:
        self.teacher = teacher
        self.task = task
        self.own = own

    def __call__(self, examples: Sequence[Example]) -> Tensor:
        """Return the outputs for whole rows, joined; see `SoftLabels`."""
        return torch.cat(self.by_row(examples))

    def by_row(self, examples: Sequence[Example]) -> list[Tensor]:
        """Return the outputs by row.

        Returns:
            Float32 on the CPU: (1, C) for classification and regression. For the n words, choices,
            tokens or texts of a row (n, C), (n,), (n, 2) or (n, H).
        """
        rows = _rows(examples)
        own = rows if self.own is None else [list(self.own[row[0].row]) for row in rows]
        outputs = iter(
            run_model(
                self.teacher.model,
                [example for row in own for example in row],
                max_tokens=self.teacher.max_tokens,
                precision=self.teacher.precision,
            )
        )
        return [
            self._answer([next(outputs) for _ in theirs], theirs, ours)
            for theirs, ours in zip(own, rows, strict=True)
        ]

    def _answer(
        self, outputs: list[Tensor], theirs: Sequence[Example], ours: Sequence[Example]
    ) -> Tensor:
        kind = self.task.spec.head_kind
        if kind == "sequence":
            return torch.stack(outputs).mean(0, keepdim=True)
        if kind == "spans":
            return torch.cat(outputs)
        if kind != "tokens":
            return torch.stack(outputs)
        words = np.concatenate([example.source.words for example in ours])
        return self._by_word(outputs, theirs)[torch.from_numpy(words)]

    def _by_word(self, outputs: list[Tensor], examples: Sequence[Example]) -> Tensor:
        """Return (n, C) logits for all n words of a sentence, as `Tagging.decode` reads them."""
        labels = self.task.spec.labels
        assert labels is not None
        leaders = examples[0].source.leaders
        table = torch.zeros(len(leaders), len(labels))
        if "O" in labels:
            table[:, labels.index("O")] = _SURE
        for output, example in zip(outputs, examples, strict=True):
            words, rows = (torch.from_numpy(a) for a in (example.source.words, example.source.rows))
            table[words] = output[rows]
        led = torch.from_numpy(np.flatnonzero(leaders >= 0))
        table[led] = table[torch.from_numpy(leaders)[led]]
        return table


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


class CachedAnswers:
    """Outputs of a teacher for all rows of a run, in a folder.

    Args:
        folder: Need not exist.
        key: Identifies teacher and rows.
        examples: Examples of all rows; row numbers start at 0.

    Raises:
        ConfigError: The folder holds something else.
    """

    def __init__(self, folder: Path, key: str, examples: Sequence[Example]) -> None:
        self.folder = folder
        self._examples = examples
        rows = examples[-1].row + 1
        self._manifest = {"key": key, "rows": rows, "rows_per_file": _ROWS_PER_FILE}
        self._open: dict[int, tuple[Any, list[int]]] = {}
        self._check()

    def _check(self) -> None:
        manifest = self.folder / _MANIFEST
        if manifest.is_file():
            if read_json(manifest) != self._manifest:
                raise ConfigError(
                    f"{self.folder} holds the answers of another teacher, or to other rows or "
                    "lengths. Name another folder with --cache, or delete that one."
                )
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ConfigError(
                f"{self.folder} holds something else; name a new folder with --cache."
            )

    def write(self, answers: StreamedAnswers) -> None:
        """Write the files that do not exist yet.

        Raises:
            ConfigError: The folder holds something else by now.
            InputError: The disk is full, or the folder cannot be created.
        """
        self._check()
        rows = _rows(self._examples)
        assert [row[0].row for row in rows] == [*range(len(rows))]
        if not (self.folder / _MANIFEST).is_file():
            write_json(self.folder / _MANIFEST, self._manifest)
        with progress_bar() as bar:
            task = bar.add_task("teacher's answers", total=len(rows))
            for start in range(0, len(rows), _ROWS_PER_FILE):
                part = rows[start : start + _ROWS_PER_FILE]
                path = self._file(start)
                if not path.is_file():
                    outputs = answers.by_row([example for row in part for example in row])
                    ends = torch.tensor([len(output) for output in outputs]).cumsum(0)
                    content = {"answers": torch.cat(outputs).contiguous(), "ends": ends}
                    write_atomically(path, safetensors.torch.save(content))
                bar.update(task, advance=len(part))

    def __call__(self, examples: Sequence[Example]) -> Tensor:
        """Return the outputs for whole rows, joined; see `SoftLabels`.

        Raises:
            FormatError: A file is missing or damaged.
        """
        return torch.cat([self._read(row[0].row) for row in _rows(examples)])

    def _read(self, row: int) -> Tensor:
        inside = row % _ROWS_PER_FILE
        start = row - inside
        path = self._file(start)
        try:
            if start not in self._open:
                file: Any = safe_open(path, "pt")
                self._open[start] = (file.get_slice("answers"), file.get_tensor("ends").tolist())
            answers, ends = self._open[start]
            return answers[ends[inside - 1] if inside else 0 : ends[inside]]  # type: ignore[no-any-return]
        except (OSError, SafetensorError, IndexError) as error:
            raise FormatError(
                f"{path}: the teacher's answers cannot be read: {error}. Delete the file, and they "
                "are computed again."
            ) from error

    def _file(self, first_row: int) -> Path:
        return self.folder / f"answers-{first_row // _ROWS_PER_FILE:05d}.safetensors"


def _rows(examples: Sequence[Example]) -> list[list[Example]]:
    return [list(row) for _, row in groupby(examples, key=lambda example: example.row)]
