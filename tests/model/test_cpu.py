"""Fast products compute what plain ones do, and leave torch's and the C library's settings."""

import subprocess
import sys
import threading
from datetime import date

import pytest
import torch
from torch import nn

from filbert.batch import pack
from filbert.files import measured_once
from filbert.model import cpu
from filbert.model.attention import AttentionPlan, attend
from filbert.model.config import EncoderConfig
from filbert.model.cpu import (
    activate,
    cut,
    dense,
    dropout,
    fill_up,
    float32_by_onednn,
    float32_is_exact,
    mkl_is_faster,
    next_size,
    products,
)
from filbert.model.encoder import Encoder, initialize, traced
from filbert.model.heads import Model, new_head

needs_onednn = pytest.mark.skipif(
    not float32_is_exact(), reason="this CPU's float32 products are not oneDNN's"
)


# Dense layers.


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu", "tanh"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("gelu_is_fused", [True, False])
def test_without_gradient_a_dense_layer_computes_what_torch_does(
    activation, dtype, tolerance, gelu_is_fused, monkeypatch
):
    torch.manual_seed(0)
    layer, rows = nn.Linear(384, 512).to(dtype), torch.randn(33, 384).to(dtype)
    plain = activate(layer(rows), activation)
    monkeypatch.setattr(cpu, "mkl_is_faster", lambda *_: False)
    monkeypatch.setattr(cpu, "gelu_is_fused", lambda: gelu_is_fused)
    calls = []
    fused = cpu._onednn_product
    monkeypatch.setattr(cpu, "_onednn_product", lambda *args: calls.append(1) or fused(*args))
    with torch.inference_mode():
        fast = dense(rows, layer, activation)
    # Sums of 384 terms near 1 in another order: float32 keeps 1e-6, bf16 rounds the result to 2^-8.
    torch.testing.assert_close(fast, plain.detach(), atol=tolerance, rtol=0)
    supported = dtype in cpu._fused_dtypes()
    assert bool(calls) == (supported and activation != "tanh"), "the fast product must be used"


@pytest.mark.parametrize(("shape", "count"), [("16x384", 8), ("128x384", 200)])
def test_mkl_multiplies_where_a_trial_found_it_faster(shape, count, monkeypatch):
    monkeypatch.setattr(cpu, "engine_of", lambda one: "MKL" if one == shape else "oneDNN")
    monkeypatch.setattr(cpu, "_onednn_product", lambda *_: 1 / 0)
    layer, rows = nn.Linear(384, 384), torch.randn(count, 384)
    with torch.inference_mode():
        assert torch.equal(
            dense(rows, layer, "gelu"), cut(activate(layer(fill_up(rows)), "gelu"), count)
        )
    assert not mkl_is_faster(layer.weight.bfloat16(), count)


# A trial's file: what is read again, and what is measured again.


@pytest.mark.parametrize("content", [None, "{", "[]", '{"values": 3}', "unwritable"])
def test_a_trial_is_measured_once_and_again_after_damage(content, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    numbers = iter([1.0, 2.0])

    def found(machine: str = "a") -> tuple[dict, str]:
        return measured_once("x", {"name": machine}, lambda: {"shape": {"MKL": next(numbers)}})

    if content == "unwritable":
        (tmp_path / "cache").write_text("a file")
    assert found() == ({"shape": {"MKL": 1.0}}, "now")
    if content is None:
        assert found() == ({"shape": {"MKL": 1.0}}, str(date.today()))
        assert found("b") == ({"shape": {"MKL": 2.0}}, "now")
        return
    for file in tmp_path.glob("cache/filbert/*"):
        file.write_text(content)
    assert found() == ({"shape": {"MKL": 2.0}}, "now")


# Sizes.


def test_sizes_are_few_and_at_most_a_sixteenth_too_large():
    sizes = [next_size(count) for count in range(1, 2049)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 144
    assert sizes[:34] == [*range(1, 33), 34, 34]
    assert all(count <= size <= count * 17 / 16 for count, size in enumerate(sizes, 1))
    assert all(next_size(size) == size for size in set(sizes))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (None, {}),
        ("sequence", {}),
        ("sequence", {"pooled": "mean", "rotary_base": 100.0}),
        ("tokens", {"embedding_size": 8, "num_hidden_groups": 1}),
        ("masked_lm", {"causal": True}),
    ],
)
def test_filled_up_products_change_no_output(kind, changes, monkeypatch):
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2}
    config = EncoderConfig.of(**sizes, num_attention_heads=2, intermediate_size=24, **changes)
    torch.manual_seed(0)
    model = Model(Encoder(config))
    if kind is not None:
        count = 3 if kind in ("sequence", "tokens") else None
        model.head = new_head(kind, config, count)
    initialize(model, 0.2)
    model.eval()
    batch = pack([[5 + i % 40 for i in range(n)] for n in (3, 5, 7, 7, 33)])
    assert next_size(batch.num_tokens) > batch.num_tokens
    with torch.inference_mode(), traced(model.encoder, (1,), (2,)) as trace:
        filled = model(batch)
        assert len(trace.hidden[1]) == len(trace.qkv[2]) == batch.num_tokens
        monkeypatch.setattr(cpu, "next_size", lambda count: count)
        monkeypatch.setattr("filbert.model.encoder.fill_up", lambda rows: rows)
        # Another number of rows may use another matrix kernel.
        torch.testing.assert_close(filled, model(batch), atol=1e-6, rtol=0)


# Batched products.


def setting() -> str:
    return torch.backends.mkldnn.matmul.fp32_precision


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_products_are_those_of_the_definition(count, dtype):
    first = torch.randn(count * 12, 71, 64, dtype=torch.float64).to(dtype)
    second = torch.randn(count * 12, 64, 71, dtype=torch.float64).to(dtype)
    exact = torch.einsum("bij,bjk->bik", first.double(), second.double())
    atol = 0.3 if dtype == torch.bfloat16 else 1e-4
    result = products(first, second, count)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), exact, atol=atol, rtol=0)
    out = torch.full_like(result, torch.nan)
    assert products(first, second, count, out) is out
    assert torch.equal(out, result)
    # As for keys, whose rows are the columns.
    transposed = products(first, second.transpose(1, 2).contiguous().transpose(1, 2), count)
    torch.testing.assert_close(transposed.double(), exact, atol=atol, rtol=0)


def test_a_cpu_whose_products_are_rounded_is_detected(monkeypatch):
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


@needs_onednn
def test_the_setting_is_restored_when_the_last_thread_leaves():
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
    with pytest.raises(RuntimeError, match="inside"), float32_by_onednn():
        raise RuntimeError("inside")
    assert setting() == "bf16"
    leave.set()
    for thread in threads:
        thread.join(10)
    assert setting() == "none"


def test_what_is_measured_does_not_depend_on_the_setting_of_the_user():
    found = []
    try:
        for value in ("ieee", "none"):
            torch.backends.mkldnn.matmul.fp32_precision = value
            float32_is_exact.cache_clear()
            found.append(float32_is_exact())
            assert setting() == value
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"
    assert found[0] == found[1]


def test_a_setting_of_the_user_stays():
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"
    try:
        with float32_by_onednn():
            assert setting() == "ieee"
        assert setting() == "ieee"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"


# Dropout.


def mask_of(like: torch.Tensor, rate: float) -> torch.Tensor:
    """Zeros and 1 / (1 - rate), with the bits that `dropout` draws."""
    return cpu.keep_bits(like, rate).to(like.dtype) * -cpu.keep_scale(rate)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_drops_its_rate_and_keeps_the_mean(rate):
    torch.manual_seed(0)
    mask = mask_of(torch.empty(1_000_003), rate)
    share = float((mask == 0).float().mean())
    # Standard deviation of the share is sqrt(rate (1 - rate) / 1e6) < 5e-4; five of them.
    assert abs(share - rate) < 2.5e-3
    assert abs(float(mask.mean()) - 1) < 5e-3
    assert mask.unique().numel() == 2


def test_outside_training_nothing_is_dropped():
    values = torch.randn(10)
    assert dropout(values, 0.5, training=False) is values
    assert dropout(values, 0.0, training=True) is values
    assert not torch.equal(dropout(values, 0.5, training=True), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_values_and_gradients_have_the_mask_that_the_seed_gives(dtype, rate):
    torch.manual_seed(3)
    mask = mask_of(torch.empty(50, 70, dtype=torch.float64), rate)
    values = torch.randn(50, 70).to(dtype).requires_grad_()
    torch.manual_seed(3)
    result = dropout(values, rate, training=True)
    grads = torch.randn(50, 70).to(dtype)
    result.backward(grads)
    wanted = values.detach().double() * mask, grads.double() * mask
    for actual, expected in zip((result, values.grad), wanted, strict=True):
        # In one rounding: a scale of 1.1111 that was rounded to bf16 would shrink every value.
        if dtype == torch.bfloat16:
            assert torch.equal(actual, expected.to(dtype))
        assert torch.allclose(actual.double(), expected, rtol=torch.finfo(dtype).eps)


def test_attention_drops_and_scales_as_the_formula_does():
    torch.manual_seed(0)
    qkv = torch.randn(12, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    plan = AttentionPlan(pack([[7] * 6, [8] * 6]))
    torch.manual_seed(5)
    result = attend(qkv, plan, 0.3)
    torch.manual_seed(5)
    mask = mask_of(torch.empty(4, 6, 6, dtype=torch.float64), 0.3).view(2, 2, 6, 6)
    query, key, value = qkv.view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
    weights = torch.softmax(query @ key.transpose(-1, -2) / 2, -1) * mask
    wanted = (weights @ value).transpose(1, 2).reshape(12, 2, 4)
    assert torch.allclose(result, wanted, atol=1e-12)
    given = torch.randn_like(wanted)
    (first,) = torch.autograd.grad(result, qkv, given)
    (second,) = torch.autograd.grad(wanted, qkv, given)
    assert torch.allclose(first, second, atol=1e-12)


# Memory.

# glibc's own counts: blocks that it maps one by one, and bytes of its heap (mallinfo(3)).
SCRIPT = """
import ctypes
import numpy as np
from filbert.model.cpu import all_memory_kept

class Counts(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Counts

def heap():
    return mallinfo2().arena

def maps():
    before = mallinfo2().hblks
    block = np.ones(10_000_000)
    return mallinfo2().hblks - before

outside, least = maps(), heap()
with all_memory_kept():
    inside, most = maps(), heap()
print(outside, inside, most - least, heap() - least)
"""


@pytest.mark.skipif(
    not hasattr(cpu.c_library(), "mallinfo2"), reason="no glibc of 2.33 or later here"
)
def test_freed_blocks_stay_in_the_heap_and_are_returned_at_the_end():
    done = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, check=True)
    outside, inside, kept, left = map(int, done.stdout.split())
    assert (outside, inside) == (1, 0)
    # A block has 80 MB, of which other allocations may take some.
    assert kept >= 72e6 > 8e6 > left
