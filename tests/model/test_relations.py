"""Attention scores and relations: by hand, by a plain formula, in blocks, and their memory."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from filbert.batch import pack
from filbert.losses import distillation
from filbert.losses.distillation import relation_divergence, score_error
from filbert.model.attention import AttentionPlan

# Sums of some thousand float32 numbers in another order.
CLOSE = 1e-5
# 20 and 21 share a product, with one place of padding.
LENGTHS = (3, 7, 7, 20, 21)
MASKS = [{}, {"causal": True}, {"reach": 2}]


def plan_of(lengths: tuple[int, ...], **mask: Any) -> AttentionPlan:
    return AttentionPlan(pack([[0] * n for n in lengths]), **mask)


def drawn(lengths: tuple[int, ...], parts: int, heads: int, size: int, seed: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(sum(lengths), parts, heads, size)


def plainly(student: Tensor, teacher: Tensor, lengths, plan: AttentionPlan, kind: str) -> Tensor:
    """Every head and token by itself, as the papers' formulas say."""
    total, borders = torch.zeros(()), list(accumulate(lengths, initial=0))
    for start, end in zip(borders, borders[1:], strict=False):
        for head in range(student.shape[2]):
            sides = [
                (s[start:end, part, head], s[start:end, other, head])
                for part, other in ([(0, 1)] if kind == "scores" else [(0, 0), (1, 1), (2, 2)])
                for s in (student, teacher)
            ]
            for mine, theirs in zip(sides[::2], sides[1::2], strict=True):
                for i in range(end - start):
                    seen = [
                        j
                        for j in range(end - start)
                        if (plan.reach is None or abs(i - j) <= plan.reach)
                        and not (plan.causal and j > i)
                    ]
                    ours, wanted = (
                        a[i] @ b[seen].T / math.sqrt(a.shape[-1]) for a, b in (mine, theirs)
                    )
                    if kind == "scores":
                        loss = (ours - wanted).square().mean()
                    else:
                        loss = F.kl_div(ours.log_softmax(0), wanted.softmax(0), reduction="sum")
                    total = total + loss / student.shape[2]
    return total


def test_attention_scores_by_hand():
    # One head of size 4: scores are products / 2. Student's rows (1, 2) and (3, 4), teacher's 0.
    student = torch.zeros(2, 2, 1, 4)
    student[0, 0, 0, 0], student[1, 0, 0, 1] = 1.0, 1.0  # queries
    student[0, 1, 0, :2] = torch.tensor([2.0, 6.0])  # keys
    student[1, 1, 0, :2] = torch.tensor([4.0, 8.0])
    found = score_error(student, torch.zeros(2, 2, 1, 4), plan_of((2,)))
    # Token 1: the mean of 1 and 4; token 2: of 9 and 16.
    assert float(found) == pytest.approx(2.5 + 12.5)


def test_relations_by_hand():
    # Head size 1 and values (1, 0): token 1 relates to both by (1, 0), token 2 by (0, 0). The
    # teacher's are all 0, so that it wants (1/2, 1/2) everywhere.
    student = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)
    found = relation_divergence(student, torch.zeros(2, 1, 1, 1), plan_of((2,)))
    first = math.e / (math.e + 1)
    by_hand = 0.5 * math.log(0.5 / first) + 0.5 * math.log(0.5 / (1 - first))
    assert float(found) == pytest.approx(by_hand, rel=CLOSE)


@pytest.mark.parametrize("most", [distillation.MAX_SCORES, 40])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["scores", "relations"])
def test_blocks_of_rows_give_the_formula_of_the_paper_and_its_gradient(
    kind, mask, most, monkeypatch
):
    parts, loss = (2, score_error) if kind == "scores" else (3, relation_divergence)
    monkeypatch.setattr(distillation, "MAX_SCORES", most)
    teacher = drawn(LENGTHS, parts, 2, 6, seed=1)
    plan = plan_of(LENGTHS, **mask)
    gradients, found = [], []
    for way in (
        lambda mine: loss(mine, teacher, plan),
        lambda mine: plainly(mine, teacher, LENGTHS, plan, kind),
    ):
        mine = drawn(LENGTHS, parts, 2, 4, seed=0).requires_grad_()
        value = way(mine)
        value.backward()
        found.append(float(value.detach()))
        gradients.append(mine.grad)
    assert found[0] == pytest.approx(found[1], rel=CLOSE)
    assert (gradients[0] - gradients[1]).norm() < CLOSE * gradients[1].norm()


def most_bytes(length: int, loss) -> int:
    """The most memory that a pass forward and backward holds at a time, in bytes."""
    mine = drawn((length,), 2, 2, 4, seed=0).requires_grad_()
    theirs, plan = drawn((length,), 2, 2, 4, seed=1), plan_of((length,))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        loss(mine, theirs, plan).backward()
    events = watched.profiler.kineto_results.events()
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    return max(accumulate(changes))


@pytest.mark.parametrize("loss", [score_error, relation_divergence])
def test_memory_does_not_grow_with_the_square_of_the_length(loss, monkeypatch):
    monkeypatch.setattr(distillation, "MAX_SCORES", 20_000)
    short, long = (most_bytes(length, loss) for length in (300, 600))
    # Blocks are of the same size, and all else grows as the length does.
    assert long < 1.5 * short
    # The control: in a single block all scores are there at once, two heads of four bytes.
    monkeypatch.setattr(distillation, "MAX_SCORES", 2**40)
    assert most_bytes(600, loss) > max(2 * 4 * 600**2, 5 * long)
