"""Each loss against numbers worked out by hand."""

import math

import pytest
import torch

from filbert.losses.distillation import (
    cosine_distance,
    patient_distance,
    soft_binary_targets,
    soft_targets,
    squared_error,
)

# Float32, and sums of a few numbers.
CLOSE = 1e-6


def test_soft_targets_are_the_divergence_at_the_temperature_times_its_square():
    # At T = 2 the logits are (log 3, 0) and (0, 0): probabilities (3/4, 1/4) and (1/2, 1/2).
    teacher = torch.tensor([[2 * math.log(3), 0.0], [1.0, 1.0]])
    student = torch.tensor([[0.0, 0.0], [5.0, 5.0]])
    divergence = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert float(soft_targets(student, teacher, 2.0)) == pytest.approx(4 * divergence, rel=CLOSE)
    # At T = 1 the first row's are (9/10, 1/10): another number, which the check can tell.
    sharper = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert float(soft_targets(student, teacher, 1.0)) == pytest.approx(sharper, rel=CLOSE)


def test_soft_binary_targets_are_the_mean_divergence_of_the_labels():
    # At T = 2 the teacher says 3/4 and 1/2, the student 1/2 and 1/2.
    teacher = torch.tensor([[2 * math.log(3), 0.0]])
    divergence = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    found = soft_binary_targets(torch.zeros(1, 2), teacher, 2.0)
    assert float(found) == pytest.approx(4 * divergence / 2, rel=CLOSE)


def test_extreme_logits_give_finite_soft_targets():
    far = torch.tensor([[1e4, -1e4]], requires_grad=True)
    for loss in (soft_targets, soft_binary_targets):
        found = loss(far, -far.detach(), 1.0)
        found.backward()
        assert found.isfinite() and far.grad.isfinite().all()


def test_the_cosine_distance_is_nothing_along_one_half_at_60_degrees_and_two_against():
    one = torch.tensor([[2.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    other = torch.tensor([[5.0, 0.0], [0.5, math.sqrt(0.75)], [-3.0, 0.0]])
    assert float(cosine_distance(one, other)) == pytest.approx(0.0 + 0.5 + 2.0, rel=CLOSE)


def test_the_squared_error_is_a_mean_over_the_width_and_a_sum_over_the_rows():
    one = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    other = torch.tensor([[3.0, 2.0], [1.0, 3.0]])
    assert float(squared_error(one, other)) == pytest.approx(4 / 2 + 10 / 2, rel=CLOSE)


def test_the_patient_distance_does_not_see_how_long_the_vectors_are():
    one = torch.tensor([[3.0, 4.0]])  # (0.6, 0.8) at length 1
    other = torch.tensor([[10.0, 0.0]])  # (1, 0)
    assert float(patient_distance(one, other)) == pytest.approx((0.16 + 0.64) / 2, rel=CLOSE)
    assert float(patient_distance(one, 7 * one)) == pytest.approx(0.0, abs=CLOSE)
