"""Batched products by oneDNN: as exact as float32 is, and torch's setting is left as it was."""

from __future__ import annotations

import threading

import pytest
import torch

from filbert.model import batched
from filbert.model.batched import float32_by_onednn, float32_is_exact, products

needs_onednn = pytest.mark.skipif(
    not float32_is_exact(), reason="this processor's float32 products are not oneDNN's"
)


def setting() -> str:
    return torch.backends.mkldnn.matmul.fp32_precision


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_products_are_those_of_the_definition(count, dtype):
    first = torch.randn(count * 12, 71, 64, dtype=torch.float64).to(dtype)
    second = torch.randn(count * 12, 64, 71, dtype=torch.float64).to(dtype)
    exact = torch.einsum("bij,bjk->bik", first.double(), second.double())
    atol = 0.3 if dtype == torch.bfloat16 else 1e-4
    found = products(first, second, count)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, atol=atol, rtol=0)
    out = torch.full_like(found, torch.nan)
    assert products(first, second, count, out) is out
    assert torch.equal(out, found)
    # As of a key, whose rows are the columns.
    turned = products(first, second.transpose(1, 2).contiguous().transpose(1, 2), count)
    torch.testing.assert_close(turned.double(), exact, atol=atol, rtol=0)


@needs_onednn
def test_large_float32_products_are_onednns_and_small_ones_are_not(monkeypatch):
    asked = []
    permit = batched._permit
    monkeypatch.setattr(batched, "_permit", lambda what: (asked.append(what), permit(what)))
    small, large = torch.randn(12, 16, 32), torch.randn(12, 128, 64)
    products(small, small.transpose(1, 2))
    assert asked == []
    products(large, large.transpose(1, 2))
    assert asked == ["bf16", "none"]


@needs_onednn
def test_what_the_setting_brings_is_still_float32():
    # bf16 products would be off by some 1e-2 here.
    first, second = torch.randn(12, 200, 64), torch.randn(12, 64, 200)
    exact = first.double() @ second.double()
    with float32_by_onednn():
        assert setting() == "bf16"
        assert (torch.bmm(first, second) - exact).abs().max() < 5e-5


def test_a_processor_whose_products_are_rounded_is_found_out(monkeypatch):
    bmm = torch.bmm
    monkeypatch.setattr(
        torch,
        "bmm",
        lambda first, second: bmm(first.bfloat16(), second.bfloat16()).to(first.dtype),
    )
    float32_is_exact.cache_clear()
    try:
        assert not float32_is_exact()
    finally:
        float32_is_exact.cache_clear()


def test_the_setting_is_as_before_once_the_last_thread_has_left():
    assert setting() == "none"
    inside, leave = threading.Barrier(3), threading.Event()

    def stay() -> None:
        with float32_by_onednn():
            inside.wait(10)
            leave.wait(10)

    threads = [threading.Thread(target=stay) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(10)
    with pytest.raises(RuntimeError, match="on the way"), float32_by_onednn():
        raise RuntimeError("on the way")
    assert setting() == "bf16"
    leave.set()
    for thread in threads:
        thread.join(10)
    assert setting() == "none"


def test_what_somebody_has_set_himself_stays():
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"
    try:
        with float32_by_onednn():
            assert setting() == "ieee"
        assert setting() == "ieee"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"
