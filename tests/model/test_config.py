"""The grammar of EncoderConfig: small values, and flat settings for them."""

from dataclasses import replace

import pytest

from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig, LayerNorm, PositionTable, RotaryPositions

SIZES = {"vocab_size": 9, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 8}


def test_a_pruned_layer_has_fewer_heads_of_the_same_size():
    whole = EncoderConfig.of(**SIZES, num_hidden_layers=2)
    cut = EncoderConfig.of(**SIZES, num_hidden_layers=2, heads_per_layer=(4, 1))
    assert [cut.heads_of(0), cut.heads_of(1), whole.heads_of(1)] == [4, 1, 4]
    assert cut.head_size == whole.head_size == 4


def test_with_dropout_replaces_every_rate():
    config = EncoderConfig.of(**SIZES, num_hidden_layers=1).with_dropout(0.3)
    assert (config.dropout.hidden, config.dropout.attention, config.dropout.head) == (0.3,) * 3


def test_flat_settings_build_the_same_configuration():
    config = EncoderConfig.of(
        **SIZES, num_hidden_layers=2, rotary_base=100.0, biases=False, local_window=4, pooler=None
    )
    assert isinstance(config.positions, RotaryPositions) and not config.norm.bias
    assert EncoderConfig.of(**config.settings()) == config


def test_changing_a_setting_keeps_all_others():
    config = EncoderConfig.of(**SIZES, num_hidden_layers=2, position_offset=2)
    mixed = replace(config, norm=LayerNorm(bias=False))
    changed = mixed.changed(max_position_embeddings=64)
    assert changed == replace(mixed, positions=PositionTable(rows=64, offset=2))
    assert changed.differing(mixed) == ["max_position_embeddings"]


@pytest.mark.parametrize(
    "settings", [{"local_rotary_base": 10.0}, {"rotary_base": 10.0, "position_offset": 2}]
)
def test_settings_of_two_position_schemes_are_refused(settings):
    with pytest.raises(ConfigError):
        EncoderConfig.of(**SIZES, num_hidden_layers=1, **settings)
