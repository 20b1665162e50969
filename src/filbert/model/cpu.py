"""Fast products on a CPU: dense layers, attention's matrices, dropout, memory.

T rows, K width in, N width out, B matrices.

The reason for most of it: torch sends float32 products to MKL, which keeps to 256-bit instructions
on AMD CPUs (60 to 90 GFLOP/s a core on Zen 5), where oneDNN reaches 110 to 200 (docs/log.md).
Elsewhere MKL can be the faster one, so the first start on a machine measures both.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.errors import ConfigError
from filbert.files import measured_once

# Activation -> oneDNN's (unary operation, algorithm).
FUSED = {
    None: ("none", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
}
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
# Smaller layers stay with torch's product: there is little to gain, and its sums have the order of
# other tools, to the last bit.
_MIN_FUSED_WEIGHTS = 2**17
# The largest step between two sizes of `next_size`.
_LARGEST_STEP = 32
# Multiplications from which oneDNN pays for its calls, which are 10 microseconds longer than MKL's.
_MIN_MULTIPLICATIONS = 2**20
# Products that are measured, rows x width, to four times the width: a short text and a batch, with
# MiniLM and with BERT-base. Those of up to 64 rows or 2**20 weights are like the smaller ones.
TRIALS = ("16x384", "16x768", "128x384", "128x768")
_TURNS = 8
# MKL takes at most this share of oneDNN's time where it is used: noise must not choose. And oneDNN
# takes at most this share of MKL's where attention avoids MKL's kernel.
_CLEARLY_FASTER, _FAR_FASTER = 0.9, 0.75
# Allowed error of float32 products, relative to the largest sum; bf16 is off by about 2**-9.
_FLOAT32_ERROR = 1e-6


# Dense layers.


def activate(values: Tensor, name: str | None) -> Tensor:
    """Apply an activation: gelu (erf form), gelu_tanh, relu, silu, tanh, or None for none.

    BERT's published weights mean the erf form; Google's repository switched to the tanh form on
    2019-02-07.
    """
    return values if name is None else _ACTIVATIONS[name](values)


def dense(rows_TK: Tensor, layer: nn.Module, activation: str | None = None) -> Tensor:
    """Compute activation(rows @ weight.T + bias), (T, N), by the fastest product.

    Without a gradient, a product on a CPU goes to oneDNN, which applies the activation while the
    result is still in registers. An int8, packed or low-rank layer has its own product.
    """
    return cut(_dense(fill_up(rows_TK), layer, activation), rows_TK.shape[0])


def linear(rows_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Compute rows @ weight.T + bias, (T, N), for a weight that belongs to another module."""
    return cut(F.linear(fill_up(rows_TK), weight_NK, bias_N), rows_TK.shape[0])


def _dense(rows: Tensor, layer: nn.Module, activation: str | None) -> Tensor:
    if type(layer) is not nn.Linear:
        return layer(rows, activation)  # type: ignore[no-any-return]
    fused = (
        fuses(layer)
        and not mkl_is_faster(layer.weight, len(rows))
        and rows.device.type == "cpu"
        and activation in FUSED
        and rows.dtype == layer.weight.dtype
        # Forward hooks would not run.
        and not layer._forward_hooks
        and not (torch.is_grad_enabled() and (rows.requires_grad or layer.weight.requires_grad))
        and not torch.is_autocast_enabled("cpu")
    )
    if not fused:
        return activate(layer(rows), activation)
    return _onednn_product(rows, layer.weight, layer.bias, activation)


def _onednn_product(rows: Tensor, weight: Tensor, bias: Tensor | None, act: str | None) -> Tensor:
    if FUSED[act][0] == "gelu" and rows.dtype == torch.float32 and not gelu_is_fused():
        return _gelu_after_product(rows, weight, bias, act)
    return _fused_product(rows, weight, bias, act)


def _fused_product(rows: Tensor, weight: Tensor, bias: Tensor | None, act: str | None) -> Tensor:
    unary, algorithm = FUSED[act]
    product: Any = torch.ops.mkldnn._linear_pointwise
    return cast("Tensor", product(rows, weight, bias, unary, [], algorithm))


def _gelu_after_product(
    rows: Tensor, weight: Tensor, bias: Tensor | None, act: str | None
) -> Tensor:
    gelu: Any = torch.ops.aten.gelu_
    sums = _fused_product(rows, weight, bias, None)
    return cast("Tensor", gelu(sums, approximate=FUSED[act][1]))


@cache
def _fused_dtypes() -> frozenset[torch.dtype]:
    """Return the dtypes that oneDNN can multiply on this CPU."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return frozenset()
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return frozenset({torch.float32, torch.bfloat16})
    return frozenset({torch.float32})


def bf16_is_fused() -> bool:
    """Return whether oneDNN multiplies bf16 on this CPU."""
    return torch.bfloat16 in _fused_dtypes()


def fuses(layer: nn.Linear) -> bool:
    """Return whether oneDNN has a product for a layer's weight that pays for the call."""
    weight = layer.weight
    return (
        weight.device.type == "cpu"
        and weight.numel() >= _MIN_FUSED_WEIGHTS
        and weight.dtype in _fused_dtypes()
    )


Products = dict[str, Callable[[], Tensor]]
# Seconds by shape and by engine or number format, and the date of the measurement or "now".
Trial = tuple[dict[str, dict[str, float]], str]


def trial(name: str, products_of: Callable[[Tensor, nn.Linear], Products]) -> Trial:
    """Measure products in the shapes of `TRIALS`, once on each machine; takes 0.1 s.

    They take turns on one thread, and the best CPU times count, to which other programs add
    nothing: trials on a busy machine agree within 5 %, by the clock they differ by up to 4 times.
    Ratios of times are the same with 512 rows, so a batch has 128 here (docs/log.md).
    """

    def measure() -> dict[str, dict[str, float]]:
        seconds, threads = {}, torch.get_num_threads()
        torch.set_num_threads(1)
        with torch.inference_mode():
            for shape in TRIALS:
                rows, width = map(int, shape.split("x"))
                products = products_of(torch.ones(rows, width), nn.Linear(width, 4 * width))
                best = seconds[shape] = dict.fromkeys(products, math.inf)
                for engine in list(products) * _TURNS:
                    start = time.thread_time()
                    products[engine]()
                    best[engine] = min(best[engine], time.thread_time() - start)
        torch.set_num_threads(threads)
        return seconds

    machine = {name: os.environ.get(name) for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")}
    cpu = str(getattr(torch.cpu, "get_capabilities", platform.processor)())
    return measured_once(name, machine | {"cpu": cpu, "torch": torch.__version__}, measure)


@cache
def float32_trial() -> Trial:
    """Measure dense layers, their GELU and attention's products by MKL, oneDNN and torch."""

    def products_of(rows: Tensor, layer: nn.Linear) -> Products:
        engines: Products = {"MKL": lambda: layer(rows)}
        if float32_is_exact():
            heads = rows.repeat(4, 1).view(-1, len(rows), 64)
            engines["attention MKL"] = lambda: heads @ heads.mT
            engines["attention oneDNN"] = lambda: products(heads, heads.mT)
        if torch.float32 in _fused_dtypes():
            packed = PackedLinear(layer)
            parts = (rows, packed.packed, packed.own_bias)
            engines["oneDNN"] = lambda: _fused_product(*parts, None)
            engines["oneDNN's GELU"] = lambda: _fused_product(*parts, "gelu")
            engines["torch's GELU"] = lambda: _gelu_after_product(*parts, "gelu")
        return engines

    return trial("float32-products", products_of)


@cache
def engine_of(shape: str) -> str:
    """Return which engine multiplies float32 faster in a shape of `TRIALS`: MKL or oneDNN."""
    seconds = defaultdict(lambda: math.inf, float32_trial()[0].get(shape, {}))
    return "MKL" if seconds["MKL"] < _CLEARLY_FASTER * seconds["oneDNN"] else "oneDNN"


def mkl_is_faster(weight: Tensor, num_rows: int) -> bool:
    """Return whether MKL multiplies so many rows by a float32 weight faster than oneDNN here."""
    rows, width = 16 if num_rows <= 64 else 128, 384 if weight.numel() <= 2**20 else 768
    return weight.dtype == torch.float32 and engine_of(f"{rows}x{width}") == "MKL"


@cache
def gelu_is_fused() -> bool:
    """Return whether oneDNN computes GELU in a float32 product faster than torch does after it.

    With AVX2 only, torch's takes a tenth less for the product and GELU together (docs/log.md).
    """
    seconds = defaultdict(lambda: math.inf, float32_trial()[0].get("128x384", {}))
    return seconds["oneDNN's GELU"] <= seconds["torch's GELU"]


@cache
def mkl_is_slow() -> bool:
    """Return whether MKL, and with it torch's attention kernel, uses half of the vector units."""
    seconds = defaultdict(lambda: math.inf, float32_trial()[0].get("128x768", {}))
    return seconds["attention oneDNN"] < _FAR_FASTER * seconds["attention MKL"]


class InferenceLinear(nn.Module):
    """Base of the dense layers for inference, which are made from a layer and do not keep it.

    They have no parameters or buffers: `model.to(dtype)` could not follow, or must not change them.
    Copies of a model share them.
    """

    form: str

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def __deepcopy__(self, memo: dict[int, Any]) -> InferenceLinear:
        return self

    def extra_repr(self) -> str:
        """Return the widths, as nn.Linear does, and the form of the weights."""
        return f"in_features={self.in_features}, out_features={self.out_features}, {self.form}"


class PackedLinear(InferenceLinear):
    """A dense layer whose weights are in oneDNN's own order.

    This saves a fifth to a half of the time of a short text, and nothing of a full batch.
    """

    form = "packed"

    def __init__(self, layer: nn.Linear) -> None:
        """Pack the weights of a float32 or bf16 layer."""
        super().__init__(layer)
        weight = layer.weight.detach()
        self.dtype = weight.dtype
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        self.own_bias = None if layer.bias is None else layer.bias.detach().clone()

    def forward(self, rows_TK: Tensor, activation: str | None = None) -> Tensor:
        """Compute activation(rows @ weight.T + bias), (T, N).

        Raises:
            ConfigError: A gradient is asked for.
        """
        if torch.is_grad_enabled() and rows_TK.requires_grad:
            raise ConfigError(
                "This model's weights are packed for inference, and no gradient goes through them. "
                "Use it as filbert.load returns it."
            )
        return _onednn_product(rows_TK.to(self.dtype), self.packed, self.own_bias, activation)


# Few sizes of products.


def next_size(count: int) -> int:
    """Return the smallest size that is not below `count`: all to 32, then 16 or more per octave."""
    step = min(_LARGEST_STEP, 1 << max(0, count.bit_length() - 5))
    return -(-count // step) * step


def fill_up(rows: Tensor) -> Tensor:
    """Append zero rows, (T, ...) to (T', ...), up to the next size; on a CPU without gradients.

    For every new number of rows, a product of oneDNN takes half a millisecond to generate code and
    0.3 MB that are never freed. A layer has four products, so batches of any size took 1.5 GB
    within 500 sizes (docs/log.md). There are about 150 sizes, on average 1.5 % larger.
    """
    missing = next_size(rows.shape[0]) - rows.shape[0]
    if not missing or rows.device.type != "cpu" or torch.is_grad_enabled():
        return rows
    return F.pad(rows, (0, 0) * (rows.dim() - 1) + (0, missing))


def cut(rows: Tensor, count: int) -> Tensor:
    """Remove the rows that `fill_up` appended to `count` rows."""
    # Without the condition, autograd would copy the gradient of every slice.
    return rows if rows.shape[0] == count else rows[:count]


# Products of many small matrices.


def products(
    first: Tensor,
    second: Tensor,
    count: int = 1,
    out: Tensor | None = None,
    *,
    added: float | None = None,
) -> Tensor:
    """Multiply B matrices (B, i, j) by as many (B, j, k), without autograd: (B, i, k).

    oneDNN keeps half a megabyte for every number of matrices, so it gets the matrices of 1, 2, 4
    ... sequences at a time, the largest number first.

    Args:
        count: Number of sequences that the B matrices belong to, the same number for each.
        added: Add the products times this factor to `out`.
    """
    if out is None:
        out = first.new_empty((len(first), first.shape[1], second.shape[2]))
    if first.device.type != "cpu" or first.dtype not in (torch.float32, torch.bfloat16):
        return _product(first, second, out, added)
    if first.dtype == torch.bfloat16:
        return _in_powers_of_two(first, second, count, out, added)
    if first.numel() * second.shape[2] < _MIN_MULTIPLICATIONS or not float32_is_exact():
        return _product(first, second, out, added)
    with _PERMISSION.given():
        return _in_powers_of_two(first, second, count, out, added)


def _product(first: Tensor, second: Tensor, out: Tensor, added: float | None) -> Tensor:
    if added is None:
        return torch.bmm(first, second, out=out)
    return out.baddbmm_(first, second, alpha=added)


def _in_powers_of_two(
    first: Tensor, second: Tensor, count: int, out: Tensor, added: float | None
) -> Tensor:
    each = len(first) // count
    for part in powers_of_two(count):
        rows = slice(part.start * each, part.stop * each)
        _product(first[rows], second[rows], out[rows], added)
    return out


def powers_of_two(count: int) -> Iterator[slice]:
    """Cut `count` things into slices of 1, 2, 4 ... of them, the largest first."""
    begin = 0
    while begin < count:
        end = begin + (1 << ((count - begin).bit_length() - 1))
        yield slice(begin, end)
        begin = end


class _Permission:
    """torch's process-wide permission to compute float32 products in bf16.

    It is torch's only way to oneDNN. oneDNN uses it on CPUs with matrix tiles (AMX) only, so on all
    others float32 stays float32; `float32_is_exact` measures it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users, self._before = 0, "none"

    @contextmanager
    def given(self, *, always: bool = False) -> Iterator[None]:
        """Give the permission until the last thread leaves; a setting of the user's own stays.

        Args:
            always: Also where the user has forbidden it, for a short measurement.
        """
        setting: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        if not always and not self._users and setting.fp32_precision != "none":
            yield
            return
        with self._lock:
            if not self._users:
                self._before = setting.fp32_precision
            self._users += 1
            setting.fp32_precision = "bf16"
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    setting.fp32_precision = self._before


_PERMISSION = _Permission()


@contextmanager
def float32_by_onednn(wanted: bool = True) -> Iterator[None]:
    """Send all float32 products on the CPU to oneDNN, in every thread, where they stay exact.

    For training, whose products go through torch: 1.6 times the tokens per second in float32 on
    Zen 5 (docs/log.md).
    """
    if not (wanted and float32_is_exact()):
        yield
        return
    with _PERMISSION.given():
        yield


@cache
def float32_is_exact() -> bool:
    """Measure whether float32 products by oneDNN are as exact as float32 is."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    generator = torch.Generator().manual_seed(0)
    for rows, inner in ((16, 32), (71, 64), (128, 64), (256, 256)):
        first = torch.randn((4, rows, inner), generator=generator)
        second = torch.randn((4, inner, rows), generator=generator)
        with _PERMISSION.given(always=True):
            product = torch.bmm(first, second)
        exact = first.double() @ second.double()
        if (product - exact).abs().max() > _FLOAT32_ERROR * exact.abs().max():
            return False
    return True


# Dropout. torch draws one Bernoulli number at a time on a CPU: 9.8 ms for 2,048 x 768 values on one
# Zen 5 core, as much as the matrix product before it. Here one 64-bit draw decides four elements,
# and integers mask what is dropped: 2.3 ms (docs/log.md).

_STEPS = 65_536


def _dropped_steps(rate: float) -> int:
    # Outside 1 to 65,535, the bounds of `keep_bits` do not fit into int16.
    return min(max(round(rate * _STEPS), 1), _STEPS - 1)


def keep_bits(like: Tensor, rate: float) -> Tensor:
    """Draw -1 (all bits set) for elements that stay and 0 for dropped ones, int16, shape of `like`.

    The rate is rounded to a multiple of 2**-16. Draws come from torch's default generator: a seed
    gives the same bits on any number of threads.
    """
    count = like.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64, device=like.device)
    bits = draws.random_(-(2**63), None).view(torch.int16)[:count].view(like.shape)
    # A comparison and its conversion take twenty times as long as these two.
    first_kept = _dropped_steps(rate) - _STEPS // 2
    return torch.rsub(bits.clamp_(first_kept - 1, first_kept), first_kept - 1)


def apply_bits(values: Tensor, bits: Tensor) -> Tensor:
    """Return the values whose `keep_bits` are set, and zeros."""
    if values.dtype in (torch.bfloat16, torch.float16):
        return (values.view(torch.int16) & bits).view(values.dtype)
    return bits.to(values.dtype).mul_(values).neg_()


def keep_scale(rate: float) -> float:
    """Return the factor of the remaining values: exact for the rounded rate."""
    return _STEPS / (_STEPS - _dropped_steps(rate))


class _Dropout(torch.autograd.Function):
    """Apply the same bits to values and to their gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float) -> Tensor:
        bits = keep_bits(values, rate)
        ctx.save_for_backward(bits)
        ctx.scale = keep_scale(rate)
        return apply_bits(values, bits).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (bits,) = ctx.saved_tensors
        return apply_bits(grads[0], bits).mul_(ctx.scale), None


def dropout(values: Tensor, rate: float, training: bool) -> Tensor:
    """Zero each value with probability `rate` and scale the rest up; nothing outside training."""
    if not training or rate == 0.0:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, rate, training=True)
    return cast("Tensor", _Dropout.apply(values, rate))  # type: ignore[no-untyped-call]


# Memory of the C library.

# Options of mallopt(3), and the default of the second.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_DEFAULT_MMAP_MAX = 65_536
_USER_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")
# The largest block that raises glibc's threshold, less its own header.
_LARGEST_BLOCK = 2**25 - 2**14


@cache
def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MB of freed memory for the next allocations.

    glibc returns freed memory to the system beyond twice the largest block that was freed, up to a
    block of 32 MB. Activations of 12 MB then come back page by page in every layer, which costs
    more than their int8 products (docs/log.md). Freeing one untouched block of that size raises the
    threshold. Other C libraries are not affected.

    Source: mallopt(3), "dynamic mmap threshold".
    """
    torch.empty(_LARGEST_BLOCK, dtype=torch.uint8)


@contextmanager
def all_memory_kept() -> Iterator[None]:
    """Let the C library (glibc) keep all freed memory during training.

    A training step frees gigabytes of activations and needs them again in the next step. From the
    system they come page by page: an eighth of the time on two cores (docs/log.md). Settings in the
    environment take precedence.

    Source: mallopt(3).
    """
    library = None if any(name in os.environ for name in _USER_SETTINGS) else c_library()
    if library is None:
        keep_freed_memory()
        yield
        return
    library.mallopt(_M_TRIM_THRESHOLD, -1)
    library.mallopt(_M_MMAP_MAX, 0)
    try:
        yield
    finally:
        library.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_BLOCK)
        library.mallopt(_M_MMAP_MAX, _DEFAULT_MMAP_MAX)
        library.malloc_trim(0)


@cache
def c_library() -> Any:
    """Return the C library of this process; None if it lacks these functions."""
    try:
        library = ctypes.CDLL(None)
        return library if library.mallopt and library.malloc_trim else None
    except (OSError, AttributeError, TypeError):
        return None
