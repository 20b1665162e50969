"""What a configuration says of its layers."""

from __future__ import annotations

from filbert.model.config import EncoderConfig

SIZES = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 4, "intermediate_size": 16}


def test_a_layer_has_its_own_number_of_heads_where_some_were_cut_off():
    whole = EncoderConfig.of(**SIZES, num_hidden_layers=2)
    cut = EncoderConfig.of(**SIZES, num_hidden_layers=2, heads_per_layer=(4, 1))
    assert [whole.heads_of(layer) for layer in (0, 1)] == [4, 4]
    assert [cut.heads_of(layer) for layer in (0, 1)] == [4, 1]
    assert cut.head_size == whole.head_size == 2


def test_a_rate_of_dropout_is_set_everywhere():
    config = EncoderConfig.of(**SIZES, num_hidden_layers=1).with_dropout(0.3)
    assert (config.dropout.hidden, config.dropout.attention, config.dropout.head) == (0.3,) * 3
