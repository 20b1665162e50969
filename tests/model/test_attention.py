"""Grouped attention against torch's own, its gradient, and the grouping."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from filbert.batch import pack
from filbert.model.attention import AttentionPlan, _GroupedAttention, attend, group_lengths

LENGTHS = (5, 5, 7, 20, 20, 21, 3)


def by_sequence(qkv_T3AD: torch.Tensor, lengths: tuple[int, ...]) -> torch.Tensor:
    """The judge: one call of torch's attention per sequence."""
    out = []
    for piece in qkv_T3AD.split(lengths):
        q, k, v = (piece[:, i].transpose(0, 1)[None] for i in range(3))
        out.append(scaled_dot_product_attention(q, k, v)[0].transpose(0, 1))
    return torch.cat(out)


def random_qkv(lengths: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sum(lengths), 3, 4, 8, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("grad", [False, True])
def test_grouped_attention_equals_torch_attention_sequence_by_sequence(grad):
    qkv = random_qkv(LENGTHS).requires_grad_(grad)
    plan = AttentionPlan(pack([[1] * n for n in LENGTHS]))
    assert any(group.gather is not None for group in plan.groups), "one group must need padding"
    assert any(group.count > 1 and group.gather is None for group in plan.groups)
    torch.testing.assert_close(attend(qkv, plan), by_sequence(qkv, LENGTHS), atol=1e-14, rtol=0)


def test_in_bf16_seven_of_a_length_are_multiplied_as_four_two_and_one(monkeypatch):
    counts = []
    multiply = torch.bmm

    def watched(first, second, **options):
        counts.append(len(first))
        return multiply(first, second, **options)

    qkv = random_qkv((6,) * 7).bfloat16()
    monkeypatch.setattr(torch, "bmm", watched)
    found = attend(qkv, AttentionPlan(pack([[1] * 6] * 7)))
    assert counts == [16, 8, 4] * 2, "of four heads, for the scores and for the values"
    alone = torch.cat([attend(part, AttentionPlan(pack([[1] * 6]))) for part in qkv.split(6)])
    # 8 bits of mantissa; values are about 1.
    torch.testing.assert_close(found.float(), alone.float(), atol=0.01, rtol=0)


def test_rows_behind_the_last_sequence_see_nothing_and_are_seen_by_none():
    qkv = random_qkv(LENGTHS)
    behind = torch.cat([qkv, torch.full_like(qkv[:3], float("nan"))])
    plan = AttentionPlan(pack([[1] * n for n in LENGTHS]))
    found = attend(behind, plan)
    assert torch.equal(found[:-3], attend(qkv, plan)) and not found[-3:].any()


def test_its_gradient_equals_the_numerical_one():
    lengths = (3, 3, 4, 21, 22)
    plan = AttentionPlan(pack([[1] * n for n in lengths]))
    qkv = random_qkv(lengths)[:, :, :2, :3].contiguous().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: _GroupedAttention.apply(x, plan.groups, 0.0), (qkv,), fast_mode=True
    )


def test_the_gradient_with_dropout_is_that_of_the_same_mask():
    plan = AttentionPlan(pack([[1] * n for n in LENGTHS]))

    def dropped(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return _GroupedAttention.apply(x, plan.groups, 0.3)

    qkv = random_qkv(LENGTHS).requires_grad_()
    assert torch.autograd.gradcheck(dropped, (qkv,), fast_mode=True)
    assert not torch.allclose(dropped(qkv), attend(qkv, plan)), "dropout must do something"


@given(st.lists(st.integers(1, 600), min_size=1, max_size=60))
def test_padding_inside_attention_stays_under_five_percent(lengths):
    batch = pack([[1] * n for n in sorted(lengths)])
    plan = AttentionPlan(batch)
    places = sum(group.count * group.length for group in plan.groups)
    assert batch.num_tokens >= 0.95 * places
    runs = group_lengths(batch.lengths, 2**15)
    assert [a for a, _ in runs] == [0, *[b for _, b in runs[:-1]]]
    assert runs[-1][1] == len(lengths)


def test_equal_lengths_need_no_padding_and_no_copy():
    plan = AttentionPlan(pack([[1] * 16] * 8))
    assert len(plan.groups) == 1
    assert plan.groups[0].gather is None
