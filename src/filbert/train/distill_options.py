"""Options of a distillation, from labelled rows or from raw text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from filbert.data.columns import ColumnNames
from filbert.data.masking import MaskOptions, ObjectiveOptions
from filbert.errors import ConfigError
from filbert.train.options import (
    SCHEDULES,
    RunOptions,
    TrainOptions,
    check_choice,
    check_files,
    check_range,
    flat,
    from_flat,
    options_in,
)


class _Method(NamedTuple):
    """What a method learns from, and its defaults.

    Attributes:
        sources: "--train" for labelled rows of the teacher's task, "--corpus" for raw text.
        temperature: Default temperature of the teacher's outputs.
        alpha: Default share of the labels.
        reads: The options that not every method has.
    """

    sources: tuple[str, ...]
    temperature: float
    alpha: float
    reads: tuple[str, ...]


_ROWS, _TEXT = "--train", "--corpus"
# Sources of the defaults: Sanh et al. 2019 (released code); Sun et al. 2019, section 4.2; Jiao et
# al. 2020, section 4.2.
_METHODS = {
    "soft": _Method((_ROWS,), 2.0, 0.5, ("temperature", "alpha")),
    "pkd": _Method((_ROWS,), 10.0, 0.5, ("temperature", "alpha", "beta", "layer_map")),
    "tinybert": _Method(
        (_ROWS, _TEXT), 1.0, 0.0,
        ("temperature", "alpha", "layer_map", "hidden_share", "hidden_lr", "hidden_schedule"),
    ),
    "distilbert": _Method(
        (_TEXT,), 2.0, 0.0,
        ("temperature", "soft_weight", "mlm_weight", "cosine_weight", "soft_on"),
    ),
    "minilm": _Method((_TEXT,), 1.0, 0.0, ("teacher_layer", "relation_heads")),
}  # fmt: skip
# Options that would be ignored by the other source in silence.
_ONE_SOURCE = {
    _ROWS: ("test", "student"),
    _TEXT: ("layers", "hidden_size", "heads", "intermediate_size"),
}


@dataclass(frozen=True, kw_only=True)
class StudentOptions:
    """Teacher and student.

    Attributes:
        task: what the teacher must have been trained for; any task when not given.
        teacher: model to learn from, a folder, built-in name or Hub id: for rows a fine-tuned one,
            whose task becomes the student's; for raw text any encoder.
        student: model to start from, likewise; the teacher itself, with fewer layers, when not
            given.
        keep_layers: the student is the teacher with some of its layers: 3 for the first three, or
            their numbers from 0 such as 0,2,4; of a student that is named, its own.
        layers: from raw text: how many layers the student has, copied from teacher layers spread
            evenly where the widths are the same.
        hidden_size: from raw text: width of the student; the teacher's when not given.
        heads: likewise: attention heads of every layer.
        intermediate_size: likewise: width of the feed-forward network.
    """

    task: str | None = None
    teacher: str
    student: str | None = None
    keep_layers: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    intermediate_size: int | None = None

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden_size", "heads", "intermediate_size")
        check_range(self, sizes, "be above zero", lambda value: value > 0)

    @property
    def name(self) -> str:
        """The model that the student starts from."""
        return self.student or self.teacher


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """What the student learns from the teacher.

    Attributes:
        method: from rows: soft (the teacher's answers), pkd (also its first token, layer by layer)
            or tinybert (embeddings, attention and hidden states, then its answers); from raw text:
            distilbert, tinybert or minilm.
        temperature: logits of both are divided by it; 2 for soft and distilbert, 10 for pkd, 1 for
            tinybert.
        alpha: share of the rows' own labels in the loss, next to the teacher's answers; 0.5, and 0
            for tinybert.
        beta: weight of pkd's distances, each the mean over the width as in the published code.
        layer_map: pkd, tinybert: for each student layer the number of the teacher layer that it
            learns from, from 0, such as 1,3,5; spread evenly when not given. pkd leaves the last
            pair out, since the prediction loss trains that layer.
        hidden_share: tinybert on rows: share of the run spent on the layers, before the answers.
        hidden_lr: highest learning rate of that share; `lr` when not given.
        hidden_schedule: its schedule, as `schedule`, which is taken when not given; constant does
            without warm-up.
        soft_weight: distilbert: of the teacher's word scores.
        mlm_weight: distilbert: of the masked words themselves.
        cosine_weight: distilbert: of the cosine of the last hidden states.
        soft_on: distilbert: all tokens or only the masked ones have the teacher's word scores.
        teacher_layer: minilm: number of the teacher layer whose relations are copied, from 0; the
            last when not given.
        relation_heads: minilm: heads that queries, keys and values are split into; 48 (64 for a
            teacher of width 1,024 and more) where that divides both widths, else as many as the
            teacher has.
    """

    method: str = "soft"
    temperature: float | None = None
    alpha: float | None = None
    beta: float = 100.0
    layer_map: str | None = None
    hidden_share: float = 0.75
    hidden_lr: float | None = None
    hidden_schedule: str | None = None
    soft_weight: float = 5.0
    mlm_weight: float = 2.0
    cosine_weight: float = 1.0
    soft_on: str = "all"
    teacher_layer: int | None = None
    relation_heads: int | None = None

    def __post_init__(self) -> None:
        check_choice("method", self.method, _METHODS)
        check_choice("soft_on", self.soft_on, ("all", "masked"))
        if self.hidden_schedule is not None:
            check_choice("hidden_schedule", self.hidden_schedule, SCHEDULES)
        above_zero = ("temperature", "hidden_lr", "relation_heads")
        check_range(self, above_zero, "be above zero", lambda value: 0 < value < math.inf)
        not_negative = ("beta", "soft_weight", "mlm_weight", "cosine_weight", "teacher_layer")
        check_range(self, not_negative, "be zero or above", lambda value: 0 <= value < math.inf)
        check_range(self, ("alpha",), "be from 0 to 1", lambda value: 0 <= value <= 1)
        check_range(self, ("hidden_share",), "be between 0 and 1", lambda value: 0 < value < 1)
        numbers = r"\d{1,4}(\s*,\s*\d{1,4})*"
        if self.layer_map is not None and not re.fullmatch(numbers, self.layer_map.strip()):
            raise ConfigError(
                f"layer_map is {self.layer_map!r}; give the teacher's layer for each of the "
                "student's, from 0 and between commas, such as 1,3,5."
            )

    @property
    def soft_temperature(self) -> float:
        """The temperature, or the default of the method."""
        return self.temperature or _METHODS[self.method].temperature

    @property
    def hard_share(self) -> float:
        """The share of the labels, or the default of the method."""
        return _METHODS[self.method].alpha if self.alpha is None else self.alpha


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The rows or texts to learn from.

    Attributes:
        train: labelled rows to learn from.
        corpus: raw text instead: a folder that `filbert corpus` made, or text files; several
            between commas.
        dev: rows to choose the best step, the threshold and the temperature on; with `corpus`,
            held-out text.
        test: rows that are only measured, at the end.
        max_length: cut texts to this many tokens; as the teacher's training did when not given,
            128 with `corpus`.
        hide_texts: the report has no text of the data; by default it shows those of the worst
            errors on a click.
        dev_rows: with `corpus`: number of held-out sequences to measure.
        columns: the names of the columns.
    """

    train: str | None = None
    corpus: tuple[str, ...] | None = None
    dev: str | None = None
    test: str | None = None
    max_length: int | None = None
    hide_texts: bool = False
    dev_rows: int = 1_000
    columns: ColumnNames = ColumnNames()

    def __post_init__(self) -> None:
        if (self.train is None) == (self.corpus is None):
            raise ConfigError(
                "Give --train with labelled rows of the teacher's task, or --corpus with raw text, "
                "and not both."
            )
        check_files(train=self.train, dev=self.dev, test=self.test)
        check_range(self, ("dev_rows",), "be above zero", lambda value: value > 0)


@dataclass(frozen=True, kw_only=True)
class DistillOptions:
    """A whole distillation, from labelled rows or from raw text."""

    model: StudentOptions
    loss: LossOptions = LossOptions()
    data: SourceOptions
    masks: MaskOptions = MaskOptions()
    train: TrainOptions = TrainOptions(batch_size=32, lr=5e-5, layer_decay=1.0, epochs=3.0)
    run: RunOptions = RunOptions()

    def __post_init__(self) -> None:
        method, train, values = self.loss.method, self.train, flat(self)
        source, other = (_TEXT, _ROWS) if self.from_text else (_ROWS, _TEXT)
        known = [name for name, one in _METHODS.items() if source in one.sources]
        if method not in known:
            raise ConfigError(
                f"method {method} learns from {other}; from {source} choose {', '.join(known)}."
            )
        for name in _ONE_SOURCE[other]:
            if values[name] is not None:
                raise ConfigError(f"{name} does not go with {source}; leave it out.")
        given = [n for n, o in options_in(DistillOptions).items() if values[n] != o.default]
        for name in given:
            methods = [one for one, reads in _METHODS.items() if name in reads.reads]
            if methods and method not in methods:
                raise ConfigError(
                    f"{name} is for {', '.join(methods)}, not for method {method}; leave it out."
                )
        if self.data.dev is None and (train.metric or train.patience or train.eval_every):
            raise ConfigError("metric, patience and eval_every need dev rows; give --dev.")
        if self.from_text and (train.metric or train.patience):
            raise ConfigError(
                "metric, patience: they choose among steps; from raw text the last step's weights "
                "are kept. Leave them out."
            )
        if self.run.seeds != 1:
            raise ConfigError("seeds: not for distillation; leave it out.")
        if self.from_text:
            self.objective.check()

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> DistillOptions:
        """Return the options for flat names; see `from_flat`."""
        return from_flat(cls, given, required=("teacher", "out"))

    @property
    def from_text(self) -> bool:
        """Whether the student learns from raw text, not from rows."""
        return self.data.corpus is not None

    @property
    def objective(self) -> ObjectiveOptions:
        """How raw text is masked."""
        return ObjectiveOptions(**vars(self.masks), max_length=self.data.max_length or 128)
