"""EncoderConfig: every family is one encoder with other numbers in these fields."""

from __future__ import annotations

from dataclasses import dataclass, fields

from filbert.errors import ConfigError

ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
POOLERS = (None, "tanh", "relu", "gelu")

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
}


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of an encoder.

    Attributes:
        vocab_size: rows of the word table.
        hidden_size: width H of every hidden state.
        num_hidden_layers: layers executed.
        num_attention_heads: heads per layer; divides `hidden_size`.
        intermediate_size: width of the feed-forward layer.
        max_position_embeddings: rows of the position table (RoBERTa: 514 rows serve 512 tokens).
        position_offset: row of the first token's position (RoBERTa: 2).
        type_vocab_size: rows of the token type table; 0 for no table (DistilBERT).
        embedding_size: width of the embedding tables when narrower than H (ALBERT, ELECTRA-small);
            None for H itself.
        num_hidden_groups: distinct sets of layer parameters; None for one per layer, 1 for all
            shared (ALBERT). Layer i uses group i * groups // layers.
        hidden_act: "gelu" (erf), "gelu_tanh" or "relu".
        layer_norm_eps: added to the variance in every LayerNorm.
        pooler: activation of the dense layer over the first token, or None for no such layer.
        pooler_dropout: dropout also before that dense layer (RoBERTa's and ELECTRA's classifiers).
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
    max_position_embeddings: int = 512
    position_offset: int = 0
    type_vocab_size: int = 2
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    pooler: str | None = "tanh"
    pooler_dropout: bool = False
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    head_dropout: float = 0.1
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            bound = _UPPER_BOUND.get(field.name)
            if bound is not None:
                least = 0 if field.name in ("type_vocab_size", "position_offset") else 1
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
        groups = self.num_hidden_groups
        if groups is not None and not 1 <= groups <= self.num_hidden_layers:
            raise ConfigError(f"num_hidden_groups {groups} is not in 1..{self.num_hidden_layers}.")
        for name in ("hidden_dropout", "attention_dropout", "head_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be in [0, 1).")
        if not self.layer_norm_eps > 0 or not self.initializer_range > 0:
            raise ConfigError("layer_norm_eps and initializer_range must be above zero.")

    @property
    def head_size(self) -> int:
        """D = H / A."""
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
        """The longest sequence the position table serves, special tokens included."""
        return self.max_position_embeddings - self.position_offset
