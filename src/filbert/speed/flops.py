"""How much arithmetic a training step takes.

A multiply-add is 2 FLOP, the backward pass costs twice the forward pass, element-wise work is not
counted, and the masked-LM head runs at masked tokens only.
"""

from __future__ import annotations

from collections.abc import Iterable

from filbert.model.config import EncoderConfig


def forward_flops(
    config: EncoderConfig, lengths: Iterable[int], *, num_masked: int, num_pooled: int = 0
) -> int:
    """FLOP of one forward pass over packed sequences.

    Args:
        config: of the encoder.
        lengths: tokens of each sequence.
        num_masked: tokens that the masked-LM head scores the vocabulary for.
        num_pooled: sequences whose first token, or last of a causal encoder, goes through the
            pooler.
    """
    assert not config.recurrent, "recurrent layers have other products"
    width, wide, table = config.hidden_size, config.intermediate_size, config.table_size
    # Query, key, value and output; the feed-forward network's two products and its gate.
    matrices = 3 if config.gated else 2
    per_token = config.num_hidden_layers * (4 * width * width + matrices * width * wide)
    if config.embedding_size:
        per_token += table * width
    # Scores and the weighted sum: every token with every token of its sequence or of its window, or
    # with itself and those before it.
    lengths = list(lengths)
    num_local = sum(map(config.is_local, range(config.num_hidden_layers)))
    seen = 1 + (config.local_window or 0)
    num_pairs = (config.num_hidden_layers - num_local) * sum(
        length * (length + 1) // 2 if config.causal else length**2 for length in lengths
    )
    num_pairs += num_local * sum(length * min(length, seen) for length in lengths)
    products = per_token * sum(lengths) + 2 * width * num_pairs
    products += num_masked * (width * table + table * config.vocab_size)
    products += num_pooled * width * width
    return 2 * products


def training_flops(
    config: EncoderConfig, lengths: Iterable[int], *, num_masked: int, num_pooled: int = 0
) -> int:
    """The same for forward and backward pass."""
    return 3 * forward_flops(config, lengths, num_masked=num_masked, num_pooled=num_pooled)
