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
        num_masked: tokens that the masked-LM head scores the vocabulary for.
        num_pooled: sequences whose first token, or last of a causal encoder, goes through the
            pooler.
    """
    width, wide, table = config.hidden_size, config.feed_forward.width, config.table_size
    # Query, key, value and output; the feed-forward network's two products and its gate.
    matrices = 3 if config.feed_forward.gated else 2
    layers = range(config.num_hidden_layers)
    # What all heads of a layer give together; less than the width where some were pruned.
    mixed = [config.heads_of(layer) * config.head_size for layer in layers]
    # Keys and values of fewer heads; those of a pruned layer have all that are left.
    heads, shared = config.attention.heads, config.attention.key_value_heads
    each = 2 + 2 * (shared or heads) / heads
    per_token = round(each * width * sum(mixed)) + len(layers) * matrices * width * wide
    if config.embeddings.width:
        per_token += table * width
    # Scores and the weighted sum: every token with every token of its sequence or of its window, or
    # with itself and those before it.
    lengths = list(lengths)
    seen = 1 + (config.attention.window or 0)
    far = sum(
        length * (length + 1) // 2 if config.attention.causal else length**2 for length in lengths
    )
    near = sum(length * min(length, seen) for length in lengths)
    products = per_token * sum(lengths)
    products += 2 * sum(
        size * (near if config.is_local(layer) else far)
        for layer, size in zip(layers, mixed, strict=True)
    )
    products += num_masked * (width * table + table * config.vocab_size)
    products += num_pooled * width * width
    return 2 * products


def training_flops(
    config: EncoderConfig, lengths: Iterable[int], *, num_masked: int, num_pooled: int = 0
) -> int:
    """The same for forward and backward pass."""
    return 3 * forward_flops(config, lengths, num_masked=num_masked, num_pooled=num_pooled)
