"""What the user may say about a fine-tuning run: the fields are flags, recipe keys and keywords."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.tasks.base import TaskOptions


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How to train; nothing about data or task.

    Attributes:
        batch_size: rows per optimiser step, over all ranks.
        max_tokens: tokens per micro-batch on one rank; 8,192 on a processor, 65,536 on a GPU when
            not given.
        lr: peak learning rate.
        epochs: passes over the training rows (a fraction is allowed).
        steps: optimiser steps; overrides `epochs`.
        warmup: share of the steps over which the learning rate rises from 0.
        weight_decay: decoupled decay of matrices and tables; biases and LayerNorm are left out.
        beta1: decay of Adam's mean.
        beta2: decay of Adam's square mean.
        eps: added to the root of Adam's square mean.
        clip: largest global gradient norm; 0 for no clipping.
        dropout: overrides the checkpoint's dropout on hidden states and attention.
        eval_every: optimiser steps between evaluations on dev; once an epoch when not given.
        patience: stop after this many evaluations without a better one; 0 never stops early.
        metric: what "better" means, a key of the dev metrics; the task's own choice when not given.
        seed: of the new head, the shuffles and the dropout.
        precision: auto, float32 or bf16.
        device: cpu, cuda, ...; the first GPU when there is one.
        tensorboard: also write TensorBoard event files.
    """

    batch_size: int = 32
    max_tokens: int | None = None
    lr: float = 5e-5
    epochs: float = 3.0
    steps: int | None = None
    warmup: float = 0.1
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    clip: float = 1.0
    dropout: float | None = None
    eval_every: int | None = None
    patience: int = 0
    metric: str | None = None
    seed: int = 42
    precision: str = "auto"
    device: str | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        positive = {"batch_size", "max_tokens", "lr", "epochs", "steps", "eps", "eval_every"}
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; it must be above zero.")
        for name in ("warmup", "beta1", "beta2", "dropout"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < 1.0:
                raise ConfigError(f"{name} is {value}; it must be in [0, 1).")
        for name in ("weight_decay", "clip", "patience", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must not be negative.")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What to train on, from what, and where to.

    Attributes:
        task: name of the task.
        model: folder, built-in name or Hub id to start from.
        train: training rows.
        dev: rows to choose the best step, the threshold and the temperature on.
        test: rows that are only measured, at the end.
        out: the run folder to make.
        overwrite: replace an earlier run in `out`.
        text_column: name of the column with the text.
        text_pair_column: name of the column with the second text.
        label_column: name of the column with the label (or list of labels).
        label_columns: one 0/1 column per label: multi-label.
        labels: the labels in order; those of the training rows when not given.
        positive: the positive class of two; the second label when not given.
        multilabel: each row has any number of labels.
        class_weights: balanced, or one number per label.
        max_length: cut texts to this many tokens; the model's own limit when not given.
    """

    task: str
    model: str
    train: str
    out: str
    dev: str | None = None
    test: str | None = None
    overwrite: bool = False
    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str | None = None
    label_columns: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    positive: str | None = None
    multilabel: bool = False
    class_weights: str | tuple[float, ...] | None = None
    max_length: int | None = None

    def columns(self) -> ColumnNames:
        """The part that reading the rows needs."""
        return ColumnNames(
            text=self.text_column,
            text_pair=self.text_pair_column,
            label=self.label_column,
            label_columns=self.label_columns,
            multilabel=self.multilabel,
        )

    def task_options(self) -> TaskOptions:
        """The part that the task reads."""
        return TaskOptions(
            labels=self.labels,
            label_columns=self.label_columns,
            positive=self.positive,
            multilabel=self.multilabel,
            class_weights=_class_weights(self.class_weights),
        )


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(TrainOptions, DataOptions):
    """A whole fine-tuning run; the fields of `DataOptions`, then those of `TrainOptions`."""

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> FinetuneOptions:
        """Options from keyword arguments.

        Raises:
            ConfigError: an unknown name (the nearest one is given), or a missing one.
        """
        known = {f.name: f for f in fields(cls)}
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"There is no option {name!r}.{hint}")
        for name in ("task", "model", "train", "out"):
            if not given.get(name):
                raise ConfigError(f"The option {name!r} is missing.")
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in given.items()
        }
        return cls(**values)


def _class_weights(given: str | tuple[float, ...] | None) -> str | tuple[float, ...] | None:
    """Numbers between commas, as the command line gives them, are numbers."""
    if not isinstance(given, str) or given == "balanced":
        return given
    try:
        return tuple(float(part) for part in given.split(","))
    except ValueError as error:
        raise ConfigError(
            f"class_weights is {given!r}; give 'balanced', or one number per label between commas."
        ) from error
