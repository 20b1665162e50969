"""Learn a task from a teacher's predictions (soft labels), in addition to the rows' labels.

R rows in the batch, S sequences, T tokens, K words, C labels, H width of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.data.examples import Example, rows_of
from filbert.losses.distillation import soft_binary_targets, soft_targets, squared_error
from filbert.losses.student import LayerLoss, StudentOutput
from filbert.model.pooling import mean_of_groups, table_of_groups
from filbert.tasks.base import LossSpec, Targets, Task

# What a teacher answers to whole rows, in the form of `by_row`, on the host.
Answers = Callable[[Sequence[Example]], Tensor]

# In place of -inf, of which a difference is no number; no logit comes near.
_NEVER = -1e9


@dataclass(frozen=True)
class SoftLabels:
    """What the trainer needs to know of a task whose answers a teacher gives.

    Attributes:
        task: the same for teacher and student.
        answers: the teacher's; None where they come with the student's output, as `StudentOutput`.
        temperature: logits of both are divided by it.
        alpha: share of the labels in the loss, from 0 to 1; the teacher's answers have the rest.
        layer_losses: of hidden layers, per sequence; then the output is a `StudentOutput`.
    """

    task: Task
    answers: Answers | None
    temperature: float = 1.0
    alpha: float = 0.0
    layer_losses: tuple[LayerLoss, ...] = ()

    @property
    def spec(self) -> LossSpec:
        """Each loss is logged with its weight; the metric is that of the task."""
        hard = ("hard_loss",) if self.alpha else ()
        soft = ("soft_loss",) if self.alpha < 1 else ()
        names = (*hard, *soft, *(loss.name for loss in self.layer_losses))
        return LossSpec(names, self.task.spec.selection_metric)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """The teacher's answers where they count, and the labels of the rows that have any."""
        at, groups = layout(self.task, examples)
        asked = self.answers if self.alpha < 1 else None
        answers = torch.empty(0) if asked is None else asked(examples)
        return Targets(answers, at=at, groups=groups, labels=self._labels(examples))

    def _labels(self, examples: Sequence[Example]) -> Targets | None:
        labelled = [i for i, example in enumerate(examples) if example.target is not None]
        if not self.alpha or not labelled:
            return None
        found = self.task.targets([examples[i] for i in labelled])
        if len(labelled) == len(examples):
            return found._replace(at=None)
        sizes = [_num_outputs(self.task, example) for example in examples]
        ends = list(accumulate(sizes))
        rows = [torch.arange(ends[i] - sizes[i], ends[i]) for i in labelled]
        return found._replace(at=torch.cat(rows))

    def count(self, targets: Targets) -> tuple[float, ...]:
        """Labels, answers, and sequences for each layer loss."""
        groups = targets.groups or ()
        kind = self.task.spec.head_kind
        num_sequences = len(groups) if kind in ("tokens", "spans") else sum(groups)
        num_answers = len(groups)
        if kind == "tokens":
            assert targets.at is not None
            num_answers = len(targets.at)
        elif kind is None:
            num_answers = num_sequences
        hard = self.task.count(targets.labels) if targets.labels is not None else 0.0
        return (
            *((hard,) if self.alpha else ()),
            *((float(num_answers),) if self.alpha < 1 else ()),
            # All of them are counted by sequence.
            *(float(num_sequences) for _ in self.layer_losses),
        )

    def loss(self, output: Any, targets: Targets) -> Tensor:
        """The sum of each kind, times its weight: float32, in the order of `loss_names`."""
        groups = targets.groups or ()
        student, sums = (
            (output.student, output.sums) if isinstance(output, StudentOutput) else (output, ())
        )
        kinds = []
        if self.alpha:
            hard = student.float().sum() * 0.0
            if targets.labels is not None:
                at = targets.labels.at
                hard = self.task.loss(student if at is None else student[at], targets.labels)
            kinds.append(self.alpha * hard)
        if self.alpha < 1:
            if self.answers is None:
                assert isinstance(output, StudentOutput)
                teacher = by_row(self.task, output.teacher, groups)
            else:
                teacher = targets.values
            soft = self._soft(by_row(self.task, student, groups), teacher.float(), groups)
            kinds.append((1.0 - self.alpha) * soft)
        kinds += [loss.weight * s for loss, s in zip(self.layer_losses, sums, strict=True)]
        return torch.stack(kinds)

    def _soft(self, student: Tensor, teacher: Tensor, groups: Sequence[int]) -> Tensor:
        """How far two answers in the form of `by_row` are apart, summed."""
        spec, heat = self.task.spec, self.temperature
        kind, problem = spec.head_kind, spec.problem_type
        if kind is None or problem == "regression":
            return squared_error(student, teacher)
        if problem == "multi_label_classification":
            return soft_binary_targets(student, teacher, heat)
        if kind == "choices":
            return soft_targets(_table(student, groups), _table(teacher, groups), heat)
        if kind == "spans":
            ends = zip(student.unbind(-1), teacher.unbind(-1), strict=True)
            both = [soft_targets(_table(s, groups), _table(t, groups), heat) for s, t in ends]
            return (both[0] + both[1]) / 2
        return soft_targets(student, teacher, heat)


def layout(task: Task, examples: Sequence[Example]) -> tuple[Tensor | None, tuple[int, ...]]:
    """Which tokens the head shall answer for, and how its outputs hang together.

    Returns:
        int64 (K,), the words' first tokens; None but for tagging. And how many sequences each row
        has, or, for heads over tokens, how many tokens each sequence.
    """
    lengths = tuple(len(example.input_ids) for example in examples)
    if task.spec.head_kind == "tokens":
        starts = accumulate(lengths, initial=0)
        at = [start + e.source.rows for start, e in zip(starts, examples, strict=False)]
        return torch.from_numpy(np.concatenate(at)), lengths
    return None, lengths if task.spec.head_kind == "spans" else rows_of(examples)


def by_row(task: Task, output: Tensor, groups: Sequence[int]) -> Tensor:
    """A head's output in the form in which two models are compared, float32.

    Args:
        task: whose head it is.
        output: of the head, at the rows that `layout` names.
        groups: as `layout` gives them.

    Returns:
        (R, C) for classification and regression, the windows of a row averaged; (S,) for choices;
        (K, C) for tagging, by word; (T, 2) for spans; (S, H) for vectors.
    """
    output = output.float()
    return mean_of_groups(output, groups) if task.spec.head_kind == "sequence" else output


def _num_outputs(task: Task, example: Example) -> int:
    """Rows of the head's output that belong to one sequence."""
    if task.spec.head_kind == "tokens":
        return len(example.source.rows)
    return len(example.input_ids) if task.spec.head_kind == "spans" else 1


def _table(scores: Tensor, groups: Sequence[int]) -> Tensor:
    return table_of_groups(scores, groups).clamp_min(_NEVER)
