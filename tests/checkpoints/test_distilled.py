"""Students made of teachers: what they keep, what is drawn, and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from filbert.batch import pack
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.checkpoints.fresh import fresh_checkpoint, student_checkpoint
from filbert.errors import ConfigError
from filbert.model.encoder import initialize

SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "dropout": 0.0,
}
TEXTS = pack([[2, 7, 9, 3], [2, 8, 3]])


def teacher(family: str = "bert", head: str = "masked_lm", layers: int = 4, **more) -> Checkpoint:
    torch.manual_seed(0)
    made = fresh_checkpoint(
        family, vocab_size=30, head=head, num_hidden_layers=layers, **SIZES | more
    )
    model = made.build()
    initialize(model, 0.3)
    return replace(made, tensors=model.state_dict())


@pytest.mark.parametrize("head", ["masked_lm", "pretraining"])
def test_a_student_with_all_layers_and_no_token_types_says_what_its_teacher_says(head):
    whole = teacher(head=head)
    student = student_checkpoint(whole, layers=range(4), head="masked_lm", token_types=False)
    assert (student.family, student.config.embeddings.token_types) == ("distilbert", 0)
    theirs = whole.build()(TEXTS)
    wanted = theirs if isinstance(theirs, torch.Tensor) else theirs[0]
    # Positions and types are added in another order.
    assert torch.allclose(student.build()(TEXTS), wanted, atol=1e-5)
    other = student_checkpoint(whole, layers=[0, 3], head="masked_lm", token_types=False)
    assert not torch.allclose(other.build()(TEXTS), wanted, atol=1e-2), "the control"


def test_layers_are_the_teachers_in_their_order():
    whole = teacher()
    student = student_checkpoint(whole, layers=[1, 3])
    assert (student.head, student.config.pooling.activation, student.config.num_hidden_layers) == (
        None,
        None,
        2,
    )
    for new, old in enumerate((1, 3)):
        name = "encoder.layers.{}.qkv.weight"
        assert torch.equal(student.tensors[name.format(new)], whole.tensors[name.format(old)])
    assert student.family == "bert"
    assert student.notes == (
        "student: 29 of 29 tensors begin as the teacher's, of its layers 1, 3.",
    )


def test_tensors_of_another_shape_are_drawn_and_the_others_kept():
    whole = teacher()
    narrow = student_checkpoint(whole, layers=[0, 1], hidden_size=8)
    assert (narrow.config.hidden_size, narrow.config.feed_forward.width) == (8, 16)
    assert narrow.config.attention.heads == 2
    thin = student_checkpoint(whole, layers=[0, 1], intermediate_size=20)
    kept = {n for n, t in thin.tensors.items() if torch.equal(t, whole.tensors.get(n, t[:0]))}
    drawn = {n.rpartition("layers.")[2] for n in thin.tensors.keys() - kept}
    assert drawn == {f"{i}.{n}" for i in (0, 1) for n in ("up.weight", "up.bias", "down.weight")}
    for student in (narrow, thin):
        assert student.build()(TEXTS).isfinite().all()


@pytest.mark.parametrize("family", ["roberta", "albert", "electra", "modernbert"])
def test_a_student_of_any_family_stays_one_of_it(family):
    more = {"embedding_size": 8} if family in ("albert", "electra") else {}
    head = "discriminator" if family == "electra" else "masked_lm"
    whole = teacher(family, head, layers=4, **more)
    student = student_checkpoint(whole, layers=[0, 1], token_types=False)
    assert student.family == family and student.build()(TEXTS).shape == (7, 16)


def test_layers_of_a_family_that_shares_them_are_counted_only():
    whole = teacher("albert", embedding_size=8)
    student = student_checkpoint(whole, layers=[1, 2, 3])
    assert (student.config.num_hidden_layers, student.config.num_groups) == (3, 1)


@pytest.mark.parametrize(
    ("whole", "asked", "message"),
    [
        (with_new_head(teacher(), None), {"head": "masked_lm"}, "no head, so it scores no words"),
        (teacher(), {"layers": [0, 4]}, "layers is \\[0, 4\\]; this model has layers 0 to 3"),
        (teacher(), {"hidden_size": 9}, "hidden_size 9 is not a multiple of"),
    ],
)
def test_a_student_that_cannot_be_is_refused(whole, asked, message):
    with pytest.raises(ConfigError, match=message):
        student_checkpoint(whole, **{"layers": [0, 1]} | asked)
