"""Attention from left to right, against torch's own; and what is read of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention

from filbert.batch import pack, split
from filbert.errors import ConfigError
from filbert.model.attention import AttentionPlan, _GroupedAttention, attend
from filbert.model.config import EncoderConfig, SelfAttention
from filbert.model.encoder import Encoder, hidden_states, initialize
from filbert.model.heads import Model, VectorHead, new_head
from filbert.model.pooling import pool, standing_rows

# Equal ones, near-equal ones in one group, and some alone.
LENGTHS = (5, 5, 7, 20, 20, 21, 3, 1)
CAUSAL = EncoderConfig.of(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=64,
    causal=True,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    head_dropout=0.0,
)


def by_sequence(qkv_T3AD: torch.Tensor) -> torch.Tensor:
    """The judge: one causal call of torch's attention per sequence."""
    out = []
    for piece in qkv_T3AD.split(LENGTHS):
        q, k, v = (piece[:, i].transpose(0, 1)[None] for i in range(3))
        out.append(scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1))
    return torch.cat(out)


def random_qkv(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sum(LENGTHS), 3, 4, 8, dtype=dtype, generator=generator)


def batch_of(lengths: tuple[int, ...] = LENGTHS):
    return pack([[(7 * i + n) % 49 + 1 for i in range(n)] for n in lengths])


def model_of(kind: str | None, **changes: Any) -> Model:
    torch.manual_seed(0)
    config = CAUSAL.changed(**changes)
    count = 3 if kind in ("sequence", "tokens") else None
    model = Model(Encoder(config), None if kind is None else new_head(kind, config, count))
    # Large weights, so that a token that is seen shows.
    initialize(model, 0.3)
    return model.eval()


def changed_at(batch, row: int):
    ids = batch.input_ids.clone()
    ids[row] = (ids[row] + 11) % 49 + 1
    return dataclasses.replace(batch, input_ids=ids)


@pytest.mark.parametrize("grad", [False, True])
def test_causal_attention_equals_torchs_sequence_by_sequence(grad):
    plan = AttentionPlan(batch_of(), causal=True)
    assert any(group.gather is not None for group in plan.groups), "one group must need padding"
    assert any(group.count > 1 and group.gather is None for group in plan.groups)
    qkv = random_qkv().requires_grad_(grad)
    torch.testing.assert_close(attend(qkv, plan), by_sequence(qkv), atol=1e-14, rtol=0)


def test_in_bf16_it_is_that_of_float32_to_the_rounding():
    qkv = random_qkv(torch.float32)
    found = attend(qkv.bfloat16(), AttentionPlan(batch_of(), causal=True))
    assert found.dtype == torch.bfloat16
    # 8 bits of mantissa; values are about 1.
    torch.testing.assert_close(found.float(), by_sequence(qkv), atol=0.03, rtol=0.02)


def test_its_gradient_equals_autograds_own():
    qkv, again = random_qkv().requires_grad_(), random_qkv().requires_grad_()
    weights = torch.randn(sum(LENGTHS), 4, 8, dtype=torch.float64)
    (attend(qkv, AttentionPlan(batch_of(), causal=True)) * weights).sum().backward()
    (by_sequence(again) * weights).sum().backward()
    torch.testing.assert_close(qkv.grad, again.grad, atol=1e-13, rtol=0)


def test_with_dropout_the_gradient_is_that_of_the_same_mask():
    plan = AttentionPlan(batch_of(), causal=True)

    def dropped(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return _GroupedAttention.apply(x, plan.groups, 0.3)

    qkv = random_qkv()[:, :, :2, :4].contiguous().requires_grad_()
    assert torch.autograd.gradcheck(dropped, (qkv,), fast_mode=True)


@pytest.mark.parametrize("changes", [{}, {"position_offset": 2}, {"rotary_base": 100.0}])
def test_changing_a_token_changes_no_hidden_state_before_it_and_all_from_it_on(changes):
    model = model_of(None, **changes)
    batch = batch_of((6, 6, 7, 1))
    with torch.no_grad():
        before = split(model(batch), batch)
        for row in range(batch.num_tokens):
            after = split(model(changed_at(batch, row)), batch)
            which, at = int(batch.sequence_ids[row]), int(batch.position_ids[row])
            for number, (old, new) in enumerate(zip(before, after, strict=True)):
                moved = (old - new).abs().amax(1) > 0
                first = at if number == which else len(old)
                assert not moved[:first].any() and moved[first:].all()


def test_without_causal_nothing_is_masked_that_was_not():
    plan = AttentionPlan(batch_of())
    assert not plan.causal and all(group.unseen is None for group in plan.groups)
    batch = batch_of()
    assert standing_rows(batch, causal=False) is batch.starts
    assert not SelfAttention(heads=1).causal


def test_a_causal_encoder_without_local_layers_alone():
    with pytest.raises(ConfigError, match="causal with local_window 8"):
        CAUSAL.changed(local_window=8, global_every=2)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [({}, (-1, -1)), ({"causal": True}, (-1, 0)), ({"reach": 3}, (3, 3))],
)
def test_the_gpu_kernel_is_told_what_a_token_sees(settings, wanted, monkeypatch):
    """No GPU is needed: these tensors have shapes alone, and so has the kernel's answer."""
    import torch.nn.attention.varlen as kernels

    told, ours = [], kernels.varlen_attn

    def kernel(*arguments: Any, window_size: tuple[int, int] = (-1, -1)) -> torch.Tensor:
        told.append(window_size)
        return ours(*arguments, window_size=window_size)

    monkeypatch.setattr(kernels, "varlen_attn", kernel)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    plan = AttentionPlan(batch_of(), **settings)
    with FakeTensorMode(allow_non_fake_inputs=True):
        qkv = torch.empty(sum(LENGTHS), 3, 4, 8, dtype=torch.bfloat16, device="cuda")
        found = attend(qkv, plan)
    assert told == [wanted]
    assert found.shape == (sum(LENGTHS), 4, 8) and found.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["sequence", "choices", "pair"])
@pytest.mark.parametrize("pooled", ["cls", "mean"])
def test_the_answer_for_a_sequence_depends_on_every_token_of_it(kind, pooled):
    model = model_of(kind, pooled=pooled)
    batch = batch_of((6, 9, 1))
    with torch.no_grad():
        before = model(batch)
        for row in range(batch.num_tokens):
            moved = (model(changed_at(batch, row)) - before).abs().reshape(3, -1).amax(1) > 0
            assert moved.tolist() == [int(batch.sequence_ids[row]) == n for n in range(3)]


def test_read_at_the_first_token_it_would_depend_on_nothing_else():
    """The control of the test above."""
    model, batch = model_of(None), batch_of((6, 9, 1))
    first = [model(changed_at(batch, row))[0] for row in range(1, batch.num_tokens)]
    assert all(torch.equal(state, model(batch)[0]) for state in first)


def test_the_sentence_vector_cls_is_the_last_token_of_a_causal_encoder():
    model, batch = model_of(None), batch_of()
    config = model.config
    with torch.no_grad():
        hidden = hidden_states(model.encoder, batch, (1, config.num_hidden_layers))
        ends = torch.stack([piece[-1] for piece in split(hidden, batch)])
        starts = torch.stack([piece[0] for piece in split(hidden, batch)])
    assert torch.equal(torch.stack(pool(hidden, batch, "cls", causal=True)), ends)
    assert torch.equal(torch.stack(pool(hidden, batch, "cls")), starts)
    assert torch.equal(torch.stack(pool(hidden, batch, "last")), ends)
    both = torch.stack(pool(hidden, batch, "cls+mean", causal=True))
    assert torch.equal(both[:, : hidden.shape[1]], ends)
    read = Model(model.encoder, VectorHead(config, "cls")).read(hidden, batch)
    assert torch.equal(read, ends)
