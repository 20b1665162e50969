"""A rank's own rows of a tensor that FSDP spreads over the ranks; all rows where it does not.

R rows of the whole tensor.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def own_rows(tensor: Tensor) -> Tensor:
    """The rows that lie on this rank, sharing the memory of `tensor`."""
    return tensor.to_local() if _is_spread(tensor) else tensor  # type: ignore[attr-defined,no-any-return]


def first_own_row(tensor: Tensor) -> int:
    """Which of the R rows the first of `own_rows` is."""
    if not _is_spread(tensor):
        return 0
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    # As torch.chunk cuts: equal pieces, rounded up, the last ones shorter or empty.
    begin = min(mesh.get_local_rank() * -(-len(tensor) // mesh.size()), len(tensor))
    assert begin + len(own_rows(tensor)) <= len(tensor)
    return int(begin)


def all_rows(rows: Tensor, like: Tensor) -> Tensor:
    """All R rows, on every rank, of a tensor that is spread as `like` is.

    A meeting of the ranks, if it is spread.

    Args:
        rows: this rank's, of any dtype.
        like: the whole tensor's shape, and how it is spread.
    """
    if not _is_spread(like):
        return rows
    from torch.distributed.tensor import DTensor

    assert isinstance(like, DTensor)
    spread = DTensor.from_local(
        rows, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )
    return spread.full_tensor()  # type: ignore[no-any-return]


def summed(values: Tensor, like: Tensor) -> Tensor:
    """The sum of `values`, in place, over the ranks that `like` is spread over; a meeting then."""
    if _is_spread(like):
        dist.all_reduce(values, group=like.device_mesh.get_group())  # type: ignore[attr-defined]
    return values


def _is_spread(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")
