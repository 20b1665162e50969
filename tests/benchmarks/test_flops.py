"""Arithmetic, counted by hand."""

import numpy as np
import pytest
import torch
from tests.conftest import sizes
from torch.utils.flop_counter import FlopCounterMode

from filbert.data.examples import Example, collate
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model, new_head
from flops import forward_flops, training_flops

SMALL = EncoderConfig.of(**sizes(vocab_size=10, layers=1, width=4, heads=1, inner=6))
# Query, key, value and output; up and down.
PER_TOKEN = 4 * 4 * 4 + 2 * 4 * 6


@pytest.mark.parametrize("embedding_size", [None, 4])
def test_a_masked_lm_is_counted_as_torch_counts_it(embedding_size):
    config = EncoderConfig.of(
        vocab_size=50, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=20, embedding_size=embedding_size, pooler=None,
    )  # fmt: skip
    model = Model(Encoder(config), new_head("masked_lm", config)).train()
    # Equal lengths: where they differ, padding is multiplied too and is not counted.
    ids, zeros = np.full(9, 5, np.int32), np.zeros(9, np.int32)
    batch = collate([Example(0, ids, zeros, 9, None), Example(1, ids, zeros, 9, None)])
    with FlopCounterMode(display=False) as counter:
        logits = model(batch, torch.tensor([1, 2, 10, 11, 12]))
        assert counter.get_total_flops() == forward_flops(config, [9, 9], num_masked=5)
        logits.sum().backward()
    assert counter.get_total_flops() == training_flops(config, [9, 9], num_masked=5)


@pytest.mark.parametrize(("causal", "num_pairs"), [(False, 9 + 4), (True, 6 + 3)])
def test_a_causal_token_is_multiplied_with_those_up_to_itself(causal, num_pairs):
    found = forward_flops(SMALL.changed(causal=causal), [3, 2], num_masked=0)
    assert found == 2 * (5 * PER_TOKEN + 2 * 4 * num_pairs)
