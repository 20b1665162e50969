"""Training a classifier on few rows: its head starts from a logistic regression, and a contrastive
loss is added to the cross-entropy.

Sources: Kumar et al. 2022 (a linear head first, then all weights); Gunel et al. 2021 (both losses).
S sequences, R rows, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from filbert.batch import PackedBatch
from filbert.data.examples import Example
from filbert.errors import ConfigError
from filbert.inference.forward import forward, in_order
from filbert.losses.contrastive import label_contrast
from filbert.model.heads import Model, SequenceHead
from filbert.model.pooling import mean_of_groups
from filbert.model.precision import Precision
from filbert.tasks.base import LossSpec, Objective, Targets, TaskSpec
from filbert.tasks.rows import row_outputs
from filbert.train.defaults import FEW_ROWS
from filbert.train.linear import USUAL_STRENGTH, fit_logistic
from filbert.train.options import FinetuneOptions


def contrast_weight(
    options: FinetuneOptions, spec: TaskSpec, *, num_rows: int, has_new_head: bool
) -> float:
    """Return the weight of the contrastive loss: the user's, or the default.

    The default is 1 for fewer than 1,000 rows and a new head, where the user gives neither a rate
    nor a number of steps and all layers learn; otherwise 0.
    """
    train = options.train
    is_single = spec.problem_type == "single_label_classification"
    if options.contrast and not (is_single and has_new_head):
        raise ConfigError("contrast needs a new head, and rows of one label each.")
    if options.contrast is not None:
        return options.contrast
    given = (train.lr, train.epochs, train.steps, train.time, train.freeze, options.model.lora)
    is_usual = all(value is None for value in given)
    return float(is_single and has_new_head and is_usual and num_rows < FEW_ROWS)


def start_head(model: Model, examples: Sequence[Example], labels: Sequence[int]) -> None:
    """Set the head's last layer to a logistic regression on the vectors that it reads.

    Args:
        labels: Of each row, in the order of `examples`.
    """
    head = model.head
    assert isinstance(head, SequenceHead)

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        return (head.transformed(model.encoder.pool(model.encoder(batch), batch)),)

    outputs = forward(model, examples, read, precision=Precision("float32", "start of the head"))
    vectors = [vector for (vector,) in in_order(outputs, len(examples), None)]
    vectors_RH = row_outputs(vectors, examples).double().numpy()
    center = vectors_RH.mean(0)
    spread = np.sqrt(vectors_RH.var(0).sum())
    number = head.out.out_features
    scaled = (vectors_RH - center) / spread
    weights, bias = fit_logistic(scaled, np.asarray(labels), number, USUAL_STRENGTH)
    with torch.no_grad():
        head.out.weight.copy_(torch.from_numpy(weights / spread))
        if head.out.bias is not None:
            head.out.bias.copy_(torch.from_numpy(bias - weights @ center / spread))


@dataclass(frozen=True)
class WithContrast:
    """Classification whose loss also draws the vectors of texts with one label together.

    The texts of a micro-batch are compared with each other.

    Attributes:
        task: Its head gives its vectors, too (`SequenceHead.gives_vectors`).
        weight: Of the contrastive loss.
    """

    task: Objective
    weight: float

    @property
    def spec(self) -> LossSpec:
        """The loss of the labels, and the contrastive one."""
        return LossSpec(("label_loss", "contrast_loss"), self.task.spec.selection_metric)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return the targets of the task."""
        return self.task.targets(examples)

    def count(self, targets: Targets) -> tuple[float, float]:
        """Return the number of rows, for each loss."""
        rows = float(len(targets.values))
        return rows, rows

    def loss(self, output: tuple[Tensor, Tensor], targets: Targets) -> Tensor:
        """Return the sum of each loss, float32, from logits (S, C) and vectors (S, H)."""
        logits, vectors = output
        vectors = mean_of_groups(vectors.float(), targets.groups or ())
        contrast = self.weight * label_contrast(vectors, targets.values)
        return torch.stack([self.task.loss(logits, targets), contrast])
