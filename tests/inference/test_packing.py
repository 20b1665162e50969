"""Packed weights: the same answers, no gradient, and only where there is something to gain."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.conftest import sizes

from filbert.batch import pack
from filbert.errors import ConfigError
from filbert.inference.precision import pack_layers
from filbert.model.config import EncoderConfig
from filbert.model.cpu import PackedLinear
from filbert.model.encoder import DENSE, Encoder
from filbert.model.heads import Model


def drawn(**settings) -> Model:
    """An encoder that is just wide enough for the fast products."""
    config = EncoderConfig.of(
        **sizes(vocab_size=40, layers=2, width=384, heads=6, inner=512, positions=64) | settings
    )
    torch.manual_seed(0)
    model = Model(Encoder(config), None).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.05)
    return model


def hidden_of(model: Model, *lengths: int) -> torch.Tensor:
    draw = np.random.default_rng(0)
    with torch.inference_mode():
        return model.encoder(pack([draw.integers(5, 40, n).tolist() for n in lengths]))


@pytest.mark.parametrize("act", ["gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("lengths", [(1,), (16,), (7, 30, 30, 64)])
def test_packed_layers_give_what_the_layers_gave(act, lengths):
    model = drawn(hidden_act=act)
    before = hidden_of(model, *lengths)
    pack_layers(model)
    torch.testing.assert_close(hidden_of(model, *lengths), before, rtol=0, atol=1e-5)


def test_layers_without_bias_and_with_gates_and_in_bf16():
    for settings in ({"biases": False}, {"gated": True}):
        model = drawn(**settings)
        before = hidden_of(model, 9, 20)
        pack_layers(model)
        torch.testing.assert_close(hidden_of(model, 9, 20), before, rtol=0, atol=1e-5)
    model = drawn().bfloat16()
    before = hidden_of(model, 9, 20).float()
    pack_layers(model)
    after = hidden_of(model, 9, 20)
    assert after.dtype == torch.bfloat16
    assert torch.cosine_similarity(after.float(), before).min() > 0.9999


def test_a_changed_weight_is_seen():
    model = drawn()
    before = hidden_of(model, 16)
    with torch.no_grad():
        model.encoder.layers[1].down.weight[3] += 0.5
    pack_layers(model)
    assert not torch.allclose(hidden_of(model, 16), before, atol=1e-3)


def test_the_old_weights_are_gone_and_the_rest_stays():
    model = drawn()
    dense = sum(getattr(x, n).weight.numel() for x in model.encoder.layers for n in DENSE)
    biases = sum(getattr(x, n).bias.numel() for x in model.encoder.layers for n in DENSE)
    before = sum(p.numel() for p in model.parameters())
    pack_layers(model)
    assert sum(p.numel() for p in model.parameters()) == before - dense - biases
    layer = model.encoder.layers[0].up
    assert isinstance(layer, PackedLinear) and "384" in repr(layer) and "packed" in repr(layer)
    twin = copy.deepcopy(model)
    assert twin.encoder.layers[0].up is layer
    assert torch.equal(hidden_of(twin, 5), hidden_of(model, 5))


def test_no_gradient_goes_through_but_passes_without_one_do():
    model = drawn()
    pack_layers(model)
    with pytest.raises(ConfigError, match=r"packed for inference.*filbert\.load"):
        model.encoder(pack([[5, 6, 7]]))
    assert model.encoder.layers[0].up(torch.ones(2, 384)).shape == (2, 512)
