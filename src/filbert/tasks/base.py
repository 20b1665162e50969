"""The protocol of a task: one file in this folder, whose module name is the task's name."""

from __future__ import annotations

import importlib
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

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
    from filbert.data.examples import Example
    from filbert.data.records import Finding, Row
    from filbert.data.streams import OnError
    from filbert.text.tokenizer import Text, Tokenizer

T = TypeVar("T")
Prediction = dict[str, Any]
# Metrics of which lower values are better.
FALLING = ("loss", "mse", "ece", "mlm_loss", "replaced_loss", "perplexity")
# Names of tasks in other programs that a search for similar spellings would not find.
_ELSEWHERE = {
    "ner": "tagging", "token-classification": "tagging", "pos": "tagging",
    "qa": "span_qa", "question-answering": "span_qa", "squad": "span_qa",
    "sentiment": "classification", "text-classification": "classification",
    "swag": "multiple_choice", "similarity": "embedding", "sts": "embedding",
}  # fmt: skip

# Modules of this folder that are not tasks on labelled rows.
_NO_TASKS = {"base", "rows", "doctor", "pretraining", "distillation"}


class Targets(NamedTuple):
    """The input of a loss, next to the output of the model.

    Attributes:
        values: Target values.
        at: Rows of the batch that the head reads, int64 (K,); None for all sequences.
        groups: Number of sequences (or tokens) that belong together, in order: the windows or
            choices of a row, the tokens of a sequence.
        pair: Targets of a pair objective, int64 (S,).
        are_seen: Whether the model gets `values` too, after `at`, as replaced-token detection does.
        labels: Targets of the rows' labels, if a student learns from a teacher too.
    """

    values: Tensor
    at: Tensor | None = None
    groups: tuple[int, ...] | None = None
    pair: Tensor | None = None
    are_seen: bool = False
    labels: Targets | None = None

    def to(self, device: torch.device) -> Targets:
        """Return the same with all tensors on `device`."""
        from filbert.batch import onto

        at, pair = (None if one is None else onto(device, one) for one in (self.at, self.pair))
        labels = None if self.labels is None else self.labels.to(device)
        return self._replace(values=onto(device, self.values), at=at, pair=pair, labels=labels)


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options of tasks; a task ignores those of other tasks.

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


class LossSpec(NamedTuple):
    """What the trainer reads about the losses of an objective; a `TaskSpec` has it for a task.

    Attributes:
        loss_names: Names of the entries of `count` and `loss` in metrics.jsonl.
        selection_metric: The metric that chooses the best step.
        whole_batch: Whether the loss of a row depends on the other rows of its step.
    """

    loss_names: tuple[str, ...]
    selection_metric: str
    whole_batch: bool = False


class Objective(Protocol):
    """The part of a task that the trainer uses; pre-training and distillation have it too."""

    @property
    def spec(self) -> LossSpec | TaskSpec:
        """Names of the losses and of the metric that chooses the best step."""
        ...

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return the targets of one micro-batch of whole rows."""
        ...

    def count(self, targets: Targets) -> float | tuple[float, ...]:
        """Return the number of losses of each kind in a micro-batch.

        The trainer divides the sum over the batch by it, kind by kind, and adds the means.
        """
        ...

    def loss(self, output: Any, targets: Targets) -> Tensor:
        """Return the SUM of the losses, float32: a scalar, or one entry per kind."""
        ...


class RowSource(NamedTuple):
    """A file of rows, and how to read it.

    Attributes:
        path: The file.
        names: The user's names of the columns.
        labelled: Whether the rows have gold answers.
        on_error: Receives bad rows.
    """

    path: str | Path
    names: ColumnNames
    labelled: bool
    on_error: OnError


class RowFormat(ABC):
    """How rows are read, and what their answers are in files; tasks may share a format.

    Attributes:
        name: One word that identifies the format.
        no_label_columns: Why 0/1 columns cannot hold the labels; None if they can.
        id_column: A column whose values must be unique.
        recognises: Content of the label column, "class" or "number", if columns without standard
            names are recognised by their content.
        num_texts: Number of texts that a row must have.
    """

    name: str
    recognises: str | None = None
    num_texts: int = 1
    no_label_columns: str | None = None
    id_column: str | None = None

    @abstractmethod
    def read(self, spec: TaskSpec, source: RowSource) -> Iterator[Row]:
        """Yield the rows of a file under standard names."""

    @abstractmethod
    def from_value(self, value: Any, index: int) -> Row:
        """Return the row of a Python value, such as a text or a mapping, at an index of a list."""

    @abstractmethod
    def texts(self, row: Row, clean: Cleaning | None) -> list[Text]:
        """Return the texts of a row after cleaning; each becomes a sequence."""

    def labels(self, task: Task, row: Row) -> list[str]:
        """Return the label names of a row, for counting; an InputError if they are malformed."""
        task.gold(row)
        return []

    def gold_json(self, spec: TaskSpec, gold: Any) -> Any:
        """Return the gold answer of a row for JSON."""
        return gold

    def official_files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """Return further JSON files with the predictions, by name."""
        return {}

    def with_labels(self, task: Task, rows: Sequence[Row], answers: Sequence[Row]) -> Task:
        """Return the task with the labels of rows and of another program's predictions."""
        return task

    @abstractmethod
    def complete(self, spec: TaskSpec, row: Row, answer: Row) -> Prediction:
        """Return a prediction for `row` in the file of another program, completed for `metrics`."""

    def findings(
        self, task: Task, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Yield findings of the data check about good rows that only this format has."""
        return iter(())


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Everything that other packages may use of a task; each task builds its own.

    Attributes:
        name: Name of the module in this package.
        row_format: How rows are read and which texts they have.
        head_kind: A key of `model.heads.HEADS`; None for pooled vectors without a trained head.
        metric_names: Metrics that may choose the best step. Lower is better for "loss" and "mse".
        selection_metric: The metric that chooses it by default.
        metric_scale: Largest value of the metrics: 1, or 100 for percent.
        loss_names, whole_batch: As in `LossSpec`.
        num_labels: Number of outputs of the heads "sequence" and "tokens"; None for other heads.
        labels: Their names by id.
        problem_type: As in Hugging Face's config.json, or None.
        labels_are_classes: Whether labels are the classes of a row, so that rare, contradictory and
            missing ones matter; false for the entity types in a sentence.
        label_columns: 0/1 columns with the labels of multi-label rows.
        positive: The positive class of two; None for more classes and for multi-label.
        thresholds: See `Classification`.
        temperature: Logits are divided by it before they become probabilities.
        on_overflow, stride, clean: As in `TaskOptions`; the cleaning is parsed.
        cleans: Whether the task can clean texts.
        pooling: Pooling of tokens to a vector, if `head_kind` is None.
        always_answers: Whether questions always get an answer, never "no answer".
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
    stride: int = 128
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
    """Turns rows into examples, and outputs into predictions and metrics.

    A task is a frozen dataclass: `fit` returns one with the labels, `calibrate` one with the
    thresholds. `task_to_dict` writes its fields to filbert.json. It also has the methods of
    `Objective`. Functions that all tasks share are in `tasks.rows`.
    """

    @property
    def spec(self) -> TaskSpec:
        """The facts about the task for other packages."""
        ...

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Task:
        """Create a task from options, before any row is read.

        Raises:
            ConfigError: Options contradict each other.
        """
        ...

    def fit(self, rows: Iterable[Row]) -> Task:
        """Return the task with the labels (and class weights) of the training rows.

        Raises:
            InputError: A row's label is not one of the declared ones, with file and line.
        """
        ...

    def gold(self, row: Row) -> Any:
        """Return the gold answer of a labelled row, as `metrics` takes it.

        Raises:
            InputError: It is missing, unknown or malformed, with file and line.
        """
        ...

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """Return the sequences of a list of rows, in order; `Example.row` is the index of a row.

        It takes a list, because the tokenizer uses all cores for one call.
        """
        ...

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """Return one prediction per row, in order.

        Args:
            outputs: Float32 output of the head for every example, on the CPU: (C,) or () for heads
                over sequences, (n, C) for heads over tokens.
            examples: The output of `examples`, those of a row next to each other.
        """
        ...

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> Task:
        """Return the task with thresholds and temperature fitted on dev rows."""
        ...

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return the metrics; those in `spec.metric_names` are floats, or None if undefined."""
        ...


def gain(metric: str, value: float | None) -> float:
    """Return the value of a metric so that higher is better; minus infinity if it is undefined."""
    if value is None:
        return -math.inf
    return float(-value if metric in FALLING else value)


def uncalibrated(
    task: T, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
) -> T:
    """Return the task unchanged: the method `calibrate` of tasks in which nothing is fitted."""
    return task


def task_to_dict(task: Task) -> dict[str, Any]:
    """Return the name of a task and its fields, for JSON."""
    content = {"name": task.spec.name, **asdict(task)}  # type: ignore[call-overload]
    clean = task.spec.clean
    return content | ({"clean": clean and list(clean.steps)} if "clean" in content else {})


def task_from_dict(kind: type[Task], content: Mapping[str, Any]) -> Task:
    """Return the task of class `kind` with the fields in `content`; other entries are ignored.

    Raises:
        ValueError, TypeError, ConfigError: An entry has a wrong value.
    """
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    known = {name: content[name] for name in names & content.keys()}
    known = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
    if "clean" in names:
        known["clean"] = Cleaning.parse(content.get("clean"))
    return kind(**known)


def changed(task: Task, **entries: Any) -> Task:
    """Return the task with other entries of its `task_to_dict`; errors as `task_from_dict`."""
    return task_from_dict(type(task), task_to_dict(task) | entries)


def set_vector_head(model: Any, task: Task | None) -> None:
    """Give a model, or an exported one, the pooling of a task that has no trained head."""
    if task is None or task.spec.pooling is None:
        return
    from filbert.model.heads import VectorHead

    model.head = VectorHead(model.config, task.spec.pooling)


def refuse_cleaning(options: TaskOptions, why: str) -> None:
    """Refuse the option `clean`, for tasks that read texts as they are."""
    if options.clean not in (None, "none"):
        raise ConfigError(f"--clean is for classification and regression: {why}. Leave it out.")


def task_names() -> list[str]:
    """Return the built-in tasks on labelled rows: the modules of this folder."""
    names = {module.name for module in pkgutil.iter_modules(filbert.tasks.__path__)}
    return sorted(names - _NO_TASKS)


def check_name(name: str) -> None:
    """Check that a task exists, without importing it and torch."""
    if name not in task_names() and ":" not in name:
        known = _ELSEWHERE.get(name.lower().replace("_", "-"))
        near = [known] if known else get_close_matches(name, task_names(), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"task {name!r} is not one of {task_names()}.{hint}")


def task_class(name: str) -> type[Task]:
    """Return the class of a built-in task, or of `package.module:Class` for one from outside.

    Raises:
        ConfigError: No such task; the nearest name is given.
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
