"""The objectives of pre-training: what is asked of a batch, and what it costs to be wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from filbert.data.examples import Example
from filbert.data.masking import MaskedRow
from filbert.model.replaced import Detection
from filbert.tasks.pretraining import REPLACED_WEIGHT, Pretraining, ReplacedTokens


def row(number: int, length: int, masked: dict[int, int], pair: int | None = None) -> Example:
    at = np.array(sorted(masked), dtype=np.int64)
    labels = np.array([masked[place] for place in sorted(masked)], dtype=np.int64)
    ids = np.arange(length) + 5
    return Example(number, ids, np.zeros(length, np.int64), length, MaskedRow(at, labels, pair))


ROWS = [row(0, 4, {1: 7, 3: 9}, 0), row(1, 3, {}, 1), row(2, 5, {0: 6}, 1)]


def test_masked_places_are_rows_of_the_packed_batch_with_their_words():
    targets = Pretraining().targets(ROWS)
    assert targets.at.tolist() == [1, 3, 7] and targets.values.tolist() == [7, 9, 6]
    assert targets.at.dtype == targets.values.dtype == torch.int64
    assert targets.pair is None and not targets.are_seen
    assert Pretraining().count(targets) == (3.0,)


def test_a_pair_objective_asks_every_sequence():
    task = Pretraining(pair="nsp")
    targets = task.targets(ROWS)
    assert targets.pair.tolist() == [0, 1, 1]
    assert task.count(targets) == (3.0, 3.0)
    assert task.spec.loss_names == ("mlm_loss", "nsp_loss") and task.head_kind == "pretraining"
    assert Pretraining(pair="sop").spec.loss_names[1] == "sop_loss"
    assert Pretraining().head_kind == "masked_lm"


def test_the_losses_are_sums_of_minus_log_p():
    task = Pretraining(pair="sop")
    targets = task.targets(ROWS)
    masked = torch.zeros(3, 20)
    masked[0, 7] = math.log(3.0)
    pair = torch.tensor([[math.log(4.0), 0.0], [0.0, 0.0], [0.0, 0.0]])
    wanted = [2 * math.log(20) + math.log(22 / 3), math.log(5 / 4) + 2 * math.log(2)]
    assert task.loss((masked, pair), targets).tolist() == pytest.approx(wanted, rel=1e-6)
    alone = Pretraining()
    assert alone.loss(masked, alone.targets(ROWS)).tolist() == pytest.approx(wanted[:1], rel=1e-6)


@pytest.mark.parametrize("task", [Pretraining(), Pretraining(pair="nsp"), ReplacedTokens()])
def test_rows_with_nothing_masked_cost_nothing_and_send_a_gradient_of_zero(task):
    targets = task.targets([ROWS[1]])
    assert len(targets.values) == len(targets.at) == 0 == task.count(targets)[0]
    assert targets.values.dtype == targets.at.dtype == torch.int64
    masked = torch.zeros(0, 20, requires_grad=True)
    second = torch.zeros((1, 2) if targets.pair is not None else 3)
    output = masked if task == Pretraining() else (masked, second)
    if isinstance(task, ReplacedTokens):
        output = Detection(masked, second, torch.zeros(3, dtype=torch.bool))
    loss = task.loss(output, targets)
    assert loss[0] == 0.0
    loss.sum().backward()
    assert masked.grad is not None


def test_low_precision_logits_are_summed_in_float32():
    task = Pretraining()
    logits = torch.zeros(3, 20, dtype=torch.bfloat16)
    loss = task.loss(logits, task.targets(ROWS))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(3 * math.log(20), rel=1e-6)


def test_replaced_tokens_judge_every_token_with_their_weight():
    task = ReplacedTokens()
    targets = task.targets(ROWS)
    assert targets.are_seen and targets.groups == (4, 3, 5)
    assert task.count(targets) == (3.0, 12.0)
    is_replaced = torch.zeros(12, dtype=torch.bool)
    is_replaced[1] = True
    told = torch.zeros(12)
    told[1] = math.log(3.0)
    found = task.loss(Detection(torch.zeros(3, 20), told, is_replaced), targets)
    binary = 11 * math.log(2) + math.log(4 / 3)
    assert REPLACED_WEIGHT == 50.0
    assert found.tolist() == pytest.approx([3 * math.log(20), 50 * binary], rel=1e-6)
