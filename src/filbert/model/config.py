"""EncoderConfig: every family is one encoder with other numbers in these fields."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from filbert.errors import ConfigError

ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
POOLERS = (None, "tanh", "relu", "gelu")
POOLED = ("cls", "mean")

# Far above any published encoder; they bound what a hostile config.json can make us allocate.
_UPPER_BOUND = {
    "vocab_size": 4_000_000,
    "hidden_size": 65_536,
    "num_hidden_layers": 512,
    "num_attention_heads": 1_024,
    "intermediate_size": 524_288,
    "max_position_embeddings": 1_048_576,
    "type_vocab_size": 1_024,
    "position_offset": 1_024,
    "global_every": 512,
    "local_window": 1_048_576,
}
_MAY_BE_ZERO = ("type_vocab_size", "position_offset", "local_window")
# The largest published base is 16 million.
_MOST_ROTARY_BASE = 1e12


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of an encoder.

    Attributes:
        vocab_size: rows of the word table.
        hidden_size: width H of every hidden state.
        num_hidden_layers: layers executed.
        num_attention_heads: heads per layer; divides `hidden_size`.
        heads_per_layer: how many of those each layer has, where heads were pruned (Michel et al.
            2019); None for all. A head keeps its size, so that a layer's attention is narrower.
        intermediate_size: width of the feed-forward layer.
        max_position_embeddings: rows of the position table (RoBERTa: 514 rows serve 512 tokens);
            with rotary positions the longest sequence.
        position_offset: row of the first token's position (RoBERTa: 2).
        rotary_base: base of the rotary positions that stand in for the position table
            (ModernBERT: 160,000); None for the table.
        local_rotary_base: the same in local layers (ModernBERT: 10,000); None for `rotary_base`.
        local_window: width of the window of tokens that local layers see: half of it to either side
            of a token, and itself (ModernBERT: 128). None: no layer is local.
        global_every: layer i sees whole sequences when i is a multiple of this, and is local
            otherwise (ModernBERT: 3).
        causal: a token sees itself and those before it, no later one. The first token then knows
            nothing of the text, so that the last stands for a sequence instead.
        type_vocab_size: rows of the token type table; 0 for no table (DistilBERT).
        embedding_size: width of the embedding tables when narrower than H (ALBERT, ELECTRA-small);
            None for H itself.
        num_hidden_groups: distinct sets of layer parameters; None for one per layer, 1 for all
            shared (ALBERT). Layer i uses group i * groups // layers.
        hidden_act: "gelu" (erf), "gelu_tanh" or "relu".
        gated: the feed-forward layer is twice as wide, and its first half, activated, is multiplied
            by the second (Shazeer 2020, GEGLU).
        pre_norm: LayerNorm before each sub-layer and after the last, instead of after each. The
            first layer's attention has none: the embeddings are normalised already.
        biases: whether the layers' products, LayerNorms and the transforms of heads have them; the
            pooler and the outputs of heads always do.
        layer_norm_eps: added to the variance in every LayerNorm.
        pooled: what stands for a sequence: its first token ("cls"; the last one where attention is
            causal) or the mean of all ("mean").
        pooler: activation of the dense layer over that, or None for no such layer.
        pooler_dropout: dropout also before that dense layer (RoBERTa's and ELECTRA's classifiers).
        head_transform: every head begins as the masked-LM head does, with a dense layer, the
            activation and LayerNorm.
        hidden_dropout: rate on embeddings and sub-layer outputs, in [0, 1).
        attention_dropout: rate on attention probabilities, in [0, 1).
        head_dropout: rate on what a task head reads, in [0, 1).
        initializer_range: standard deviation of the truncated normal that new weights are drawn
            from.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    heads_per_layer: tuple[int, ...] | None = None
    max_position_embeddings: int = 512
    position_offset: int = 0
    rotary_base: float | None = None
    local_rotary_base: float | None = None
    local_window: int | None = None
    global_every: int = 1
    causal: bool = False
    type_vocab_size: int = 2
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    hidden_act: str = "gelu"
    gated: bool = False
    pre_norm: bool = False
    biases: bool = True
    layer_norm_eps: float = 1e-12
    pooled: str = "cls"
    pooler: str | None = "tanh"
    pooler_dropout: bool = False
    head_transform: bool = False
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    head_dropout: float = 0.1
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            bound = _UPPER_BOUND.get(field.name)
            if bound is not None and not (field.name == "local_window" and value is None):
                least = 0 if field.name in _MAY_BE_ZERO else 1
                if not isinstance(value, int) or not least <= value <= bound:
                    raise ConfigError(
                        f"{field.name} is {value!r}; it must be from {least} to {bound}."
                    )
        if self.embedding_size is not None and not 1 <= self.embedding_size <= 65_536:
            raise ConfigError(f"embedding_size is {self.embedding_size}; it must be 1 to 65536.")
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}."
            )
        if self.hidden_act not in ACTIVATIONS:
            raise ConfigError(f"hidden_act {self.hidden_act!r} is not one of {list(ACTIVATIONS)}.")
        if self.pooler not in POOLERS:
            raise ConfigError(f"pooler {self.pooler!r} is not one of {list(POOLERS)}.")
        if self.pooled not in POOLED:
            raise ConfigError(f"pooled {self.pooled!r} is not one of {list(POOLED)}.")
        if self.causal and self.local_window is not None:
            raise ConfigError(
                f"causal with local_window {self.local_window}: layers that see a window see it to "
                "both sides. Take a model without local layers."
            )
        self._check_positions()
        self._check_heads()
        groups = self.num_hidden_groups
        if groups is not None and not 1 <= groups <= self.num_hidden_layers:
            raise ConfigError(f"num_hidden_groups {groups} is not in 1..{self.num_hidden_layers}.")
        if self.pre_norm and self.num_groups < self.num_hidden_layers:
            # The first layer has one LayerNorm less than the others.
            raise ConfigError(
                f"num_hidden_groups {groups} with pre_norm: layers that share their weights are "
                "post-norm only."
            )
        for name in ("hidden_dropout", "attention_dropout", "head_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be in [0, 1).")
        if not self.layer_norm_eps > 0 or not self.initializer_range > 0:
            raise ConfigError("layer_norm_eps and initializer_range must be above zero.")

    def _check_heads(self) -> None:
        counts = self.heads_per_layer
        if counts is None:
            return
        if self.num_groups < self.num_hidden_layers:
            raise ConfigError("heads_per_layer: only layers with heads of their own can lose some.")
        if len(counts) != self.num_hidden_layers or not all(
            isinstance(count, int) and 1 <= count <= self.num_attention_heads for count in counts
        ):
            raise ConfigError(
                f"heads_per_layer is {list(counts)}; it must be a number from 1 to "
                f"{self.num_attention_heads} for each of {self.num_hidden_layers} layers."
            )

    def _check_positions(self) -> None:
        if self.max_position_embeddings <= self.position_offset:
            raise ConfigError(
                f"max_position_embeddings {self.max_position_embeddings} leaves no place for a "
                f"token: the first {self.position_offset} rows are not used."
            )
        for name in ("rotary_base", "local_rotary_base"):
            base = getattr(self, name)
            if base is not None and not 1.0 <= base <= _MOST_ROTARY_BASE:
                raise ConfigError(f"{name} is {base!r}; it must be from 1 to {_MOST_ROTARY_BASE}.")
        if self.rotary_base is None:
            if self.local_rotary_base is not None:
                raise ConfigError("local_rotary_base is given, but no rotary_base.")
        elif self.head_size % 2:
            raise ConfigError(
                f"hidden_size {self.hidden_size} gives each of the {self.num_attention_heads} "
                f"num_attention_heads {self.head_size} elements; rotary positions need an even "
                "number."
            )
        elif self.position_offset:
            raise ConfigError(
                f"position_offset is {self.position_offset}; rotary positions begin at 0."
            )

    def with_dropout(self, rate: float) -> EncoderConfig:
        """The same with this rate wherever there is a place for dropout."""
        return replace(self, hidden_dropout=rate, attention_dropout=rate, head_dropout=rate)

    def is_local(self, index: int) -> bool:
        """Whether layer `index` sees no more than `local_window`."""
        return self.local_window is not None and index % self.global_every != 0

    def heads_of(self, index: int) -> int:
        """A, the heads of layer `index`."""
        counts = self.heads_per_layer
        return self.num_attention_heads if counts is None else counts[index]

    @property
    def head_size(self) -> int:
        """D = H / num_attention_heads."""
        return self.hidden_size // self.num_attention_heads

    @property
    def table_size(self) -> int:
        """Width of the embedding tables."""
        return self.embedding_size or self.hidden_size

    @property
    def num_groups(self) -> int:
        """How many distinct sets of layer parameters there are."""
        return self.num_hidden_groups or self.num_hidden_layers

    @property
    def max_tokens_per_sequence(self) -> int:
        """The longest sequence the positions serve, special tokens included."""
        return self.max_position_embeddings - self.position_offset
