"""Options of a pre-training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from filbert.data.masking import ObjectiveOptions
from filbert.errors import ConfigError
from filbert.train.options import RunOptions, TrainOptions, check_choice, check_range, from_flat

OBJECTIVES = ("mlm", "replaced", "translation", "elmo", "ulmfit", "permutation")
# Fields of ModelOptions that describe a new model, by the names of `EncoderConfig`.
_SIZES = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
    "embedding_size", "hidden_act", "max_position_embeddings",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model to continue from, or the sizes of a new one.

    Attributes:
        name: folder, built-in name or Hub id to continue from; a new model when not given.
        objective: mlm (masked words) or replaced (ELECTRA: a small generator fills the masks, the
            model detects replaced tokens); translation, elmo, ulmfit and permutation are of the
            recipes transformer-small, elmo-small, ulmfit-small and xlnet-small.
        embeddings: file of vectors by word or symbol, a line each, as word2vec and GloVe write
            them; the rows of those that are entries of the vocabulary begin with them.
        generator_share: width of ELECTRA's generator as a share of the model's.
        family: of a new model: bert, roberta, distilbert, albert, electra, modernbert, nomic_bert,
            gte, neobert, eurobert, mpnet or deberta-v2.
        num_hidden_layers: of a new model; its sizes are those of the family's base model otherwise.
        hidden_size: width of a new model.
        num_attention_heads: of every layer of a new model.
        intermediate_size: of a new model: width of the feed-forward network; four times the hidden
            size otherwise.
        embedding_size: of a new model: width of the word table, where the family has a narrow one.
        hidden_act: of a new model: gelu, gelu_tanh, relu or silu.
        max_position_embeddings: of a new model: rows of the position table.
    """

    name: str | None = field(default=None, metadata={"flat": "model"})
    objective: str = "mlm"
    embeddings: str | None = None
    generator_share: float = 0.25
    family: str = "bert"
    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    intermediate_size: int | None = None
    embedding_size: int | None = None
    hidden_act: str | None = None
    max_position_embeddings: int | None = None

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, OBJECTIVES)
        check_range(self, ("generator_share",), "be in (0, 1]", lambda value: 0 < value <= 1)
        described = [*self.sizes, *(["family"] if self.family != "bert" else [])]
        if self.name is not None and described:
            raise ConfigError(
                f"{', '.join(described)} describe a new model, but {self.name} is to be "
                "continued. Leave out one or the other."
            )

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of a new model that were given, by the names of `EncoderConfig`."""
        return {name: value for name in _SIZES if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The text.

    Attributes:
        corpus: a folder that `filbert corpus` made, or text files; several between commas.
        dev: the same, held out: measured during training, with masks that stay the same.
        dev_rows: number of held-out sequences to measure.
        dev_mask_rate: share of the held-out tokens that is masked, independent of `mask_rate`.
        tokenizer: folder of the vocabulary; the corpus's or the model's own when not given.
    """

    corpus: tuple[str, ...] | None = None
    dev: tuple[str, ...] | None = None
    dev_rows: int = 1_000
    dev_mask_rate: float = 0.15
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        check_range(self, ("dev_rows",), "be above zero", lambda value: value > 0)
        check_range(self, ("dev_mask_rate",), "be in (0, 1)", lambda value: 0 < value < 1)


@dataclass(frozen=True, kw_only=True)
class PhaseOptions:
    """A second phase with longer sequences.

    Attributes:
        second_length: sequences of the second phase; no second phase when not given.
        second_share: of the run that the second phase takes.
        second_batch_size: rows per step there; as many tokens as before when not given.
    """

    second_length: int | None = None
    second_share: float = 0.1
    second_batch_size: int | None = None

    def __post_init__(self) -> None:
        counts = ("second_length", "second_batch_size")
        check_range(self, counts, "be above zero", lambda value: value > 0)
        check_range(self, ("second_share",), "be in (0, 1)", lambda value: 0 < value < 1)
        if self.second_batch_size is not None and self.second_length is None:
            raise ConfigError(
                "second_batch_size is of a second phase; give its second_length too, or neither."
            )


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """A whole pre-training run."""

    model: ModelOptions = ModelOptions()
    data: TextOptions = TextOptions()
    objective: ObjectiveOptions = ObjectiveOptions()
    phases: PhaseOptions = PhaseOptions()
    train: TrainOptions = TrainOptions(
        batch_size=256, lr=1e-4, layer_decay=1.0, epochs=1.0, eps=1e-6
    )
    run: RunOptions = RunOptions()

    def __post_init__(self) -> None:
        self.objective.check()
        if self.model.objective == "replaced" and self.objective.pair != "none":
            raise ConfigError(
                f"pair is {self.objective.pair!r}; replaced-token detection has no pair objective."
            )
        if self.run.seeds != 1:
            raise ConfigError("seeds is for fine-tuning; leave it out.")
        if self.train.metric is not None or self.train.patience:
            raise ConfigError(
                "metric, patience: they choose among steps; pre-training keeps the last step's "
                "weights. Leave them out."
            )

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> PretrainOptions:
        """Return the options for flat names; see `from_flat`."""
        return from_flat(cls, given, required=("corpus", "out"))
