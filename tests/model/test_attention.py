"""Grouped attention against torch's own: whole sequences, causal, and within a window."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention

from filbert.batch import pack
from filbert.model import attention, distances
from filbert.model.attention import (
    AttentionPlan,
    PositionVectors,
    _GroupedAttention,
    attend,
    group_lengths,
    max_scores_on,
)

# Equal ones, near-equal ones in one group, some alone, and some that are divided into blocks.
LENGTHS = (5, 5, 7, 20, 20, 21, 3, 1)
LONG = (100, 3, 150, 41)
KINDS = [{}, {"causal": True}, *({"reach": reach} for reach in (0, 1, 3, 19, 20, 500))]
HEADS, SIZE, FARTHEST = 4, 8, 150


def plan_of(lengths=LENGTHS, **settings) -> AttentionPlan:
    return AttentionPlan(pack([[1] * n for n in lengths]), **settings)


def by_sequence(
    qkv_T3AD: torch.Tensor,
    lengths: tuple[int, ...] = LENGTHS,
    reach: int = 500,
    causal: bool = False,
    scale: float | None = None,
    bias: torch.Tensor | None = None,
    vectors: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """The reference: one call of torch's attention per sequence, with a mask and an addend."""
    out = []
    for piece in qkv_T3AD.split(lengths):
        places = torch.arange(len(piece))
        behind = places[:, None] - places
        seen = (behind.abs() <= reach) & ((behind >= 0) | (not causal))
        q, k, v = (piece[:, i].transpose(0, 1)[None] for i in range(3))
        addend = torch.zeros(HEADS, *seen.shape, dtype=q.dtype)
        if bias is not None:
            addend = addend + bias[:, FARTHEST - 1 - behind]
        if vectors is not None:
            keys, queries = (
                vectors[0][..., FARTHEST - 1 - behind],
                vectors[1][..., FARTHEST - 1 + behind],
            )
            addend = addend + torch.einsum("aid,adij->aij", q[0], keys)
            addend = addend + torch.einsum("ajd,adij->aij", k[0], queries)
        mask = addend.masked_fill(~seen, -torch.inf)
        result = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        out.append(result[0].transpose(0, 1))
    return torch.cat(out)


def random_qkv(lengths: tuple[int, ...] = LENGTHS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (sum(lengths), 3, HEADS, SIZE)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_attention_and_its_gradient_equal_torchs_sequence_by_sequence(settings):
    plan = plan_of(**settings)
    torch.testing.assert_close(
        attend(random_qkv(), plan), by_sequence(random_qkv(), **settings), atol=1e-14, rtol=0
    )
    qkv, again = random_qkv().requires_grad_(), random_qkv().requires_grad_()
    weights = torch.randn(sum(LENGTHS), 4, 8, dtype=torch.float64)
    (attend(qkv, plan) * weights).sum().backward()
    (by_sequence(again, **settings) * weights).sum().backward()
    torch.testing.assert_close(qkv.grad, again.grad, atol=1e-13, rtol=0)


@pytest.mark.parametrize("lengths", [LENGTHS, LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    "kind", ["plain", "causal", "window", "bias", "causal bias", "window bias", "vectors"]
)
def test_blocks_and_values_by_distance_equal_torchs_with_a_mask(kind, lengths, monkeypatch):
    """In blocks, stripes and one kernel; gradients of the values by distance too."""
    for name, value in {
        "_LONG": 40,
        "_MAX_BLOCK": 1000,
        "_MAX_SCORES_CPU": 1000,
    }.items():
        monkeypatch.setattr(attention, name, value)
    monkeypatch.setattr(distances, "_STRIPE", 16)
    settings = {"causal": "causal" in kind, "scale": 0.3}
    settings |= {"reach": 3} if "window" in kind else {}
    columns = 2 * FARTHEST - 1
    inputs = [random_qkv(lengths)]
    inputs += [torch.randn(HEADS, columns, dtype=torch.float64)] if "bias" in kind else []
    if kind == "vectors":
        inputs += list(torch.randn(2, HEADS, SIZE, columns, dtype=torch.float64))

    def ours(qkv, *by_distance):
        bias = by_distance[0] if len(by_distance) == 1 else None
        rows = by_distance if len(by_distance) == 2 else None
        plan = plan_of(lengths, bias_AP=bias, position_rows=rows, **settings)
        blocks = any(group.keys is not None for group in plan.groups)
        assert blocks == (lengths == LONG and kind not in ("plain", "causal"))
        return attend(qkv, plan, vectors=rows and PositionVectors(*rows))

    def theirs(qkv, *by_distance):
        values = {1: {"bias": by_distance[0]}, 2: {"vectors": by_distance}} if by_distance else {}
        return by_sequence(qkv, lengths, **settings, **values.get(len(by_distance), {}))

    torch.testing.assert_close(ours(*inputs), theirs(*inputs), atol=1e-13, rtol=0)
    weights = torch.randn(sum(lengths), HEADS, SIZE, dtype=torch.float64)
    grads = []
    for function in (ours, theirs):
        copies = [values.clone().requires_grad_() for values in inputs]
        (function(*copies) * weights).sum().backward()
        grads.append([values.grad for values in copies])
    torch.testing.assert_close(*grads, atol=1e-12, rtol=0)


@pytest.mark.parametrize("settings", [{}, {"causal": True}, {"reach": 2}], ids=str)
def test_the_gradient_with_dropout_is_that_of_the_same_mask(settings):
    plan = plan_of(**settings)

    def dropped(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return _GroupedAttention.apply(x, plan, 0.3, None)

    qkv = random_qkv()[:, :, :2, :4].contiguous().requires_grad_()
    assert torch.autograd.gradcheck(dropped, (qkv,), fast_mode=True)
    assert not torch.allclose(dropped(qkv), attend(qkv, plan)), "dropout must do something"


def test_in_bf16_it_is_that_of_float32_to_the_rounding():
    qkv = random_qkv().float()
    result = attend(qkv.bfloat16(), plan_of(causal=True))
    assert result.dtype == torch.bfloat16
    # 8 bits of mantissa; values are about 1.
    torch.testing.assert_close(result.float(), by_sequence(qkv, causal=True), atol=0.03, rtol=0.02)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [({}, (-1, -1)), ({"causal": True}, (-1, 0)), ({"reach": 3}, (3, 3))],
    ids=str,
)
def test_the_gpu_kernel_gets_the_window(settings, wanted, monkeypatch):
    """No GPU is needed: these tensors have shapes only, and so has the kernel's output."""
    import torch.nn.attention.varlen as kernels

    windows, ours = [], kernels.varlen_attn

    def kernel(*arguments, scale, window_size) -> torch.Tensor:
        windows.append((scale, *window_size))
        return ours(*arguments, scale=scale, window_size=window_size)

    monkeypatch.setattr(kernels, "varlen_attn", kernel)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with FakeTensorMode(allow_non_fake_inputs=True):
        qkv = torch.empty(sum(LENGTHS), 3, 4, 8, dtype=torch.bfloat16, device="cuda")
        result = attend(qkv, plan_of(scale=0.3, **settings))
    assert windows == [(0.3, *wanted)]
    assert result.shape == (sum(LENGTHS), 4, 8) and result.dtype == torch.bfloat16


def test_rows_after_the_last_sequence_are_zeros_and_change_nothing():
    qkv = random_qkv()
    behind = torch.cat([qkv, torch.full_like(qkv[:3], float("nan"))])
    plan = plan_of()
    found = attend(behind, plan)
    assert torch.equal(found[:-3], attend(qkv, plan)) and not found[-3:].any()


@given(st.lists(st.integers(1, 600), min_size=1, max_size=60))
def test_padding_inside_attention_stays_under_five_percent(lengths):
    batch = pack([[1] * n for n in sorted(lengths)])
    plan = AttentionPlan(batch)
    places = sum(group.count * group.length for group in plan.groups)
    assert batch.num_tokens >= 0.95 * places
    runs = group_lengths(batch.lengths, max_scores_on(torch.device("cpu")))
    assert [a for a, _ in runs] == [0, *[b for _, b in runs[:-1]]]
    assert runs[-1][1] == len(lengths)
