"""Multi-head attention over packed sequences.

T tokens in the batch, S sequences, A heads, D head size, H = A * D. A group is n neighbouring
sequences of (nearly) equal length, laid out as (B, L, D): B = n * A, L is the longest of the group.
A block is L neighbouring queries of one long sequence, with the K keys that they may attend to.

Values by distance have P columns, see `model/distances.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from filbert.batch import PackedBatch, onto
from filbert.model.cpu import apply_bits, keep_bits, keep_scale, mkl_is_slow, products
from filbert.model.distances import (
    PositionVectors,
    add_bias_gradient,
    add_position_gradients,
    scores_by_position,
    square,
    stripes,
)
from filbert.model.positions import Angles, rotate

# Largest share of padding in a group, and most scores per head of a group of several sequences. On
# a CPU 12 heads of 2**15 four-byte scores are 1.5 MB, which stays in the caches between product,
# softmax and product; on a GPU few kernels are faster.
_MAX_PADDING = 0.05
_MAX_SCORES_CPU, _MAX_SCORES_GPU = 2**15, 2**22
# Scores per head of a block, and the longest sequence whose probabilities are kept for the gradient
# and which is no block: 12 heads take 50 MB. Longer ones take memory linear in their length.
_MAX_BLOCK, _LONG = 2**20, 2**10
# Tokens of a single text up to which torch's kernel takes two thirds of the time of our products.
_SHORT = 32
# Attention and its gradient in blocks, for float32, bf16 and float64 (aten, native_functions.yaml).
_KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_KERNEL_GRADIENT = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
# Products with numbers below the least normal one take four times as long. A bias that falls below
# the first makes probabilities that are so small, and those below the second become zeros.
_STEEP, _LEAST = -60.0, 1e-37


@dataclass(frozen=True)
class Group:
    """Queries and keys that share one attention product.

    Attributes:
        start, end: Rows of the queries in the batch, [start, end).
        count: Number of sequences n; 1 for a block.
        length: Queries of the longest, L.
        keys: Rows of the keys in the batch, [first, last), of a block; None for those of the
            queries.
        ahead: Position of the first key less that of the first query.
        gather: Row of the group for each of the n * L places, int64; None if all lengths are equal,
            because the rows are already in order. Padding repeats the sequence's first row.
        place: The place of each row, int64 (end - start,); None as above.
        is_padding: bool (n, 1, 1, L); None as above.
        unseen: bool (n or 1, 1, L, K), keys that a query does not attend to because of a window or
            causal attention. Padding attends to itself, because a softmax over nothing is NaN. None
            if every query attends to all keys.
    """

    start: int
    end: int
    count: int
    length: int
    keys: tuple[int, int] | None = None
    ahead: int = 0
    gather: Tensor | None = None
    place: Tensor | None = None
    is_padding: Tensor | None = None
    unseen: Tensor | None = None

    @property
    def num_keys(self) -> int:
        """K, the keys of each of the n sequences."""
        return self.length if self.keys is None else self.keys[1] - self.keys[0]

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
        scale: Factor of the products of queries and keys; None for 1 / sqrt(D).
        bias_AP: Addend of the scores by distance, (A, P), the same in all layers; or None.
        position_rows: Embeddings of the distances, (rows, H), which each layer projects to position
            vectors (`PositionVectors`), and the row of each column, int64 (P,); or None.
    """

    batch: PackedBatch
    reach: int | None = None
    angles: Angles | None = None
    causal: bool = False
    scale: float | None = None
    bias_AP: Tensor | None = None
    position_rows: tuple[Tensor, Tensor] | None = None

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All sequences of the batch, in order.

        Created on first use: the CUDA kernel reads the borders instead, and on a GPU each group
        would be three transfers that the host waits for.
        """
        assert not self.causal or self.reach is None, "EncoderConfig refuses causal local layers"
        batch, device = self.batch, self.batch.input_ids.device
        borders = list(accumulate(batch.lengths, initial=0))
        groups: list[Group] = []
        for first, last in group_lengths(batch.lengths, max_scores_on(device)):
            lengths = batch.lengths[first:last]
            rows = self._rows_of_a_block(max(lengths))
            if rows is None:
                groups.append(_group(lengths, borders[first], self, device))
                continue
            for number in range(first, last):
                groups += _blocks(borders[number], batch.lengths[number], rows, self)
        return tuple(groups)

    def _rows_of_a_block(self, length: int) -> int | None:
        """Return the queries per block of a sequence; None if it is not divided."""
        if self.reach is not None:
            # Half of a block's keys are within reach of the average query.
            rows = max(32, 2 * self.reach)
            return rows if length > 2 * (rows + 2 * self.reach) else None
        by_distance = self.bias_AP is not None or self.position_rows is not None
        return max(1, _MAX_BLOCK // length) if by_distance and length > _LONG else None

    @cached_property
    def is_steep(self) -> bool:
        """Whether the bias alone makes probabilities that are slow to multiply on a CPU."""
        on_cpu = self.batch.input_ids.device.type == "cpu"
        return on_cpu and self.bias_AP is not None and bool(self.bias_AP.min() < _STEEP)

    @cached_property
    def square_ALL(self) -> Tensor:
        """`bias_AP` as scores of the longest sequence up to `_LONG`, without gradient."""
        assert self.bias_AP is not None
        longest = min(self.batch.max_seqlen, _LONG)
        return square(self.bias_AP.detach(), longest, longest, 0)


def max_scores_on(device: torch.device) -> int:
    """Return the most scores per head of a group of several sequences."""
    return _MAX_SCORES_CPU if device.type == "cpu" else _MAX_SCORES_GPU


def group_lengths(lengths: tuple[int, ...], max_scores: int) -> list[tuple[int, int]]:
    """Cut lengths into runs [first, last) of near-equal ones, at most 5 % padding each."""
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


def _group(
    lengths: tuple[int, ...], start: int, plan: AttentionPlan, device: torch.device
) -> Group:
    longest, end = max(lengths), start + sum(lengths)
    gather = place = padding = None
    if min(lengths) < longest:
        starts = torch.tensor(list(accumulate(lengths[:-1], initial=0)))
        places = torch.arange(longest)
        is_padding = places >= torch.tensor(lengths)[:, None]
        gather = starts[:, None] + places * ~is_padding
        place = onto(device, (~is_padding).flatten().nonzero().flatten())
        gather, padding = onto(device, gather.flatten()), onto(device, is_padding[:, None, None])
    unseen = _unseen(longest, longest, 0, plan, device)
    if unseen is not None and padding is not None and plan.reach is not None:
        unseen = (padding | unseen) & ~torch.eye(longest, dtype=torch.bool, device=device)
    # With causal attention padding comes last, so it is among the later tokens of every real one.
    return Group(start, end, len(lengths), longest, None, 0, gather, place, padding, unseen)


def _blocks(start: int, length: int, rows: int, plan: AttentionPlan) -> Iterator[Group]:
    """Cut a sequence that begins at row `start` into blocks of at most `rows` queries."""
    device = plan.batch.input_ids.device
    reach = length if plan.reach is None else plan.reach
    masks: dict[tuple[int, int, int], Tensor | None] = {}
    for first in range(0, length, rows):
        last = min(first + rows, length)
        keys = (max(0, first - reach), min(length, last + reach))
        shape = (last - first, keys[1] - keys[0], keys[0] - first)
        if shape not in masks:
            masks[shape] = _unseen(*shape, plan, device)
        yield Group(
            start + first,
            start + last,
            1,
            last - first,
            (start + keys[0], start + keys[1]),
            shape[2],
            unseen=masks[shape],
        )


def _unseen(
    length: int, num_keys: int, ahead: int, plan: AttentionPlan, device: torch.device
) -> Tensor | None:
    """Return the keys hidden from neighbouring queries, bool (1, 1, L, K); None for none."""
    farthest = max(length - 1 - ahead, num_keys - 1 + ahead)
    if not plan.causal and (plan.reach is None or plan.reach >= farthest):
        return None
    queries = torch.arange(length, device=device)[:, None]
    behind = queries - torch.arange(num_keys, device=device) - ahead
    unseen = behind < 0 if plan.reach is None else behind.abs() > plan.reach
    return unseen[None, None]


# Layouts


def to_heads(rows_TxAD: Tensor, group: Group) -> Tensor:
    """Lay out the rows of a group, (rows, x, A, D), as (x, n * A, L, D), contiguous."""
    if group.gather is not None:
        # A third of the time of rows_TxAD[group.gather].
        rows_TxAD = rows_TxAD.index_select(0, group.gather)
    rows, parts, heads, size = rows_TxAD.shape
    grid = rows_TxAD.view(group.count, -1, parts, heads, size)
    heads_xnALD = grid.permute(2, 0, 3, 1, 4).contiguous()
    return heads_xnALD.view(parts, group.count * heads, rows // group.count, size)


def _store(heads_xBLD: Tensor, rows_TxAD: Tensor, group: Group) -> None:
    """Write (x, n * A, L, D) into the group's rows of (T, x, A, D): the inverse of `to_heads`."""
    _, parts, num_heads, size = rows_TxAD.shape
    grid = heads_xBLD.view(parts, group.count, num_heads, group.length, size).permute(1, 3, 0, 2, 4)
    rows = rows_TxAD[group.start : group.end]
    if group.place is None:
        rows.view(grid.shape).copy_(grid)
    else:
        torch.index_select(grid.reshape(-1, parts, num_heads, size), 0, group.place, out=rows)


def _operands(qkv_T3AD: Tensor, group: Group) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries (B, L, D), keys and values (B, K, D) of a group."""
    rows = qkv_T3AD[group.start : group.end]
    if group.keys is None:
        query, key, value = to_heads(rows, group)
    else:
        (query,) = to_heads(rows[:, :1], group)
        key, value = to_heads(qkv_T3AD[slice(*group.keys), 1:], group)
    return query, key, value


# Attention


class _Layer(NamedTuple):
    """How one layer attends; `rate` is the dropout on the attention probabilities."""

    plan: AttentionPlan
    rate: float
    vectors: PositionVectors | None

    def scale(self, size: int) -> float:
        """Return the factor of the products of queries and keys of a size D."""
        return 1 / math.sqrt(size) if self.plan.scale is None else self.plan.scale

    def addend(self, query: Tensor, key: Tensor, group: Group) -> Tensor | None:
        """Return what the distances add to the scores; None for nothing.

        New memory of the scores' shape (n, A, L, K), or for a bias (A, L, K) not to be changed.
        """
        bias_AP = self.plan.bias_AP
        if self.vectors is not None:
            return scores_by_position(
                query, key, self.vectors, count=group.count, ahead=group.ahead
            )
        if bias_AP is None:
            return None
        if group.keys is None and group.length <= _LONG:
            square_ALK = self.plan.square_ALL[:, : group.length, : group.length]
        else:
            square_ALK = square(bias_AP.detach(), group.length, group.num_keys, group.ahead)
        return square_ALK.to(query.dtype)

    def has_kernel(self, group: Group, *, has_gradient: bool) -> bool:
        """Return whether torch's kernel for CPUs attends, in memory linear in the length.

        It takes half the time of our products at 4,096 tokens, on a Xeon with AVX-512. With an
        addend, through which it has no gradient, it takes 9 ms for 12 heads of 512 tokens, and our
        products take 15; of 128 tokens, 1.4 and 1.1. On Zen 5 our products are faster.
        """
        on_cpu = self.plan.batch.input_ids.device.type == "cpu"
        if not on_cpu or group.count > 1 or self.rate:
            return False
        if self.vectors is not None or self.plan.bias_AP is not None:
            is_long = group.num_keys**2 > _MAX_SCORES_CPU
            return is_long and not has_gradient and not mkl_is_slow()
        is_whole = group.keys is None and (group.unseen is None or self.plan.causal)
        is_short = group.length <= _SHORT and not has_gradient
        return is_whole and (group.length > _LONG or is_short)

    def kernel(
        self, query_ALD: Tensor, key_AKD: Tensor, value_AKD: Tensor, group: Group
    ) -> tuple[Tensor, Tensor]:
        """Attend by torch's kernel for CPUs: (1, A, L, D), and sums for its gradient."""
        addend = self.addend(query_ALD, key_AKD, group)
        causal = self.plan.causal and addend is None
        if addend is not None:
            addend = addend if addend.dim() == 4 else addend[None]
            if group.bias is not None:
                addend = addend + group.bias.to(addend.dtype)
        operands = (query_ALD[None], key_AKD[None], value_AKD[None])
        scale = self.scale(query_ALD.shape[-1])
        return _KERNEL(*operands, 0.0, causal, attn_mask=addend, scale=scale)  # type: ignore[no-any-return]

    def is_recomputed(self, group: Group) -> bool:
        """Return whether the backward pass computes the probabilities again."""
        return group.keys is not None and group.num_keys > _LONG and not self.rate

    def probabilities(
        self, query_BLD: Tensor, key_BKD: Tensor, group: Group, *, has_gradient: bool
    ) -> Tensor:
        """Compute softmax(scale q k + addend), (B, L, K).

        Without a gradient in place of the scores: fresh memory for both costs more than the
        products, because the system provides it page by page.

        Source: Vaswani et al. 2017, section 3.2.1.
        """
        scale, keys = self.scale(query_BLD.shape[-1]), key_BKD.transpose(1, 2)
        addend = self.addend(query_BLD, key_BKD, group)
        if addend is None or self.vectors is None:
            scores = products(query_BLD, keys, group.count)
        else:
            scores = addend.view(len(query_BLD), group.length, group.num_keys)
            products(query_BLD, keys, group.count, scores, added=scale)
        if not has_gradient:
            # torch's softmax over bf16 takes twice as long as over float32, casts included.
            scores = scores if scores.dtype == torch.float64 else scores.float()
        if addend is None:
            scores.mul_(scale)
        elif self.vectors is None:
            grid = scores.view(group.count, *addend.shape)
            torch.add(addend, grid, alpha=scale, out=grid)
        if group.bias is not None:
            # A sum costs a fifth of masked_fill_.
            grid = scores.view(group.count, -1, group.length, group.num_keys)
            grid.add_(group.bias.to(scores.dtype))
        scores = torch.softmax(scores, -1, out=None if has_gradient else scores)
        if self.plan.is_steep:
            torch.threshold_(scores, _LEAST, 0.0)
        return scores.to(query_BLD.dtype)


class _GroupedAttention(torch.autograd.Function):
    """Attention by groups with its own gradient.

    On two Zen 5 cores a (1, 12, 256, 32) sequence takes 6.7 ms forward and backward through torch's
    scaled_dot_product_attention with dropout, and 1.2 ms this way. One function over all groups
    also avoids autograd's full-size zero tensor per slice.
    """

    @staticmethod
    def forward(
        ctx: Any,
        qkv_T3AD: Tensor,
        plan: AttentionPlan,
        rate: float,
        bias_AP: Tensor | None,
        *vectors: Tensor,
    ) -> Tensor:
        num_heads, size = qkv_T3AD.shape[2:]
        out_T1AD = qkv_T3AD.new_empty((qkv_T3AD.shape[0], 1, num_heads, size))
        has_gradient = ctx is not None and any(ctx.needs_input_grad)
        layer = _Layer(plan, rate, PositionVectors(*vectors) if vectors else None)
        saved: list[Tensor] = []
        for group in plan.groups:
            query, key, value = _operands(qkv_T3AD, group)
            if layer.has_kernel(group, has_gradient=has_gradient):
                result = layer.kernel(query, key, value, group)
                saved += result if has_gradient else ()
                _store(result[0], out_T1AD, group)
                continue
            weights = layer.probabilities(query, key, group, has_gradient=has_gradient)
            bits = keep_bits(weights, rate) if rate else None
            if has_gradient and not layer.is_recomputed(group):
                saved += [weights] if bits is None else [weights, bits]
            dropped = weights if bits is None else apply_bits(weights, bits)
            mixed = products(dropped, value, group.count)
            if rate:
                # The output has fewer elements than the weights.
                mixed.mul_(keep_scale(rate))
            _store(mixed[None], out_T1AD, group)
        # Rows that fill up a product (see model/cpu.py) must be numbers.
        out_T1AD[plan.groups[-1].end :].zero_()
        if has_gradient:
            ctx.save_for_backward(qkv_T3AD, *vectors, *saved)
            ctx.layer, ctx.num_vectors = layer._replace(vectors=None), len(vectors)
        return out_T1AD.squeeze(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv_T3AD, *rest = ctx.saved_tensors
        vectors, saved = rest[: ctx.num_vectors], iter(rest[ctx.num_vectors :])
        layer = ctx.layer._replace(vectors=PositionVectors(*vectors) if vectors else None)
        groups, bias_AP = layer.plan.groups, layer.plan.bias_AP
        # Several blocks add to the gradient of a key.
        has_blocks = any(group.keys is not None for group in groups)
        totals = _Totals(
            (torch.zeros_like if has_blocks else torch.empty_like)(qkv_T3AD),
            torch.zeros_like(bias_AP) if bias_AP is not None and ctx.needs_input_grad[3] else None,
            tuple(torch.zeros_like(table) for table in vectors),
        )
        for group in groups:
            operands = _operands(qkv_T3AD, group)
            grad = to_heads(grads[0][group.start : group.end].unsqueeze(1), group)[0]
            if layer.has_kernel(group, has_gradient=True):
                long = [part[None] for part in (grad, *operands)]
                parts = _KERNEL_GRADIENT(
                    *long, next(saved), next(saved), 0.0, layer.plan.causal,
                    scale=layer.scale(grad.shape[-1]),
                )  # fmt: skip
                _store(torch.cat(parts), totals.qkv_T3AD, group)
                continue
            if layer.is_recomputed(group):
                weights = layer.probabilities(*operands[:2], group, has_gradient=True)
            else:
                weights = next(saved)
            bits = next(saved) if layer.rate else None
            _add_gradients(layer, group, operands, (grad, weights, bits), totals)
        return totals.qkv_T3AD, None, None, totals.bias_AP, *totals.vectors


class _Totals(NamedTuple):
    """Gradients of the inputs of attention, which consist of the groups' parts."""

    qkv_T3AD: Tensor
    bias_AP: Tensor | None
    vectors: tuple[Tensor, ...]


def _add_gradients(
    layer: _Layer,
    group: Group,
    operands: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor, Tensor | None],
    totals: _Totals,
) -> None:
    """Compute a group's part of the gradients.

    Args:
        results: The gradient of the output, (B, L, D), which is changed; the probabilities,
            (B, L, K); and the bits of the dropout.
        totals: Changed.
    """
    query, key, value = operands
    grad, weights, bits = results
    if layer.rate:
        grad = grad * keep_scale(layer.rate)
    if group.is_padding is not None:
        # Padding holds copies of real rows, so its part of the gradient must be zero.
        grid = grad.view(group.count, -1, *grad.shape[1:])
        grid.masked_fill_(group.is_padding.transpose(2, 3), 0.0)
    grad_weights = products(grad, value.transpose(1, 2), group.count)
    dropped = weights
    if bits is not None:
        dropped, grad_weights = apply_bits(weights, bits), apply_bits(grad_weights, bits)
    grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
    scale = layer.scale(query.shape[-1])
    grads_3BKD = key.new_empty((3, *key.shape))
    grad_query = grads_3BKD[0, :, : group.length]
    products(grad_scores, key, group.count, grad_query)
    products(grad_scores.transpose(1, 2), query, group.count, grads_3BKD[1])
    grad_query.mul_(scale)
    grads_3BKD[1].mul_(scale)
    products(dropped.transpose(1, 2), grad, group.count, grads_3BKD[2])
    grad_nALK = grad_scores.view(group.count, -1, group.length, group.num_keys)
    grad_AnLK = grad_nALK.transpose(0, 1)
    if totals.bias_AP is not None:
        add_bias_gradient(grad_AnLK, totals.bias_AP, ahead=group.ahead)
    if layer.vectors is not None:
        table, other = layer.vectors
        common = {"count": group.count, "num_columns": table.shape[-1]}
        for stripe in stripes(query, group.num_keys, ahead=group.ahead, **common):
            add_position_gradients(grad_AnLK, stripe, table, (grad_query, totals.vectors[0]))
        if other is not None:
            by_key = grad_AnLK.transpose(2, 3)
            for stripe in stripes(key, group.length, ahead=-group.ahead, **common):
                add_position_gradients(by_key, stripe, other, (grads_3BKD[1], totals.vectors[1]))
    if group.keys is None:
        _store(grads_3BKD, totals.qkv_T3AD, group)
        return
    totals.qkv_T3AD[group.start : group.end, 0] += grad_query.transpose(0, 1)
    totals.qkv_T3AD[slice(*group.keys), 1:] += grads_3BKD[1:].permute(2, 0, 1, 3)


def attend(
    qkv_T3AD: Tensor,
    plan: AttentionPlan,
    rate: float = 0.0,
    *,
    vectors: PositionVectors | None = None,
) -> Tensor:
    """Compute attention of every token to tokens of its own sequence, as the plan says.

    | device | dtype | dropout | how |
    |---|---|---|---|
    | CUDA | bf16, fp16 | no | torch.nn.attention.varlen: one kernel over the packed rows |
    | any other | any | any | matrix products over groups of near-equal length |

    Scores with values by distance are computed by matrix products on all devices.

    Args:
        qkv_T3AD: Queries, keys and values, (T, 3, A, D). The result is (T, A, D) of their dtype.
        rate: Dropout on the attention probabilities.
    """
    if plan.angles is not None:
        qkv_T3AD = rotate(qkv_T3AD, plan.angles)
    if not rate and vectors is None and plan.bias_AP is None and _has_kernel(qkv_T3AD):
        return _by_kernel(qkv_T3AD, plan)
    # Int8 layers give bf16 queries in models of float32.
    tables = [table.to(qkv_T3AD.dtype) for table in vectors or () if table is not None]
    inputs: tuple[Any, ...] = (qkv_T3AD, plan, rate, plan.bias_AP, *tables)
    if torch.is_grad_enabled() and qkv_T3AD.requires_grad:
        return cast("Tensor", _GroupedAttention.apply(*inputs))  # type: ignore[no-untyped-call]
    return _GroupedAttention.forward(None, *inputs)


def probabilities(
    qk_L2AD: Tensor, plan: AttentionPlan, vectors: PositionVectors | None = None
) -> Tensor:
    """Compute the attention probabilities of one sequence of the plan's batch, (A, L, L)."""
    query, key = qk_L2AD.permute(1, 2, 0, 3).contiguous()
    group = _group((len(qk_L2AD),), 0, plan, qk_L2AD.device)
    return _Layer(plan, 0.0, vectors).probabilities(query, key, group, has_gradient=False)


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
    # -1 is no limit. torch 2.10 had neither keyword.
    window = (-1, 0 if plan.causal else -1) if plan.reach is None else (plan.reach, plan.reach)
    options: dict[str, Any] = {"scale": plan.scale, "window_size": window}
    mixed = varlen_attn(query, key, value, borders, borders, longest, longest, **options)
    return cast("Tensor", mixed)
