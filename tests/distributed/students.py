"""A student beside its teacher in the worker's processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from worker import PLAIN, VOCABULARY, measured, new_model

from filbert.data.examples import Example
from filbert.data.instances import MaskedRow
from filbert.data.loader import Loader
from filbert.losses.student import LayerLoss, Student, freeze_unreached
from filbert.tasks.distillation import LayerDistillation
from filbert.train.distributed import Parallel
from filbert.train.step import accumulate, model_forward

RELATIONS = LayerLoss("relations", ((2, 2),), heads=4)
SOFT = LayerLoss("soft", weight=5.0, temperature=2.0)
# name -> objective. With relations alone, nothing behind the last attention learns.
CASES = {
    "all": LayerDistillation((LayerLoss("hidden", ((1, 2),)), RELATIONS, SOFT), 2.0),
    "relations": LayerDistillation((RELATIONS,)),
}


def masked_rows(count: int) -> list[Example]:
    """Of 3 to 30 tokens, with one to three masked words."""
    draw = np.random.default_rng(5)
    found = []
    for row in range(count):
        length = int(draw.integers(3, 31))
        ids = draw.integers(5, VOCABULARY, length)
        at = np.sort(draw.choice(length, 1 + row % 3, replace=False))
        target = MaskedRow(at, draw.integers(5, VOCABULARY, len(at)), None)
        found.append(Example(row, ids, np.zeros(length, np.int64), length, target))
    return found


def student_of(task: LayerDistillation) -> Student:
    """Narrower than its teacher, so that there is a projection."""
    teacher = new_model("masked_lm", 1)
    torch.manual_seed(3)
    model = new_model("masked_lm", 2, hidden_size=8)
    student = Student(model, teacher, task.layer_losses)
    freeze_unreached(student, answers=bool(task.masked_weight))
    return student


def student_case(parallel: Parallel) -> dict[str, Any]:
    """How far the gradients of a step are from those of one process over one micro-batch."""
    found = {}
    for name, task in CASES.items():
        loader = Loader(masked_rows(13), batch_size=13, max_tokens=48, seed=3)
        alone = Parallel(0, 1, parallel.device)
        reference = student_of(task)
        wanted = step(reference, task, [[e for row in loader.rows_of(0) for e in row]], alone)
        wanted["clip"] = torch.cat([g.flatten() for g in wanted.values()]).norm()
        student = student_of(task)
        wrapped = parallel.wrap(student)
        mine = loader.step(0, parallel.rank, parallel.world)
        step(wrapped, task, mine, parallel)
        found[name] = measured(wrapped, wanted) | {"micro_batches": len(mine)}
    return found


def step(
    wrapped: torch.nn.Module,
    task: LayerDistillation,
    mine: list[list[Example]],
    parallel: Parallel,
) -> dict[str, torch.Tensor]:
    """Gradients by name, where they are whole."""
    accumulate(
        model_forward(wrapped, parallel.device),
        wrapped,
        task,
        mine,
        parallel=parallel,
        precision=PLAIN,
        seed=(0, 1),
        stand_in=masked_rows(1),
    )
    return {n: p.grad.clone() for n, p in wrapped.named_parameters() if p.grad is not None}
