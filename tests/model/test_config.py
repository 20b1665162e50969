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
    ("changes", "words"),
    [
        ({"hidden_size": 17}, "not a multiple"),
        ({"hidden_act": "swish"}, "'swish' is not one of"),
        ({"num_hidden_layers": 100_000}, "num_hidden_layers is 100000"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"hidden_dropout": 1.0}, "hidden_dropout is 1.0"),
        ({"num_hidden_groups": 3}, "num_hidden_groups 3"),
        ({"num_hidden_groups": 1, "norm_place": "before"}, "post-norm only"),
        ({"rotary_base": 0.5}, "rotary_base is 0.5"),
        ({"rotary_base": float("nan")}, "rotary_base is nan"),
        ({"rotary_base": 10.0, "hidden_size": 12}, "even number"),
        ({"rotary_base": 10.0, "position_offset": 2}, "begin at 0"),
        ({"max_position_embeddings": 2, "position_offset": 2}, "no row for a token"),
        ({"local_window": -1}, "local_window is -1"),
        ({"global_every": 0}, "global_every is 0"),
        ({"pooled": "max"}, "pooled 'max' is not one of"),
        ({"norm_place": "between"}, "norm_place 'between' is not one of"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3 does not divide"),
        ({"rotary_base": 10.0, "rotary_scaling": 0.0}, "rotary_scaling is 0.0"),
    ],
)
def test_an_impossible_configuration_is_refused_by_name(changes, words):
    with pytest.raises(ConfigError, match=words):
        EncoderConfig.of(**SIZES, num_hidden_layers=2).changed(**changes)


@pytest.mark.parametrize("kind", ["buckets", "alibi", "disentangled"])
def test_positions_by_distance_go_through_flat_settings(kind):
    config = EncoderConfig.of(**SIZES, num_hidden_layers=2, position_kind=kind)
    assert config.positions.kind == kind and not config.positions.absolute
    assert EncoderConfig.of(**config.settings()) == config
    assert config.changed(hidden_act="relu").positions == config.positions
    # Of three sums: He et al. 2021, equation 4.
    scale = {"disentangled": (3 * config.head_size) ** -0.5}.get(kind)
    assert config.score_scale == scale
    with pytest.raises(ConfigError, match=f"position_kind {kind} needs the same heads"):
        config.changed(heads_per_layer=(1,) * config.num_hidden_layers)
