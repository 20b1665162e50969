"""Replaced-token detection: what is sampled, what is corrupted, and who learns from what."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import sizes
from torch.nn import functional as F

from filbert.batch import PackedBatch, pack
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import DiscriminatorHead
from filbert.model.replaced import ReplacedTokenModel, generator_config, sample

MASK = 4
CONFIG = EncoderConfig.of(
    **sizes(vocab_size=40, layers=2, width=16, heads=4, inner=32, positions=24),
    embedding_size=8,
    pooler=None,
)


def make(share: float = 0.25, std: float = 0.3) -> ReplacedTokenModel:
    torch.manual_seed(0)
    model = ReplacedTokenModel(
        Encoder(CONFIG), DiscriminatorHead(CONFIG), generator_config(CONFIG, share)
    )
    initialize(model, std)
    return model.eval()


def masked() -> tuple[PackedBatch, torch.Tensor, torch.Tensor]:
    """Three sequences; four places, the last of which keeps its token."""
    batch = pack([[1, MASK, 7, 8, 2], [1, MASK, 2], [1, 9, MASK, 11, 12, 2]])
    return batch, torch.tensor([1, 6, 10, 12]), torch.tensor([20, 21, 22, 12])


@pytest.mark.parametrize(
    ("hidden", "heads", "width", "share", "expected"),
    [
        (256, 4, 1024, 1 / 4, (64, 1, 256)),
        (768, 12, 3072, 1 / 3, (256, 4, 1024)),
        (1024, 16, 4096, 1 / 4, (256, 4, 1024)),
        (16, 1, 32, 1 / 4, (4, 1, 8)),
        (768, 12, 3072, 0.3, (232, 4, 922)),
        (16, 4, 32, 1.0, (16, 4, 32)),
    ],
)
def test_a_generator_is_a_share_as_wide_with_at_least_one_head(
    hidden, heads, width, share, expected
):
    config = EncoderConfig.of(
        **sizes(vocab_size=9, layers=5, width=hidden, heads=heads, inner=width), embedding_size=128
    )
    small = generator_config(config, share)
    found = (small.hidden_size, small.attention.heads, small.feed_forward.width)
    assert found == expected
    assert (small.num_hidden_layers, small.table_size, small.pooling.activation) == (5, 128, None)


def test_every_tensor_has_one_name_and_its_own_memory():
    model = make()
    states = model.state_dict()
    assert states.keys() == dict(model.named_parameters()).keys()
    assert len({tensor.data_ptr() for tensor in states.values()}) == len(states)
    assert not any("word" in name for name in states if name.startswith("generator."))


def test_the_discriminator_reads_the_samples_and_the_truth_is_where_they_differ():
    model, (batch, at, labels) = make(), masked()
    torch.manual_seed(1)
    found = model(batch, at, labels)
    torch.manual_seed(1)
    drawn = sample(found.masked_KV)
    corrupted = batch.input_ids.clone()
    corrupted[at] = drawn
    hidden = model.encoder(
        PackedBatch(corrupted, batch.position_ids, batch.token_type_ids, batch.lengths)
    )
    wanted = F.linear(
        F.gelu(F.linear(hidden, model.head.dense.weight, model.head.dense.bias)),
        model.head.out.weight,
        model.head.out.bias,
    ).squeeze(-1)
    # The same products in the same order, but for the head's.
    torch.testing.assert_close(found.replaced_T, wanted)
    assert found.masked_KV.shape == (4, 40)
    truth = torch.zeros(14, dtype=torch.bool)
    truth[at] = drawn != labels
    assert torch.equal(found.is_replaced_T, truth)
    assert batch.input_ids[1] == MASK, "the batch stays as it is"


def test_samples_follow_the_softmax_of_the_logits():
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, -1.0, 2.5, -30.0])
    counts = torch.bincount(sample(logits.expand(100_000, 5)), minlength=5).double()
    expected = 100_000 * torch.softmax(logits.double(), 0)
    # Chi-square of 3 degrees of freedom is above 21.1 once in 10000 seeds; this seed is fixed.
    assert ((counts - expected)[:4] ** 2 / expected[:4]).sum() < 21.1
    assert counts[4] == 0


def test_the_detectors_loss_reaches_the_tables_but_not_the_generator():
    model, inputs = make(), masked()
    found = model(*inputs)
    F.binary_cross_entropy_with_logits(found.replaced_T, found.is_replaced_T.float()).backward()
    assert model.encoder.embeddings.word.weight.grad is not None
    assert all(p.grad is None for p in model.generator.parameters())
    assert all(p.grad is not None for p in model.encoder.parameters())


def test_the_generators_loss_reaches_the_tables_but_not_the_detector():
    model, (batch, at, labels) = make(), masked()
    F.cross_entropy(model(batch, at, labels).masked_KV, labels).backward()
    tables = model.encoder.embeddings
    assert tables.word.weight.grad is not None
    assert tables.norm.weight.grad is not None
    assert all(p.grad is not None for p in model.generator.parameters())
    assert all(p.grad is None for p in model.encoder.layers.parameters())
    assert tables.project is not None
    assert tables.project.weight.grad is None


def test_a_batch_without_masked_places_is_all_original():
    model, (batch, _, _) = make(), masked()
    nothing = torch.zeros(0, dtype=torch.int64)
    found = model(batch, nothing, nothing)
    assert found.masked_KV.shape == (0, 40)
    assert not found.is_replaced_T.any()
    (found.masked_KV.sum() + found.replaced_T.sum()).backward()
    assert all(p.grad is not None for p in model.parameters())
