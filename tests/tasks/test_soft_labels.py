"""What a student loses by its teacher's answers, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from filbert.data.examples import Example
from filbert.losses.student import StudentOutput
from filbert.tasks.classification import Classification
from filbert.tasks.embedding import SentenceEmbedding
from filbert.tasks.multiple_choice import MultipleChoice
from filbert.tasks.regression import Regression
from filbert.tasks.soft_labels import SoftLabels
from filbert.tasks.span_qa import SpanQA
from filbert.tasks.tagging import Tagging


def example(row, length=3, target=None, **source):
    ids = np.arange(length)
    return Example(row, ids, ids * 0, length, target, SimpleNamespace(**source))


def soft(task, answers, **more):
    return SoftLabels(task, lambda examples: torch.tensor(answers), **more)


def kl(teacher, student):
    return sum(t * math.log(t / s) for t, s in zip(teacher, student, strict=True) if t)


def softmax(*logits):
    total = sum(math.exp(x) for x in logits)
    return [math.exp(x) / total for x in logits]


def losses(objective, examples, output):
    """The mean of every kind, as the trainer makes it."""
    targets = objective.targets(examples)
    sums = objective.loss(torch.tensor(output), targets)
    counts = objective.count(targets)
    assert len(sums) == len(counts) == len(objective.spec.loss_names)
    return [s / (c or 1.0) for s, c in zip(sums.tolist(), counts, strict=True)]


TWO = Classification(labels=("a", "b"))


def test_classes_are_compared_at_a_temperature_whose_square_comes_back():
    objective = soft(TWO, [[2.0, 0.0], [0.0, 4.0]], temperature=2.0)
    found = losses(objective, [example(0), example(1)], [[0.0, 0.0], [0.0, 4.0]])
    assert found == pytest.approx([4 * kl(softmax(1, 0), [0.5, 0.5]) / 2])


def test_windows_of_a_row_are_averaged_before_they_are_compared():
    objective = soft(TWO, [[2.0, 0.0]])
    examples = [example(0), example(0)]
    assert losses(objective, examples, [[4.0, 0.0], [0.0, 0.0]]) == pytest.approx([0.0], abs=1e-7)
    control = losses(objective, examples, [[4.0, 0.0], [4.0, 0.0]])
    assert control == pytest.approx([kl(softmax(2, 0), softmax(4, 0))])


def test_labels_that_do_not_exclude_each_other_are_compared_one_by_one():
    task = Classification(labels=("a", "b", "c"), multilabel=True)
    objective = soft(task, [[1.0, -1.0, 0.5]], temperature=2.0)
    sig = [1 / (1 + math.exp(-x / 2)) for x in (1.0, -1.0, 0.5)]
    mine = [1 / (1 + math.exp(-x / 2)) for x in (0.0, -1.0, 2.0)]
    wanted = sum(kl([t, 1 - t], [s, 1 - s]) for t, s in zip(sig, mine, strict=True))
    assert losses(objective, [example(0)], [[0.0, -1.0, 2.0]]) == pytest.approx([4 * wanted / 3])


def test_scores_are_compared_by_their_squared_difference():
    objective = soft(Regression(), [[1.0], [3.0]])
    found = losses(objective, [example(0), example(1)], [[1.5], [1.0]])
    assert found == pytest.approx([(0.25 + 4.0) / 2])


def test_choices_are_compared_within_their_row_however_many_it_has():
    objective = soft(MultipleChoice(), [1.0, 0.0, 0.0, 2.0, 0.0])
    examples = [example(0)] * 2 + [example(1)] * 3
    found = losses(objective, examples, [0.0, 0.0, 0.0, 2.0, 0.0])
    assert found == pytest.approx([kl(softmax(1, 0), [0.5, 0.5]) / 2])


def test_words_are_compared_one_by_one():
    task = Tagging(labels=("O", "B-x"))
    sources = {"rows": np.array([1, 3])}, {"rows": np.array([1])}
    examples = [example(0, 5, None, **sources[0]), example(1, 3, None, **sources[1])]
    objective = soft(task, [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert objective.targets(examples).at.tolist() == [1, 3, 6]
    found = losses(objective, examples, [[0.0, 0.0]] * 3)
    assert found == pytest.approx([kl(softmax(1, 0), [0.5, 0.5]) / 3])


def test_starts_and_ends_are_compared_among_the_tokens_of_their_window():
    objective = soft(SpanQA(), [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    examples = [example(0, 2), example(1, 3)]
    found = losses(objective, examples, [[0.0, 0.0]] * 5)
    starts = kl(softmax(1, 0), [0.5, 0.5])
    ends = kl(softmax(0, 3, 0), [1 / 3] * 3)
    assert found == pytest.approx([(starts + ends) / 2 / 2])


def test_vectors_are_compared_as_they_are():
    examples = [example(0), example(0)]
    as_they_are = soft(SentenceEmbedding(), [[1.0, 0.0], [0.0, 2.0]])
    found = losses(as_they_are, examples, [[0.0, 0.0], [0.0, 2.0]])
    assert found == pytest.approx([0.5 / 2]), "a mean over the width, then over the texts"


def test_alpha_divides_the_loss_between_labels_and_answers():
    objective = soft(TWO, [[0.0, 0.0]], alpha=0.25)
    hard, answers = losses(objective, [example(0, target=1)], [[1.0, 0.0]])
    assert hard == pytest.approx(-0.25 * math.log(softmax(1, 0)[1]))
    assert answers == pytest.approx(0.75 * kl([0.5, 0.5], softmax(1, 0)))


def test_a_teacher_whose_answers_have_no_share_is_not_asked():
    def asked(examples):
        raise AssertionError("a pass of the teacher for nothing")

    objective = SoftLabels(TWO, asked, alpha=1.0)
    assert objective.spec.loss_names == ("hard_loss",)
    (hard,) = losses(objective, [example(0, target=1)], [[1.0, 0.0]])
    assert hard == pytest.approx(-math.log(softmax(1, 0)[1]))


@pytest.mark.parametrize(
    ("task", "sizes", "width"),
    [(TWO, (1, 1, 1), 2), (Tagging(labels=("O", "B-x")), (2, 1, 2), 2), (SpanQA(), (3, 4, 3), 2)],
)
def test_rows_without_labels_have_the_answers_alone(task, sizes, width):
    targets = {"sequence": 1, "tokens": np.array([1, 0]), "spans": (1, 1)}
    kind = task.spec.head_kind
    length = sizes if kind == "spans" else (4, 4, 4)
    rows = [np.arange(1, n + 1) for n in sizes]
    examples = [
        example(i, length[i], None if i == 1 else targets[kind], rows=rows[i]) for i in range(3)
    ]
    torch.manual_seed(0)
    output = torch.randn(sum(sizes), width).tolist()
    mixed = soft(task, output, alpha=0.5)
    hard, answers = losses(mixed, examples, output)
    assert answers == pytest.approx(0.0, abs=1e-6)
    own = [x for i, x in enumerate(output) if not sizes[0] <= i < sizes[0] + sizes[1]]
    labelled = [replace(examples[0]), replace(examples[2])]
    alone = task.targets(labelled)
    wanted = float(task.loss(torch.tensor(own), alone)) / task.count(alone)
    assert hard == pytest.approx(0.5 * wanted, rel=1e-5)
    middle = output[sizes[0] : sizes[0] + sizes[1]]
    none = losses(soft(task, middle, alpha=0.5), [examples[1]], middle)
    assert none[0] == 0.0, "not one label in the batch"


def test_answers_may_come_with_the_output_and_equal_ones_cost_nothing():
    objective = SoftLabels(TWO, None)
    logits = torch.tensor([[4.0, 0.0], [0.0, 0.0]], requires_grad=True)
    targets = objective.targets([example(0), example(0)])
    same = StudentOutput(logits, torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.zeros(0))
    loss = objective.loss(same, targets)
    loss.sum().backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-7)
    assert logits.grad.abs().max() == pytest.approx(0.0, abs=1e-7)
