"""Rotary positions, and encoders with local layers, gates and pre-norm (ModernBERT)."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import sizes

from filbert.batch import pack
from filbert.model.attention import AttentionPlan
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.model.positions import rotary_angles, rotate

# torch warns of its own doing while it compiles.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

LENGTHS = (5, 5, 7, 20, 20, 21, 3, 1)
MODERN = EncoderConfig.of(
    **sizes(vocab_size=50, layers=3, width=16, heads=2, inner=24, positions=64),
    rotary_base=1000.0,
    local_rotary_base=10.0,
    local_window=6,
    global_every=2,
    type_vocab_size=0,
    gated=True,
    norm_place="before",
    biases=False,
    pooled="mean",
    pooler=None,
    head_transform=True,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    head_dropout=0.0,
)


def random_qkv(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sum(LENGTHS), 3, 4, 8, dtype=dtype, generator=generator)


def test_a_turn_keeps_lengths_and_makes_scores_depend_on_distance_alone():
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 8, generator=generator)
    same = torch.stack([query, key, query])[None, :, None, :].expand(40, 3, 1, 8)
    turned = rotate(same, rotary_angles(torch.arange(40), 8, 100.0))
    q, k, v = turned[:, :, 0].unbind(1)
    torch.testing.assert_close(q.norm(dim=1), query.norm().expand(40), atol=1e-5, rtol=0)
    assert torch.equal(v, same[:, 2, 0])
    scores = q @ k.T
    for apart in (0, 1, 7):
        line = scores.diagonal(apart)
        torch.testing.assert_close(line, line[:1].expand_as(line), atol=1e-4, rtol=0)
    assert float((scores.diagonal(1)[0] - scores.diagonal(2)[0]).abs()) > 1e-3


def test_the_gradient_of_a_turn_equals_the_numerical_one():
    # The turn itself is float32, so the step is large and the tolerance that of float32.
    rotary = rotary_angles(torch.arange(5), 4, 10.0)
    qkv = torch.randn(5, 3, 2, 4, dtype=torch.float32, requires_grad=True)
    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(
            lambda x: rotate(x, rotary), (qkv,), eps=1e-2, atol=1e-3, rtol=1e-3
        )


def test_bf16_rows_are_turned_by_float32_angles():
    rotary = rotary_angles(torch.tensor([8000]), 8, 160_000.0)
    assert rotary.cos.dtype == torch.float32
    qkv = random_qkv(torch.float32)[:1]
    found = rotate(qkv.bfloat16(), rotary)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), rotate(qkv, rotary), atol=0.03, rtol=0.01)


def modern(kind: str = "sequence", **changes) -> Model:
    torch.manual_seed(0)
    config = MODERN.changed(**changes)
    model = Model(Encoder(config), new_head(kind, config, 3 if kind == "sequence" else None))
    initialize(model, 0.3)
    return model


def test_a_local_layer_alone_carries_nothing_beyond_its_window():
    assert [MODERN.is_local(index) for index in range(3)] == [False, True, False]
    layer = modern().encoder.layers[1]
    one = torch.randn(20, 16)
    other = torch.cat([one[:-1], torch.randn(1, 16)])
    plan = AttentionPlan(pack([[1] * 20]), 3)
    changed = (layer(one, plan) - layer(other, plan)).detach().abs().amax(1) > 1e-6
    assert changed.tolist() == [False] * 16 + [True] * 4
