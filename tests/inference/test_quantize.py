"""Whole models in int8."""

import pytest
import torch
from tests.conftest import sizes

from filbert.errors import ConfigError
from filbert.inference import int8 as quantize
from filbert.inference.int8 import dense_layers, quantized, sensitive_layers, sensitivities
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.model.int8 import QuantizedLinear

TEXTS = ["the film was good", "a", "he was not very good and she was bad !", "it", "to see a play"]


def drawn(**changes):
    torch.manual_seed(0)
    options = sizes(vocab_size=40, layers=3, width=64, heads=4, inner=128, positions=64)
    config = EncoderConfig.of(**(options | changes))
    encoder = Encoder(config)
    initialize(encoder, 0.1)
    return Model(encoder, new_head("sequence", config, 2)).eval()


@pytest.fixture
def examples(tiny):
    from filbert.data.examples import Example

    encodings = tiny.encode(TEXTS, max_length=32)
    return [
        Example(i, e.input_ids, e.token_type_ids, e.num_tokens) for i, e in enumerate(encodings)
    ]


def vectors(model, examples):
    return quantize._vectors(model, examples)


FAMILIES = {
    "bert": {},
    "shared layers": {"num_hidden_groups": 1},
    "relu": {"hidden_act": "relu"},
    "gated": {"gated": True},
    "pre-norm without biases": {"norm_place": "before", "biases": False},
}


@pytest.mark.parametrize("changes", FAMILIES.values(), ids=FAMILIES)
def test_every_dense_layer_of_the_encoder_is_replaced_and_nothing_else(changes, examples):
    model = drawn(**changes)
    exact = vectors(model, examples)
    other = quantized(model)
    replaced = [n for n, module in other.named_modules() if isinstance(module, QuantizedLinear)]
    assert sorted(replaced) == sorted(dense_layers(model))
    assert isinstance(other.head.out, torch.nn.Linear)
    near = torch.nn.functional.cosine_similarity(vectors(other, examples), exact)
    assert float(near.min()) > 0.995
    assert torch.equal(vectors(model, examples), exact), "the original stays as it is"


def test_layers_to_keep_are_kept_and_an_unknown_one_is_refused():
    model = drawn()
    kept = "encoder.layers.1.up"
    other = quantized(model, keep=[kept])
    assert isinstance(other.get_submodule(kept), torch.nn.Linear)
    with pytest.raises(ConfigError, match="they are encoder.layers.0.qkv to encoder.layers.2.down"):
        quantized(model, keep=["encoder.layers.1.upp"])


def test_layers_are_ranked_by_what_each_alone_costs(examples, monkeypatch):
    model = drawn()
    # One output's weight so large that the others of its row are rounded away.
    spoilt = "encoder.layers.1.down"
    with torch.no_grad():
        model.get_submodule(spoilt).weight[:, 0] = 40.0
    ranked = sensitivities(model, examples)
    assert next(iter(ranked)) == spoilt
    assert sorted(ranked) == sorted(dense_layers(model))
    assert list(ranked.values()) == sorted(ranked.values())


def test_only_as_many_layers_are_kept_as_the_target_needs(examples):
    model = drawn()
    exact = vectors(model, examples)

    def cosine(keep):
        return quantize._cosine(exact.double(), quantized(model, keep=keep), examples)

    plain = cosine([])
    ranked = list(sensitivities(model, examples))
    assert sensitive_layers(model, examples, ranked, target=plain - 1e-6) == []
    target = 1 - (1 - plain) / 2
    kept = sensitive_layers(model, examples, ranked, target=target)
    assert 0 < len(kept) < len(dense_layers(model))
    assert cosine(kept) >= target > cosine(kept[:-1])
    with pytest.raises(ConfigError, match="No examples"):
        sensitive_layers(model, [], ranked, target=target)
