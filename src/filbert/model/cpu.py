"""Fast products on a CPU: dense layers, attention's matrices, dropout, memory.

T rows, K width in, N width out, B matrices.

The reason for most of it: torch sends float32 products to MKL, which keeps to 256-bit instructions
on AMD CPUs (60 to 90 GFLOP/s a core on Zen 5), where oneDNN reaches 110 to 200 (docs/log.md).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.errors import ConfigError

# Activation -> oneDNN's (unary operation, algorithm).
FUSED = {
    None: ("none", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
}
# Smaller layers stay with torch's product: there is little to gain, and its sums have the order of
# other tools, to the last bit.
_MIN_FUSED_WEIGHTS = 2**17
# The largest step between two sizes of `next_size`.
_LARGEST_STEP = 32
# Multiplications from which oneDNN pays for its calls, which are 10 microseconds longer than MKL's.
_MIN_MULTIPLICATIONS = 2**20
# Allowed error of float32 products, relative to the largest sum; bf16 is off by about 2**-9.
_FLOAT32_ERROR = 1e-6


# Dense layers.


def activate(values: Tensor, name: str | None) -> Tensor:
    """Apply an activation: gelu (erf form), gelu_tanh, relu, silu, tanh, or None for none.

    BERT's published weights mean the erf form; Google's repository switched to the tanh form on
    2019-02-07.
    """
    if name is None:
        return values
    if name == "gelu":
        return F.gelu(values)
    if name == "gelu_tanh":
        return F.gelu(values, approximate="tanh")
    if name == "relu":
        return F.relu(values)
    if name == "silu":
        return F.silu(values)
    if name == "tanh":
        return torch.tanh(values)
    raise ValueError(f"no activation {name!r}")


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
    unary, algorithm = FUSED[act]
    product: Any = torch.ops.mkldnn._linear_pointwise
    return cast("Tensor", product(rows, weight, bias, unary, [], algorithm))


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


class PackedLinear(nn.Module):
    """A dense layer for inference whose weights are in oneDNN's own order.

    This saves a fifth to a half of the time of a short text, and nothing of a full batch. It has no
    parameters or buffers: `model.to(dtype)` could not follow, and copies of a model share it.
    """

    def __init__(self, layer: nn.Linear) -> None:
        """Pack the weights of a float32 or bf16 layer, which is not kept."""
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        weight = layer.weight.detach()
        self.dtype = weight.dtype
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        self.own_bias = None if layer.bias is None else layer.bias.detach().clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedLinear:
        return self

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

    def extra_repr(self) -> str:
        """Return the widths, as nn.Linear does."""
        return f"in_features={self.in_features}, out_features={self.out_features}, packed"


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
        self._users = 0

    @contextmanager
    def given(self) -> Iterator[None]:
        """Give the permission until the last thread leaves; a setting of the user's own stays."""
        setting: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        if not self._users and setting.fp32_precision != "none":
            yield
            return
        with self._lock:
            self._users += 1
            setting.fp32_precision = "bf16"
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    setting.fp32_precision = "none"

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Give the permission for a short measurement, also where the user has forbidden it."""
        setting: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        with self._lock:
            before = setting.fp32_precision
            setting.fp32_precision = "bf16"
            try:
                yield
            finally:
                setting.fp32_precision = before


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
def mkl_is_slow() -> bool:
    """Return whether MKL, and with it torch's attention kernel, uses half of the vector units."""
    capabilities: Any = getattr(torch.cpu, "get_capabilities", dict)()
    return (
        "AMD" in capabilities.get("cpu_name", "")
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
    )


@cache
def float32_is_exact() -> bool:
    """Measure whether float32 products by oneDNN are as exact as float32 is."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if not hasattr(torch.backends.mkldnn, "matmul"):
        return False
    generator = torch.Generator().manual_seed(0)
    for rows, inner in ((16, 32), (71, 64), (128, 64), (256, 256)):
        first = torch.randn((4, rows, inner), generator=generator)
        second = torch.randn((4, inner, rows), generator=generator)
        with _PERMISSION.measured():
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
