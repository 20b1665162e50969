"""EncoderConfig: the grammar in which every model family is one encoder.

Each axis of the grammar is a small frozen value. A family that needs another position scheme or
norm adds one class to that axis and its settings to `SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from filbert.errors import ConfigError

ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
POOLERS = (None, "tanh", "relu", "gelu")
POOLED = ("cls", "mean")

# Number formats of matrix products. They are named here because options are checked without torch.
PRECISIONS = ("auto", "float32", "bf16")
# Int8 is for inference only; see model/int8.py.
INFERENCE_PRECISIONS = (*PRECISIONS, "int8")


@dataclass(frozen=True, kw_only=True)
class PositionTable:
    """Learned absolute positions, added to the word embeddings.

    Attributes:
        rows: Rows of the table (RoBERTa: 514 rows serve 512 tokens).
        offset: Row of the first token's position (RoBERTa: 2).
    """

    rows: int = 512
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class RotaryPositions:
    """Rotary positions: queries and keys are rotated by angles that grow with the position.

    Attributes:
        rows: The longest sequence.
        base: Base of the frequencies (ModernBERT: 160,000).
        local_base: Base in local layers (ModernBERT: 10,000); None for `base`.
    """

    rows: int = 512
    base: float
    local_base: float | None = None
    offset: int = field(default=0, init=False)


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """The normalisation of embeddings and sublayers.

    Attributes:
        eps: Added to the variance.
        bias: Whether it has a bias.
        before: Normalise before each sublayer and after the last one (pre-norm) instead of after
            each sum. The first layer's attention has no norm then: the embeddings are normalised.
    """

    eps: float = 1e-12
    bias: bool = True
    before: bool = False


@dataclass(frozen=True, kw_only=True)
class SelfAttention:
    """Self-attention of every layer.

    Attributes:
        heads: Heads per layer; divides the hidden size.
        heads_per_layer: Remaining heads of each layer after pruning (Michel et al. 2019); None for
            all. A head keeps its size, so the attention of a pruned layer is narrower.
        window: Width of the window of local layers: half of it to either side of a token (and the
            token itself; ModernBERT: 128). None: no layer is local.
        global_every: Layer i attends to whole sequences if i is a multiple of this (ModernBERT: 3).
        causal: Tokens attend to themselves and earlier tokens only.
        bias: Whether the projections have biases.
    """

    heads: int
    heads_per_layer: tuple[int, ...] | None = None
    window: int | None = None
    global_every: int = 1
    causal: bool = False
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class FeedForward:
    """The feed-forward network of every layer.

    Attributes:
        width: Width of its hidden layer.
        activation: "gelu" (erf), "gelu_tanh" or "relu"; heads use the same.
        gated: The first product is twice as wide; its activated first half is multiplied by the
            second (Shazeer 2020, GEGLU).
        bias: Whether its products have biases.
    """

    width: int
    activation: str = "gelu"
    gated: bool = False
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class EmbeddingTables:
    """The tables that are summed before the first layer, besides the positions.

    Attributes:
        token_types: Rows of the token type table; 0 for no table (DistilBERT).
        width: Width of all tables if it is not the hidden size (ALBERT, ELECTRA-small). A
            projection to the hidden size follows.
    """

    token_types: int = 2
    width: int | None = None


@dataclass(frozen=True, kw_only=True)
class TextPooling:
    """The vector of a sequence that heads over sequences read.

    Attributes:
        token: "cls" for the first token (the last one if attention is causal), or "mean".
        activation: Activation of the dense layer over it (the pooler); None for no such layer.
        dropout: Dropout before that layer too (RoBERTa's and ELECTRA's classifiers).
    """

    token: str = "cls"
    activation: str | None = "tanh"
    dropout: bool = False


@dataclass(frozen=True, kw_only=True)
class HeadTransform:
    """The dense layer, activation and norm with which a masked-LM head begins.

    Attributes:
        everywhere: All heads begin with it (ModernBERT).
        bias: Whether the dense layer has a bias.
    """

    everywhere: bool = False
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class DropoutRates:
    """Dropout rates in training, each in [0, 1).

    Attributes:
        hidden: On embeddings and sublayer outputs.
        attention: On attention probabilities.
        head: On the input of a task head.
    """

    hidden: float = 0.1
    attention: float = 0.1
    head: float = 0.1


# Flat names of the grammar's fields, as in config.json files, options and messages: to the fields
# that a setting gives a value to. Those of positions are distributed by `_positions`.
SETTINGS: dict[str, tuple[str, ...]] = {
    "vocab_size": ("vocab_size",),
    "hidden_size": ("hidden_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("attention.heads",),
    "intermediate_size": ("feed_forward.width",),
    "heads_per_layer": ("attention.heads_per_layer",),
    "max_position_embeddings": ("positions.rows",),
    "position_offset": ("positions.offset",),
    "rotary_base": ("positions.base",),
    "local_rotary_base": ("positions.local_base",),
    "local_window": ("attention.window",),
    "global_every": ("attention.global_every",),
    "causal": ("attention.causal",),
    "type_vocab_size": ("embeddings.token_types",),
    "embedding_size": ("embeddings.width",),
    "num_hidden_groups": ("layer_groups",),
    "hidden_act": ("feed_forward.activation",),
    "gated": ("feed_forward.gated",),
    "pre_norm": ("norm.before",),
    "biases": ("feed_forward.bias", "attention.bias", "norm.bias", "head_transform.bias"),
    "layer_norm_eps": ("norm.eps",),
    "pooled": ("pooling.token",),
    "pooler": ("pooling.activation",),
    "pooler_dropout": ("pooling.dropout",),
    "head_transform": ("head_transform.everywhere",),
    "hidden_dropout": ("dropout.hidden",),
    "attention_dropout": ("dropout.attention",),
    "head_dropout": ("dropout.head",),
    "initializer_range": ("initializer_range",),
}

# Far above any published encoder; they limit the memory that a hostile config.json can request.
_LIMITS = {
    "vocab_size": (1, 4_000_000),
    "hidden_size": (1, 65_536),
    "num_hidden_layers": (1, 512),
    "num_attention_heads": (1, 1_024),
    "intermediate_size": (1, 524_288),
    "max_position_embeddings": (1, 1_048_576),
    "type_vocab_size": (0, 1_024),
    "position_offset": (0, 1_024),
    "embedding_size": (1, 65_536),
    "global_every": (1, 512),
    "local_window": (0, 1_048_576),
}
_OPTIONAL = ("local_window", "embedding_size")
_CHOICES = {"hidden_act": ACTIVATIONS, "pooler": POOLERS, "pooled": POOLED}
# The largest published base is 16 million.
_LARGEST_ROTARY_BASE = 1e12


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of an encoder; `EncoderConfig.of` builds one from flat settings.

    Attributes:
        vocab_size: Rows of the word table.
        hidden_size: Width H of every hidden state.
        num_hidden_layers: Layers executed.
        attention: Heads, windows, direction.
        feed_forward: Width, activation, gate.
        positions: How tokens know their position.
        norm: Normalisation and its place.
        embeddings: Token types and table width.
        layer_groups: Distinct sets of layer parameters; None for one per layer, 1 for all shared
            (ALBERT). Layer i uses group i * groups // layers.
        pooling: The vector of a sequence.
        head_transform: Which heads begin with a transform.
        dropout: Rates in training.
        initializer_range: Standard deviation of the truncated normal distribution of new weights.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    attention: SelfAttention
    feed_forward: FeedForward
    positions: PositionTable | RotaryPositions = PositionTable()
    norm: LayerNorm = LayerNorm()
    embeddings: EmbeddingTables = EmbeddingTables()
    layer_groups: int | None = None
    pooling: TextPooling = TextPooling()
    head_transform: HeadTransform = HeadTransform()
    dropout: DropoutRates = DropoutRates()
    initializer_range: float = 0.02

    @classmethod
    def of(cls, **settings: Any) -> EncoderConfig:
        """Build a configuration from flat settings, with the names of `SETTINGS`.

        Settings that are left out have the defaults of the small values.

        Raises:
            ConfigError: A value out of range or a contradiction.
        """
        values, parts = _by_part(settings)
        positions = _positions(parts.pop("positions", {}))
        built = {name: part(**parts.get(name, {})) for name, part in _PARTS.items()}
        return cls(**values, **built, positions=positions)

    def settings(self) -> dict[str, Any]:
        """Return the flat settings, from which `of` builds the same configuration."""
        values = {}
        for name, (path, *_) in SETTINGS.items():
            part, _, own = path.rpartition(".")
            values[name] = getattr(getattr(self, part) if part else self, own, None)
        return values

    def changed(self, **settings: Any) -> EncoderConfig:
        """Return a copy with other values for some of the flat settings."""
        values, parts = _by_part(settings)
        if (positions := parts.pop("positions", None)) is not None:
            values["positions"] = _positions({**asdict(self.positions), **positions})
        for name, of in parts.items():
            values[name] = replace(getattr(self, name), **of)
        return replace(self, **values)

    def differing(self, other: EncoderConfig) -> list[str]:
        """Return the names of the flat settings whose values differ from another's."""
        others = other.settings()
        return [name for name, value in self.settings().items() if value != others[name]]

    def with_dropout(self, rate: float) -> EncoderConfig:
        """Return a copy with one rate for all dropout."""
        return self.changed(hidden_dropout=rate, attention_dropout=rate, head_dropout=rate)

    def is_local(self, index: int) -> bool:
        """Return whether layer `index` attends within the window only."""
        return self.attention.window is not None and index % self.attention.global_every != 0

    def heads_of(self, index: int) -> int:
        """Return A, the number of heads of layer `index`."""
        counts = self.attention.heads_per_layer
        return self.attention.heads if counts is None else counts[index]

    @property
    def head_size(self) -> int:
        """D = H / heads."""
        return self.hidden_size // self.attention.heads

    @property
    def table_size(self) -> int:
        """Width of the embedding tables."""
        return self.embeddings.width or self.hidden_size

    @property
    def num_groups(self) -> int:
        """Number of distinct sets of layer parameters."""
        return self.layer_groups or self.num_hidden_layers

    @property
    def max_tokens_per_sequence(self) -> int:
        """The longest sequence, special tokens included."""
        return self.positions.rows - self.positions.offset

    def __post_init__(self) -> None:
        values = self.settings()
        _check_ranges(values)
        heads, groups = self.attention.heads, self.layer_groups
        if self.hidden_size % heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {heads}."
            )
        if self.attention.causal and self.attention.window is not None:
            raise ConfigError(
                f"causal with local_window {self.attention.window}: local layers attend to both "
                "sides. Choose a model without local layers."
            )
        self._check_positions()
        if groups is not None and not 1 <= groups <= self.num_hidden_layers:
            raise ConfigError(f"num_hidden_groups {groups} is not in 1..{self.num_hidden_layers}.")
        shares = self.num_groups < self.num_hidden_layers
        if self.norm.before and shares:
            # The first layer has one LayerNorm less than the others.
            raise ConfigError(
                f"num_hidden_groups {groups} with pre_norm: layers that share their weights are "
                "post-norm only."
            )
        counts = self.attention.heads_per_layer
        if counts is not None and shares:
            raise ConfigError("heads_per_layer: layers that share their weights cannot be pruned.")
        if counts is not None and not (
            len(counts) == self.num_hidden_layers
            and all(isinstance(count, int) and 1 <= count <= heads for count in counts)
        ):
            raise ConfigError(
                f"heads_per_layer is {list(counts)}; it must be a number from 1 to {heads} for "
                f"each of {self.num_hidden_layers} layers."
            )

    def _check_positions(self) -> None:
        rows, offset = self.positions.rows, self.positions.offset
        if rows <= offset:
            raise ConfigError(
                f"max_position_embeddings {rows} leaves no row for a token: the first {offset} "
                "rows are not used."
            )
        if isinstance(self.positions, RotaryPositions) and self.head_size % 2:
            raise ConfigError(
                f"hidden_size {self.hidden_size} gives each of the {self.attention.heads} "
                f"num_attention_heads {self.head_size} elements; rotary positions need an even "
                "number."
            )


_PARTS: dict[str, Any] = {
    "attention": SelfAttention,
    "feed_forward": FeedForward,
    "norm": LayerNorm,
    "embeddings": EmbeddingTables,
    "pooling": TextPooling,
    "head_transform": HeadTransform,
    "dropout": DropoutRates,
}


def _by_part(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the values of EncoderConfig's own fields, and those of each part's fields."""
    if unknown := settings.keys() - SETTINGS:
        raise TypeError(f"EncoderConfig has no settings {sorted(unknown)}")
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        for path in SETTINGS[name]:
            part, _, own = path.rpartition(".")
            (parts.setdefault(part, {}) if part else values)[own] = value
    return values, parts


def _positions(values: dict[str, Any]) -> PositionTable | RotaryPositions:
    """Choose the position scheme: rotary if there is a base, else a table."""
    base, local_base = values.pop("base", None), values.pop("local_base", None)
    if base is None:
        if local_base is not None:
            raise ConfigError("local_rotary_base is given, but no rotary_base.")
        return PositionTable(**values)
    if offset := values.pop("offset", 0):
        raise ConfigError(f"position_offset is {offset}; rotary positions begin at 0.")
    return RotaryPositions(base=base, local_base=local_base, **values)


def _check_ranges(values: Mapping[str, Any]) -> None:
    """Check single values, by their flat names."""
    for name, (least, most) in _LIMITS.items():
        value = values[name]
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{name} is {value!r}; it must be from {least} to {most}.")
    for name, choices in _CHOICES.items():
        if values[name] not in choices:
            raise ConfigError(f"{name} {values[name]!r} is not one of {list(choices)}.")
    for name in ("rotary_base", "local_rotary_base"):
        base = values[name]
        if base is not None and not 1.0 <= base <= _LARGEST_ROTARY_BASE:
            raise ConfigError(f"{name} is {base!r}; it must be from 1 to {_LARGEST_ROTARY_BASE}.")
    for name in ("hidden_dropout", "attention_dropout", "head_dropout"):
        if not 0.0 <= values[name] < 1.0:
            raise ConfigError(f"{name} is {values[name]!r}; it must be in [0, 1).")
    if not values["layer_norm_eps"] > 0 or not values["initializer_range"] > 0:
        raise ConfigError("layer_norm_eps and initializer_range must be above zero.")
