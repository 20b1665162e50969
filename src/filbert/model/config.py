"""EncoderConfig: the grammar in which every model family is one encoder.

Each axis of the grammar is a small frozen value. A family that needs another position scheme or
norm adds one class to that axis and its settings to `SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from reprlib import repr as short
from typing import Any

from filbert.errors import ConfigError

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
POOLERS = (None, "tanh", "relu", "gelu")
POOLED = ("cls", "last", "mean", "late")
NORM_PLACES = ("after", "before", "both")

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
    kind: str = field(default="table", init=False)
    absolute: bool = field(default=True, init=False)


@dataclass(frozen=True, kw_only=True)
class RotaryPositions:
    """Rotary positions: queries and keys are rotated by angles that grow with the position.

    Attributes:
        rows: The longest sequence.
        base: Base of the frequencies (ModernBERT: 160,000).
        local_base: Base in local layers (ModernBERT: 10,000); None for `base`.
        scaling: By how much the positions outgrow those of pre-training: the frequencies are those
            of a larger base ("NTK-aware"; GTE: 2). See `positions.rotary_angles`.
    """

    rows: int = 512
    base: float
    local_base: float | None = None
    scaling: float = 1.0
    offset: int = field(default=0, init=False)
    kind: str = field(default="rotary", init=False)
    absolute: bool = field(default=False, init=False)


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """A learned bias per head on the scores, by the distance between query and key.

    All layers share it. Distances above a quarter of `count` share buckets, logarithmically.
    Source: Raffel et al. 2020, section 2.1.

    Attributes:
        rows: The longest sequence, or rows of the table of absolute positions.
        offset: As for `PositionTable`.
        count: Number of buckets, half of them for each direction.
        max_distance: All distances from this one on have the same bucket.
        absolute: Whether there is a table of absolute positions too (MPNet).
    """

    rows: int = 512
    offset: int = 0
    count: int = 32
    max_distance: int = 128
    absolute: bool = False
    kind: str = field(default="buckets", init=False)


@dataclass(frozen=True, kw_only=True)
class Alibi:
    """A fixed bias per head that falls with the distance. Source: Press et al. 2022, section 3.

    Attributes:
        rows: The longest sequence.
    """

    rows: int = 512
    offset: int = field(default=0, init=False)
    kind: str = field(default="alibi", init=False)
    absolute: bool = field(default=False, init=False)


@dataclass(frozen=True, kw_only=True)
class Disentangled:
    """Scores of queries with vectors of distances, and of keys with such vectors.

    The vectors are products of one normalised table, which all layers share, with a layer's own
    weights for queries and keys. Sources: He et al. 2021 (DeBERTa), section 3.1, and He et al.
    2023 (DeBERTaV3).

    Attributes:
        rows: The longest sequence.
        count: Rows of the table for each direction. Distances above half of it share rows,
            logarithmically.
        max_distance: All distances from this one on have the same row.
    """

    rows: int = 512
    count: int = 256
    max_distance: int = 512
    offset: int = field(default=0, init=False)
    kind: str = field(default="disentangled", init=False)
    absolute: bool = field(default=False, init=False)


@dataclass(frozen=True, kw_only=True)
class RelativeSinusoid:
    """Scores of queries with projected sinusoids of the distances; token types are compared.

    Each layer has its own projection and biases, and no table of token types is added to the
    words. Sources: Dai et al. 2019 (Transformer-XL), section 3.3, and Yang et al. 2019 (XLNet),
    section 2.5.

    Attributes:
        rows: The longest sequence.
    """

    rows: int = 512
    offset: int = field(default=0, init=False)
    kind: str = field(default="sinusoid", init=False)
    absolute: bool = field(default=False, init=False)


Positions = PositionTable | RotaryPositions | Buckets | Alibi | Disentangled | RelativeSinusoid
_BY_DISTANCE: dict[str, type[Any]] = {
    "buckets": Buckets,
    "alibi": Alibi,
    "disentangled": Disentangled,
    "sinusoid": RelativeSinusoid,
}


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """The normalisation of embeddings and sublayers.

    Attributes:
        eps: Added to the variance.
        bias: Whether it has a bias.
        place: "after" each sum (post-norm), "before" each sublayer and after the last one
            (pre-norm), or on "both" sides of each sublayer and after the last one (Gemma 3).
            A first layer that normalises its input does not do so if the embeddings did.
    """

    eps: float = 1e-12
    bias: bool = True
    place: str = "after"
    rms: bool = field(default=False, init=False)


@dataclass(frozen=True, kw_only=True)
class RMSNorm:
    """LayerNorm without the mean and the bias. Source: Zhang and Sennrich 2019.

    Attributes:
        eps: Added to the mean of squares.
        from_one: The weights are differences from 1 (Gemma).
        place: As for `LayerNorm`.
    """

    eps: float = 1e-6
    from_one: bool = False
    place: str = "after"
    rms: bool = field(default=True, init=False)
    bias: bool = field(default=False, init=False)


@dataclass(frozen=True, kw_only=True)
class SelfAttention:
    """Self-attention of every layer.

    Attributes:
        heads: Heads per layer; divides the hidden size, unless `head_size` is given.
        key_value_heads: Heads of keys and values, each of which serves several heads of queries
            (Ainslie et al. 2023); None for as many.
        head_size: Width of a head; None for hidden size / heads.
        normed: Whether each head's queries and keys are normalised (Qwen3, Gemma 3).
        heads_per_layer: Remaining heads of each layer after pruning (Michel et al. 2019); None for
            all. A head keeps its size, so the attention of a pruned layer is narrower.
        window: Width of the window of local layers: half of it to either side of a token (and the
            token itself; ModernBERT: 128). None: no layer is local.
        global_every: One layer of so many attends to whole sequences (ModernBERT: 3),
        global_first: beginning with this one.
        causal: Tokens attend to themselves and earlier tokens only.
        scale: Factor of the scores; None for 1 / sqrt(head size), or with `Disentangled` positions,
            whose scores are three sums, 1 / sqrt(3 head size).
        bias: Whether the projections have biases.
    """

    heads: int
    key_value_heads: int | None = None
    head_size: int | None = None
    normed: bool = False
    heads_per_layer: tuple[int, ...] | None = None
    window: int | None = None
    global_every: int = 1
    global_first: int = 0
    causal: bool = False
    scale: float | None = None
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class FeedForward:
    """The feed-forward network of every layer.

    Attributes:
        width: Width of its hidden layer.
        activation: "gelu" (erf), "gelu_tanh", "relu" or "silu"; heads use the same.
        gated: The first product is twice as wide; its activated first half is multiplied by the
            second (Shazeer 2020, GEGLU and SwiGLU).
        bias: Whether the second product has a bias.
        up_bias: Whether the first one has.
    """

    width: int
    activation: str = "gelu"
    gated: bool = False
    bias: bool = True
    up_bias: bool = True


@dataclass(frozen=True, kw_only=True)
class EmbeddingTables:
    """The tables that are summed before the first layer, besides the positions.

    Attributes:
        token_types: Rows of the token type table; 0 for no table (DistilBERT). With
            `RelativeSinusoid` positions the number of types, without a table.
        width: Width of all tables if it is not the hidden size (ALBERT, ELECTRA-small). A
            projection to the hidden size follows.
        normed: Whether a norm follows the sum.
        scaled: Whether word embeddings are multiplied by the root of the hidden size (Gemma).
    """

    token_types: int = 2
    width: int | None = None
    normed: bool = True
    scaled: bool = False


@dataclass(frozen=True, kw_only=True)
class TextPooling:
    """The vector of a sequence that heads over sequences read.

    Attributes:
        token: "cls" for the first token (the last one if attention is causal), "last", "mean", or
            "late" for the mean of all tokens' outputs of the pooler (EuroBERT).
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
        out_bias: Whether the classifier of sequences, after it, has one.
    """

    everywhere: bool = False
    bias: bool = True
    out_bias: bool = True


@dataclass(frozen=True, kw_only=True)
class WordScores:
    """How a masked-LM head scores the vocabulary.

    Attributes:
        transform: Whether it begins with the transform.
        tied: Its matrix is the word table; otherwise it has its own (EuroBERT, NeoBERT).
        bias: Whether each score has a bias.
    """

    transform: bool = True
    tied: bool = True
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


# Flat names of the grammar's fields, as in config.json files, options and messages: to the field
# that a setting gives a value to. Those of positions and norm are distributed by `_positions` and
# `_norm`.
SETTINGS: dict[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "attention.heads",
    "num_key_value_heads": "attention.key_value_heads",
    "head_size": "attention.head_size",
    "qk_norm": "attention.normed",
    "intermediate_size": "feed_forward.width",
    "heads_per_layer": "attention.heads_per_layer",
    "max_position_embeddings": "positions.rows",
    "position_offset": "positions.offset",
    "rotary_base": "positions.base",
    "local_rotary_base": "positions.local_base",
    "rotary_scaling": "positions.scaling",
    "position_kind": "positions.kind",
    "absolute_positions": "positions.absolute",
    "distance_buckets": "positions.count",
    "max_distance": "positions.max_distance",
    "local_window": "attention.window",
    "global_every": "attention.global_every",
    "global_first": "attention.global_first",
    "causal": "attention.causal",
    "attention_scale": "attention.scale",
    "type_vocab_size": "embeddings.token_types",
    "embedding_size": "embeddings.width",
    "embedding_norm": "embeddings.normed",
    "embedding_scaled": "embeddings.scaled",
    "num_hidden_groups": "layer_groups",
    "hidden_act": "feed_forward.activation",
    "gated": "feed_forward.gated",
    "norm_place": "norm.place",
    "rms_norm": "norm.rms",
    "norm_from_one": "norm.from_one",
    "layer_norm_eps": "norm.eps",
    "attention_bias": "attention.bias",
    "mlp_bias": "feed_forward.bias",
    "up_bias": "feed_forward.up_bias",
    "norm_bias": "norm.bias",
    "head_bias": "head_transform.bias",
    "out_bias": "head_transform.out_bias",
    "lm_transform": "word_scores.transform",
    "lm_tied": "word_scores.tied",
    "lm_bias": "word_scores.bias",
    "pooled": "pooling.token",
    "pooler": "pooling.activation",
    "pooler_dropout": "pooling.dropout",
    "head_transform": "head_transform.everywhere",
    "hidden_dropout": "dropout.hidden",
    "attention_dropout": "dropout.attention",
    "head_dropout": "dropout.head",
    "initializer_range": "initializer_range",
}

# The settings that "biases" gives one value to.
_BIASES = ("attention_bias", "mlp_bias", "up_bias", "norm_bias", "head_bias")

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
    "global_every": (1, 512),
    "global_first": (0, 512),
}
# Of settings that may be None.
_OPTIONAL_LIMITS = {
    "num_key_value_heads": (1, 1_024),
    "head_size": (1, 4_096),
    "embedding_size": (1, 65_536),
    "local_window": (0, 1_048_576),
    "distance_buckets": (4, 65_536),
    "max_distance": (2, 1_048_576),
}
_CHOICES = {
    "hidden_act": ACTIVATIONS,
    "norm_place": NORM_PLACES,
    "pooler": POOLERS,
    "pooled": POOLED,
}
# The largest published base is 16 million.
_LARGEST_ROTARY_BASE = 1e12


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of an encoder; `EncoderConfig.of` builds one from flat settings.

    Attributes:
        vocab_size: Rows of the word table.
        hidden_size: Width H of every hidden state.
        num_hidden_layers: Layers executed.
        layer_groups: Distinct sets of layer parameters; None for one per layer, 1 for all shared
            (ALBERT). Layer i uses group i * groups // layers.
        initializer_range: Standard deviation of the truncated normal distribution of new weights.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    attention: SelfAttention
    feed_forward: FeedForward
    positions: Positions = PositionTable()
    norm: LayerNorm | RMSNorm = LayerNorm()
    embeddings: EmbeddingTables = EmbeddingTables()
    layer_groups: int | None = None
    pooling: TextPooling = TextPooling()
    head_transform: HeadTransform = HeadTransform()
    word_scores: WordScores = WordScores()
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
        built = {name: part(**parts.get(name, {})) for name, part in _PARTS.items()}
        return cls(**values, **built)

    def settings(self) -> dict[str, Any]:
        """Return the flat settings, from which `of` builds the same configuration."""
        values = {}
        for name, path in SETTINGS.items():
            part, _, own = path.rpartition(".")
            values[name] = getattr(getattr(self, part) if part else self, own, None)
        return values

    def changed(self, **settings: Any) -> EncoderConfig:
        """Return a copy with other values for some of the flat settings."""
        values, parts = _by_part(settings)
        for name, of in parts.items():
            values[name] = _PARTS[name](**{**asdict(getattr(self, name)), **of})
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
        attention = self.attention
        is_global = index % attention.global_every == attention.global_first
        return attention.window is not None and not is_global

    def heads_of(self, index: int) -> int:
        """Return A, the number of heads of layer `index`."""
        counts = self.attention.heads_per_layer
        return self.attention.heads if counts is None else counts[index]

    @property
    def head_size(self) -> int:
        """D, the width of a head; H / heads in most families."""
        return self.attention.head_size or self.hidden_size // self.attention.heads

    @property
    def score_scale(self) -> float | None:
        """Factor of the scores; None for 1 / sqrt(D)."""
        if self.attention.scale is None and isinstance(self.positions, Disentangled):
            return float((3 * self.head_size) ** -0.5)
        if self.attention.scale is None and isinstance(self.positions, RelativeSinusoid):
            # Of the head size, though queries and keys have further elements.
            return float(self.head_size**-0.5)
        return self.attention.scale

    @property
    def pre_norm(self) -> bool:
        """Whether sublayers normalise their inputs; the last layer's output is normalised then."""
        return self.norm.place != "after"

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

    def check_max_length(self, max_length: object) -> None:
        """Raise a ConfigError unless a sequence may have so many tokens; None always may."""
        longest = self.max_tokens_per_sequence
        fits = isinstance(max_length, int) and 3 <= max_length <= longest
        if max_length is not None and not fits:
            raise ConfigError(
                f"max_length {short(max_length)} is not in 3..{longest}, what this model serves."
            )

    def __post_init__(self) -> None:
        values = self.settings()
        _check_ranges(values)
        heads, groups = self.attention.heads, self.layer_groups
        if self.hidden_size % heads and self.attention.head_size is None:
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
        if self.pre_norm and shares:
            # The first layer may have one norm less than the others.
            raise ConfigError(
                f"num_hidden_groups {groups} with norm_place {self.norm.place}: layers that share "
                "their weights are post-norm only."
            )
        counts, shared_heads = self.attention.heads_per_layer, self.attention.key_value_heads
        if shared_heads is not None and (heads % shared_heads or counts is not None):
            raise ConfigError(
                f"num_key_value_heads {shared_heads} does not divide num_attention_heads {heads}, "
                "or heads were removed, which only works if each has its own keys and values."
            )
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
        if self.positions.kind not in _BY_DISTANCE:
            return
        attention = self.attention
        if attention.heads_per_layer is not None or attention.key_value_heads or attention.normed:
            raise ConfigError(
                f"position_kind {self.positions.kind} needs the same heads of queries and keys in "
                "all layers, without a norm."
            )
        if isinstance(self.positions, Buckets | Disentangled):
            exact = self.positions.count // (4 if isinstance(self.positions, Buckets) else 2)
            if self.positions.max_distance <= exact + 1 or self.positions.count % 2:
                raise ConfigError(
                    f"max_distance {self.positions.max_distance} must be above {exact + 1}, and "
                    f"distance_buckets {self.positions.count} must be even."
                )


def _positions(kind: str | None = None, **given: Any) -> Positions:
    """Choose the position scheme: by `kind`, or rotary if there is a base, else a table."""
    scheme: type[Any] = PositionTable if given.get("base") is None else RotaryPositions
    scheme = _BY_DISTANCE.get(kind or "", scheme)
    if scheme is RotaryPositions and given.get("offset"):
        raise ConfigError(f"position_offset is {given['offset']}; rotary positions begin at 0.")
    # Settings of other schemes, and those that are None, have defaults; the longest sequence not.
    names = {part.name for part in fields(scheme) if part.init}
    return scheme(  # type: ignore[no-any-return]
        **{k: v for k, v in given.items() if k in names and (v is not None or k == "rows")}
    )


def _norm(
    rms: bool = False, bias: bool = True, from_one: bool = False, **rest: Any
) -> LayerNorm | RMSNorm:
    """Choose the norm; the biases of an RMSNorm, which has none, are not asked for."""
    if rms:
        return RMSNorm(from_one=bool(from_one), **rest)
    return LayerNorm(bias=bias, **rest)


_PARTS: dict[str, Callable[..., Any]] = {
    "attention": SelfAttention,
    "feed_forward": FeedForward,
    "positions": _positions,
    "norm": _norm,
    "embeddings": EmbeddingTables,
    "pooling": TextPooling,
    "head_transform": HeadTransform,
    "word_scores": WordScores,
    "dropout": DropoutRates,
}


def _by_part(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the values of EncoderConfig's own fields, and those of each part's fields."""
    settings = dict(settings)
    if "biases" in settings:
        settings = dict.fromkeys(_BIASES, settings.pop("biases")) | settings
    if unknown := settings.keys() - SETTINGS:
        raise TypeError(f"EncoderConfig has no settings {sorted(unknown)}")
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        part, _, own = SETTINGS[name].rpartition(".")
        (parts.setdefault(part, {}) if part else values)[own] = value
    return values, parts


def _check_ranges(values: Mapping[str, Any]) -> None:
    """Check single values, by their flat names."""
    for name, (least, most) in (_LIMITS | _OPTIONAL_LIMITS).items():
        value = values[name]
        if name == "num_hidden_layers" and not values["embedding_norm"]:
            least = 0  # a table of word vectors
        if value is None and name in _OPTIONAL_LIMITS:
            continue
        if not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{name} is {value!r}; it must be from {least} to {most}.")
    for name, choices in _CHOICES.items():
        if values[name] not in choices:
            raise ConfigError(f"{name} {values[name]!r} is not one of {list(choices)}.")
    for name in ("rotary_base", "local_rotary_base", "rotary_scaling"):
        base = values[name]
        if base is not None and not 1.0 <= base <= _LARGEST_ROTARY_BASE:
            raise ConfigError(f"{name} is {base!r}; it must be from 1 to {_LARGEST_ROTARY_BASE}.")
    for name in ("hidden_dropout", "attention_dropout", "head_dropout"):
        if not 0.0 <= values[name] < 1.0:
            raise ConfigError(f"{name} is {values[name]!r}; it must be in [0, 1).")
    if not values["layer_norm_eps"] > 0 or not values["initializer_range"] > 0:
        raise ConfigError("layer_norm_eps and initializer_range must be above zero.")
