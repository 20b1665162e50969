"""Which layers learn from which, by how much, and what a step divides by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from filbert.data.examples import Example
from filbert.data.instances import MaskedRow
from filbert.errors import ConfigError
from filbert.losses.student import LayerLoss, Student, StudentOutput
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.model.precision import Precision
from filbert.tasks.distillation import LayerDistillation
from filbert.train.distill import even_map, layer_losses, spread
from filbert.train.distill_options import LossOptions
from filbert.train.distributed import Parallel
from filbert.train.step import accumulate, model_forward

VOCABULARY = 30


def config(layers: int, width: int = 16, heads: int = 2, **more: Any) -> EncoderConfig:
    return EncoderConfig.of(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=24,
        max_position_embeddings=40,
        pooler=None,
        **{"hidden_dropout": 0.0, "attention_dropout": 0.0} | more,
    )


def drawn(seed: int, layers: int) -> Model:
    torch.manual_seed(seed)
    built = config(layers)
    model = Model(Encoder(built), new_head("masked_lm", built))
    initialize(model, 0.3)
    return model


def rows(count: int) -> list[Example]:
    """Of 3 to 20 tokens, with one to three masked words."""
    draw = np.random.default_rng(0)
    found = []
    for row in range(count):
        length = int(draw.integers(4, 21))
        ids = draw.integers(0, VOCABULARY, length)
        at = np.sort(draw.choice(length, 1 + row % 3, replace=False))
        labels = draw.integers(0, VOCABULARY, len(at))
        target = MaskedRow(at, labels, None)
        found.append(Example(row, ids, np.zeros(length, np.int64), length, target))
    return found


def test_six_layers_of_twelve_are_those_of_the_paper():
    assert spread(6, 12) == (0, 2, 4, 7, 9, 11)
    assert [spread(n, 4) for n in (1, 2, 4)] == [(0,), (0, 3), (0, 1, 2, 3)]


def test_every_third_teacher_layer_teaches_four_of_twelve():
    assert even_map(4, 12) == (3, 6, 9, 12)
    assert even_map(3, 4) == (1, 3, 4)
    mapped = LossOptions(method="tinybert", layer_map="0,5")
    assert layer_losses(mapped, config(2), config(6))[1].layers == ((1, 1), (2, 6))


@pytest.mark.parametrize(
    ("layers", "message"),
    [("1", "names 1 of the teacher's layers; the student has 2"), ("1,4", "layer 4; .* 0 to 3")],
)
def test_a_layer_map_that_does_not_fit_is_refused(layers, message):
    with pytest.raises(ConfigError, match=message):
        layer_losses(LossOptions(method="tinybert", layer_map=layers), config(2), config(4))


def test_the_methods_are_made_of_the_layer_losses_of_their_papers():
    found = layer_losses(LossOptions(method="tinybert"), config(2, 8), config(4))
    assert [loss.kind for loss in found] == ["embeddings", "hidden", "scores"]
    assert found[2].layers == ((1, 2), (2, 4))
    soft = LayerLoss("soft", weight=5.0, temperature=2.0)
    cosine = LayerLoss("cosine", ((2, 4),), 3.0)
    words = [LossOptions(method="distilbert", cosine_weight=weight) for weight in (3.0, 0.0)]
    assert layer_losses(words[0], config(2), config(4)) == (cosine, soft)
    assert layer_losses(words[1], config(2), config(4)) == (soft,)
    patient = LossOptions(method="pkd", beta=90.0)
    assert layer_losses(patient, config(3), config(12)) == (
        LayerLoss("patient", ((1, 4), (2, 8)), 45.0),
    )


@pytest.mark.parametrize(
    ("student", "teacher", "heads"),
    [
        (config(2, 384, 12), config(12, 768, 12), 48),
        (config(2, 384, 12), config(24, 1024, 16), 64),
        # 48 does not divide 16.
        (config(2, 8), config(4, 16), 2),
    ],
)
def test_relations_have_as_many_heads_as_in_the_paper_where_they_divide(student, teacher, heads):
    (loss,) = layer_losses(LossOptions(method="minilm"), student, teacher)
    assert loss.heads == heads
    assert loss.layers == ((2, teacher.num_hidden_layers),)
    chosen = LossOptions(method="minilm", teacher_layer=1, relation_heads=4)
    (other,) = layer_losses(chosen, student, teacher)
    assert (other.heads, other.layers) == (4, ((2, 2),))


def test_the_loss_is_the_weighted_sum_of_the_means_of_each_kind():
    layer_losses = (
        LayerLoss("cosine", ((2, 4),), 3.0),
        LayerLoss("patient", ((1, 2),), 7.0),
        LayerLoss("soft", weight=5.0),
    )
    task = LayerDistillation(layer_losses, masked_weight=2.0)
    assert task.spec.loss_names == ("cosine_loss", "patient_loss", "soft_loss", "mlm_loss")
    examples = rows(3)
    tokens = sum(len(e.input_ids) for e in examples)
    assert task.count(task.targets(examples)) == (tokens, 3, tokens, 6)
    sums = torch.tensor([10.0, 20.0, 30.0])
    even = StudentOutput(torch.zeros(6, VOCABULARY), torch.empty(0), sums)
    found = task.loss(even, task.targets(examples)).tolist()
    assert found == pytest.approx([30.0, 140.0, 150.0, 2 * 6 * math.log(VOCABULARY)])
    masked = LayerDistillation((LayerLoss("soft", masked_only=True),))
    assert masked.count(masked.targets(examples)) == (6,)


@pytest.mark.parametrize("at_masked", [False, True])
def test_any_cut_into_micro_batches_gives_the_gradient_of_the_whole_step(at_masked):
    layer_losses = (
        LayerLoss("cosine", ((2, 4),)),
        LayerLoss("hidden", ((1, 2),)),
        LayerLoss("scores", ((2, 4),)),
        LayerLoss("relations", ((2, 4),), heads=4),
        LayerLoss("patient", ((1, 2),), 10.0),
        LayerLoss("soft", weight=5.0, temperature=2.0, masked_only=at_masked),
    )
    task = LayerDistillation(layer_losses, 2.0)
    student = Student(drawn(1, 2), drawn(0, 4), layer_losses)
    examples, losses, gradients = rows(7), [], []
    for cut in ([examples], [examples[:1], examples[1:5], examples[5:]]):
        student.zero_grad()
        gradient = accumulate(
            model_forward(student, torch.device("cpu")),
            student,
            task,
            cut,
            parallel=Parallel(0, 1, torch.device("cpu")),
            precision=Precision("float32", "exact"),
            seed=(0, 0),
            stand_in=examples[:1],
        )
        losses.append(gradient.loss)
        gradients.append(torch.cat([p.grad.flatten() for p in student.parameters()]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    # Float32 sums in another order.
    assert (gradients[0] - gradients[1]).norm() < 1e-6 * gradients[0].norm()
