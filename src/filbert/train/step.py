"""The gradient of one optimiser step, however its rows are cut into micro-batches and ranks.

S sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from filbert.data.examples import Example, collate
from filbert.model.attention import group_lengths
from filbert.speed.precision import Precision
from filbert.tasks.base import Targets, Task
from filbert.train.distributed import Parallel, zero_loss

Forward = Callable[[Sequence[Example], Tensor | None], Tensor]


@dataclass(frozen=True)
class Gradient:
    """What one step came to; the gradient itself lies in the parameters.

    Attributes:
        loss: mean over all losses of the step, on all ranks.
        num_tokens: real tokens of this rank.
        num_places: places inside attention, padding included, of this rank.
    """

    loss: float
    num_tokens: int
    num_places: int


def model_forward(wrapped: torch.nn.Module, device: torch.device) -> Forward:
    """A forward pass through encoder and head."""

    def forward(examples: Sequence[Example], at: Tensor | None) -> Tensor:
        output: Tensor = wrapped(collate(examples).to(device), at)
        return output

    return forward


def accumulate(
    forward: Forward,
    wrapped: torch.nn.Module,
    task: Task,
    micro_batches: Sequence[Sequence[Example]],
    *,
    parallel: Parallel,
    precision: Precision,
    seed: tuple[int, int],
    stand_in: Sequence[Example],
) -> Gradient:
    """Add the gradient of the mean loss of a step to the parameters.

    The losses of all micro-batches and ranks are summed and divided once, by how many there are: a
    mean of means would be wrong wherever micro-batches hold unequal numbers of targets.

    Args:
        forward: examples and the rows asked for, to the head's output.
        wrapped: what `parallel.wrap` gave.
        task: gives targets, counts and losses.
        micro_batches: of this rank, equally many on all ranks; some may be empty.
        parallel: the other ranks.
        precision: of the matrix products.
        seed: of the run, and the step. Dropout is drawn from these, the rank and the micro-batch,
            so that a resumed or repeated step draws the same.
        stand_in: any row. Where this rank has none, it stands in with a loss of 0, since all ranks
            must meet.
    """
    device = parallel.device
    batches = [list(examples) or list(stand_in) for examples in micro_batches]
    targets = [task.targets(examples) for examples in batches]
    is_real = [len(examples) > 0 for examples in micro_batches]
    counts = [task.count(t) for t, real in zip(targets, is_real, strict=True) if real]
    count = parallel.sum(float(sum(counts)))

    def output_of(index: int) -> Tensor:
        torch.manual_seed(draw_seed(*seed, parallel.rank, index))
        at = targets[index].at
        with precision.autocast(device):
            return forward(batches[index], None if at is None else at.to(device))

    loss_sum = torch.zeros((), device=device, dtype=torch.float64)
    wanted: list[Tensor] | None = None
    if task.whole_batch:
        wanted, loss_sum = _output_gradients(output_of, task, batches, is_real, parallel, count)
    for index, target in enumerate(targets):
        is_last = index == len(targets) - 1
        with parallel.no_sync(wrapped, is_last):
            output = output_of(index)
            if wanted is not None:
                loss = (output.float() * wanted[index]).sum() * parallel.world
            else:
                loss = task.loss(output, _on(target, device))
                loss = loss if is_real[index] else zero_loss(output)
                loss_sum += loss.detach()
                loss = loss * parallel.world / (count or 1.0)
            loss.backward()  # type: ignore[no-untyped-call]
    if wanted is None:
        loss_sum = torch.tensor(parallel.sum(float(loss_sum)))
    lengths = [[len(e.input_ids) for e in examples] for examples in micro_batches if examples]
    places = [max(run[a:b]) * (b - a) for run in lengths for a, b in group_lengths(tuple(run))]
    return Gradient(float(loss_sum) / (count or 1.0), sum(map(sum, lengths)), sum(places))


def _output_gradients(
    output_of: Callable[[int], Tensor],
    task: Task,
    batches: Sequence[Sequence[Example]],
    is_real: Sequence[bool],
    parallel: Parallel,
    count: float,
) -> tuple[list[Tensor], Tensor]:
    """The loss of a step whose rows depend on each other, and its gradient at every output.

    Two passes: outputs of all rows without a tape, the loss over them together; the caller then
    runs each micro-batch again and sends its part of the gradient through it. Memory is that of one
    micro-batch, and the result that of the whole batch. Source: Gao et al. 2021, section 3.

    Returns:
        One float32 tensor like each micro-batch's output (zeros where it stands in), and the sum of
        the losses on all ranks.
    """
    with torch.no_grad():
        outputs = [output_of(index).float() for index in range(len(batches))]
    kept = [output for output, real in zip(outputs, is_real, strict=True) if real]
    mine = torch.cat(kept) if kept else outputs[0][:0]
    rows = [e for examples, real in zip(batches, is_real, strict=True) if real for e in examples]
    wanted = task.targets(rows or batches[0])
    # A rank without rows gives none, of the right type.
    keep = None if rows else 0
    values = parallel.gather_rows(wanted.values[:keep])
    own_groups = torch.tensor(wanted.groups or (), dtype=torch.int64)
    groups = parallel.gather_rows(own_groups[:keep]).tolist()
    everyone = parallel.gather_rows(mine)
    everyone.requires_grad_(True)
    targets = wanted._replace(values=values, groups=tuple(groups) or None)
    loss = task.loss(everyone, _on(targets, mine.device))
    (whole,) = torch.autograd.grad(loss / (count or 1.0), everyone)
    start = parallel.rows_before(len(mine))
    found = []
    for output, real in zip(outputs, is_real, strict=True):
        if real:
            found.append(whole[start : start + len(output)])
            start += len(output)
        else:
            found.append(torch.zeros_like(output))
    return found, loss.detach()


def _on(targets: Targets, device: torch.device) -> Targets:
    return targets._replace(values=targets.values.to(device))


def draw_seed(seed: int, step: int, rank: int, micro_batch: int) -> int:
    """A seed for torch that hangs on all four."""
    entropy = np.random.SeedSequence((seed, step, rank, micro_batch))
    return int(entropy.generate_state(1, np.uint64)[0] >> 1)
