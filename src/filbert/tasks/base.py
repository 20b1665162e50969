"""What a task is: one file in this folder, whose module name is the task's name everywhere."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import filbert.tasks
from filbert.errors import ConfigError

# Names of types only: `filbert --help` reads the options through this module and must not wait for
# torch.
if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from filbert.data.columns import ColumnNames
    from filbert.data.examples import Example
    from filbert.data.findings import Finding
    from filbert.data.records import Row
    from filbert.data.streams import OnError
    from filbert.data.texts import Text
    from filbert.model.config import EncoderConfig
    from filbert.model.heads import Head
    from filbert.text.tokenizer import Tokenizer

Prediction = dict[str, Any]
# What other programs call a task, where no likeness of letters would tell.
_ELSEWHERE = {
    "ner": "tagging", "token-classification": "tagging", "pos": "tagging",
    "qa": "span_qa", "question-answering": "span_qa", "squad": "span_qa",
    "sentiment": "classification", "text-classification": "classification",
    "swag": "multiple_choice", "similarity": "embedding", "sts": "embedding",
}  # fmt: skip


class Column(NamedTuple):
    """A column that a row must or may hold."""

    name: str
    required: bool
    meaning: str


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
        labels: where `values` are a teacher's answers, what the rows' own labels want; `at` then
            names the rows of the head's output that have labels, None for all.
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
        repair_tags: read IOB1 and IOBES tags and mend tags that break BIO; refused otherwise.
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


def refuse_cleaning(options: TaskOptions, why: str) -> None:
    """For tasks that read texts as they are.

    Raises:
        ConfigError: cleaning was asked for; with `why` there is none.
    """
    if options.clean not in (None, "none"):
        raise ConfigError(f"--clean is for classification and regression: {why}. Leave it out.")


def uncleaned(task: Task) -> Task:
    """The same task over texts as they are, to measure them without the work of cleaning."""
    if getattr(task, "clean", None) is None:
        return task
    return replace(task, clean=None)  # type: ignore[type-var]


class Objective(Protocol):
    """What the trainer needs to know of a task: which losses there are.

    Attributes:
        loss_names: what the entries of `count` and `loss` are called in metrics.jsonl.
        selection_metric: what the best step is chosen by.
        whole_batch: the loss of a row depends on the other rows of its step.
    """

    @property
    def loss_names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def selection_metric(self) -> str: ...  # noqa: D102
    @property
    def whole_batch(self) -> bool: ...  # noqa: D102

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


class Task(Objective, Protocol):
    """Rows in, predictions and metrics out; trainer and predictor know nothing else of a task.

    A task is a frozen value: `fit_labels` gives one that knows the labels, `calibrate` one that
    knows its thresholds. `to_dict` is what filbert.json keeps and `from_dict` reads back.

    Attributes:
        name: the module's name.
        columns: what a row holds.
        head_kind: a key of `model.heads.HEADS`; None where `head` has no weights.
        num_labels: outputs of the heads "sequence" and "tokens"; None for others.
        labels: by id, for the same heads.
        problem_type: as Hugging Face's config.json names it, or None.
        metric_names: what the best step may be chosen by. Of "loss" and "mse" less is better.
        labels_are_classes: a row's labels are what it is judged by, so that rare, contradictory and
            missing ones matter; not so for the entity types in a sentence.
        windows: long texts are always read whole, in windows; else `on_overflow` decides.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def columns(self) -> tuple[Column, ...]: ...  # noqa: D102
    @property
    def head_kind(self) -> str | None: ...  # noqa: D102
    @property
    def num_labels(self) -> int | None: ...  # noqa: D102
    @property
    def labels(self) -> tuple[str, ...] | None: ...  # noqa: D102
    @property
    def problem_type(self) -> str | None: ...  # noqa: D102
    @property
    def metric_names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def labels_are_classes(self) -> bool: ...  # noqa: D102
    @property
    def windows(self) -> bool: ...  # noqa: D102

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Task:
        """A task before it has seen any row.

        Raises:
            ConfigError: options that contradict each other.
        """
        ...

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Task:
        """The task that a model folder describes.

        Raises:
            ValueError, TypeError: it cannot be one.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to predict again, with "name": labels, thresholds, temperature."""
        ...

    # Rows

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """The rows of a file under standard names.

        Raises:
            InputError: file and line of what is wrong, unless `on_error` takes it.
        """
        ...

    def row(self, item: Any, index: int) -> Row:
        """The row of a Python value that came without a file, such as a text or a mapping.

        Raises:
            InputError: it cannot be one; with its index.
        """
        ...

    def sequences(self, row: Row) -> list[Text]:
        """What is tokenised: a text or pair per sequence, before any cutting or windows."""
        ...

    def fit_labels(self, rows: Iterable[Row]) -> Task:
        """Learn the labels (and class weights) from the training rows.

        Raises:
            InputError: a row's label is not one of the declared ones, with file and line.
        """
        ...

    def labels_of(self, row: Row) -> list[str]:
        """The label names in a row, for counting; [] where a task has none.

        Raises:
            InputError: what should be learnt is missing or malformed, with file and line.
        """
        ...

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """What only this task can see to be wrong with some rows; see `data.doctor`."""
        ...

    def gold(self, row: Row) -> Any:
        """The wanted answer of a labelled row in the form that `metrics` takes.

        Raises:
            InputError: it is missing, unknown or malformed, with file and line.
        """
        ...

    def gold_json(self, gold: Any) -> Any:
        """The same for predictions/*.jsonl: label names, a number, tags, answers."""
        ...

    # Training

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """Sequences of a list of rows, in order; `Example.row` counts within the list.

        A list rather than one row, because the tokenizer works on all cores at once.
        """
        ...

    def head(self, config: EncoderConfig) -> Head:
        """A fresh head."""
        ...

    # Prediction

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """One prediction per row, in order, in the shape of INTERFACE.

        Args:
            outputs: the head's float32 output of every example, on the host: (C,) or () for heads
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
        """The figures of INTERFACE; keys in `metric_names` are floats, or None where undefined."""
        ...

    def files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """Further JSON files that an evaluation leaves, by name; {} for most tasks."""
        ...

    # Evaluation of rows and predictions from elsewhere

    def reading(self, names: ColumnNames) -> Task:
        """The task of a model, settled to read labelled rows under the user's names.

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


def task_names() -> list[str]:
    """The built-in tasks on labelled rows: the modules of this folder."""
    names = {module.name for module in pkgutil.iter_modules(filbert.tasks.__path__)}
    return sorted(names - {"base", "pretraining", "distillation", "soft_labels"})


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
