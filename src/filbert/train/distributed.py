"""Several processes that train one model, started by torchrun; a single process is a world of one.

n rows of this rank, H hidden size.

All methods of `Parallel` except `no_sync` and `is_first` are collective: all ranks must call them
in the same order, or they wait for each other for ever.

DDP averages gradients over the ranks, so the loss for the backward pass is sum * world / count,
with the count of all ranks. It waits for the gradient of every trained parameter: one that no loss
reaches, such as a pooler that the head does not read, must have `requires_grad` off before `wrap`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

from filbert.errors import ConfigError
from filbert.model.heads import Model
from filbert.model.precision import choose_device

if TYPE_CHECKING:
    from filbert.losses.student import Student
    from filbert.model.replaced import ReplacedTokenModel

# What can be trained.
Trainable: TypeAlias = "Model | ReplacedTokenModel | Student"

# The other ranks wait while the first one evaluates or saves, which may take hours. A rank that
# dies is detected by its closed connection and by torchrun, not by this limit.
_PATIENCE = timedelta(hours=24)


@dataclass(frozen=True)
class Parallel:
    """A process of the group that trains together.

    Attributes:
        rank: Number of the process, from 0; only the first one writes files and prints.
        world: Number of processes.
    """

    rank: int
    world: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes files and prints."""
        return self.rank == 0

    # The model

    def wrap(self, model: Trainable) -> nn.Module:
        """Return the module to call instead of `model`; all ranks start with rank 0's weights.

        A single process gets the model itself.
        """
        # Bucket views save one copy of the gradient.
        return model if self.world == 1 else DDP(model, gradient_as_bucket_view=True)

    def no_sync(self, wrapped: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        """Return the context of a micro-batch's passes: only the last one exchanges gradients."""
        if self.world == 1 or is_last:
            return contextlib.nullcontext()
        return wrapped.no_sync()  # type: ignore[operator,no-any-return]

    # Numbers and rows

    def sums(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each value over all ranks, in float64: counts are exact up to 2**53."""
        if self.world == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
        return self.sums([float(flag)])[0] > 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.sums([0.0])

    def broadcast(self, value: Any) -> Any:
        """Send a JSON value from the first rank to every rank; nothing is ever unpickled."""
        if self.world == 1:
            return value
        content = json.dumps(value).encode() if self.is_first else b""
        size = torch.tensor([len(content)])
        dist.broadcast(size, 0)
        buffer = torch.empty(int(size), dtype=torch.uint8)
        if self.is_first:
            buffer = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        dist.broadcast(buffer, 0)
        return value if self.is_first else json.loads(bytes(buffer.tolist()))

    def gather_rows(self, rows: Tensor) -> tuple[Tensor, int]:
        """Return the rows (n, H) of all ranks, without gradient, and where this rank's begin.

        n may differ between ranks. H may be any number of dimensions, the same on all ranks.
        """
        rows = rows.detach()
        if self.world == 1:
            return rows, 0
        counts = [0.0] * self.world
        counts[self.rank] = len(rows)
        sizes = [int(size) for size in self.sums(counts)]
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(gathered, padded)
        parts = [part[:size] for part, size in zip(gathered, sizes, strict=True)]
        return torch.cat(parts), sum(sizes[: self.rank])


@contextlib.contextmanager
def start(device: str | None = None) -> Iterator[Parallel]:
    """Join the process group of a `torchrun` command, and leave it at the end.

    `device` is as for `choose_device`; each process of a machine uses a GPU of its own.

    Raises:
        ConfigError: No such device, or fewer GPUs than processes.
    """
    world = int(os.environ.get("WORLD_SIZE", 1))
    # Other launchers set WORLD_SIZE too; only torchrun sets all three.
    if world == 1 or "LOCAL_RANK" not in os.environ:
        yield Parallel(0, 1, choose_device(device))
        return
    own, local_rank = choose_device(device), int(os.environ["LOCAL_RANK"])
    on_gpu = own.type == "cuda"
    if on_gpu:
        if own.index is not None:
            raise ConfigError(f"device is {device!r}; under torchrun give cuda, one GPU a process.")
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"process {local_rank + 1} of this machine has no GPU: there are "
                f"{torch.cuda.device_count()}. Lower --nproc-per-node, or give --device cpu."
            )
        own = torch.device("cuda", local_rank)
        torch.cuda.set_device(own)
    # Tensors on the CPU use gloo, so that they do not wait for the GPU's queue.
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=_PATIENCE)
    is_done = False
    try:
        yield Parallel(dist.get_rank(), world, own)
        is_done = True
    finally:
        # With nccl leaving is collective: after an error it would wait for the other ranks.
        if is_done or not on_gpu:
            dist.destroy_process_group()
            # Wrapped models are in reference cycles and keep the group alive. Its threads must end
            # before the interpreter does: torch 2.11 aborted at exit in 8 of 32 runs.
            gc.collect()
