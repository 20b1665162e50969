"""Objectives of distillation: layer losses, soft targets, and the labels or masked words.

`LayerDistillation` learns from raw text, `SoftLabels` from labelled rows of a task. Both are an
`Objective`; what compares the two models is computed in `losses.student.Student`.

R rows in the batch, S sequences, T tokens, K words, C labels, H width of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from filbert.data.examples import Example, rows_of
from filbert.losses.cross_entropy import cross_entropy
from filbert.losses.distillation import soft_binary_targets, soft_targets, squared_error
from filbert.losses.student import LayerLoss, StudentOutput
from filbert.model.pooling import mean_of_groups, table_of_groups
from filbert.tasks.base import LossSpec, Targets, Task
from filbert.tasks.pretraining import masked_words
from filbert.tasks.rows import packed_rows

# In place of -inf, of which a difference is no number; no logit comes near.
_NEVER = -1e9


@dataclass(frozen=True)
class LayerDistillation:
    """The weighted sum of the mean of every loss.

    Attributes:
        layer_losses: The losses that the `Student` computes.
    """

    layer_losses: tuple[LayerLoss, ...]
    masked_weight: float = 0.0

    @property
    def spec(self) -> LossSpec:
        """The layer losses, then mlm_loss if it has a weight."""
        masked = ("mlm_loss",) if self.masked_weight else ()
        return LossSpec((*(loss.name for loss in self.layer_losses), *masked), "loss")

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each loss."""
        masked = (self.masked_weight,) if self.masked_weight else ()
        return (*(loss.weight for loss in self.layer_losses), *masked)

    @property
    def reads_words(self) -> bool:
        """Whether the head that scores words is a part of the loss."""
        return self.masked_weight > 0 or any(loss.kind == "soft" for loss in self.layer_losses)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return labels and rows of the masked words, (K,), and the lengths of the sequences."""
        lengths = tuple(len(example.input_ids) for example in examples)
        if not self.reads_words:
            return Targets(torch.empty(0), groups=lengths)
        return Targets(*masked_words(examples), groups=lengths)

    def count(self, targets: Targets) -> tuple[float, ...]:
        """Return the number of tokens, sequences or masked words of each loss."""
        lengths, num_masked = targets.groups or (), len(targets.values)
        counts = tuple(loss.count(lengths, num_masked) for loss in self.layer_losses)
        return (*counts, float(num_masked)) if self.masked_weight else counts

    def loss(self, output: StudentOutput, targets: Targets) -> Tensor:
        """Return the sum of each loss times its weight, float32."""
        sums = list(output.sums.unbind())
        if self.masked_weight:
            sums.append(cross_entropy(output.student, targets.values))
        return torch.stack([w * kind for w, kind in zip(self.weights, sums, strict=True)])


@dataclass(frozen=True)
class SoftLabels:
    """A task that a student learns from a teacher's outputs, and from the rows' labels.

    Attributes:
        temperature: Logits of both are divided by it.
        alpha: Share of the labels in the loss, from 0 to 1; the teacher's outputs have the rest.
        layer_losses: Of hidden layers, per sequence.
    """

    task: Task
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
        """Return the rows of the head's output, and the labels where they count.

        `groups` are the number of sequences of each row; of tokens of each sequence for heads over
        tokens.
        """
        at, kind = None, self.task.spec.head_kind
        groups = rows_of(examples)
        if kind in ("tokens", "spans"):
            groups = tuple(len(example.input_ids) for example in examples)
        if kind == "tokens":
            at = packed_rows(examples, (e.source.rows for e in examples))
        labels = self.task.targets(examples)._replace(at=None) if self.alpha else None
        return Targets(torch.empty(0), at=at, groups=groups, labels=labels)

    def count(self, targets: Targets) -> tuple[float, ...]:
        """Return the number of labels, of outputs, and of sequences for each layer loss."""
        groups, kind = targets.groups or (), self.task.spec.head_kind
        num_sequences = len(groups) if kind in ("tokens", "spans") else sum(groups)
        num_outputs = num_sequences if kind is None else len(groups)
        if targets.at is not None:
            num_outputs = len(targets.at)
        hard = () if targets.labels is None else (self.task.count(targets.labels),)
        soft = (float(num_outputs),) if self.alpha < 1 else ()
        return (*hard, *soft, *(float(num_sequences) for _ in self.layer_losses))

    def loss(self, output: StudentOutput, targets: Targets) -> Tensor:
        """Return the sum of each kind times its weight, float32, in the order of `loss_names`."""
        kinds = []
        if targets.labels is not None:
            kinds.append(self.alpha * self.task.loss(output.student, targets.labels))
        if self.alpha < 1:
            kinds.append((1.0 - self.alpha) * self._soft(output, targets.groups or ()))
        layers = zip(self.layer_losses, output.sums, strict=True)
        return torch.stack([*kinds, *(loss.weight * value for loss, value in layers)])

    def _soft(self, output: StudentOutput, groups: Sequence[int]) -> Tensor:
        """Return the summed difference of the outputs of both models.

        The windows of a row are averaged, choices are compared within their row, starts and ends
        of answers among the tokens of their window.
        """
        spec, heat = self.task.spec, self.temperature
        student, teacher = output.student.float(), output.teacher.float()
        if spec.head_kind == "sequence":
            student, teacher = mean_of_groups(student, groups), mean_of_groups(teacher, groups)
        if spec.head_kind is None or spec.problem_type == "regression":
            return squared_error(student, teacher)
        if spec.problem_type == "multi_label_classification":
            return soft_binary_targets(student, teacher, heat)
        if spec.head_kind not in ("choices", "spans"):
            return soft_targets(student, teacher, heat)

        def table(scores: Tensor) -> Tensor:
            return table_of_groups(scores, groups).clamp_min(_NEVER)

        sides = zip(student.view(len(student), -1).T, teacher.view(len(teacher), -1).T, strict=True)
        losses = [soft_targets(table(mine), table(theirs), heat) for mine, theirs in sides]
        return sum(losses[1:], losses[0]) / len(losses)
