"""ELECTRA's two models: together from a checkpoint, and apart again."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tests.conftest import sizes

from filbert.batch import pack
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.fresh import fresh_checkpoint, replaced_model, split_replaced
from filbert.errors import ConfigError
from filbert.model.encoder import initialize

SMALL: dict[str, Any] = sizes(layers=2, width=16, heads=4, positions=20)
BATCH = pack([[1, 2, 3], [4, 5, 6, 7]])


def fresh(**changes: Any) -> Checkpoint:
    torch.manual_seed(2)
    return fresh_checkpoint(
        "electra", vocab_size=30, head="discriminator", **{"embedding_size": 8, **SMALL, **changes}
    )


@pytest.mark.parametrize("embedding_size", [8, 16, 4])
def test_taken_apart_both_give_the_logits_that_they_gave_together(embedding_size):
    """Tables narrower than the discriminator, as wide, and as wide as the generator."""
    checkpoint = fresh(embedding_size=embedding_size)
    model = replaced_model(checkpoint)
    initialize(model, 0.3)
    large, small = split_replaced(checkpoint, model.state_dict(), model.generator.config)
    assert (large.head, small.head) == ("discriminator", "masked_lm")
    at, labels = torch.tensor([1, 5]), torch.tensor([2, 6])
    with torch.no_grad():
        model.generator.head.bias[:] = torch.linspace(0, 1, 30)
        model.generator.head.bias[9] = 1e4  # so that every sample is 9
        found = model(BATCH, at, labels)
        logits = small.build()(BATCH, at)
        corrupted = dataclasses.replace(BATCH, input_ids=BATCH.input_ids.index_fill(0, at, 9))
        assert torch.equal(large.build()(corrupted), found.replaced_T)
    # Products with another number of rows may add in another order.
    torch.testing.assert_close(logits, found.masked_KV)


def test_the_discriminator_starts_as_the_checkpoint_and_the_generator_is_drawn():
    checkpoint = fresh()
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        model = replaced_model(checkpoint, share=0.5)
        large, small = split_replaced(checkpoint, model.state_dict(), model.generator.config)
        assert all(torch.equal(large.tensors[n], checkpoint.tensors[n]) for n in large.tensors)
        drawn.append(small.tensors["encoder.layers.1.up.weight"])
    assert drawn[0].shape == (32, 8)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert drawn[0].abs().max() <= 0.04


def test_training_goes_on_with_both_models_of_a_pair():
    checkpoint = fresh()
    model = replaced_model(checkpoint)
    initialize(model, 0.3)
    large, small = split_replaced(checkpoint, model.state_dict(), model.generator.config)
    again = replaced_model(large, generator=small).state_dict()
    assert again.keys() == model.state_dict().keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())


def test_a_generator_of_another_kind_or_vocabulary_is_refused():
    checkpoint = fresh()
    with pytest.raises(ConfigError, match="needs a masked-LM head"):
        replaced_model(checkpoint, generator=checkpoint)
    other = fresh_checkpoint("electra", vocab_size=31, head="masked_lm", **SMALL, embedding_size=8)
    with pytest.raises(ConfigError, match="vocab_size"):
        replaced_model(checkpoint, generator=other)
    other = fresh_checkpoint("electra", vocab_size=30, head="masked_lm", **SMALL, embedding_size=12)
    with pytest.raises(ConfigError, match="embedding_size"):
        replaced_model(checkpoint, generator=other)


def test_what_could_not_be_saved_in_the_end_is_refused_at_the_start():
    with pytest.raises(ConfigError, match="has gelu in its head"):
        replaced_model(fresh(hidden_act="relu"))
    bert = fresh_checkpoint("bert", vocab_size=30, head="masked_lm", **SMALL)
    with pytest.raises(ConfigError, match="no 'discriminator' head"):
        replaced_model(bert)
