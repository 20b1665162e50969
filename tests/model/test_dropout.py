"""The cheap dropout is dropout."""

import pytest
import torch

from filbert.model.dropout import dropout, keep_mask


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_it_drops_the_asked_share_and_keeps_the_mean(rate):
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(1_000_003), rate)
    share = float((mask == 0).float().mean())
    # Standard deviation of the share is sqrt(rate (1 - rate) / 1e6) < 5e-4; five of them.
    assert abs(share - rate) < 2.5e-3
    assert abs(float(mask.mean()) - 1) < 5e-3
    assert mask.unique().numel() == 2


def test_neighbouring_elements_are_independent():
    torch.manual_seed(0)
    dropped = (keep_mask(torch.empty(4_000_000), 0.5) == 0).float().view(-1, 4)
    correlation = torch.corrcoef(dropped.T)
    # Four decisions come from one 64-bit draw; a million rows, five deviations of 1e-3.
    assert (correlation - torch.eye(4)).abs().max() < 5e-3


def test_the_seed_fixes_the_mask():
    torch.manual_seed(3)
    first = keep_mask(torch.empty(999), 0.1)
    torch.manual_seed(3)
    assert torch.equal(first, keep_mask(torch.empty(999), 0.1))
    assert not torch.equal(first, keep_mask(torch.empty(999), 0.1))


def test_outside_training_nothing_is_dropped():
    values = torch.randn(10)
    assert dropout(values, 0.5, training=False) is values
    assert dropout(values, 0.0, training=True) is values
    assert not torch.equal(dropout(values, 0.5, training=True), values)


def test_the_gradient_passes_through_the_same_mask():
    torch.manual_seed(0)
    values = torch.ones(100, requires_grad=True)
    out = dropout(values, 0.4, training=True)
    out.sum().backward()
    assert torch.equal(values.grad, out.detach())
