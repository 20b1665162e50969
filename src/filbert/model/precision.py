"""Which number format this machine is fast in: measured, then said."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch

from filbert.errors import ConfigError
from filbert.model.batched import float32_by_onednn
from filbert.model.precision_names import PRECISIONS
from filbert.model.quantized import has_integer_products

log = logging.getLogger(__name__)

# bf16 must beat float32 by this factor in a matrix product before it is chosen: below it, the casts
# eat the gain.
_WORTH_IT = 1.5


class Precision(NamedTuple):
    """A number format for matrix products, and why; weights stay float32 in training.

    With "int8" it is dense layers alone that are in it, and all else is float32.
    """

    name: str
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        """As torch names it."""
        return torch.bfloat16 if self.name == "bf16" else torch.float32

    @contextmanager
    def autocast(self, device: torch.device) -> Iterator[None]:
        """Run matrix products in this format; normalisation, softmax sums, losses stay float32."""
        with torch.autocast(device.type, torch.bfloat16, enabled=self.name == "bf16"):
            yield


@cache
def bf16_gain() -> float:
    """How many times faster a bf16 matrix product is than a float32 one here; takes about 50 ms.

    The two take turns and each keeps its best time, so that other work on the machine shows little.
    """
    left, right = torch.ones(512, 384), torch.ones(384, 1536)
    pairs = {"float32": (left, right), "bf16": (left.bfloat16(), right.bfloat16())}
    best = dict.fromkeys(pairs, float("inf"))
    with float32_by_onednn():
        for _ in range(12):
            for name, (first, second) in pairs.items():
                start = time.perf_counter()
                first @ second
                best[name] = min(best[name], time.perf_counter() - start)
    return best["float32"] / best["bf16"]


def choose_device(name: str | None = None) -> torch.device:
    """The device called `name`; without a name, the first GPU if there is one, else the CPU.

    Raises:
        ConfigError: there is no such device here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    here = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if name not in here and not (name == "cuda" and len(here) > 1):
        raise ConfigError(f"device {name!r} is not here; there is {', '.join(here)}.")
    return torch.device(name)


def choose_precision(
    requested: str, device: torch.device, among: Sequence[str] = PRECISIONS
) -> Precision:
    """Settle "auto": bf16 or float32, never int8, which has to be asked for.

    Args:
        requested: a name.
        device: where it will run.
        among: the names that are allowed here.

    Raises:
        ConfigError: another name.
    """
    if requested not in among:
        raise ConfigError(f"precision {requested!r} is not one of {list(among)}.")
    if requested == "bf16" and device.type == "cpu" and bf16_gain() < 1:
        log.warning(
            "This CPU has no fast bf16, so bf16 is slower than float32 here. Leave --precision "
            "out, or take float32."
        )
    if requested == "int8" and device.type == "cpu" and not has_integer_products():
        log.warning(
            "This processor has no products of 8-bit integers (VNNI), so int8 is slower than "
            "float32 here. Leave --precision out, or take float32."
        )
    if requested != "auto":
        return Precision(requested, "as asked")
    if device.type == "cuda":
        # Older ones emulate it, slowly.
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Precision("bf16", "this GPU has bf16 units")
        return Precision("float32", "this GPU has no bf16 units")
    gain = bf16_gain()
    if gain >= _WORTH_IT:
        return Precision(
            "bf16", f"its matrix products are {gain:.1f} times as fast as float32 here"
        )
    if gain < 1:
        return Precision("float32", "this CPU has no fast bf16")
    return Precision("float32", f"bf16 is only {gain:.1f} times as fast as float32 here")
