"""Float32 products by the fastest library at hand: of many small matrices, and in training.

torch sends float32 ones on a processor to MKL: 60 to 90 GFLOP/s a core on Zen 5, where oneDNN
reaches 110 to 200 (docs/log.md). Its only way to oneDNN is a setting that permits products in bf16.
oneDNN makes use of that where there are matrix tiles (AMX) and nowhere else, so on all other
processors float32 stays float32. Whether it does is tried out, not assumed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

# Multiplications from which on oneDNN's calls, 10 microseconds longer than MKL's, are worth it.
_WORTH_PRODUCTS = 2**20
# What float32 may be off, of the largest sum: bf16 is off by some 2**-9.
_FLOAT32_ERROR = 1e-6


def products(first: Tensor, second: Tensor, count: int = 1, out: Tensor | None = None) -> Tensor:
    """B matrices (B, i, j) by as many (B, j, k), off the tape: (B, i, k).

    oneDNN keeps half a megabyte for every number of matrices that it meets (see model/shapes.py),
    so it gets those of 1, 2, 4 ... sequences at a time, the most first.

    Args:
        first, second: of one dtype and device.
        count: sequences that the B matrices are of, as many each.
        out: where the result goes.
    """
    if out is None:
        out = first.new_empty((len(first), first.shape[1], second.shape[2]))
    if first.device.type != "cpu" or first.dtype not in (torch.float32, torch.bfloat16):
        return torch.bmm(first, second, out=out)
    if first.dtype == torch.bfloat16:
        return _in_powers_of_two(first, second, count, out)
    if first.numel() * second.shape[2] < _WORTH_PRODUCTS or not float32_is_exact():
        return torch.bmm(first, second, out=out)
    with _permitted():
        return _in_powers_of_two(first, second, count, out)


def _in_powers_of_two(first: Tensor, second: Tensor, count: int, out: Tensor) -> Tensor:
    each, begin = len(first) // count, 0
    while begin < count:
        end = begin + (1 << ((count - begin).bit_length() - 1))
        rows = slice(begin * each, end * each)
        torch.bmm(first[rows], second[rows], out=out[rows])
        begin = end
    return out


class _Switch:
    """torch's permission for float32 products in bf16, which is the whole process's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0

    def on(self) -> None:
        with self._lock:
            self._users += 1
            _permit("bf16")

    def off(self) -> None:
        """As it was, once the last thread has left."""
        with self._lock:
            self._users -= 1
            if not self._users:
                _permit("none")

    def is_free(self) -> bool:
        """Whether nobody but us has set it."""
        return self._users > 0 or _matmul().fp32_precision == "none"


def _permit(what: str) -> None:
    _matmul().fp32_precision = what


def _matmul() -> Any:
    return torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


_switch = _Switch()


@contextmanager
def float32_by_onednn(wanted: bool = True) -> Iterator[None]:
    """Send all float32 products on a processor to oneDNN meanwhile, in every thread.

    For training, whose products go through torch: 1.6 times the tokens a second in float32 on Zen 5
    (docs/log.md). Where they would not stay exact, nothing changes.
    """
    if not (wanted and float32_is_exact()):
        yield
        return
    with _permitted():
        yield


@contextmanager
def _permitted() -> Iterator[None]:
    # Who has set it himself has said what he wants.
    if not _switch.is_free():
        yield
        return
    _switch.on()
    try:
        yield
    finally:
        _switch.off()


@cache
def float32_is_exact() -> bool:
    """Whether float32 products by oneDNN are as exact as float32 is, found out by some of them."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if not hasattr(torch.backends.mkldnn, "matmul"):
        return False
    generator = torch.Generator().manual_seed(0)
    for rows, inner in ((16, 32), (71, 64), (128, 64), (256, 256)):
        first = torch.randn((4, rows, inner), generator=generator)
        second = torch.randn((4, inner, rows), generator=generator)
        with _permitted():
            found = torch.bmm(first, second)
        exact = first.double() @ second.double()
        if (found - exact).abs().max() > _FLOAT32_ERROR * exact.abs().max():
            return False
    return True
