"""New, continued and split models in transformers' own classes: the same logits from their folders.

Tiny random weights, float32, CPU. The logits are about one, and 1e-5 is a few units in the last
place of the sums behind them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import sizes
from tests.reference.theirs import transformers

from filbert.batch import pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, meta_model
from filbert.checkpoints.fresh import (
    for_pretraining,
    fresh_checkpoint,
    fresh_config,
    replaced_model,
    split_replaced,
)
from filbert.model.encoder import initialize

TOLERANCE = 1e-5
SMALL: dict[str, Any] = sizes(layers=3, width=24, heads=4, positions=20)
CASES = [
    ("bert", "masked_lm", "AutoModelForMaskedLM"),
    ("bert", "pretraining", "AutoModelForPreTraining"),
    ("roberta", "masked_lm", "AutoModelForMaskedLM"),
    ("distilbert", "masked_lm", "AutoModelForMaskedLM"),
    ("albert", "masked_lm", "AutoModelForMaskedLM"),
    ("albert", "pretraining", "AutoModelForPreTraining"),
    ("electra", "masked_lm", "ElectraForMaskedLM"),
    ("electra", "discriminator", "ElectraForPreTraining"),
]
IDS = [5, 9, 3, 17, 28, 6]


def judge(checkpoint: Checkpoint, folder: Path, name: str) -> tuple[Any, ...]:
    """What transformers computes from the folder, without a warning and with nothing missing."""
    huggingface.write(checkpoint, folder)
    model, story = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(story.values()), story
    with torch.no_grad():
        output = model.eval()(torch.tensor([IDS]))
    tensors: tuple[Any, ...] = output.to_tuple()
    return tensors


def agree(checkpoint: Checkpoint, folder: Path, name: str) -> None:
    with torch.no_grad():
        ours = checkpoint.build()(pack([IDS]))
    ours = ours if isinstance(ours, tuple) else (ours,)
    theirs = judge(checkpoint, folder, name)
    assert len(ours) == len(theirs)
    for mine, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, wanted.reshape(mine.shape), atol=TOLERANCE, rtol=0)


def shaken(checkpoint: Checkpoint) -> Checkpoint:
    """Every number random and large enough to matter, biases and LayerNorms too."""
    checkpoint.tensors = {
        name: 0.1 * torch.randn_like(tensor) + (0.5 if name.endswith("norm.weight") else 0)
        for name, tensor in checkpoint.tensors.items()
    }
    return checkpoint


@pytest.mark.parametrize(("family", "head", "name"), CASES)
def test_a_new_model_gives_the_same_logits_in_transformers(family, head, name, tmp_path):
    torch.manual_seed(0)
    agree(fresh_checkpoint(family, vocab_size=30, head=head, **SMALL), tmp_path / "as drawn", name)
    checkpoint = fresh_checkpoint(family, vocab_size=30, head=head, pad_id=2, **SMALL)
    agree(shaken(checkpoint), tmp_path / "shaken", name)


@pytest.mark.parametrize(
    ("family", "head", "name"),
    [
        ("bert", "pretraining", "BertForPreTraining"),
        ("roberta", "masked_lm", "RobertaForMaskedLM"),
        ("distilbert", "masked_lm", "DistilBertForMaskedLM"),
        ("electra", "discriminator", "ElectraForPreTraining"),
    ],
)
def test_a_family_without_a_wish_has_the_parameters_of_transformers_defaults(family, head, name):
    """These configuration classes have the base (ELECTRA: small) model as their defaults."""
    sizes = {"roberta": {"max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 50265}}
    make = getattr(transformers, name)
    with torch.device("meta"):
        wanted = make(make.config_class(**sizes.get(family, {"vocab_size": 30_522})))
    vocab_size = wanted.config.vocab_size
    ours = meta_model(fresh_config(family, vocab_size=vocab_size, head=head), head)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in wanted.parameters())


@pytest.mark.parametrize(
    ("family", "before", "after", "name"),
    [
        ("bert", "pretraining", "masked_lm", "BertForMaskedLM"),
        ("bert", "masked_lm", "pretraining", "BertForPreTraining"),
        ("albert", "masked_lm", "pretraining", "AlbertForPreTraining"),
        ("electra", "masked_lm", "discriminator", "ElectraForPreTraining"),
    ],
)
def test_a_continued_model_gives_the_same_logits(family, before, after, name, tmp_path):
    torch.manual_seed(0)
    old = shaken(fresh_checkpoint(family, vocab_size=30, head=before, **SMALL))
    agree(for_pretraining(old, after), tmp_path, name)


def test_generator_and_discriminator_give_the_same_logits(tmp_path):
    torch.manual_seed(0)
    checkpoint = fresh_checkpoint(
        "electra", vocab_size=30, head="discriminator", embedding_size=16, pad_id=0, **SMALL
    )
    model = replaced_model(shaken(checkpoint))
    initialize(model.generator, 0.2)
    large, small = split_replaced(checkpoint, model.state_dict(), model.generator.config)
    agree(large, tmp_path / "discriminator", "ElectraForPreTraining")
    agree(small, tmp_path / "generator", "ElectraForMaskedLM")
    at, labels = torch.tensor([1, 3]), torch.tensor([9, 17])
    with torch.no_grad():
        found = model(pack([IDS]), at, labels)
    (masked,) = judge(small, tmp_path / "again", "ElectraForMaskedLM")
    torch.testing.assert_close(found.masked_KV, masked[0, at], atol=TOLERANCE, rtol=0)
