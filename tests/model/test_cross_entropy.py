"""The cross entropy that reads its logits once, against torch's."""

import pytest
import torch
from torch.nn import functional as F

from filbert.losses import cross_entropy as module
from filbert.losses.cross_entropy import cross_entropy


def pair(logits, labels, scale=0.7):
    """Loss and gradient by ours and by torch's."""
    found = []
    for loss_of in (cross_entropy, lambda x, y: F.cross_entropy(x.float(), y, reduction="sum")):
        leaf = logits.clone().requires_grad_()
        loss = loss_of(leaf, labels)
        (loss * scale).backward()
        found.append((loss.detach(), leaf.grad))
    return found


@pytest.mark.parametrize("cached", [1, 20 * 37, 2**21])
def test_loss_and_gradient_equal_torch_however_many_rows_are_taken_at_a_time(cached, monkeypatch):
    monkeypatch.setattr(module, "_CACHED", cached)
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(50, 37, generator=generator)
    labels = torch.randint(37, (50,), generator=generator)
    ours, theirs = pair(logits, labels)
    # Sums of 50 float32 terms in another order.
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-6, atol=0)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-5, atol=1e-7)


def test_bf16_logits_give_a_float32_loss_and_a_gradient_as_exact_as_bf16_is():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(30, 64, generator=generator).bfloat16()
    labels = torch.randint(64, (30,), generator=generator)
    ours, theirs = pair(logits, labels, scale=1.0)
    assert ours[0].dtype == torch.float32 and ours[1].dtype == torch.bfloat16
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-6, atol=0)
    # One rounding to bf16 (8 bits) on either side.
    torch.testing.assert_close(ours[1], theirs[1], rtol=2**-7, atol=1e-6)


def test_no_rows_give_a_loss_of_zero_and_an_empty_gradient():
    logits = torch.zeros(0, 9, requires_grad=True)
    loss = cross_entropy(logits, torch.zeros(0, dtype=torch.int64))
    loss.backward()
    assert loss == 0
    assert logits.grad.shape == (0, 9)
