"""What a task is: one file in this folder, whose module name is the task's name everywhere."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import filbert.tasks
from filbert.errors import ConfigError
from filbert.text.clean import Cleaning

# Names of types only: `filbert --help` reads the options through this module and must not wait for
# torch.
if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import Tensor

    from filbert.data.columns import ColumnNames
    from filbert.data.doctor import Finding
    from filbert.data.examples import Example
    from filbert.data.records import Row
    from filbert.data.streams import OnError
    from filbert.text.tokenizer import Text, Tokenizer

Prediction = dict[str, Any]
# Names of tasks in other programs that a search for similar spellings would not find.
_ELSEWHERE = {
    "ner": "tagging", "token-classification": "tagging", "pos": "tagging",
    "qa": "span_qa", "question-answering": "span_qa", "squad": "span_qa",
    "sentiment": "classification", "text-classification": "classification",
    "swag": "multiple_choice", "similarity": "embedding", "sts": "embedding",
}  # fmt: skip

# Modules of this folder that are no tasks on labelled rows.
_NO_TASKS = {"base", "rows", "pretraining", "distillation"}


class Targets(NamedTuple):
    """What a loss needs.

    Attributes:
        values: the wanted values.
        at: rows of the batch that the head shall answer for, int64 (K,); None for all sequences.
        groups: how many sequences (or tokens) belong together, in order, as Python integers on the
            host: the windows or choices of a row, the tokens of a sequence.
        pair: what a pair objective wants of every sequence, int64 (S,).
        are_seen: the model is handed `values` too, after `at`: a generator's samples are compared
            with them.
        labels: targets of the rows' labels, where a student learns from a teacher too.
    """

    values: Tensor
    at: Tensor | None = None
    groups: tuple[int, ...] | None = None
    pair: Tensor | None = None
    are_seen: bool = False
    labels: Targets | None = None

    def to(self, device: torch.device) -> Targets:
        """The same with all tensors on `device`."""
        at = None if self.at is None else self.at.to(device)
        pair = None if self.pair is None else self.pair.to(device)
        labels = None if self.labels is None else self.labels.to(device)
        return self._replace(values=self.values.to(device), at=at, pair=pair, labels=labels)


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What the user may say about a task; a task ignores what does not concern it.

    Attributes:
        labels: the labels in order; those of the training rows when not given.
        positive: the positive class of two; the second label when not given.
        multilabel: each row has any number of labels.
        class_weights: balanced, or one number per label between commas.
        on_overflow: what to do with texts that are too long: error, truncate, head-tail (keep the
            beginning and the end) or window (read all of it in overlapping pieces).
        stride: tokens from the start of one window to the start of the next.
        clean: study, or names of cleaning steps between commas: what texts go through before they
            become tokens, in training and whenever the model is used; see docs/cleaning.md.
        max_question_length: tokens that are kept of a question.
        max_answer_length: longest answer to a question, in tokens.
        n_best: answers that are listed for each question.
        repair_tags: convert IOB1 and IOBES tags and fix tags that violate BIO; an error otherwise.
        loss: of sentence vectors: contrastive (other rows of the batch are the negatives) or cosine
            (the score of a pair).
        scale: of the cosines in the contrastive loss.
        pooling: of tokens to a sentence vector: mean, cls or max.
    """

    labels: tuple[str, ...] | None = None
    positive: str | None = None
    multilabel: bool = False
    class_weights: str | None = None
    on_overflow: str = "truncate"
    stride: int = 128
    clean: str | None = None
    max_question_length: int = 64
    max_answer_length: int = 30
    n_best: int = 20
    repair_tags: bool = False
    loss: str = "contrastive"
    scale: float = 20.0
    pooling: str = "mean"


class Losses(Protocol):
    """What the trainer asks about the losses of an objective; `TaskSpec` answers it for a task.

    Attributes:
        loss_names: names of the entries of `count` and `loss` in metrics.jsonl.
        selection_metric: the metric that chooses the best step.
        whole_batch: the loss of a row depends on the other rows of its step.
    """

    @property
    def loss_names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def selection_metric(self) -> str: ...  # noqa: D102
    @property
    def whole_batch(self) -> bool: ...  # noqa: D102


class LossSpec(NamedTuple):
    """`Losses` of an objective without labelled rows."""

    loss_names: tuple[str, ...]
    selection_metric: str
    whole_batch: bool = False


class Objective(Protocol):
    """What the trainer needs of a task, of pre-training and of distillation."""

    @property
    def spec(self) -> Losses:
        """Names of the losses and of the metric that chooses the best step."""
        ...

    def targets(self, examples: Sequence[Example]) -> Targets:
        """What the losses compare with, for one micro-batch of whole rows."""
        ...

    def count(self, targets: Targets) -> float | tuple[float, ...]:
        """How many losses of each kind this micro-batch holds.

        Their sum over the batch is divided by it, kind by kind, and the means are added.
        """
        ...

    def loss(self, output: Any, targets: Targets) -> Tensor:
        """The SUM of the losses, float32: a scalar, or one entry per kind."""
        ...


class RowSource(NamedTuple):
    """A file of rows, and how to read it.

    Attributes:
        path: of the file.
        names: the user's names of the columns.
        labelled: whether the rows have answers.
        on_error: receives bad rows; None raises the first one.
    """

    path: str | Path
    names: ColumnNames
    labelled: bool
    on_error: OnError | None


class RowFormat(ABC):
    """How rows are read, and what their answers look like in files; tasks may share a format.

    Attributes:
        name: one word, for those who need a certain format.
        no_label_columns: why 0/1 columns cannot hold the labels; None where they can.
        id_column: the column whose values must differ from row to row.
        recognises: what a label column holds, "class" or "number", where columns without standard
            names are recognised by their content.
        num_texts: texts that a row must have.
    """

    name: str
    recognises: str | None = None
    num_texts: int = 1
    no_label_columns: str | None = None
    id_column: str | None = None

    @abstractmethod
    def read(self, spec: TaskSpec, source: RowSource) -> Iterator[Row]:
        """The rows of a file under standard names."""

    @abstractmethod
    def from_value(self, value: Any, index: int) -> Row:
        """The row of a Python value, such as a text or a mapping, and its place in a list."""

    @abstractmethod
    def texts(self, row: Row, clean: Cleaning | None) -> list[Text]:
        """The texts of a row after cleaning; each becomes a sequence."""

    def labels(self, task: Task, row: Row) -> list[str]:
        """The label names in a row, for counting; an InputError if its answer is malformed."""
        task.gold(row)
        return []

    def known_labels(self, spec: TaskSpec) -> list[str]:
        """The names that `labels` may return."""
        return list(spec.labels or ())

    def gold_json(self, spec: TaskSpec, gold: Any) -> Any:
        """The expected answer of a row for JSON."""
        return gold

    def official_files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """Further JSON files with the predictions, by name."""
        return {}

    def with_labels(self, task: Task, rows: Sequence[Row], answers: Sequence[Row]) -> Task:
        """The task with the labels of rows and of predictions that were made elsewhere."""
        return task

    @abstractmethod
    def complete(
        self, spec: TaskSpec, row: Row, prediction: Mapping[str, Any], where: str
    ) -> Prediction:
        """A prediction that was made elsewhere, complete enough for `metrics`."""

    def findings(
        self, task: Task, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """What the data check says about good rows, beyond what holds for all formats."""
        return iter(())


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Everything that other packages may ask about a task; each task builds its own.

    Attributes:
        name: name of the module in this package.
        row_format: how rows are read and which texts they hold.
        head_kind: a key of `model.heads.HEADS`; None for pooled vectors without a trained head.
        metric_names: metrics that may choose the best step. Of "loss" and "mse" less is better.
        selection_metric: the metric that chooses it by default.
        metric_scale: the largest value of the metrics: 1, or 100 for percent.
        loss_names: as in `Losses`.
        whole_batch: as in `Losses`.
        num_labels: outputs of the heads "sequence" and "tokens"; None for other heads.
        labels: their names by id.
        problem_type: as in Hugging Face's config.json, or None.
        labels_are_classes: the labels of a row are its classes, so that rare, contradictory and
            missing ones matter; not so for the entity types in a sentence.
        label_columns: 0/1 columns that hold the labels of multi-label rows.
        positive: the positive class of two; None for more classes and for several labels.
        thresholds: see `Classification`.
        temperature: logits are divided by it before they become probabilities.
        on_overflow: the treatment of long texts, one of `data.examples.OVERFLOW_RULES`.
        clean: cleaning of the texts before they become tokens.
        cleans: whether the task can clean texts.
        pooling: of tokens to a vector, where `head_kind` is None.
        always_answers: questions always get an answer, never "no answer".
    """

    name: str
    row_format: RowFormat
    head_kind: str | None
    metric_names: tuple[str, ...]
    selection_metric: str
    metric_scale: float = 1.0
    loss_names: tuple[str, ...] = ("loss",)
    whole_batch: bool = False
    num_labels: int | None = None
    labels: tuple[str, ...] | None = None
    problem_type: str | None = None
    labels_are_classes: bool = False
    label_columns: tuple[str, ...] | None = None
    positive: str | None = None
    thresholds: tuple[float, ...] | None = None
    temperature: float = 1.0
    on_overflow: str = "truncate"
    clean: Cleaning | None = None
    cleans: bool = False
    pooling: str | None = None
    always_answers: bool = False

    @property
    def multilabel(self) -> bool:
        """Whether a row has any number of labels."""
        return self.problem_type == "multi_label_classification"

    @property
    def windows(self) -> bool:
        """Whether long texts are read whole, in windows."""
        return self.on_overflow == "window"


class Task(Objective, Protocol):
    """Rows in, predictions and metrics out.

    A task is a frozen dataclass: `fit` returns one that knows the labels, `calibrate` one that
    knows its thresholds. `task_to_dict` writes its fields to filbert.json.
    The methods of `Objective` belong to it. What all tasks do with rows is in `tasks.rows`.
    """

    @property
    def spec(self) -> TaskSpec:
        """What other packages ask about the task."""
        ...

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Task:
        """A task before it has seen any row.

        Raises:
            ConfigError: options that contradict each other.
        """
        ...

    def fit(self, rows: Iterable[Row]) -> Task:
        """The task with the labels (and class weights) of the training rows.

        Raises:
            InputError: a row's label is not one of the declared ones, with file and line.
        """
        ...

    def gold(self, row: Row) -> Any:
        """The expected answer of a labelled row in the form that `metrics` takes.

        Raises:
            InputError: it is missing, unknown or malformed, with file and line.
        """
        ...

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """Sequences of a list of rows, in order; `Example.row` counts within the list.

        A list rather than one row, because the tokenizer works on all cores at once.
        """
        ...

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """One prediction per row, in order.

        Args:
            outputs: the head's float32 output of every example, on the CPU: (C,) or () for heads
                over sequences, (n, C) for heads over tokens.
            examples: as `examples` made them, the ones of a row together.
        """
        ...

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> Task:
        """The same task with thresholds and temperature fitted on dev rows."""
        ...

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The metrics; those in `spec.metric_names` are floats, or None where undefined."""
        ...


def task_to_dict(task: Task) -> dict[str, Any]:
    """Everything needed to predict again: the name of the task and its fields, for JSON."""
    content = {"name": task.spec.name, **asdict(task)}  # type: ignore[call-overload]
    clean = task.spec.clean
    return content | ({"clean": clean and clean.names} if "clean" in content else {})


def task_from_dict(kind: type[Task], content: Mapping[str, Any]) -> Task:
    """The task of class `kind` with the fields in `content`; other entries are ignored.

    Raises:
        ValueError, TypeError, ConfigError: it cannot be one.
    """
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    known = {name: content[name] for name in names & content.keys()}
    known = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
    if "clean" in names:
        known["clean"] = Cleaning.parse(content.get("clean"))
    return kind(**known)


def changed(task: Task, **entries: Any) -> Task:
    """The task with other entries of its `task_to_dict`.

    Raises:
        ValueError, TypeError, ConfigError: an entry has no such value.
    """
    return task_from_dict(type(task), task_to_dict(task) | entries)


def cleaning_of(task: Task | None) -> Cleaning | None:
    """The cleaning of the texts before they become tokens, if any."""
    return None if task is None else task.spec.clean


def set_vector_head(model: Any, task: Task | None) -> None:
    """Give a model, or an exported one, the pooling of a task that has no trained head."""
    if task is None or task.spec.pooling is None:
        return
    from filbert.model.heads import VectorHead

    model.head = VectorHead(model.config, task.spec.pooling)


def refuse_cleaning(options: TaskOptions, why: str) -> None:
    """For tasks that read texts as they are.

    Raises:
        ConfigError: cleaning was asked for; with `why` there is none.
    """
    if options.clean not in (None, "none"):
        raise ConfigError(f"--clean is for classification and regression: {why}. Leave it out.")


def task_names() -> list[str]:
    """The built-in tasks on labelled rows: the modules of this folder."""
    names = {module.name for module in pkgutil.iter_modules(filbert.tasks.__path__)}
    return sorted(names - _NO_TASKS)


def check_name(name: str) -> None:
    """Refuse a name that no built-in task has, before one is imported, and torch with it.

    Raises:
        ConfigError: no such task; the nearest name is given.
    """
    if name not in task_names() and ":" not in name:
        known = _ELSEWHERE.get(name.lower().replace("_", "-"))
        near = [known] if known else get_close_matches(name, task_names(), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"task {name!r} is not one of {task_names()}.{hint}")


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
    check_name(name)
    module = importlib.import_module(f"filbert.tasks.{name}")
    return module.TASK  # type: ignore[no-any-return]
