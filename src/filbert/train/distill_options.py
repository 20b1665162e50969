"""What the user may say about a distillation: the fields are flags, recipe keys and keywords."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from filbert.data.columns import ColumnNames
from filbert.data.masking import ObjectiveOptions
from filbert.errors import ConfigError
from filbert.train.options import RunOptions, TrainOptions, from_flat
from filbert.train.schedule import SCHEDULES

# What each method learns from: labelled rows of the teacher's task, raw text, or either.
FROM_ROWS = ("soft", "pkd", "tinybert")
FROM_TEXT = ("distilbert", "tinybert", "minilm")
METHODS = tuple(dict.fromkeys(FROM_ROWS + FROM_TEXT))

# Which fields mean nothing to which methods.
_ONLY = {
    "temperature": ("soft", "pkd", "tinybert", "distilbert"),
    "alpha": FROM_ROWS,
    "beta": ("pkd",),
    "layer_map": ("pkd", "tinybert"),
    "hidden_share": ("tinybert",),
    "hidden_lr": ("tinybert",),
    "hidden_schedule": ("tinybert",),
    "soft_weight": ("distilbert",),
    "mlm_weight": ("distilbert",),
    "cosine_weight": ("distilbert",),
    "soft_on": ("distilbert",),
    "teacher_layer": ("minilm",),
    "relation_heads": ("minilm",),
    "cache": ("soft", "tinybert"),
}
# Fields for labelled rows, and for raw text.
_ROWS_ONLY = (
    "test", "extra", "task", "augment_with", "cache", "alpha", "show_texts",
    "hidden_share", "hidden_lr", "hidden_schedule",
    *(column.name for column in fields(ColumnNames)),
)  # fmt: skip
_TEXT_ONLY = (
    "layers", "hidden_size", "heads", "intermediate_size", "dev_rows",
    "masking", "mask_rate", "mask_style", "mask_rarity", "max_predictions", "duplicates",
)  # fmt: skip
_AUGMENT = ("augment_copies", "augment_rate", "augment_candidates")
# By method, where nothing is said. Sources: Sanh et al. 2019 (released code); Sun et al. 2019,
# section 4.2; Jiao et al. 2020, section 4.2.
_TEMPERATURE = {"soft": 2.0, "pkd": 10.0, "tinybert": 1.0, "distilbert": 2.0}
_ALPHA = {"soft": 0.5, "pkd": 0.5, "tinybert": 0.0}


@dataclass(frozen=True, kw_only=True)
class StudentOptions:
    """Teacher and student.

    Attributes:
        task: what the teacher must have been trained for; whatever it was when not given.
        teacher: model to learn from, a folder, built-in name or Hub id: for rows a fine-tuned one,
            whose task becomes the student's; for raw text any encoder.
        student: model to start from, likewise; the teacher itself, with fewer layers, when not
            given.
        keep_layers: the student is the teacher with some of its layers: 3 for the first three, or
            their numbers from 0 such as 0,2,4; of a student that is named, its own.
        layers: from raw text: how many layers the student has, copied from teacher layers spread
            evenly where the widths are the same.
        hidden_size: its width; the teacher's when not given, as all that follow.
        heads: attention heads of every layer.
        intermediate_size: width of the feed-forward network.
    """

    task: str | None = None
    teacher: str
    student: str | None = None
    keep_layers: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    intermediate_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """What the student shall have from the teacher.

    Attributes:
        method: from rows: soft (the teacher's answers), pkd (also its first token, layer by layer)
            or tinybert (embeddings, attention and hidden states, then its answers); from raw text:
            distilbert, tinybert or minilm.
        temperature: logits of both are divided by it; 2 for soft and distilbert, 10 for pkd, 1 for
            tinybert.
        alpha: share of the rows' own labels in the loss, beside the teacher's answers; 0.5, and 0
            for tinybert.
        beta: weight of pkd's distances, each the mean over the width as in the published code.
        layer_map: pkd, tinybert: for each student layer the number of the teacher layer that it
            learns from, from 0, such as 1,3,5; spread evenly when not given. pkd leaves the last
            pair out: there the answers are learnt.
        hidden_share: tinybert on rows: share of the run that goes before the answers.
        hidden_lr: highest learning rate of that share; `lr` when not given.
        hidden_schedule: its schedule, as `schedule`, which is taken when not given; constant does
            without warm-up.
        soft_weight: distilbert: of the teacher's word scores.
        mlm_weight: distilbert: of the masked words themselves.
        cosine_weight: distilbert: of the cosine of the last hidden states.
        soft_on: distilbert: all tokens or only the masked ones have the teacher's word scores.
        teacher_layer: minilm: number of the teacher layer whose relations are learnt, from 0; the
            last when not given.
        relation_heads: minilm: heads that queries, keys and values are cut into again; 48 (64 for a
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


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Which rows or texts, and where to.

    Attributes:
        train: labelled rows to learn from.
        corpus: raw text instead: a folder that `filbert corpus` made, or text files; several
            between commas.
        dev: rows to choose the best step, the threshold and the temperature on; with `corpus`,
            held-out text.
        test: rows that are only measured, at the end.
        extra: further rows, whose labels are not read: the student learns the teacher's answers to
            them.
        augment_with: model that fills masks, to make such rows out of the training rows.
        augment_copies: so many out of each row.
        augment_rate: chance of a word to be replaced.
        augment_candidates: so many of the likeliest words are drawn from.
        cache: folder for the teacher's answers to the training rows; written once, read again in
            every epoch and run. They are computed on the way when not given.
        max_length: cut texts to this many tokens; as the teacher's training did when not given,
            128 with `corpus`.
        show_texts: the report shows the texts of the worst errors.
        dev_rows: with `corpus`: so many held-out sequences are measured.
        masking: with `corpus`: token, word, ngram or span are masked as a whole.
        mask_rate: with `corpus`: share of the tokens that is masked.
        mask_style: with `corpus`: bert, roberta, electra or collator.
        mask_rarity: with `corpus`: tokens are drawn by their count to the power of minus this.
        max_predictions: with `corpus`: most masked tokens of a row.
        duplicates: with `corpus`: so many versions of the masks are made and repeated; made anew in
            every epoch when not given.
    """

    train: str | None = None
    corpus: tuple[str, ...] | None = None
    dev: str | None = None
    test: str | None = None
    extra: str | None = None
    augment_with: str | None = None
    augment_copies: int = 20
    augment_rate: float = 0.4
    augment_candidates: int = 15
    cache: str | None = None
    max_length: int | None = None
    show_texts: bool = False
    dev_rows: int = 1_000
    masking: str = "token"
    mask_rate: float = 0.15
    mask_style: str = "bert"
    mask_rarity: float = 0.0
    max_predictions: int | None = None
    duplicates: int | None = None


@dataclass(frozen=True, kw_only=True)
class DistillOptions(
    TrainOptions, RunOptions, ColumnNames, RowOptions, LossOptions, StudentOptions
):
    """A whole distillation, from labelled rows or from raw text."""

    def __post_init__(self) -> None:
        TrainOptions.__post_init__(self)
        RunOptions.__post_init__(self)
        if self.method not in METHODS:
            near = get_close_matches(self.method, METHODS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"method is {self.method!r}; it must be one of {METHODS}.{hint}")
        self._check_source()
        self._check_fields()
        self._check_numbers()
        if self.from_text:
            self.objective.check()

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> DistillOptions:
        """Options from keyword arguments; see `from_flat`.

        Raises:
            ConfigError: an unknown name (the nearest one is given), a missing one, or a wrong type.
        """
        given = dict(given)
        layers = given.get("layer_map")
        if isinstance(layers, list | tuple):
            given["layer_map"] = ",".join(map(str, layers))
        return from_flat(cls, given, required=("teacher", "out"))

    @property
    def from_text(self) -> bool:
        """Whether raw text is learnt from, not rows."""
        return self.corpus is not None

    @property
    def unread(self) -> set[str]:
        """Fields that this run has no use for."""
        found = {name for name, methods in _ONLY.items() if self.method not in methods}
        found |= set(_ROWS_ONLY if self.from_text else _TEXT_ONLY)
        return found | (set(_AUGMENT) if self.augment_with is None else set())

    @property
    def soft_temperature(self) -> float:
        """The temperature in force."""
        return self.temperature or _TEMPERATURE.get(self.method, 1.0)

    @property
    def hard_share(self) -> float:
        """The `alpha` in force."""
        return _ALPHA.get(self.method, 0.0) if self.alpha is None else self.alpha

    @property
    def objective(self) -> ObjectiveOptions:
        """How raw text is masked."""
        return ObjectiveOptions(
            masking=self.masking,
            mask_rate=self.mask_rate,
            mask_style=self.mask_style,
            mask_rarity=self.mask_rarity,
            max_predictions=self.max_predictions,
            duplicates=self.duplicates,
            max_length=self.max_length or 128,
        )

    @property
    def mapped_layers(self) -> tuple[int, ...] | None:
        """`layer_map` as numbers, from 0."""
        return None if self.layer_map is None else tuple(map(int, self.layer_map.split(",")))

    def _check_source(self) -> None:
        if (self.train is None) == (self.corpus is None):
            raise ConfigError(
                "Give --train with labelled rows of the teacher's task, or --corpus with raw text, "
                "and not both."
            )
        known, other = (FROM_TEXT, "--train") if self.from_text else (FROM_ROWS, "--corpus")
        if self.method not in known:
            raise ConfigError(
                f"method {self.method} learns from {other}; from "
                f"{'--corpus' if self.from_text else '--train'} choose {', '.join(known)}."
            )
        for name in ("train", "dev", "test", "extra"):
            if getattr(self, name) == "-":
                raise ConfigError(f"--{name} must be a file: it is read more than once.")
        if self.dev is None and (self.metric or self.patience or self.eval_every):
            raise ConfigError("metric, patience and eval_every need dev rows; give --dev.")

    def _check_fields(self) -> None:
        """Refuse what this method, or this source, does not read."""
        defaults = {name: f.default for name, f in self.__dataclass_fields__.items()}
        given = {name for name, default in defaults.items() if getattr(self, name) != default}
        for name in sorted(given & _ONLY.keys()):
            if self.method not in _ONLY[name]:
                raise ConfigError(
                    f"{name} is for {', '.join(_ONLY[name])}, not for method {self.method}; "
                    "leave it out."
                )
        source = "--corpus" if self.from_text else "--train"
        for name in sorted(given & set(_ROWS_ONLY if self.from_text else _TEXT_ONLY)):
            raise ConfigError(f"{name} does not go with {source}; leave it out.")
        unheard = sorted(given & {"extra", "augment_with", "temperature", "cache"})
        if self.method == "soft" and self.hard_share == 1 and unheard:
            raise ConfigError(
                f"{', '.join(unheard)}: with alpha 1 the teacher's answers have no share; leave it "
                "out, or lower alpha."
            )
        if self.from_text and self.method == "tinybert" and self.temperature is not None:
            raise ConfigError("temperature: tinybert learns no answer from raw text; leave it out.")
        if self.seeds != 1:
            raise ConfigError("seeds: not for distillation; leave it out.")
        if self.from_text and (self.metric or self.patience):
            raise ConfigError(
                "metric, patience: they choose among steps; from raw text the last step's weights "
                "are kept. Leave them out."
            )
        if self.method == "tinybert" and not self.from_text and self.distributed == "fsdp":
            raise ConfigError(
                "distributed fsdp does not go with the two stages of method tinybert; take ddp."
            )
        if self.augment_with is None and given & set(_AUGMENT):
            raise ConfigError("augment_* need a model that fills masks; give --augment-with.")

    def _check_numbers(self) -> None:
        if self.temperature is not None and not self.temperature > 0:
            raise ConfigError(f"temperature is {self.temperature}; it must be above zero.")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ConfigError(f"alpha is {self.alpha}; it must be from 0 to 1.")
        for name in ("beta", "soft_weight", "mlm_weight", "cosine_weight"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ConfigError(f"{name} is {value}; it must be zero or above.")
        if self.hidden_lr is not None and not 0 < self.hidden_lr < math.inf:
            raise ConfigError(f"hidden_lr is {self.hidden_lr}; it must be above zero.")
        if self.hidden_schedule not in (None, *SCHEDULES):
            raise ConfigError(
                f"hidden_schedule is {self.hidden_schedule!r}; it must be one of {list(SCHEDULES)}."
            )
        for name in ("hidden_share", "augment_rate"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be between 0 and 1.")
        counts = (
            "layers", "hidden_size", "heads", "intermediate_size",
            "relation_heads", "augment_copies", "augment_candidates", "dev_rows",
        )  # fmt: skip
        for name in counts:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be above zero.")
        if self.teacher_layer is not None and self.teacher_layer < 0:
            raise ConfigError(f"teacher_layer is {self.teacher_layer}; the first layer is 0.")
        if self.soft_on not in ("all", "masked"):
            raise ConfigError(f"soft_on is {self.soft_on!r}; it must be all or masked.")
        numbers = r"\d{1,4}(\s*,\s*\d{1,4})*"
        if self.layer_map is not None and not re.fullmatch(numbers, self.layer_map.strip()):
            raise ConfigError(
                f"layer_map is {self.layer_map!r}; give the teacher's layer for each of the "
                "student's, from 0 and between commas, such as 1,3,5."
            )
