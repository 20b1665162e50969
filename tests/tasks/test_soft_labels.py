"""What a student loses by its teacher's answers, against numbers worked out by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from filbert.data.examples import Example
from filbert.losses.student import StudentOutput
from filbert.tasks.classification import Classification
from filbert.tasks.distillation import SoftLabels
from filbert.tasks.embedding import SentenceEmbedding
from filbert.tasks.multiple_choice import MultipleChoice
from filbert.tasks.regression import Regression
from filbert.tasks.span_qa import SpanQA
from filbert.tasks.tagging import Tagging


def example(row, length=3, target=None, **source):
    ids = np.arange(length)
    return Example(row, ids, ids * 0, length, target, SimpleNamespace(**source))


def soft(task, answers, **more):
    return SoftLabels(task, **more), torch.tensor(answers)


def kl(teacher, student):
    return sum(t * math.log(t / s) for t, s in zip(teacher, student, strict=True) if t)


def softmax(*logits):
    total = sum(math.exp(x) for x in logits)
    return [math.exp(x) / total for x in logits]


def losses(objective, examples, output):
    """The mean of every kind, as the trainer makes it."""
    objective, answers = objective
    targets = objective.targets(examples)
    sums = objective.loss(StudentOutput(torch.tensor(output), answers, torch.empty(0)), targets)
    counts = objective.count(targets)
    assert len(sums) == len(counts) == len(objective.spec.loss_names)
    return [s / (c or 1.0) for s, c in zip(sums.tolist(), counts, strict=True)]


TWO = Classification(labels=("a", "b"))


def test_classes_are_compared_at_a_temperature_whose_square_comes_back():
    objective = soft(TWO, [[2.0, 0.0], [0.0, 4.0]], temperature=2.0)
    found = losses(objective, [example(0), example(1)], [[0.0, 0.0], [0.0, 4.0]])
    assert found == pytest.approx([4 * kl(softmax(1, 0), [0.5, 0.5]) / 2])


def test_windows_of_a_row_are_averaged_before_they_are_compared():
    objective = soft(TWO, [[3.0, 0.0], [1.0, 0.0]])
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
    assert objective[0].targets(examples).at.tolist() == [1, 3, 6]
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


def test_with_labels_alone_the_teacher_has_no_share():
    objective = soft(TWO, [], alpha=1.0)
    assert objective[0].spec.loss_names == ("hard_loss",)
    (hard,) = losses(objective, [example(0, target=1)], [[1.0, 0.0]])
    assert hard == pytest.approx(-math.log(softmax(1, 0)[1]))


def test_equal_outputs_cost_nothing():
    objective = SoftLabels(TWO)
    logits = torch.tensor([[4.0, 0.0], [0.0, 0.0]], requires_grad=True)
    targets = objective.targets([example(0), example(0)])
    same = StudentOutput(logits, torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.zeros(0))
    loss = objective.loss(same, targets)
    loss.sum().backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-7)
    assert logits.grad.abs().max() == pytest.approx(0.0, abs=1e-7)
