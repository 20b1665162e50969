"""What the user may say about a pre-training run: flags, recipe keys and keywords."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from filbert.data.masking import ObjectiveOptions
from filbert.errors import ConfigError
from filbert.train.options import RunOptions, TrainOptions, from_flat

OBJECTIVES = ("mlm", "replaced")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model: one to continue from, or the sizes of a new one.

    Attributes:
        model: folder, built-in name or Hub id to continue from; a new model when not given.
        new_tokens: file of words, one a line, that become vocabulary entries of their own.
        family: of a new model: bert, roberta, distilbert, albert, electra or modernbert.
        num_hidden_layers: of a new model, as all that follow; the family's base model otherwise.
        hidden_size: width.
        num_attention_heads: of every layer.
        intermediate_size: width of the feed-forward network; four times the hidden size otherwise.
        embedding_size: width of the word table, where the family has a narrow one.
        hidden_act: gelu, gelu_tanh or relu.
        max_position_embeddings: rows of the position table.
        generator_share: width of ELECTRA's generator as a share of the model's.
    """

    model: str | None = None
    new_tokens: str | None = None
    family: str = "bert"
    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    intermediate_size: int | None = None
    embedding_size: int | None = None
    hidden_act: str | None = None
    max_position_embeddings: int | None = None
    generator_share: float = 0.25

    def sizes(self) -> dict[str, Any]:
        """What was said about a new model, by the names of `EncoderConfig`."""
        names = (
            "num_hidden_layers",
            "hidden_size",
            "num_attention_heads",
            "intermediate_size",
            "embedding_size",
            "hidden_act",
            "max_position_embeddings",
        )
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Which text.

    Attributes:
        corpus: a folder that `filbert corpus` made, or text files; several between commas.
        dev: the same, held out: measured on the way, with masks that stay the same.
        dev_rows: so many held-out sequences are measured.
        tokenizer: folder of the vocabulary; the corpus's or the model's own when not given.
        dry_run: say how large and how long it would be, and train nothing.
    """

    corpus: tuple[str, ...] | None = None
    dev: tuple[str, ...] | None = None
    dev_rows: int = 1_000
    tokenizer: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class PretrainOptions(TrainOptions, RunOptions, ObjectiveOptions, ModelOptions, TextOptions):
    """A whole pre-training run.

    Attributes:
        objective: mlm (masked words) or replaced (ELECTRA: a small generator fills the masks, the
            model tells which words are not the original).
        second_length: sequences of the second phase; no second phase when not given.
        second_share: of the run that the second phase takes.
        second_batch_size: rows per step there; as many tokens as before when not given.
        dev_mask_rate: share of the held-out tokens that is masked, whatever `mask_rate` is.
        batch_start: rows of the first step, where the batch grows.
        batch_warmup: rows over which it grows to `batch_size`.
    """

    objective: str = "mlm"
    second_length: int | None = None
    second_share: float = 0.1
    second_batch_size: int | None = None
    dev_mask_rate: float = 0.15
    batch_start: int | None = None
    batch_warmup: int = 0
    batch_size: int = 256
    lr: float = 1e-4
    epochs: float = 1.0
    eps: float | None = 1e-6

    def __post_init__(self) -> None:
        TrainOptions.__post_init__(self)
        RunOptions.__post_init__(self)
        self.check()
        if self.objective not in OBJECTIVES:
            raise ConfigError(
                f"objective is {self.objective!r}; it must be one of {list(OBJECTIVES)}."
            )
        if self.objective == "replaced" and self.pair != "none":
            raise ConfigError(
                f"pair is {self.pair!r}; replaced-token detection has no pair objective."
            )
        if not 0 < self.dev_mask_rate < 1:
            raise ConfigError(f"dev_mask_rate is {self.dev_mask_rate}; it must be in (0, 1).")
        if not 0 < self.second_share < 1:
            raise ConfigError(f"second_share is {self.second_share}; it must be in (0, 1).")
        for name in ("dev_rows", "second_length", "second_batch_size", "batch_start"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be above zero.")
        if self.second_batch_size is not None and self.second_length is None:
            raise ConfigError(
                "second_batch_size is of a second phase; give its second_length too, or neither."
            )
        if self.batch_warmup < 0:
            raise ConfigError(f"batch_warmup is {self.batch_warmup}; it must be zero or above.")
        if (self.batch_start is None) != (self.batch_warmup == 0):
            raise ConfigError("batch_start and batch_warmup go together; give both or neither.")
        if self.batch_start is not None and self.batch_start > self.batch_size:
            raise ConfigError(
                f"batch_start is {self.batch_start}; it must be from 1 to {self.batch_size}."
            )
        if self.seeds != 1:
            raise ConfigError("seeds is for fine-tuning; leave it out.")
        if self.metric is not None or self.patience:
            raise ConfigError(
                "metric, patience: they choose among steps; pre-training keeps the last step's "
                "weights. Leave them out."
            )
        if not math.isfinite(self.generator_share) or not 0 < self.generator_share <= 1:
            raise ConfigError(f"generator_share is {self.generator_share}; it must be in (0, 1].")

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> PretrainOptions:
        """Options from keyword arguments; see `from_flat`.

        Raises:
            ConfigError: an unknown name (the nearest one is given), a missing one, or a wrong type.
        """
        dry = bool(given.get("dry_run"))
        return from_flat(cls, given, required=("corpus",) if dry else ("corpus", "out"))
