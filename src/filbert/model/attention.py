"""Multi-head attention over packed sequences.

T tokens in the batch, S sequences, A heads, D head size, H = A * D. A group is n neighbouring
sequences of (nearly) equal length, laid out as (n * A, L, D); L is the longest of the group.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

import torch
from torch import Tensor

from filbert.model.attention_plan import AttentionPlan, Group
from filbert.model.batched import products
from filbert.model.dropout import keep_bits, kept, scale_of
from filbert.model.rotary import rotate

log = logging.getLogger(__name__)


def to_heads(rows_TxAD: Tensor, group: Group) -> Tensor:
    """Rows of a group, (rows, x, A, D), as (x, n * A, L, D), contiguous."""
    if group.gather is not None:
        # A third of the time of rows_TxAD[group.gather].
        rows_TxAD = rows_TxAD.index_select(0, group.gather)
    _, parts, heads, size = rows_TxAD.shape
    grid = rows_TxAD.view(group.count, group.length, parts, heads, size)
    heads_xnALD = grid.permute(2, 0, 3, 1, 4).contiguous()
    return heads_xnALD.view(parts, group.count * heads, group.length, size)


def _store(heads_xBLD: Tensor, rows_TxAD: Tensor, group: Group) -> None:
    """The way back: write (x, n * A, L, D) into the group's rows of (T, x, A, D)."""
    _, parts, num_heads, size = rows_TxAD.shape
    grid = heads_xBLD.view(parts, group.count, num_heads, group.length, size).permute(1, 3, 0, 2, 4)
    rows = rows_TxAD[group.start : group.end]
    if group.place is None:
        rows.view(grid.shape).copy_(grid)
    else:
        torch.index_select(grid.reshape(-1, parts, num_heads, size), 0, group.place, out=rows)


def _probabilities(query: Tensor, key: Tensor, group: Group, *, on_tape: bool) -> Tensor:
    """softmax(q k / sqrt(D)) of (B, L, D) queries and keys: (B, L, L).

    Off the tape in place of the scores: fresh memory for both costs more than the products, since
    the system hands it out page by page.

    Source: Vaswani et al. 2017, section 3.2.1.
    """
    scores = products(query, key.transpose(1, 2), group.count)
    if not on_tape:
        # torch's softmax over bf16 takes twice as long as over float32, casts and all.
        scores = scores if scores.dtype == torch.float64 else scores.float()
    scores.mul_(1 / math.sqrt(query.shape[-1]))
    if group.bias is not None:
        # A sum costs a fifth of masked_fill_.
        grid = scores.view(group.count, -1, group.length, group.length)
        grid.add_(group.bias.to(scores.dtype))
    if on_tape:
        return torch.softmax(scores, -1)
    return torch.softmax(scores, -1, out=scores).to(query.dtype)


class _GroupedAttention(torch.autograd.Function):
    """Attention by groups with a hand-written gradient.

    On two Zen 5 cores a (1, 12, 256, 32) sequence takes 6.7 ms forward and backward through torch's
    scaled_dot_product_attention with dropout, and 1.2 ms this way. One function over all groups
    also spares autograd a full-size zero tensor per slice.
    """

    @staticmethod
    def forward(ctx: Any, qkv_T3AD: Tensor, groups: tuple[Group, ...], rate: float) -> Tensor:
        num_heads, size = qkv_T3AD.shape[2:]
        out_T1AD = qkv_T3AD.new_empty((qkv_T3AD.shape[0], 1, num_heads, size))
        keep_for_gradient = ctx is not None and ctx.needs_input_grad[0]
        saved: list[Tensor] = []
        for group in groups:
            query, key, value = to_heads(qkv_T3AD[group.start : group.end], group)
            weights = _probabilities(query, key, group, on_tape=keep_for_gradient)
            keep = keep_bits(weights, rate) if rate else None
            if keep_for_gradient:
                saved += [weights] if keep is None else [weights, keep]
            dropped = weights if keep is None else kept(weights, keep)
            mixed = products(dropped, value, group.count)
            if rate:
                # Here it is fewer numbers than among the weights.
                mixed.mul_(scale_of(rate))
            _store(mixed[None], out_T1AD, group)
        # Rows of nobody, in inference alone; what lay there might be no number.
        out_T1AD[groups[-1].end :].zero_()
        if keep_for_gradient:
            ctx.save_for_backward(qkv_T3AD, *saved)
            ctx.groups, ctx.rate = groups, rate
        return out_T1AD.squeeze(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad_TAD,) = grads
        qkv_T3AD, *rest = ctx.saved_tensors
        saved = iter(rest)
        num_heads, size = qkv_T3AD.shape[2:]
        scale = 1 / math.sqrt(size)
        out = torch.empty_like(qkv_T3AD)
        for group in ctx.groups:
            rows = slice(group.start, group.end)
            query, key, value = to_heads(qkv_T3AD[rows], group)
            # Empty places hold copies of real rows, so their part of the gradient must be zero.
            grad = to_heads(grad_TAD[rows].unsqueeze(1), group)[0]
            if ctx.rate:
                grad = grad * scale_of(ctx.rate)
            if group.is_padding is not None:
                grid = grad.view(group.count, num_heads, group.length, size)
                grid.masked_fill_(group.is_padding.transpose(2, 3), 0.0)
            weights = next(saved)
            grad_weights = products(grad, value.transpose(1, 2), group.count)
            dropped = weights
            if ctx.rate:
                keep = next(saved)
                dropped, grad_weights = kept(weights, keep), kept(grad_weights, keep)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grads_3BLD = torch.empty((3, *key.shape), dtype=key.dtype, device=key.device)
            products(grad_scores, key, group.count, grads_3BLD[0])
            products(grad_scores.transpose(1, 2), query, group.count, grads_3BLD[1])
            grads_3BLD[:2].mul_(scale)
            products(dropped.transpose(1, 2), grad, group.count, grads_3BLD[2])
            _store(grads_3BLD, out, group)
        return out, None, None


@cache
def _say_once(text: str) -> None:
    log.debug(text)


def kernel_serves(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether torch.nn.attention.varlen can attend: its limits on GPUs, types and head sizes."""
    return (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and head_size % 8 == 0
        and head_size <= 256
        # FlashAttention 2 needs Ampere or later.
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def attend(qkv_T3AD: Tensor, plan: AttentionPlan, rate: float = 0.0) -> Tensor:
    """Every token looks at the tokens of its own sequence: all, those within the plan's reach, or
    those up to itself.

    | device | dtype | dropout | how |
    |---|---|---|---|
    | CUDA | bf16, fp16 | no | torch.nn.attention.varlen: one kernel over the packed rows |
    | any other | any | any | matrix products over groups of near-equal length |

    The kernel takes GPUs and head sizes that `kernel_serves`; others go the way of "any other".

    Args:
        qkv_T3AD: queries, keys and values, (T, 3, A, D).
        plan: of the same batch.
        rate: dropout on the attention probabilities.

    Returns:
        (T, A, D), the dtype of `qkv_T3AD`.
    """
    if plan.rotary is not None:
        qkv_T3AD = rotate(qkv_T3AD, plan.rotary)
    if not rate and kernel_serves(qkv_T3AD.device, qkv_T3AD.dtype, qkv_T3AD.shape[-1]):
        from torch.nn.attention.varlen import varlen_attn

        query, key, value = qkv_T3AD.unbind(1)
        _say_once("attention: varlen kernel")
        borders, longest = plan.batch.cu_seqlens, plan.batch.max_seqlen
        kernel: Callable[..., Any] = varlen_attn
        if plan.reach is not None:
            kernel = partial(varlen_attn, window_size=(plan.reach, plan.reach))
        elif plan.causal:
            # The kernel's way to say causal.
            kernel = partial(varlen_attn, window_size=(-1, 0))
        return cast("Tensor", kernel(query, key, value, borders, borders, longest, longest))
    _say_once("attention: grouped products")
    if torch.is_grad_enabled() and qkv_T3AD.requires_grad:
        out_TAD = _GroupedAttention.apply(qkv_T3AD, plan.groups, rate)  # type: ignore[no-untyped-call]
        return cast("Tensor", out_TAD)
    return _GroupedAttention.forward(None, qkv_T3AD, plan.groups, rate)
