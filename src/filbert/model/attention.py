"""Multi-head attention over packed sequences.

T tokens in the batch, S sequences, A heads, D head size, H = A * D. A group is n neighbouring
sequences of (nearly) equal length, laid out as (B, L, D): B = n * A, L is the longest of the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor

from filbert.batch import PackedBatch
from filbert.model.cpu import apply_bits, keep_bits, keep_scale, products
from filbert.model.positions import Angles, rotate

# Largest share of padding in a group, and most scores per head of a group of several sequences. On
# a CPU 12 heads of 2**15 four-byte scores are 1.5 MB, which stays in the caches between product,
# softmax and product; on a GPU few kernels are faster.
_MAX_PADDING = 0.05
_MAX_SCORES_CPU, _MAX_SCORES_GPU = 2**15, 2**22


@dataclass(frozen=True)
class Group:
    """Neighbouring sequences that share one attention product.

    Attributes:
        start, end: Rows of the batch, [start, end).
        count: Number of sequences n.
        length: The longest, L.
        gather: Row of the group for each of the n * L places, int64; None if all lengths are equal,
            because the rows are already in order. Padding repeats the sequence's first row.
        place: The place of each row, int64 (end - start,); None as above.
        is_padding: bool (n, 1, 1, L); None as above.
        unseen: bool (n or 1, 1, L, L), keys that a query does not attend to because of a window or
            causal attention. Padding attends to itself, because a softmax over nothing is NaN. None
            if every query attends to all tokens of its sequence.
    """

    start: int
    end: int
    count: int
    length: int
    gather: Tensor | None = None
    place: Tensor | None = None
    is_padding: Tensor | None = None
    unseen: Tensor | None = None

    @cached_property
    def bias(self) -> Tensor | None:
        """Addend of the scores, float32: 0, and minus infinity for masked keys."""
        hidden = self.is_padding if self.unseen is None else self.unseen
        if hidden is None:
            return None
        return torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, float("-inf"))


@dataclass(frozen=True)
class AttentionPlan:
    """How the tokens of one batch attend; created once per batch and kind of layer.

    Attributes:
        batch: The batch. Neighbours of near-equal length share a group, so sort by length first.
        reach: How many tokens to either side a token attends to; None for the whole sequence.
        angles: Rotation of queries and keys; None if positions are in the embeddings.
        causal: Tokens do not attend to later ones; not together with `reach`.
    """

    batch: PackedBatch
    reach: int | None = None
    angles: Angles | None = None
    causal: bool = False

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All sequences of the batch, in order.

        Created on first use: the CUDA kernel reads the borders instead, and on a GPU each group
        would be three transfers that the host waits for.
        """
        assert not self.causal or self.reach is None, "EncoderConfig refuses causal local layers"
        batch, device = self.batch, self.batch.input_ids.device
        borders = list(accumulate(batch.lengths, initial=0))
        groups = []
        for first, last in group_lengths(batch.lengths, max_scores_on(device)):
            group = _group(batch.lengths[first:last], borders[first], device)
            if self.reach is not None and group.length > self.reach + 1:
                apart = distance(group.length, device).abs()
                unseen = (apart > self.reach)[None, None]
                if group.is_padding is not None:
                    unseen = (group.is_padding | unseen) & (apart > 0)
                group = replace(group, unseen=unseen)
            if self.causal:
                # Padding comes last, so it is among the later tokens of every real one.
                group = replace(group, unseen=(distance(group.length, device) < 0)[None, None])
            groups.append(group)
        return tuple(groups)


def max_scores_on(device: torch.device) -> int:
    """Return the most scores per head of a group of several sequences."""
    return _MAX_SCORES_CPU if device.type == "cpu" else _MAX_SCORES_GPU


def group_lengths(lengths: tuple[int, ...], max_scores: int) -> list[tuple[int, int]]:
    """Cut lengths into runs [first, last) of near-equal ones, at most 5 % padding each.

    Args:
        lengths: Of the sequences of a batch.
        max_scores: Per head, in a run of several.
    """
    runs, first = [], 0
    while first < len(lengths):
        longest = total = lengths[first]
        last = first + 1
        while last < len(lengths):
            longest_next = max(longest, lengths[last])
            places = longest_next * (last - first + 1)
            real = total + lengths[last]
            if places - real > _MAX_PADDING * places or places * longest_next > max_scores:
                break
            longest, total, last = longest_next, real, last + 1
        runs.append((first, last))
        first = last
    return runs


def _group(lengths: tuple[int, ...], start: int, device: torch.device) -> Group:
    longest, end = max(lengths), start + sum(lengths)
    if min(lengths) == longest:
        return Group(start, end, len(lengths), longest)
    starts = torch.tensor(list(accumulate(lengths[:-1], initial=0)))
    places = torch.arange(longest)
    padding = places >= torch.tensor(lengths)[:, None]
    gather = (starts[:, None] + places).masked_fill(padding, 0) + starts[:, None] * padding
    return Group(
        start,
        end,
        len(lengths),
        longest,
        gather.flatten().to(device),
        (~padding).flatten().nonzero().flatten().to(device),
        padding[:, None, None, :].to(device),
    )


def distance(length: int, device: torch.device) -> Tensor:
    """Return the position of the query less that of the key, int64 (L, L), queries by keys."""
    places = torch.arange(length, device=device)
    return places[:, None] - places


def to_heads(rows_TxAD: Tensor, group: Group) -> Tensor:
    """Lay out the rows of a group, (rows, x, A, D), as (x, n * A, L, D), contiguous."""
    if group.gather is not None:
        # A third of the time of rows_TxAD[group.gather].
        rows_TxAD = rows_TxAD.index_select(0, group.gather)
    _, parts, heads, size = rows_TxAD.shape
    grid = rows_TxAD.view(group.count, group.length, parts, heads, size)
    heads_xnALD = grid.permute(2, 0, 3, 1, 4).contiguous()
    return heads_xnALD.view(parts, group.count * heads, group.length, size)


def _store(heads_xBLD: Tensor, rows_TxAD: Tensor, group: Group) -> None:
    """Write (x, n * A, L, D) into the group's rows of (T, x, A, D): the inverse of `to_heads`."""
    _, parts, num_heads, size = rows_TxAD.shape
    grid = heads_xBLD.view(parts, group.count, num_heads, group.length, size).permute(1, 3, 0, 2, 4)
    rows = rows_TxAD[group.start : group.end]
    if group.place is None:
        rows.view(grid.shape).copy_(grid)
    else:
        torch.index_select(grid.reshape(-1, parts, num_heads, size), 0, group.place, out=rows)


def _probabilities(
    query_BLD: Tensor, key_BLD: Tensor, group: Group, *, has_gradient: bool
) -> Tensor:
    """Compute softmax(q k / sqrt(D)), (B, L, L).

    Without a gradient in place of the scores: fresh memory for both costs more than the products,
    because the system provides it page by page.

    Source: Vaswani et al. 2017, section 3.2.1.
    """
    scores = products(query_BLD, key_BLD.transpose(1, 2), group.count)
    if not has_gradient:
        # torch's softmax over bf16 takes twice as long as over float32, casts included.
        scores = scores if scores.dtype == torch.float64 else scores.float()
    scores.mul_(1 / math.sqrt(query_BLD.shape[-1]))
    if group.bias is not None:
        # A sum costs a fifth of masked_fill_.
        grid = scores.view(group.count, -1, group.length, group.length)
        grid.add_(group.bias.to(scores.dtype))
    if has_gradient:
        return torch.softmax(scores, -1)
    return torch.softmax(scores, -1, out=scores).to(query_BLD.dtype)


class _GroupedAttention(torch.autograd.Function):
    """Attention by groups with its own gradient.

    On two Zen 5 cores a (1, 12, 256, 32) sequence takes 6.7 ms forward and backward through torch's
    scaled_dot_product_attention with dropout, and 1.2 ms this way. One function over all groups
    also avoids autograd's full-size zero tensor per slice.
    """

    @staticmethod
    def forward(ctx: Any, qkv_T3AD: Tensor, groups: tuple[Group, ...], rate: float) -> Tensor:
        num_heads, size = qkv_T3AD.shape[2:]
        out_T1AD = qkv_T3AD.new_empty((qkv_T3AD.shape[0], 1, num_heads, size))
        has_gradient = ctx is not None and ctx.needs_input_grad[0]
        saved: list[Tensor] = []
        for group in groups:
            query, key, value = to_heads(qkv_T3AD[group.start : group.end], group)
            weights = _probabilities(query, key, group, has_gradient=has_gradient)
            bits = keep_bits(weights, rate) if rate else None
            if has_gradient:
                saved += [weights] if bits is None else [weights, bits]
            dropped = weights if bits is None else apply_bits(weights, bits)
            mixed = products(dropped, value, group.count)
            if rate:
                # The output has fewer elements than the weights.
                mixed.mul_(keep_scale(rate))
            _store(mixed[None], out_T1AD, group)
        # Rows that fill up a product (see model/cpu.py) must be numbers.
        out_T1AD[groups[-1].end :].zero_()
        if has_gradient:
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
            # Padding holds copies of real rows, so its part of the gradient must be zero.
            grad = to_heads(grad_TAD[rows].unsqueeze(1), group)[0]
            if ctx.rate:
                grad = grad * keep_scale(ctx.rate)
            if group.is_padding is not None:
                grid = grad.view(group.count, num_heads, group.length, size)
                grid.masked_fill_(group.is_padding.transpose(2, 3), 0.0)
            weights = next(saved)
            grad_weights = products(grad, value.transpose(1, 2), group.count)
            dropped = weights
            if ctx.rate:
                bits = next(saved)
                dropped, grad_weights = apply_bits(weights, bits), apply_bits(grad_weights, bits)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grads_3BLD = torch.empty((3, *key.shape), dtype=key.dtype, device=key.device)
            products(grad_scores, key, group.count, grads_3BLD[0])
            products(grad_scores.transpose(1, 2), query, group.count, grads_3BLD[1])
            grads_3BLD[:2].mul_(scale)
            products(dropped.transpose(1, 2), grad, group.count, grads_3BLD[2])
            _store(grads_3BLD, out, group)
        return out, None, None


def attend(qkv_T3AD: Tensor, plan: AttentionPlan, rate: float = 0.0) -> Tensor:
    """Compute attention of every token to tokens of its own sequence, as the plan says.

    | device | dtype | dropout | how |
    |---|---|---|---|
    | CUDA | bf16, fp16 | no | torch.nn.attention.varlen: one kernel over the packed rows |
    | any other | any | any | matrix products over groups of near-equal length |

    Args:
        qkv_T3AD: Queries, keys and values, (T, 3, A, D).
        plan: Of the same batch.
        rate: Dropout on the attention probabilities.

    Returns:
        (T, A, D), the dtype of `qkv_T3AD`.
    """
    if plan.angles is not None:
        qkv_T3AD = rotate(qkv_T3AD, plan.angles)
    if not rate and _has_kernel(qkv_T3AD):
        return _by_kernel(qkv_T3AD, plan)
    if torch.is_grad_enabled() and qkv_T3AD.requires_grad:
        out_TAD = _GroupedAttention.apply(qkv_T3AD, plan.groups, rate)  # type: ignore[no-untyped-call]
        return cast("Tensor", out_TAD)
    return _GroupedAttention.forward(None, qkv_T3AD, plan.groups, rate)


def _has_kernel(qkv_T3AD: Tensor) -> bool:
    """Return whether torch.nn.attention.varlen supports this GPU, dtype and head size."""
    size = qkv_T3AD.shape[-1]
    return (
        qkv_T3AD.is_cuda
        and qkv_T3AD.dtype in (torch.bfloat16, torch.float16)
        and size % 8 == 0
        and size <= 256
        # FlashAttention 2 needs Ampere or later.
        and torch.cuda.get_device_capability(qkv_T3AD.device) >= (8, 0)
    )


def _by_kernel(qkv_T3AD: Tensor, plan: AttentionPlan) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = qkv_T3AD.unbind(1)
    borders, longest = plan.batch.cu_seqlens, plan.batch.max_seqlen
    kernel: Callable[..., Any] = varlen_attn
    if plan.reach is not None:
        kernel = partial(varlen_attn, window_size=(plan.reach, plan.reach))
    elif plan.causal:
        kernel = partial(varlen_attn, window_size=(-1, 0))
    return cast("Tensor", kernel(query, key, value, borders, borders, longest, longest))
