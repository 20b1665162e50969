"""Several processes that train one model, started by torchrun; a single process is a world of one.

n rows of this rank, H hidden size.

Every method of `Parallel` but `no_sync` and `is_first` is a meeting: all ranks call
it, in the same order, or they wait for each other for ever.

DDP and FSDP average gradients over the ranks, so the loss to send back is sum * world / count, with
the count of all ranks. They wait for the gradient of every parameter that learns: one that no loss
reaches, such as a pooler that the head does not read, must have `requires_grad` off before `wrap`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
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

# The others wait while the first rank evaluates or saves, which may take hours. A rank that dies is
# noticed by its closed connection and by torchrun, not by this limit.
_PATIENCE = timedelta(hours=24)


@dataclass(frozen=True)
class Parallel:
    """A process among those that train together.

    Attributes:
        rank: from 0; the first rank alone writes files and speaks.
        world: how many processes there are.
        device: this rank's own.
        kind: "single", "ddp" (every rank holds the model) or "fsdp" (it is spread).
    """

    rank: int
    world: int
    device: torch.device
    kind: str

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    # The model

    def wrap(self, model: Trainable) -> nn.Module:
        """What to call instead of `model`, so that gradients meet; first with rank 0's weights.

        A single process gets the model itself. FSDP changes the model in place, each layer and the
        rest being one unit, so the optimiser must be made afterwards.
        """
        if self.kind == "ddp":
            # Bucket views save one copy of the gradient.
            return DDP(model, gradient_as_bucket_view=True)
        if self.kind == "fsdp":
            # Imported where needed: a single process need not wait for it.
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            from filbert.losses.student import Student

            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)
            # Without a mesh it would take a GPU wherever there is one.
            mesh = init_device_mesh(self.device.type, (self.world,))
            # The gradient of a layer loss enters in the middle of a layer, where FSDP would not
            # gather the weights again.
            keeps: dict[str, Any] = (
                {"reshard_after_forward": False} if isinstance(model, Student) else {}
            )
            for part in (*model.encoder.layers, model):
                fully_shard(part, mesh=mesh, **keeps)
        return model

    def no_sync(self, wrapped: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward pass of a micro-batch: gradients meet after the last only."""
        if self.kind == "fsdp":
            wrapped.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        elif self.kind == "ddp" and not is_last:
            return wrapped.no_sync()  # type: ignore[operator,no-any-return]
        return contextlib.nullcontext()

    def clip(self, wrapped: nn.Module, largest: float) -> float:
        """Global gradient norm, of all ranks together; scales gradients down to `largest`.

        0 leaves them as they are. An infinite or missing (NaN) norm is returned, not raised.
        """
        trained = [p for p in wrapped.parameters() if p.grad is not None]
        limit = largest if largest > 0 else math.inf
        norm = torch.nn.utils.clip_grad_norm_(trained, limit)
        return float(_whole(norm))

    # Its state

    def full_state(
        self, wrapped: nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and optimiser state of the whole model, on the first rank; else two empty dicts.

        Returns:
            The weights, by the names of Model.state_dict(), and the optimiser's tensors, by
            "exp_avg.<parameter>" and so on; none without `optimizer`. On the host, and in the
            memory of the model itself if the model is on the host: clone what must not change.
        """
        model = unwrapped(wrapped)
        weights = self._gathered(model.state_dict())
        if optimizer is None:
            return weights, {}
        moments = {
            f"{kind}.{name}": tensor
            for name, parameter in model.named_parameters()
            for kind, tensor in optimizer.state.get(parameter, {}).items()
        }
        return weights, self._gathered(moments)

    def load_state(
        self,
        wrapped: nn.Module,
        optimizer: torch.optim.Optimizer,
        weights: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
    ) -> None:
        """Take over what `full_state` gave, whatever kind it came from; every rank holds all of it.

        Raises:
            KeyError: a weight is missing.
        """
        model = unwrapped(wrapped)
        with torch.no_grad():
            for name, target in model.state_dict().items():
                assert weights[name].shape == target.shape, name
                target.copy_(_like(target, weights[name]))
        parameters = dict(model.named_parameters())
        optimizer.state.clear()
        for key, tensor in moments.items():
            kind, _, name = key.partition(".")
            parameter = parameters[name]
            # The count of steps is one number whatever the parameter, and the same on all ranks.
            whole = tensor.to(self.device, copy=True)
            optimizer.state[parameter][kind] = (
                whole if kind == "step" else _like(parameter.detach(), whole)
            )

    def _gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, tensor in tensors.items():
            # One at a time, so that no rank holds two whole copies on its device.
            whole = _whole(tensor.detach())
            if self.is_first:
                found[name] = whole.cpu()
        return found

    # Small things

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over all ranks, in float64: counts stay exact up to 2**53."""
        if self.world == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [float(value) for value in total]

    def sum(self, value: float) -> float:
        """The sum over all ranks, as `sums`."""
        return self.sums([value])[0]

    def any(self, flag: bool) -> bool:
        """Whether the flag is up on any rank."""
        return self.sum(float(flag)) > 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.sum(0.0)

    def broadcast(self, value: Any) -> Any:
        """What JSON can hold, from the first rank to every rank; nothing is ever unpickled."""
        if self.world == 1:
            return value
        content = json.dumps(value).encode() if self.is_first else b""
        size = torch.tensor([len(content)])
        dist.broadcast(size, 0)
        box = torch.empty(int(size), dtype=torch.uint8)
        if self.is_first:
            box = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        dist.broadcast(box, 0)
        return value if self.is_first else json.loads(bytes(box.tolist()))

    def numbers(self, mine: int) -> list[int]:
        """One whole number of every rank, in their order."""
        if self.world == 1:
            return [mine]
        found = [torch.empty(1, dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(found, torch.tensor([mine]))
        return [int(number) for number in found]

    def gather_rows(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, (n, H) each with its own n, one rank after the other; no gradient.

        Any number of further dimensions instead of H, the same on all ranks.
        """
        rows = rows.detach()
        if self.world == 1:
            return rows
        sizes = self.numbers(len(rows))
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(gathered, padded)
        return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)])

    def rows_before(self, num_rows: int) -> int:
        """How many rows the lower ranks hold: where this rank's begin in `gather_rows`."""
        return sum(self.numbers(num_rows)[: self.rank])


@contextlib.contextmanager
def start(kind: str | None = None, device: str | None = None) -> Iterator[Parallel]:
    """Meet the other processes of a `torchrun` command, and part in the end.

    Args:
        kind: ddp or fsdp; ddp when not given. Without torchrun, or with one process, it is "single"
            whatever is asked.
        device: as for `choose_device`; each process of a machine takes a GPU of its own.

    Raises:
        ConfigError: no such device, or fewer GPUs than processes.
    """
    world = int(os.environ.get("WORLD_SIZE", 1))
    # Other launchers set WORLD_SIZE too; only torchrun sets all three.
    if world == 1 or "LOCAL_RANK" not in os.environ:
        yield Parallel(0, 1, choose_device(device), "single")
        return
    own = _own_device(device, int(os.environ["LOCAL_RANK"]))
    on_gpu = own.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(own)
    # Numbers on the host use gloo, so that they do not wait for the GPU's queue.
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=_PATIENCE)
    is_done = False
    try:
        yield Parallel(dist.get_rank(), world, own, kind or "ddp")
        is_done = True
    finally:
        # Parting is a meeting for nccl: after an error it would wait for ranks that never come.
        if is_done or not on_gpu:
            dist.destroy_process_group()
            # Wrapped models lie in cycles and hold on to the group. Its threads must end before
            # the interpreter does: torch 2.11 aborted at exit in 8 of 32 runs.
            gc.collect()


def unwrapped(wrapped: nn.Module) -> nn.Module:
    """The model inside what `wrap` gave."""
    return wrapped.module if isinstance(wrapped, DDP) else wrapped  # type: ignore[no-any-return]


def zero_loss(output: Tensor | Sequence[Tensor]) -> Tensor:
    """A loss of 0 that reaches every parameter `output` hangs on, with a gradient of 0.

    For a rank without rows, which runs any row instead: all ranks must meet.
    """
    parts = [output] if isinstance(output, Tensor) else output
    return torch.stack([(part * 0.0).sum() for part in parts if part.requires_grad]).sum()


def _own_device(device: str | None, local_rank: int) -> torch.device:
    chosen = choose_device(device)
    if chosen.type != "cuda":
        return chosen
    if chosen.index is not None:
        raise ConfigError(f"device is {device!r}; under torchrun give cuda, one GPU a process.")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"process {local_rank + 1} of this machine has no GPU: there are "
            f"{torch.cuda.device_count()}. Lower --nproc-per-node, or give --device cpu."
        )
    return torch.device("cuda", local_rank)


def _whole(tensor: Tensor) -> Tensor:
    """All of a tensor that may be spread over the ranks."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _like(target: Tensor, whole: Tensor) -> Tensor:
    """A whole tensor, on the device of `target` and spread as it is, without a message."""
    whole = whole.to(target.device)
    if not hasattr(target, "full_tensor"):
        return whole
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(target, DTensor)
    # Every rank holds all of it and cuts out its own piece.
    return distribute_tensor(whole, target.device_mesh, target.placements, src_data_rank=None)
