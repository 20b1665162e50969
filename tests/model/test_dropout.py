"""The cheap dropout is dropout."""

import pytest
import torch

from filbert.batch import pack
from filbert.model.attention import attend
from filbert.model.attention_plan import plan_attention
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


@pytest.mark.parametrize("rate", [1e-9, 7e-6, 0.999995, 1 - 1e-9])
def test_rates_near_0_and_1_drop_and_keep_at_least_one_of_65536(rate):
    torch.manual_seed(0)
    # 16 times 65,536 elements: the share is 16 in expectation, Poisson; fewer than 41 (six sigma).
    mask = keep_mask(torch.empty(16 * 65_536), rate)
    rare = (mask == 0) if rate < 0.5 else (mask != 0)
    assert int(rare.sum()) <= 40
    assert dropout(torch.ones(8, requires_grad=True), rate, training=True).isfinite().all()


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_values_and_gradients_go_through_the_same_mask(dtype, rate):
    torch.manual_seed(3)
    mask = keep_mask(torch.empty(50, 70, dtype=torch.float64), rate)
    values = torch.randn(50, 70).to(dtype).requires_grad_()
    torch.manual_seed(3)
    found = dropout(values, rate, training=True)
    grads = torch.randn(50, 70).to(dtype)
    found.backward(grads)
    wanted = values.detach().double() * mask, grads.double() * mask
    for mine, theirs in zip((found, values.grad), wanted, strict=True):
        # In one rounding: a scale of 1.1111 that was rounded to bf16 would shrink every value.
        if dtype == torch.bfloat16:
            assert torch.equal(mine, theirs.to(dtype))
        assert torch.allclose(mine.double(), theirs, rtol=torch.finfo(dtype).eps)


def test_attention_drops_and_scales_as_the_formula_says():
    torch.manual_seed(0)
    qkv = torch.randn(12, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    plan = plan_attention(pack([[7] * 6, [8] * 6]))
    torch.manual_seed(5)
    found = attend(qkv, plan, 0.3)
    torch.manual_seed(5)
    mask = keep_mask(torch.empty(4, 6, 6, dtype=torch.float64), 0.3).view(2, 2, 6, 6)
    query, key, value = qkv.view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
    weights = torch.softmax(query @ key.transpose(-1, -2) / 2, -1) * mask
    wanted = (weights @ value).transpose(1, 2).reshape(12, 2, 4)
    assert torch.allclose(found, wanted, atol=1e-12)
    given = torch.randn_like(wanted)
    (first,) = torch.autograd.grad(found, qkv, given)
    (second,) = torch.autograd.grad(wanted, qkv, given)
    assert torch.allclose(first, second, atol=1e-12)
