"""Layer traces, layer losses, and the module of a student with its teacher."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from filbert.batch import PackedBatch, pack
from filbert.errors import ConfigError
from filbert.losses import student as module
from filbert.losses.distillation import cosine_distance, soft_targets, squared_error
from filbert.losses.student import (
    LayerLoss,
    Student,
    check_layer_losses,
    freeze_unreached,
)
from filbert.model.attention import AttentionPlan, attend
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize, traced
from filbert.model.heads import Model, new_head
from filbert.model.positions import rotate

# Sums of some hundred float32 numbers in another order.
CLOSE = 1e-5
VOCABULARY = 40
ALL = (
    LayerLoss("cosine", ((2, 4),)),
    LayerLoss("embeddings", ((0, 0),)),
    LayerLoss("hidden", ((1, 2), (2, 4))),
    LayerLoss("scores", ((1, 2), (2, 4))),
    LayerLoss("relations", ((2, 4),), heads=4),
    LayerLoss("patient", ((1, 2),)),
)
KINDS = {
    "plain": {},
    "shared layers": {"num_hidden_groups": 1, "embedding_size": 8},
    "pre-norm, rotary": {
        "norm_place": "before",
        "rotary_base": 100.0,
        "local_window": 4,
        "global_every": 2,
    },
    "causal": {"causal": True},
}


def config(**changes: Any) -> EncoderConfig:
    """Four layers of width 16 without dropout."""
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 40,
        "pooler": None,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "head_dropout": 0.0,
    }
    return EncoderConfig.of(**(sizes | changes))


def model(seed: int, head: str | None = None, **changes: Any) -> Model:
    """Drawn."""
    torch.manual_seed(seed)
    built = config(**changes)
    drawn = Model(Encoder(built), None if head is None else new_head(head, built))
    initialize(drawn, 0.3)
    return drawn


def pair(layer_losses, *, head: str | None = None, teacher: Any = None, **changes: Any) -> Student:
    """A student of two layers, or as `changes` say, beside a teacher of four."""
    taught = model(1, head, **(teacher or {}))
    return Student(model(2, head, **({"num_hidden_layers": 2} | changes)), taught, layer_losses)


def texts(*lengths: int, seed: int = 0) -> PackedBatch:
    """Sequences of drawn tokens."""
    torch.manual_seed(seed)
    return pack([torch.randint(0, VOCABULARY, (n,)).tolist() for n in lengths])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_heard_is_what_happens(kind):
    built, batch = model(0, **KINDS[kind]).eval(), texts(5, 9)
    with traced(built.encoder, range(5), range(1, 5)) as heard, torch.no_grad():
        output = built(batch)
    assert sorted(heard.hidden) == [0, 1, 2, 3, 4] and sorted(heard.qkv) == [1, 2, 3, 4]
    assert torch.equal(heard.hidden[0], built.encoder.embeddings(batch))
    assert torch.equal(built.encoder.final_norm(heard.hidden[4]), output)
    # A layer is what its queries, keys and values give, from what the layer below gave.
    for number in range(1, 5):
        layer, below = built.encoder.layer(number - 1), heard.hidden[number - 1]
        mixed = attend(heard.qkv[number], heard.plans[number])
        mixed = layer.attention_out(mixed.flatten(1))
        if built.config.pre_norm:
            after = below + mixed
            after = after + layer._feed_forward(layer.norm(after))
        else:
            after = layer.attention_norm(below + mixed)
            after = layer.norm(after + layer._feed_forward(after))
        assert torch.allclose(after, heard.hidden[number], atol=CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_that_is_its_teacher_has_nothing_to_learn(kind):
    same = [LayerLoss(x.kind, ((1, 1), (4, 4)), heads=4) for x in ALL if x.kind != "embeddings"]
    taught = Student(model(1, **KINDS[kind]), model(1, **KINDS[kind]), same)
    check_layer_losses(same, taught.config, taught.teacher.config)
    assert float(taught(texts(5, 9, 10)).sums.detach().abs().max()) < CLOSE
    other = Student(model(2, **KINDS[kind]), taught.teacher, same)
    assert float(other(texts(5, 9, 10)).sums.detach().min()) > 1e-3, "the control"


def test_the_teacher_is_no_part_of_what_is_trained():
    taught = pair((LayerLoss("hidden", ((2, 4),)),), head="masked_lm", hidden_size=8)
    own = model(2, "masked_lm", num_hidden_layers=2, hidden_size=8).state_dict()
    assert set(taught.state_dict()) == {*own, "projections.hidden.weight"}
    assert taught.model.state_dict().keys() == own.keys()
    assert {id(p) for p in taught.parameters()}.isdisjoint(
        id(p) for p in taught.teacher.parameters()
    )
    taught.train()
    assert taught.training and not taught.teacher.training
    taught(texts(5)).sums.sum().backward()
    assert all(p.grad is None for p in taught.teacher.parameters())


def test_every_loss_reaches_the_student_and_its_projections():
    taught = pair(ALL[1:5], hidden_size=8)
    taught(texts(5, 9)).sums.sum().backward()
    missing = [name for name, p in taught.named_parameters() if p.grad is None]
    assert missing == [] and set(taught.projections) == {"embeddings", "hidden"}


@pytest.mark.parametrize("kind", ["embeddings", "hidden"])
def test_a_narrower_student_is_compared_through_its_projection(kind):
    layer = 0 if kind == "embeddings" else 1
    taught = pair((LayerLoss(kind, ((layer, layer),)),), hidden_size=8)
    teacher, batch = taught.teacher.encoder, texts(5, 9)
    with traced(taught.encoder, [layer], []) as mine, traced(teacher, [layer], []) as theirs:
        found = taught(batch).sums
    projected = taught.projections[kind](mine.hidden[layer])
    assert torch.allclose(found[0], squared_error(projected, theirs.hidden[layer]))


def test_the_last_layer_is_compared_after_the_last_norm():
    kind = KINDS["pre-norm, rotary"]
    taught = pair((LayerLoss("cosine", ((4, 4),)),), teacher=kind, num_hidden_layers=4, **kind)
    batch = texts(5, 9)
    wanted = cosine_distance(taught.encoder(batch), taught.teacher.encoder(batch))
    assert torch.allclose(taught(batch).sums[0], wanted)


def test_soft_words_are_the_soft_targets_of_all_rows_or_the_masked_ones(monkeypatch):
    batch, at = texts(5, 9), torch.tensor([1, 6])
    for masked_only in (False, True):
        soft = LayerLoss("soft", temperature=2.0, masked_only=masked_only)
        taught = pair((soft,), head="masked_lm")
        rows = at if masked_only else None
        with torch.no_grad():
            wanted = taught.teacher(batch, rows)
        expected = soft_targets(taught.model(batch, rows), wanted, 2.0)
        expected.backward()
        gradient = taught.encoder.embeddings.word.weight.grad.clone()
        for most in (2**25, 3 * 40):
            monkeypatch.setattr(module, "_MAX_LOGITS", most)
            taught.zero_grad()
            found = taught(batch, at).sums
            assert torch.allclose(found, expected.detach()[None], rtol=CLOSE)
            found.sum().backward()
            again = taught.encoder.embeddings.word.weight.grad
            assert torch.allclose(again, gradient, atol=CLOSE)


def test_what_no_loss_reaches_is_frozen():
    taught = pair((LayerLoss("relations", ((2, 4),), heads=2),), head="masked_lm")
    frozen = freeze_unreached(taught, answers=False)
    still = {name for name, p in taught.named_parameters() if not p.requires_grad}
    assert all(name.startswith(("encoder.layers.1.", "head.")) for name in still)
    assert not still & {"encoder.layers.1.qkv.weight", "encoder.layers.0.down.weight"}
    assert {"encoder.layers.1.down.weight", "head.bias"} <= still
    assert frozen == sum(p.numel() for p in taught.parameters() if not p.requires_grad)
    assert all(p.grad is None for p in taught.parameters())
    # The control: where the head answers too, there is nothing.
    assert freeze_unreached(pair(ALL, head="masked_lm"), answers=True) == 0


@pytest.mark.parametrize(
    ("loss", "student", "message"),
    [
        (LayerLoss("hidden", ((1, 5),)), {}, r"teacher's layer 4 is requested"),
        (LayerLoss("hidden", ((3, 4),)), {}, r"student's layer 2 is requested"),
        (LayerLoss("cosine", ((2, 4),)), {"hidden_size": 8}, r"hidden_size is 8 .* 16"),
        (LayerLoss("scores", ((2, 4),)), {"num_attention_heads": 4}, r"4 attention heads"),
        (
            LayerLoss("relations", ((2, 4),), heads=3),
            {},
            r"relation_heads is 3, which does not divide",
        ),
        (LayerLoss("relations", ((2, 4),), heads=4), {"causal": True}, r"attention masks"),
    ],
)
def test_models_that_cannot_be_compared_are_refused_with_a_sentence(loss, student, message):
    with pytest.raises(ConfigError, match=message):
        check_layer_losses([loss], config(**({"num_hidden_layers": 2} | student)), config())


def test_scores_of_rotary_models_are_of_queries_and_keys_after_their_turn():
    turning = KINDS["pre-norm, rotary"] | {"local_window": None}
    taught = pair((LayerLoss("scores", ((1, 1),)),), teacher=turning, **turning)
    batch = texts(6)
    with torch.no_grad():
        found = float(taught(batch).sums)
        sides = []
        for encoder in (taught.encoder, taught.teacher.encoder):
            with traced(encoder, [], [1]) as heard:
                encoder(batch)
            turned = rotate(heard.qkv[1], heard.plans[1].angles).transpose(0, 2)
            sides.append(turned[:, 0] @ turned[:, 1].mT / 8**0.5)
    assert found == pytest.approx(float(F.mse_loss(*sides) * 6), rel=1e-4)
    assert AttentionPlan(batch).angles is None, "the control: without a plan nothing turns"
