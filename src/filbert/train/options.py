"""What the user may say about a fine-tuning run: the fields are flags, recipe keys and keywords."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields, replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from filbert.data.columns import ColumnNames
from filbert.data.labels import label_name
from filbert.errors import ConfigError, install_hint
from filbert.model.config import PRECISIONS
from filbert.tasks.base import TaskOptions, check_name
from filbert.train.schedule import SCHEDULES, parse_time

# Flags that hold several names.
NAME_LISTS = ("labels", "label_columns", "merge_labels", "choice_columns")
# Options that name files or folders.
PATHS = (
    "train", "dev", "test", "out", "model", "corpus", "tokenizer", "new_tokens", "teacher",
    "student", "extra", "augment_with", "cache",
)  # fmt: skip
# What a model card may declare, in the Hub's spelling.
DECLARED = {"license": r"[a-z0-9][a-z0-9.-]{0,63}", "language": r"[a-z]{2,3}|multilingual|code"}
OPTIMIZERS = ("adamw", "bert_adam", "lamb", "muon")
Flags = TypeVar("Flags", bound="DataFlags")


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
        time: how long the run may take, such as 20m or 1h30m, evaluations and saving included; it
            overrides `steps`, and the schedule is fitted to it.
        optimizer: adamw (with bias correction), bert_adam (Google's, without), lamb (for very large
            batches) or muon (for the matrices of the layers, adamw for the rest).
        schedule: of the learning rate after its rise: linear (down to 0), bert (Google's), electra,
            cosine, trapezoid (constant, then down) or constant.
        warmup: share of the run over which the learning rate rises from 0.
        weight_decay: decoupled decay of matrices and tables; biases and LayerNorm are left out.
        beta1: decay of Adam's mean.
        beta2: decay of Adam's square mean.
        eps: added to the root of Adam's square mean; 1e-8 when not given, 1e-6 for bert_adam and
            lamb, as in their authors' code.
        clip: largest global gradient norm; 0 for no clipping.
        dropout: overrides the checkpoint's dropout on hidden states, attention and head.
        eval_every: optimiser steps between evaluations on dev; once an epoch when not given.
        patience: stop after this many evaluations without a better one; 0 never stops early.
        metric: what "better" means, a key of the dev metrics; the task's own choice when not given.
        seed: of the new head, the shuffles and the dropout.
        precision: auto, float32 or bf16.
        device: cpu, cuda, ...; the first GPU when there is one.
        tensorboard: also write TensorBoard event files.
        freeze: what is not trained, between commas: embeddings, layers such as 0-7 or 3, or encoder
            for all of it (its outputs are then computed once and kept).
        layer_decay: each layer learns at this share of the rate of the layer above it.
        reinit_layers: draw this many of the top layers, and the pooler, anew.
        seeds: train so many times, with seeds that follow each other, and keep the best.
        save_every: optimiser steps between saved states, from which --resume continues; after every
            evaluation when not given, 0 for none.
        resume: continue an interrupted run in the same run folder.
        distributed: under torchrun: ddp (every process holds the model) or fsdp (it is spread).
        license: for the model card, an identifier of the Hub's such as apache-2.0; that of the
            model it starts from when not given.
        language: for the model card, codes such as en or en,de; likewise.
    """

    batch_size: int = 32
    max_tokens: int | None = None
    lr: float = 5e-5
    epochs: float = 3.0
    steps: int | None = None
    time: str | None = None
    optimizer: str = "adamw"
    schedule: str = "linear"
    warmup: float = 0.1
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float | None = None
    clip: float = 1.0
    dropout: float | None = None
    eval_every: int | None = None
    patience: int = 0
    metric: str | None = None
    seed: int = 42
    precision: str = "auto"
    device: str | None = None
    tensorboard: bool = False
    freeze: str | None = None
    layer_decay: float = 1.0
    reinit_layers: int = 0
    seeds: int = 1
    save_every: int | None = None
    resume: bool = False
    distributed: str = "ddp"
    license: str | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if part.type == "bool" and not isinstance(value, bool):
                raise ConfigError(f"{part.name} is {value!r}; it must be true or false.")
            if not _is_number(part) or (value is None and "None" in str(part.type)):
                continue
            if not _is_finite(value):
                raise ConfigError(f"{part.name} is {value!r}; it must be a finite number.")
            if not isinstance(value, int) and "float" not in str(part.type):
                raise ConfigError(f"{part.name} is {value!r}; it must be a whole number.")
        positive = {"batch_size", "max_tokens", "lr", "epochs", "steps", "eps", "eval_every"}
        positive |= {"seeds", "layer_decay"}
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; it must be above zero.")
        for name in ("warmup", "beta1", "beta2", "dropout"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < 1.0:
                raise ConfigError(f"{name} is {value}; it must be in [0, 1).")
        for name in ("weight_decay", "clip", "patience", "seed", "reinit_layers", "save_every"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must not be negative.")
        if self.layer_decay > 1:
            raise ConfigError(f"layer_decay is {self.layer_decay}; it must be in (0, 1].")
        named = (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("precision", PRECISIONS))
        for name, known in named:
            given = getattr(self, name)
            if given not in known:
                near = get_close_matches(given, known, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"{name} is {given!r}; it must be one of {list(known)}.{hint}")
        if self.time is not None and not self.time_seconds:
            raise ConfigError(f"time is {self.time!r}; it must be above zero.")
        if self.distributed not in ("ddp", "fsdp"):
            raise ConfigError(f"distributed is {self.distributed!r}; it must be ddp or fsdp.")
        for name, form in DECLARED.items():
            for declared in names_of(getattr(self, name) or ""):
                if not re.fullmatch(form, declared):
                    raise ConfigError(
                        f"{name} is {declared!r}; write it as the Hugging Face Hub does, such as "
                        f"{'apache-2.0' if name == 'license' else 'en or en,de'}."
                    )
        if self.tensorboard and find_spec("tensorboard") is None:
            raise ConfigError(
                f"--tensorboard needs the tensorboard package. {install_hint('tensorboard')}"
            )

    @property
    def epsilon(self) -> float:
        """`eps`, or what the optimiser has by itself."""
        # optimization.py of google-research/bert and of ALBERT; torch's elsewhere.
        usual = 1e-6 if self.optimizer in ("bert_adam", "lamb") else 1e-8
        return usual if self.eps is None else self.eps

    @property
    def unread(self) -> set[str]:
        """Fields that this run has no use for, so that nobody need be told of them."""
        return set()

    @property
    def time_seconds(self) -> float | None:
        """The time budget in seconds; None without one."""
        return None if self.time is None else parse_time(self.time)


@dataclass(frozen=True, kw_only=True)
class DataFlags(ColumnNames, TaskOptions):
    """What may be said about any labelled file: its columns, and the task's own options."""

    def settled(self: Flags) -> Flags:
        """The same with names between commas taken apart."""
        given = {name: getattr(self, name) for name in NAME_LISTS}
        lists: dict[str, Any] = {k: names_of(v) for k, v in given.items() if v is not None}
        return replace(self, **lists)

    def named(self) -> list[str]:
        """The options that differ from their defaults."""
        return [f.name for f in fields(self) if getattr(self, f.name) != f.default]


@dataclass(frozen=True, kw_only=True)
class DataOptions(DataFlags):
    """What to train on, from what, and where to.

    Attributes:
        task: classification, regression, tagging, span_qa, multiple_choice or embedding.
        model: to start from: a folder, a built-in name (filbert-mini, minilm) or a Hub id.
        train: training rows.
        dev: rows to choose the best step, the threshold and the temperature on.
        test: rows that are only measured, at the end.
        out: the run folder to make.
        overwrite: replace an earlier run in `out`.
        max_length: cut texts to this many tokens; the model's own limit when not given, for
            questions (span_qa) 384 at most.
        causal: let every token see only itself and those before it; the last one then stands for
            the text, in place of the first.
        keep_layers: start from a smaller model with some of the layers: 3 for the first three, or
            their numbers from 0 such as 0,2,5 or 0-2,5; other options count those that are left.
        new_head: draw a new head even if the model has one that was trained for the same task and
            labels.
        show_texts: the report shows the texts of the worst errors.
    """

    task: str
    model: str
    train: str
    out: str
    dev: str | None = None
    test: str | None = None
    overwrite: bool = False
    max_length: int | None = None
    causal: bool = False
    keep_layers: str | None = None
    new_head: bool = False
    show_texts: bool = False


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(TrainOptions, DataOptions):
    """A whole fine-tuning run; the fields of `DataOptions`, then those of `TrainOptions`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.task)
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"seed is {self.seed}; it must be from 0 to {2**31 - 1}.")
        for name in ("train", "dev", "test"):
            if getattr(self, name) == "-":
                raise ConfigError(f"--{name} must be a file: it is read more than once.")
        if self.dev is None and (self.metric or self.patience or self.eval_every):
            raise ConfigError("metric, patience and eval_every need dev rows; give --dev.")

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> FinetuneOptions:
        """Options from keyword arguments; see `checked`.

        Raises:
            ConfigError: an unknown name (the nearest one is given), a missing one, or a wrong type.
        """
        return cls(**checked(cls, given, required=("task", "model", "train", "out")))


def checked(options: type, given: Mapping[str, Any], *, required: Iterable[str]) -> dict[str, Any]:
    """Keyword arguments for a class of options, in the types it wants.

    Paths may be `Path`s, lists of names lists or text with commas, `class_weights` and
    `keep_layers` numbers, `clean` names in a list.

    Raises:
        ConfigError: an unknown name (the nearest one is given), a missing one, a wrong type, or
            both resume and overwrite.
    """
    known = {f.name: f for f in fields(options)}
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"There is no option {name!r}.{hint}")
    for name in required:
        if not given.get(name):
            raise ConfigError(
                f"The option {name!r} is missing. Give it as --{name.replace('_', '-')}, as a key "
                "of the recipe or, in Python, as a keyword."
            )
    values: dict[str, Any] = {k: str(v) if isinstance(v, Path) else v for k, v in given.items()}
    for name, value in values.items():
        if value is not None and "tuple" in str(known[name].type):
            values[name] = names_of(value)
    if values.get("resume") and values.get("overwrite"):
        raise ConfigError(
            "--resume goes on with what an earlier run did, --overwrite drops it. Give one; an "
            "interrupted --overwrite goes on with --resume alone."
        )
    for name in ("class_weights", "keep_layers", "clean"):
        given_list = values.get(name)
        if isinstance(given_list, list | tuple):
            # A number alone would count the first layers, and a list names them.
            form = "{0}-{0}" if name == "keep_layers" else "{}"
            values[name] = ",".join(form.format(item) for item in given_list)
    if type(values.get("keep_layers")) is int:
        values["keep_layers"] = str(values["keep_layers"])
    for name, value in values.items():
        # As TOML has 1e5.
        if _is_number(known[name]) and isinstance(value, float) and value.is_integer():
            values[name] = value if "float" in str(known[name].type) else int(value)
        is_text = "str" in str(known[name].type) and "tuple" not in str(known[name].type)
        if is_text and not isinstance(value, str | None):
            raise ConfigError(f"The option {name!r} is {value!r}; it must be text.")
    return values


def names_of(given: str | Iterable[Any]) -> tuple[str, ...]:
    """Names in a list, or between commas in one text or several: `a,b`, ["a", "b"], ["a,b"].

    Raises:
        ConfigError: it is neither text nor a list of texts and numbers.
    """
    items = [given] if isinstance(given, str) else given
    try:
        # A number may be the name of a label; texts are of any length, as lists of paths are.
        texts = [str(i) if isinstance(i, str | Path) else label_name(i) for i in items]
    except (TypeError, ValueError):
        raise ConfigError(f"{given!r} stands where names belong; give a list of names.") from None
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(part for part in parts if part)


def _is_number(part: Field[Any]) -> bool:
    return any(kind in str(part.type) for kind in ("int", "float"))


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
