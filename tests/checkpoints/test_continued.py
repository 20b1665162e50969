"""Checkpoints that are pre-trained further: what is kept, what is drawn, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.conftest import sizes

from filbert.batch import pack
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.checkpoints.fresh import for_pretraining, fresh_checkpoint
from filbert.errors import ConfigError

SMALL: dict[str, Any] = sizes(layers=2, width=16, heads=2, positions=20)
BATCH = pack([[1, 2, 3], [4, 5, 6, 7]])


def fresh(family: str, head: str) -> Checkpoint:
    """Every number random, so that a zero bias is no longer like another."""
    torch.manual_seed(3)
    new = fresh_checkpoint(family, vocab_size=30, head=head, **SMALL)
    new.tensors = {name: 0.3 * torch.randn_like(tensor) for name, tensor in new.tensors.items()}
    return new


def same(left: Checkpoint, right: Checkpoint, before: str, after: str) -> bool:
    """Whether all tensors of `left` under one name are those of `right` under another."""
    names = [name for name in left.tensors if name.startswith(before)]
    assert names
    return all(
        right.tensors[after + name.removeprefix(before)] is left.tensors[name] for name in names
    )


def test_without_pairs_the_masked_lm_head_of_both_is_kept_and_says_the_same():
    old = fresh("bert", "pretraining")
    new = for_pretraining(old, "masked_lm")
    assert same(old, new, "head.masked_lm.", "head.")
    assert new.notes == (
        "pooler left out: a BertForMaskedLM has no place for the old one.",
        "head left out: pair.",
    )
    with torch.no_grad():
        assert torch.equal(new.build()(BATCH), old.build()(BATCH)[0])


def test_with_pairs_the_masked_lm_head_is_kept_and_pooler_and_pair_head_are_new():
    old = fresh("albert", "masked_lm")
    new = for_pretraining(old, "pretraining")
    assert same(old, new, "head.", "head.masked_lm.")
    assert same(old, new, "encoder.", "encoder.")
    assert new.notes == (
        "new pooler: albert.pooler (tanh), drawn at random.",
        "new head: pair, drawn at random: the checkpoint has a masked_lm head.",
    )
    with torch.no_grad():
        masked, pair = new.build()(BATCH)
        assert torch.equal(masked, old.build()(BATCH))
    assert pair.shape == (2, 2)


def test_a_pair_head_is_kept_too():
    old = with_new_head(fresh("bert", "pretraining"), "pair")
    new = for_pretraining(old, "pretraining")
    assert same(old, new, "head.", "head.pair.")
    assert same(old, new, "encoder.pooler.", "encoder.pooler.")
    assert new.notes[-1] == "new head: masked_lm, drawn at random: the checkpoint has a pair head."


def test_a_bare_encoder_gets_a_new_head_and_keeps_its_pooler_for_pairs():
    old = with_new_head(fresh("bert", "pretraining"), None)
    old.notes = ()
    new = for_pretraining(old, "pretraining")
    assert same(old, new, "encoder.", "encoder.")
    assert new.notes == (
        "new head: masked_lm, drawn at random: the checkpoint has no head.",
        "new head: pair, drawn at random: the checkpoint has no head.",
    )
    assert not new.tensors["head.masked_lm.bias"].any()


def test_a_head_that_the_family_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="no 'pretraining' head"):
        for_pretraining(fresh("roberta", "masked_lm"), "pretraining")
