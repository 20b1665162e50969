from __future__ import annotations

import pytest
import torch

from filbert.batch import pack
from filbert.errors import ConfigError
from filbert.inspection.maps import attention_maps
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model
from filbert.speed.quantize import quantized

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
SEQUENCES = [[3, 9, 4], [5], [7, 1, 8, 2, 30, 31, 6, 11, 12, 13], [9, 9, 9, 9]]


def drawn(**changes: object) -> Model:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(**{**SIZES, **changes}))  # type: ignore[arg-type]
    initialize(encoder, 0.3)
    return Model(encoder).eval()


@pytest.fixture(scope="module")
def model() -> Model:
    return drawn()


def test_there_is_one_map_a_sequence_layer_and_head_and_its_rows_sum_to_one(model: Model) -> None:
    maps = attention_maps(model, pack(SEQUENCES))
    assert [tuple(m.shape) for m in maps] == [(3, 4, len(s), len(s)) for s in SEQUENCES]
    for one in maps:
        assert one.dtype == torch.float32
        assert (one.sum(-1) - 1).abs().max() < 1e-6  # a few roundings of float32


def test_a_sequence_has_the_same_maps_alone_and_in_company(model: Model) -> None:
    together = attention_maps(model, pack(SEQUENCES))
    for sequence, maps in zip(SEQUENCES, together, strict=True):
        (alone,) = attention_maps(model, pack([sequence]))
        assert (alone - maps).abs().max() < 1e-6


def test_only_the_layers_and_heads_that_are_asked_for_come_in_that_order(model: Model) -> None:
    whole = attention_maps(model, pack(SEQUENCES))
    part = attention_maps(model, pack(SEQUENCES), layers=[2, 0], heads=[3])
    for all_of_it, some in zip(whole, part, strict=True):
        assert torch.equal(some, all_of_it[[2, 0]][:, [3]])


def test_shared_layers_have_a_map_for_every_time_they_run() -> None:
    (maps,) = attention_maps(drawn(num_hidden_groups=1), pack([SEQUENCES[2]]))
    assert maps.shape[0] == 3
    assert not torch.allclose(maps[0], maps[1])


def test_a_causal_encoder_looks_at_nothing_ahead_and_a_local_one_at_nothing_far() -> None:
    (causal,) = attention_maps(drawn(causal=True), pack([SEQUENCES[2]]))
    assert causal.triu(1).abs().max() == 0
    local = drawn(rotary_base=100.0, local_window=4, global_every=2, position_offset=0)
    (maps,) = attention_maps(local, pack([SEQUENCES[2]]))
    far = (torch.arange(10)[:, None] - torch.arange(10)).abs() > 2
    assert maps[1][:, far].abs().max() == 0
    assert maps[0][:, far].abs().max() > 0


def test_a_layer_that_lost_heads_has_zeros_for_them() -> None:
    pruned = drawn(heads_per_layer=(4, 1, 3))
    maps = torch.stack(attention_maps(pruned, pack([SEQUENCES[2]])))[0]
    sums = maps.sum(-1).mean(-1).round()
    assert sums.tolist() == [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]]
    (some,) = attention_maps(pruned, pack([SEQUENCES[2]]), heads=[3, 0])
    assert torch.equal(some, maps[:, [3, 0]])


def test_a_quantised_model_shows_what_it_computes_itself(model: Model) -> None:
    maps = attention_maps(quantized(drawn()), pack(SEQUENCES))
    exact = attention_maps(model, pack(SEQUENCES))
    for own, other in zip(maps, exact, strict=True):
        assert 0 < (own - other).abs().mean() < 0.01 or len(own[0, 0]) == 1


def test_who_does_not_ask_pays_nothing(model: Model) -> None:
    attention_maps(model, pack(SEQUENCES))
    with pytest.raises(IndexError):
        attention_maps(model, pack([[10_000]]))
    for part in model.modules():
        assert not part._forward_hooks
        assert not part._forward_pre_hooks


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"layers": [3]}, "layer 3 is not in 0..2"),
        ({"layers": [-1]}, "layer -1 is not in 0..2"),
        ({"heads": [4]}, "head 4 is not in 0..3"),
        ({"heads": [True]}, "head True"),
        ({"heads": []}, r"heads is \[\]"),
        ({"layers": 1}, "layers is 1"),
    ],
)
def test_layers_and_heads_that_are_not_there_are_refused(
    model: Model, asked: dict[str, list[int]], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        attention_maps(model, pack(SEQUENCES), **asked)
