"""Chooses the device and the number format of matrix products, by measurement."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch

from filbert.errors import ConfigError
from filbert.model.config import PRECISIONS
from filbert.model.cpu import float32_by_onednn
from filbert.model.int8 import has_integer_products

log = logging.getLogger(__name__)

# bf16 is chosen from this gain in a matrix product; below it, the casts cost more.
_MIN_BF16_GAIN = 1.5


class Precision(NamedTuple):
    """A number format of matrix products, and the reason for it; training keeps float32 weights.

    With "int8" only dense layers use it, and everything else is float32.
    """

    name: str
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype of activations."""
        return torch.bfloat16 if self.name == "bf16" else torch.float32

    @contextmanager
    def autocast(self, device: torch.device) -> Iterator[None]:
        """Run matrix products in this format; normalisation, softmax sums, losses stay float32."""
        with torch.autocast(device.type, torch.bfloat16, enabled=self.name == "bf16"):
            yield


@cache
def bf16_gain() -> float:
    """Measure how many times faster bf16 matrix products are than float32 ones; takes about 20 ms.

    The two take turns and the best times are compared. A product takes less than a millisecond, so
    that other programs rarely interrupt all of them: with 512 rows one of six trials on a busy
    machine was wrong. A CPU without bf16 units needs 50 ms for one, so two turns must do there.
    """
    left, right = torch.ones(128, 384), torch.ones(384, 1536)
    pairs = {"float32": (left, right), "bf16": (left.bfloat16(), right.bfloat16())}
    best = dict.fromkeys(pairs, float("inf"))
    with float32_by_onednn():
        for turn in range(24):
            if turn == 2 and best["bf16"] > 10 * best["float32"]:
                break
            for name, (first, second) in pairs.items():
                start = time.perf_counter()
                first @ second
                best[name] = min(best[name], time.perf_counter() - start)
    return best["float32"] / best["bf16"]


def choose_device(name: str | None = None) -> torch.device:
    """Return the device called `name`; without a name, the first GPU if there is one, else the CPU.

    Raises:
        ConfigError: There is no such device.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    here = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if name not in here and not (name == "cuda" and len(here) > 1):
        raise ConfigError(f"No device {name!r} was found. Available: {', '.join(here)}.")
    return torch.device(name)


def choose_precision(
    requested: str, device: torch.device, among: Sequence[str] = PRECISIONS
) -> Precision:
    """Return the format that was asked for; for "auto" bf16 or float32, whichever is faster.

    Args:
        requested: A name of a format, or "auto".
        device: The device of the model.
        among: The allowed names.

    Raises:
        ConfigError: Another name.
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
            "This CPU has no products of 8-bit integers (VNNI), so int8 is slower than "
            "float32 here. Leave --precision out, or take float32."
        )
    if requested != "auto":
        return Precision(requested, "as asked")
    if device.type == "cuda":
        # Older GPUs emulate it, slowly.
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Precision("bf16", "this GPU has bf16 units")
        return Precision("float32", "this GPU has no bf16 units")
    gain = bf16_gain()
    if gain >= _MIN_BF16_GAIN:
        return Precision(
            "bf16", f"its matrix products are {gain:.1f} times as fast as float32 here"
        )
    if gain < 1:
        return Precision("float32", "this CPU has no fast bf16")
    return Precision("float32", f"bf16 is only {gain:.1f} times as fast as float32 here")
