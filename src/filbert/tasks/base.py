"""What a task is: one file in this folder, whose module name is the task's name everywhere."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import filbert.tasks
from filbert.errors import ConfigError

# Names of types only: `filbert --help` reads the options through this module and must not wait for
# torch.
if TYPE_CHECKING:
    from torch import Tensor

    from filbert.data.columns import ColumnNames
    from filbert.data.examples import Example
    from filbert.data.records import Row
    from filbert.model.config import EncoderConfig
    from filbert.model.heads import Head
    from filbert.text.tokenizer import Tokenizer

Prediction = dict[str, Any]


class Column(NamedTuple):
    """A column that a row must or may hold."""

    name: str
    required: bool
    meaning: str


class Targets(NamedTuple):
    """What a loss needs: the wanted values, and their rows in the batch (None: all sequences)."""

    values: Tensor
    at: Tensor | None = None


@dataclass(frozen=True)
class TaskOptions:
    """What the user may say about the data of a task; a task ignores what does not concern it.

    Attributes:
        labels: the declared labels in order; None to take those of the training rows.
        label_columns: one 0/1 column per label, for multi-label data.
        positive: the positive class of a binary task; None for the second label.
        multilabel: each row may have several labels.
        class_weights: None, "balanced", or one weight per label.
    """

    labels: tuple[str, ...] | None = None
    label_columns: tuple[str, ...] | None = None
    positive: str | None = None
    multilabel: bool = False
    class_weights: str | tuple[float, ...] | None = None


class Task(Protocol):
    """Rows in, predictions and metrics out; trainer and predictor know nothing else of a task.

    A task is a value: `fit_labels` gives one that knows the labels, `calibrate` one that knows its
    thresholds. `to_dict` is what filbert.json keeps and `from_dict` reads back.
    """

    name: str
    columns: tuple[Column, ...]
    head_kind: str
    num_labels: int | None
    labels: tuple[str, ...] | None
    problem_type: str | None
    selection_metric: str
    metric_names: tuple[str, ...]

    @classmethod
    def from_options(cls, options: TaskOptions) -> Task:
        """A task before it has seen any row."""
        ...

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Task:
        """The task that a model folder describes."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to predict again: labels, thresholds, temperature."""
        ...

    def fit_labels(self, rows: Iterable[Row]) -> Task:
        """Learn the labels (and class weights) from the training rows.

        Raises:
            InputError: a row's label is not one of the declared ones, with file and line.
        """
        ...

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """Sequences of a list of rows; `Example.row` counts within the list.

        A list rather than one row, because the tokenizer works on all cores at once.
        """
        ...

    def head(self, config: EncoderConfig) -> Head:
        """A fresh head."""
        ...

    def targets(self, examples: Sequence[Example]) -> Targets:
        """What the loss compares with, for one micro-batch."""
        ...

    def count(self, targets: Targets) -> float:
        """How many losses this micro-batch holds: their sum over the batch is divided by it."""
        ...

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """The SUM of the losses, float32 scalar."""
        ...

    def decode(self, output: Tensor, examples: Sequence[Example]) -> list[Prediction]:
        """One prediction per row, in the shape of INTERFACE."""
        ...

    def labels_of(self, row: Row) -> list[str]:
        """The label names in a row, for counting; any name is allowed before `fit_labels`.

        Raises:
            InputError: a label is missing, malformed or not declared, with file and line.
        """
        ...

    def gold(self, row: Row) -> Any:
        """The wanted answer of a labelled row in the form that `metrics` takes.

        Raises:
            InputError: the label is unknown or malformed, with file and line.
        """
        ...

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The figures of INTERFACE."""
        ...

    def reading(self, names: ColumnNames) -> tuple[Task, ColumnNames]:
        """The task and the user's column names, settled to read labelled rows of a file.

        Raises:
            ConfigError: the names do not go with the task.
        """
        ...

    def with_labels_of(self, rows: Iterable[Row], predictions: Iterable[Mapping[str, Any]]) -> Task:
        """The task with the labels of rows and of predictions made elsewhere, unless declared.

        Raises:
            InputError: there are too few.
        """
        ...

    def check_prediction(self, prediction: Mapping[str, Any], where: str) -> Prediction:
        """A prediction made elsewhere, complete enough for `metrics`.

        Raises:
            InputError: what is missing or unknown, with file and line.
        """
        ...

    def calibrate(self, gold: Sequence[Any], outputs: Tensor) -> Task:
        """The same task with thresholds and temperature fitted on dev outputs, (rows, ...)."""
        ...


def task_names() -> list[str]:
    """The built-in tasks: the modules of this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(filbert.tasks.__path__) if m.name != "base")


def task_class(name: str) -> type[Task]:
    """The class called `name`: a built-in task, or `package.module:Class` for one from outside.

    Raises:
        ConfigError: no such task; the nearest name is given.
    """
    if ":" in name:
        module_name, _, class_name = name.partition(":")
        try:
            return getattr(importlib.import_module(module_name), class_name)  # type: ignore[no-any-return]
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"task {name!r} cannot be imported: {error}.") from error
    if name not in task_names():
        near = get_close_matches(name, task_names(), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"task {name!r} is not one of {task_names()}.{hint}")
    module = importlib.import_module(f"filbert.tasks.{name}")
    return module.TASK  # type: ignore[no-any-return]
