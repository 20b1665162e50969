"""What the machine's bare matrix products reach at the shapes of a model's layers: the ceiling.

T tokens, K and N the sides of a weight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from filbert.model.config import EncoderConfig
from filbert.model.int8 import has_integer_products

Product = Callable[[], object]


def layer_shapes(config: EncoderConfig) -> dict[tuple[int, int], int]:
    """(K, N) of the products of one layer, and how often each stands in it."""
    width, wide = config.hidden_size, config.feed_forward.width
    up = 2 * wide if config.feed_forward.gated else wide
    shapes: dict[tuple[int, int], int] = {}
    for shape in ((width, 3 * width), (width, width), (width, up), (wide, width)):
        shapes[shape] = shapes.get(shape, 0) + 1
    return shapes


def _float32(tokens: int, inner: int, outer: int, device: str) -> Iterator[Product]:
    yield from _floating(tokens, inner, outer, device, torch.float32)


def _bf16(tokens: int, inner: int, outer: int, device: str) -> Iterator[Product]:
    yield from _floating(tokens, inner, outer, device, torch.bfloat16)


def _floating(
    tokens: int, inner: int, outer: int, device: str, dtype: torch.dtype
) -> Iterator[Product]:
    rows = torch.randn(tokens, inner, device=device).to(dtype)
    weight = torch.randn(outer, inner, device=device).to(dtype)
    yield lambda: rows @ weight.T
    if device == "cpu":
        fused: Any = torch.ops.mkldnn._linear_pointwise
        yield lambda: fused(rows, weight, None, "none", [], "")


def _int8(tokens: int, inner: int, outer: int, device: str) -> Iterator[Product]:
    # Where filbert's own int8 runs float32 products, or is refused, a rate would promise too much.
    if device != "cpu" or not has_integer_products():
        return
    rows = torch.randint(-127, 128, (tokens, inner), dtype=torch.int8)
    weight = torch.randint(-127, 128, (outer, inner), dtype=torch.int8)
    whole: Any = torch._int_mm
    yield lambda: whole(rows, weight.T)
    engine: Any = torch.ops.onednn
    prepared = engine.qlinear_prepack(weight, [tokens, inner])
    scales, zeros = torch.ones(outer), torch.zeros(outer, dtype=torch.int32)
    positive = rows.abs().to(torch.uint8)
    rest: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
    yield lambda: engine.qlinear_pointwise(positive, 1.0, 0, prepared, scales, zeros, *rest)


_KINDS = {"float32": _float32, "bf16": _bf16, "int8": _int8}


def product_rates(
    shapes: Mapping[tuple[int, int], int],
    *,
    tokens: int = 512,
    device: str = "cpu",
    seconds: float = 0.25,
    threads: int | None = None,
) -> dict[str, float]:
    """GFLOP/s (int8: GOP/s) of each number format over the products of a layer.

    Every product keeps the best time of the fastest way that torch has for it, so that other work
    on the machine shows little. A format that torch cannot multiply here, or filbert does not,
    is left out.

    Args:
        shapes: (K, N) and how often it counts.
        tokens: T.
        device: "cpu" or a GPU's name.
        seconds: for each shape of each format.
        threads: on a processor; as many as torch has when not given.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return _rates(shapes, tokens, device, seconds)
    finally:
        torch.set_num_threads(before)


def _rates(
    shapes: Mapping[tuple[int, int], int], tokens: int, device: str, seconds: float
) -> dict[str, float]:
    rates = {}
    work = sum(2 * tokens * inner * outer * times for (inner, outer), times in shapes.items())
    for kind, ways in _KINDS.items():
        whole = 0.0
        for (inner, outer), times in shapes.items():
            best = _best(ways(tokens, inner, outer, device), device, seconds)
            whole += times * best
        if whole < float("inf"):
            rates[kind] = work / whole / 1e9
    return rates


def _best(ways: Iterator[Product], device: str, seconds: float) -> float:
    """The best time of the ways there are; infinity when there is none."""
    best = float("inf")
    with torch.inference_mode():
        while True:
            try:
                product = next(ways)
                product()
                end = time.perf_counter() + seconds / 2
                while (began := time.perf_counter()) < end:
                    product()
                    if device != "cpu":
                        torch.cuda.synchronize()
                    best = min(best, time.perf_counter() - began)
            except StopIteration:
                return best
            except (RuntimeError, NotImplementedError, AttributeError):
                # This torch has no such product for this processor: the next way may do.
                continue
