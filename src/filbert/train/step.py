"""The gradient of one optimizer step; it is the same for any split into micro-batches and ranks.

S sequences, H hidden size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from filbert.batch import PackedBatch, onto
from filbert.data.examples import Example, collate
from filbert.data.loader import Loader
from filbert.inference.forward import forward as forward_rows
from filbert.model.attention import group_lengths, max_scores_on
from filbert.model.cpu import float32_by_onednn, fuses
from filbert.model.heads import Model
from filbert.model.pooling import row_read
from filbert.model.precision import Precision
from filbert.tasks.base import Objective, Targets
from filbert.train.base_model import is_encoder_frozen
from filbert.train.distributed import Parallel
from filbert.train.log import progress_bar, say

Output = Tensor | tuple[Tensor, ...]
Forward = Callable[[Sequence[Example], Targets], Output]
# Features of a frozen encoder above this size are not kept: they could exhaust the memory.
MOST_BYTES = 8 * 2**30


@dataclass(frozen=True)
class Gradient:
    """The losses of one step over all ranks; the gradient itself is in the parameters.

    Attributes:
        loss: The sum of `parts`.
        parts: Mean of each kind of loss.
        num_places: Number of attention positions, padding included.
    """

    loss: float
    parts: tuple[float, ...]
    num_tokens: int
    num_sequences: int
    num_places: int


def model_forward(wrapped: torch.nn.Module, device: torch.device) -> Forward:
    """Return a forward pass through encoder and head."""

    def forward(examples: Sequence[Example], targets: Targets) -> Output:
        batch = collate(examples).to(device)
        if targets.are_seen:
            return wrapped(batch, targets.at, targets.values)  # type: ignore[no-any-return]
        return wrapped(batch, targets.at)  # type: ignore[no-any-return]

    return forward


def frozen_features(
    model: Model, loader: Loader, precision: Precision, took: dict[str, float]
) -> Forward | None:
    """Compute the encoder outputs for the training rows, if it is frozen and they fit into memory.

    The forward pass that is returned runs pooler and head over these outputs. It recognises the
    examples of the loader by their `id`, so the loader must outlive it. The seconds that this takes
    are added to `took`, by name, for run.json.
    """
    if not is_encoder_frozen(model):
        return None
    clock, cpu = time.perf_counter(), time.process_time()
    examples = [example for row in loader.rows for example in row]
    head, config = model.head, model.config
    token = config.pooling.token
    one_only = head is not None and head.reads_pooled and token in ("cls", "last")
    sizes = [1 if one_only else len(example.input_ids) for example in examples]
    num_bytes = 4 * sum(sizes) * config.hidden_size
    if num_bytes > MOST_BYTES:
        say(
            f"frozen encoder: its outputs would take {num_bytes / 2**30:.0f} GiB, "
            f"so it runs in every step"
        )
        return None

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        at = row_read(batch, token, causal=config.attention.causal) if one_only else None
        return (model.encoder(batch, at),)

    # By `id` of the example: float32 (n, H) on the CPU. For heads that read the pooled vector, only
    # the row of the token that it is computed from.
    states: dict[int, Tensor] = {}
    with progress_bar() as bar:
        shown = bar.add_task("features of the frozen encoder", total=len(examples))
        outputs = forward_rows(model, examples, read, precision=precision)
        for indices, (hidden,) in outputs:
            parts = torch.split(hidden, [sizes[i] for i in indices])
            for index, rows in zip(indices, parts, strict=True):
                # A view would keep the memory of the whole batch.
                states[id(examples[index])] = rows.clone()
            bar.update(shown, advance=len(indices))
    took["features_seconds"] = time.perf_counter() - clock
    took["training_cpu_seconds"] += time.process_time() - cpu
    say(
        f"frozen encoder: outputs of {len(examples):,} sequences computed once, "
        f"{num_bytes / 2**20:.0f} MiB, {took['features_seconds']:.1f} s"
    )

    def run(examples: Sequence[Example], targets: Targets) -> Output:
        rows = onto(model.device, torch.cat([states[id(one)] for one in examples]))
        if one_only:
            # In a sequence of one token, the first is also the last.
            examples = [
                replace(e, input_ids=e.input_ids[:1], token_type_ids=e.token_type_ids[:1])
                for e in examples
            ]
        return model.read(rows, collate(examples).to(model.device), targets.at)

    return run


def accumulate(
    forward: Forward,
    wrapped: torch.nn.Module,
    task: Objective,
    micro_batches: Sequence[Sequence[Example]],
    *,
    parallel: Parallel,
    precision: Precision,
    seed: tuple[int, int],
    stand_in: Sequence[Example],
) -> Gradient:
    """Add the gradient of the mean loss of a step to the parameters.

    The losses of all micro-batches and ranks are summed and divided once by their number, because
    micro-batches have unequal numbers of targets. Each kind of loss is divided by its own number.

    Args:
        forward: Maps examples and their targets to the output of the head.
        wrapped: The model as `parallel.wrap` returned it.
        micro_batches: Of this rank, equally many on all ranks; some may be empty.
        seed: Seed of the run, and the step. With rank and micro-batch they determine the dropout.
        stand_in: Any row, used with a loss of 0 for an empty micro-batch.
    """
    device = parallel.device
    batches = [list(examples) or list(stand_in) for examples in micro_batches]
    targets = [task.targets(examples) for examples in batches]
    is_real = [len(examples) > 0 for examples in micro_batches]
    counts = _counts(task, targets, is_real, parallel)

    def output_of(index: int) -> tuple[Output, Targets]:
        entropy = np.random.SeedSequence((*seed, parallel.rank, index))
        torch.manual_seed(int(entropy.generate_state(1, np.uint64)[0] >> 1))
        on_device = targets[index].to(device)
        with precision.autocast(device):
            return forward(batches[index], on_device), on_device

    loss_sums = torch.zeros(len(counts), device=device, dtype=torch.float64)
    with float32_by_onednn(_worth_onednn(wrapped, precision)):
        wanted: list[Tensor] | None = None
        if task.spec.whole_batch:
            wanted, loss = _output_gradients(output_of, task, batches, is_real, parallel, counts[0])
            loss_sums += loss if parallel.is_first else 0.0  # the loss of all ranks
        for index in range(len(targets)):
            with parallel.no_sync(wrapped, index == len(targets) - 1):
                output, target = output_of(index)
                if wanted is not None:
                    assert isinstance(output, Tensor)
                    loss = (output.float() * wanted[index]).sum() * parallel.world
                else:
                    # A stand-in counts nothing, but all ranks must exchange gradients.
                    kinds = task.loss(output, target).reshape(-1) * is_real[index]
                    loss_sums += kinds.detach()
                    loss = _mean_loss(kinds, counts, parallel.world)
                loss.backward()  # type: ignore[no-untyped-call]
    sums = parallel.sums([*loss_sums.tolist(), *_sizes(micro_batches, device)])
    parts = tuple(sums[i] / (count or 1.0) for i, count in enumerate(counts))
    return Gradient(sum(parts), parts, *map(int, sums[len(counts) :]))


def _counts(
    task: Objective, targets: Sequence[Targets], is_real: Sequence[bool], parallel: Parallel
) -> list[float]:
    """Return the number of losses of each kind in the step, on all ranks."""
    none = (0.0,) * len(task.spec.loss_names)
    pairs = zip(targets, is_real, strict=True)
    mine = [np.atleast_1d(task.count(target)).tolist() for target, real in pairs if real]
    return parallel.sums([sum(column) for column in zip(none, *mine, strict=True)])


def _mean_loss(kinds: Tensor, counts: Sequence[float], world: int) -> Tensor:
    """Divide each kind of loss by its count and add them; gradients are averaged over ranks."""
    shares = [
        kind * world / (count or 1.0) for kind, count in zip(kinds.unbind(), counts, strict=True)
    ]
    return sum(shares[1:], shares[0])


def _sizes(
    micro_batches: Sequence[Sequence[Example]], device: torch.device
) -> tuple[int, int, int]:
    """Return the numbers of tokens, sequences and attention positions of this rank."""
    lengths = [[len(e.input_ids) for e in examples] for examples in micro_batches if examples]
    most = max_scores_on(device)
    places = [max(r[a:b]) * (b - a) for r in lengths for a, b in group_lengths(tuple(r), most)]
    return sum(map(sum, lengths)), sum(map(len, lengths)), sum(places)


def _worth_onednn(model: torch.nn.Module, precision: Precision) -> bool:
    if precision.name != "float32":
        return False
    return any(isinstance(part, torch.nn.Linear) and fuses(part) for part in model.modules())


def _output_gradients(
    output_of: Callable[[int], tuple[Output, Targets]],
    task: Objective,
    batches: Sequence[Sequence[Example]],
    is_real: Sequence[bool],
    parallel: Parallel,
    count: float,
) -> tuple[list[Tensor], Tensor]:
    """Return the loss of a step whose rows depend on each other, and its gradient at every output.

    The first pass computes the outputs of all rows without gradients, and the loss over all of
    them. The caller then runs each micro-batch again and sends its part of the gradient through it.
    This takes the memory of one micro-batch. Source: Gao et al. 2021, section 3.

    Returns:
        One float32 tensor like each micro-batch's output (zeros for a placeholder), and the sum of
        the losses on all ranks.
    """
    with torch.no_grad():
        outputs = [output_of(index)[0].float() for index in range(len(batches))]  # type: ignore[union-attr]
    kept = [output for output, real in zip(outputs, is_real, strict=True) if real]
    mine = torch.cat(kept) if kept else outputs[0][:0]
    rows = [e for examples, real in zip(batches, is_real, strict=True) if real for e in examples]
    wanted = task.targets(rows or batches[0])
    # A rank without rows contributes none, of the right type.
    keep = None if rows else 0
    values, _ = parallel.gather_rows(wanted.values[:keep])
    own_groups = torch.tensor(wanted.groups or (), dtype=torch.int64)
    groups, _ = parallel.gather_rows(own_groups[:keep])
    gathered, start = parallel.gather_rows(mine)
    gathered.requires_grad_(True)
    targets = wanted._replace(values=values, groups=tuple(groups.tolist()) or None)
    loss = task.loss(gathered, targets.to(mine.device))
    (whole,) = torch.autograd.grad(loss / (count or 1.0), gathered)
    gradients = []
    for output, real in zip(outputs, is_real, strict=True):
        size = len(output) if real else 0
        gradients.append(whole[start : start + size] if real else torch.zeros_like(output))
        start += size
    return gradients, loss.detach()
