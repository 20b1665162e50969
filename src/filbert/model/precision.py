"""Chooses the device and the number format of matrix products, by measurement."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from filbert.errors import ConfigError
from filbert.model.config import PRECISIONS
from filbert.model.cpu import Products, Trial, bf16_is_fused, dense, trial
from filbert.model.int8 import QuantizedLinear, has_integer_products

log = logging.getLogger(__name__)

# A format is chosen from this gain in a matrix product; below it, the casts cost more.
MIN_GAIN = 1.5


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
def format_trial() -> Trial:
    """Measure dense layers in each number format that this CPU has products for."""

    def products_of(rows: Tensor, layer: nn.Linear) -> Products:
        formats: Products = {"float32": lambda: dense(rows, layer)}
        if bf16_is_fused():
            half_rows = rows.bfloat16()
            half = nn.Linear(rows.shape[1], layer.out_features, dtype=torch.bfloat16)
            formats["bf16"] = lambda: dense(half_rows, half)
        if has_integer_products():
            integers = QuantizedLinear(layer)
            formats["int8"] = lambda: integers(rows)
        return formats

    return trial("formats", products_of)


def gain(name: str, shape: str = "128x384") -> float:
    """Return how many times faster than float32 a format is; 0 where it has no fast products."""
    seconds = format_trial()[0].get(shape, {})
    return seconds["float32"] / seconds[name] if {"float32", name} <= set(seconds) else 0.0


def choose_device(name: str | None = None) -> torch.device:
    """Return the device called `name`; without a name, the first GPU if there is one, else the CPU.

    If there is no such device, it is a ConfigError.
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

    A name that is not in `among` is a ConfigError.
    """
    if requested not in among:
        raise ConfigError(f"precision {requested!r} is not one of {list(among)}.")
    if requested in ("bf16", "int8") and device.type == "cpu" and gain(requested) < 1:
        log.warning(
            "This CPU has no fast %s, so %s is slower than float32 here. Leave --precision out, or "
            "take float32.",
            requested,
            requested,
        )
    if requested != "auto":
        return Precision(requested, "as asked")
    if device.type == "cuda":
        # Older GPUs emulate it, slowly.
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Precision("bf16", "this GPU has bf16 units")
        return Precision("float32", "this GPU has no bf16 units")
    times = gain("bf16")
    if times < 1:
        return Precision("float32", "this CPU has no fast bf16")
    reason = f"bf16 products are {times:.1f} times as fast as float32 ones here"
    return Precision("bf16" if times >= MIN_GAIN else "float32", reason)
