"""Arithmetic, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from filbert.model.config import EncoderConfig
from filbert.speed.flops import forward_flops

SMALL = EncoderConfig(
    vocab_size=10,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=1,
    intermediate_size=6,
)
# Query, key, value and output; up and down.
PER_TOKEN = 4 * 4 * 4 + 2 * 4 * 6


@pytest.mark.parametrize(("causal", "num_pairs"), [(False, 9 + 4), (True, 6 + 3)])
def test_a_causal_token_is_multiplied_with_those_up_to_itself(causal, num_pairs):
    found = forward_flops(replace(SMALL, causal=causal), [3, 2], num_masked=0)
    assert found == 2 * (5 * PER_TOKEN + 2 * 4 * num_pairs)
