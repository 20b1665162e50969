from __future__ import annotations

import pytest
import torch
from tests.conftest import sizes

from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model

CONFIG = EncoderConfig.of(
    **sizes(vocab_size=30, layers=2, width=16, heads=2, inner=24),
    hidden_dropout=0.4,
    head_dropout=0.3,
)


def bare(family: str = "bert", pooler: str | None = "tanh") -> Checkpoint:
    torch.manual_seed(0)
    changes = {"distilbert": {"type_vocab_size": 0}, "albert": {"embedding_size": 8}}
    config = CONFIG.changed(pooler=pooler, **changes.get(family, {}))
    return Checkpoint(config, family, Model(Encoder(config)).state_dict())


def test_a_new_head_is_drawn_from_the_default_generator():
    drawn = []
    for seed in (1, 1, 2):
        checkpoint = bare()
        torch.manual_seed(seed)
        drawn.append(with_new_head(checkpoint, "sequence", 2).tensors["head.out.weight"])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_the_encoder_is_the_same_and_the_old_checkpoint_untouched():
    old = bare()
    names = set(old.tensors)
    new = with_new_head(
        old, "sequence", labels=("a", "b", "c"), problem_type="multi_label_classification"
    )
    assert (new.num_labels, new.labels) == (3, ("a", "b", "c"))
    assert new.problem_type == "multi_label_classification"
    assert all(new.tensors[name] is old.tensors[name] for name in names)
    assert (set(old.tensors), old.head, old.notes) == (names, None, ())
    new.build()


@pytest.mark.parametrize(
    ("family", "kind", "pooler", "dropout_before"),
    [
        ("bert", "sequence", "tanh", False),
        ("bert", "tokens", None, False),
        ("roberta", "sequence", "tanh", True),
        ("roberta", "choices", "tanh", False),
        ("distilbert", "sequence", "relu", False),
        ("distilbert", "choices", "relu", False),
        ("albert", "sequence", "tanh", False),
        ("electra", "sequence", "gelu", True),
        ("electra", "choices", "gelu", False),
        ("electra", "spans", None, False),
    ],
)
def test_each_family_keeps_its_custom_for_the_pooler(family, kind, pooler, dropout_before):
    labels = 2 if kind in ("sequence", "tokens") else None
    config = with_new_head(bare(family, None), kind, labels).config
    assert (config.pooling.activation, config.pooling.dropout) == (pooler, dropout_before)


def test_a_classifiers_own_dense_layer_stays_for_new_labels_and_goes_with_the_head():
    first = with_new_head(bare("roberta"), "sequence", 2)
    # roberta.pooler is another layer than classifier.dense, so it is not taken for it.
    dense = first.tensors["encoder.pooler.weight"]
    assert not torch.equal(dense, bare("roberta").tensors["encoder.pooler.weight"])
    again = with_new_head(first, "sequence", 5)
    assert torch.equal(again.tensors["encoder.pooler.weight"], dense)
    nothing = with_new_head(first, None)
    assert nothing.config.pooling.activation is None
    assert not any(name.startswith(("head.", "encoder.pooler.")) for name in nothing.tensors)


def test_the_head_dropout_is_the_one_that_transformers_would_use():
    assert with_new_head(bare("roberta"), "sequence", 2).config.dropout.head == 0.3
    assert with_new_head(bare("roberta"), "choices").config.dropout.head == 0.4
    assert with_new_head(bare("distilbert", None), "tokens", 2).config.dropout.head == 0.4


def test_a_head_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="no 'poetry' head"):
        with_new_head(bare(), "poetry")


def test_a_masked_lm_head_that_no_other_tool_would_compute_is_refused():
    checkpoint = bare("roberta")
    checkpoint.config = checkpoint.config.changed(hidden_act="relu")
    with pytest.raises(ConfigError, match="gelu in its head"):
        with_new_head(checkpoint, "masked_lm")
