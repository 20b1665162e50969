"""What the user may say about `filbert layers`: the fields are its flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from filbert.errors import ConfigError
from filbert.train.options import DataFlags, FinetuneOptions, TrainOptions, checked

HEADS = ("bilstm", "linear")
# On 600 sentences of WNUT-17 with MiniLM: a linear head did alike at 3e-3 and 1e-2 and worse at
# 3e-2; a BiLSTM had found no entity after four epochs at 1e-3, and did well at 3e-3.
_RATES = {"bilstm": 3e-3, "linear": 5e-3}
_POOLINGS = ("mean", "cls", "max")


@dataclass(frozen=True, kw_only=True)
class LayersOptions(DataFlags):
    """A comparison of what a frozen encoder's layers know of a task.

    Attributes:
        task: classification, tagging or regression.
        model: folder, built-in name or Hub id.
        train: rows that the heads learn from.
        dev: rows that the best epoch is chosen on and the figures are of.
        test: rows that are only measured, at the end.
        only: which choices to try, by the names in the table; all six when not given.
        each: every layer alone as well, from the embeddings up.
        head: what learns on top: bilstm, as in the paper, or linear.
        width: units of the BiLSTM in each direction; the model's hidden size when not given.
        depth: layers of the BiLSTM.
        head_dropout: on the features, between the layers of the BiLSTM and on what it gives.
        seeds: heads that are trained for every choice, from different draws.
        seed: the first of them.
        epochs: passes over the training rows, for a head.
        patience: stop a head after so many epochs without a better one; 0 never stops early.
        batch_size: rows per step.
        lr: peak learning rate; 3e-3 for bilstm and 5e-3 for linear when not given.
        metric: what is shown and what the best epoch is chosen by; the task's own when not given.
        finetune: train the whole model too, as often, to stand beside the choices.
        finetune_lr: its learning rate.
        finetune_epochs: its passes over the training rows.
        max_length: cut texts to this many tokens; the model's own limit when not given.
        precision: of the encoder: float32, bf16 or auto. The heads learn in float32.
        device: cpu, cuda, ...; the first GPU when there is one.
    """

    task: str
    model: str
    train: str
    dev: str
    test: str | None = None
    only: tuple[str, ...] = ()
    each: bool = False
    head: str = "bilstm"
    width: int | None = None
    depth: int = 2
    head_dropout: float = 0.1
    seeds: int = 3
    seed: int = 42
    epochs: int = 10
    patience: int = 3
    batch_size: int = 32
    lr: float | None = None
    metric: str | None = None
    finetune: bool = False
    finetune_lr: float = 5e-5
    finetune_epochs: float = 3.0
    max_length: int | None = None
    precision: str = "float32"
    device: str | None = None

    def __post_init__(self) -> None:
        for name, known in (("head", HEADS), ("pooling", _POOLINGS)):
            given = getattr(self, name)
            if given not in known:
                near = get_close_matches(given, known, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"{name} is {given!r}; it must be one of {list(known)}.{hint}")
        for name in ("width", "depth", "seeds", "epochs", "finetune_epochs"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; it must be above zero.")
        if not 0.0 <= self.head_dropout < 1.0:
            raise ConfigError(f"head_dropout is {self.head_dropout}; it must be in [0, 1).")
        if self.head == "linear" and (self.width is not None or self.depth != 2):
            raise ConfigError("--width and --depth shape the BiLSTM; a linear head has neither.")
        self.training(self.seed)
        self.rows()

    def training(self, seed: int) -> TrainOptions:
        """How one head learns: weights without decay, few and drawn anew."""
        return TrainOptions(
            batch_size=self.batch_size,
            lr=_RATES[self.head] if self.lr is None else self.lr,
            epochs=self.epochs,
            patience=self.patience,
            weight_decay=0.0,
            metric=self.metric,
            seed=seed,
            precision="float32",
        )

    def rows(self, *, seed: int | None = None, out: str = "") -> FinetuneOptions:
        """The same rows and model as a fine-tuning run takes them."""
        own = {field.name: getattr(self, field.name) for field in fields(DataFlags)}
        return FinetuneOptions(
            **own,
            task=self.task,
            model=self.model,
            train=self.train,
            dev=self.dev,
            test=self.test,
            metric=self.metric,
            max_length=self.max_length,
            lr=self.finetune_lr,
            epochs=self.finetune_epochs,
            batch_size=self.batch_size,
            seed=self.seed if seed is None else seed,
            out=out,
            save_every=0,
            new_head=True,
            device=self.device,
        )

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> LayersOptions:
        """Options from keyword arguments; see `train.options.checked`.

        Raises:
            ConfigError: an unknown name (the nearest one is given), a missing one, or a wrong type.
        """
        return cls(**checked(cls, given, required=("task", "model", "train", "dev")))
