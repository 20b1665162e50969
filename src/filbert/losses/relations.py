"""How tokens stand to each other, in a student as in its teacher: attention scores and relations.

T tokens in the batch, A heads, D head size. A group is n neighbouring sequences of near-equal
length (model/attention.py), the longest of L tokens.

A token's row of scores is as long as its sequence, so all of them grow with its square. They are
made a block of rows at a time, and once more on the way back: memory is that of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from filbert.batch import PackedBatch
from filbert.model.attention import AttentionPlan, Group, to_heads

# In a block, of each of the two models: 16 MB of float32.
MOST_SCORES = 2**22


class Sight(NamedTuple):
    """What a token may look at.

    Attributes:
        reach: tokens to either side; None for the whole sequence.
        causal: none that comes later.
    """

    reach: int | None = None
    causal: bool = False


EVERYTHING = Sight()


def score_error(
    student_T2AD: Tensor, teacher_T2AD: Tensor, batch: PackedBatch, sight: Sight = EVERYTHING
) -> Tensor:
    """Squared difference of the attention scores before softmax: a mean over heads and over the
    tokens that a token looks at, summed over the tokens.

    Args:
        student_T2AD: queries and keys; the head sizes may differ, the number of heads may not.
        teacher_T2AD: likewise, without a gradient.
        batch: whose tokens they are.
        sight: what attention sees.

    Returns:
        float32 scalar.

    Source: Jiao et al. 2020, equation 7. Their mean is over whole padded texts; here every token
    counts alike.
    """
    return _over_blocks(_score_error, _two(student_T2AD), _two(teacher_T2AD), batch, sight)


def relation_divergence(
    student_TxAD: Tensor, teacher_TxAD: Tensor, batch: PackedBatch, sight: Sight = EVERYTHING
) -> Tensor:
    """KL(teacher || student) of every token's relation to the others, softmax(a a / sqrt(D)), for
    queries, keys and values alike: a mean over heads, summed over x and the tokens.

    Args:
        student_TxAD: x kinds of vectors, cut into as many heads as the teacher's (`recut`).
        teacher_TxAD: likewise, without a gradient.
        batch: whose tokens they are.
        sight: what attention sees.

    Returns:
        float32 scalar.

    Source: Wang et al. 2021 (MiniLMv2), equations 4 to 6.
    """
    return _over_blocks(_divergence, _same(student_TxAD), _same(teacher_TxAD), batch, sight)


def recut(vectors_TxAD: Tensor, heads: int) -> Tensor:
    """The same vectors cut into another number of heads, which divides A * D."""
    return vectors_TxAD.reshape(*vectors_TxAD.shape[:2], heads, -1)


class _Sides(NamedTuple):
    """What is multiplied: rows (T, x, A, D) with rows of the same sequence."""

    left: Tensor
    right: Tensor


def _two(queries_keys_T2AD: Tensor) -> _Sides:
    return _Sides(*torch.split(queries_keys_T2AD, 1, 1))


def _same(vectors_TxAD: Tensor) -> _Sides:
    return _Sides(vectors_TxAD, vectors_TxAD)


class _Rows(NamedTuple):
    """Some rows of a group's sequences, [begin, end) of every one, and what they may look at."""

    group: Group
    begin: int
    end: int
    sight: Sight


class _Block(NamedTuple):
    """What is real among the scores of some rows.

    Attributes:
        unseen: bool, broadcast to (x, n, A, rows, L).
        is_row: float, broadcast to (x, n, A, rows): 1 where a row is a token's, 0 where it pads.
    """

    unseen: Tensor
    is_row: Tensor


def _over_blocks(
    loss: Callable[[Tensor, Tensor, _Block], Tensor],
    student: _Sides,
    teacher: _Sides,
    batch: PackedBatch,
    sight: Sight,
) -> Tensor:
    """The sum of a loss over all blocks of all groups."""
    groups = AttentionPlan(batch).groups
    # Cut in one go: the gradient of many slices would be as many tensors of full size.
    sizes = [group.end - group.start for group in groups]
    cut = [torch.split(part, sizes) for part in (*student, *teacher)]
    total = student.left.new_zeros((), dtype=torch.float32)
    for group, *parts in zip(groups, *cut, strict=True):
        mine, our_keys, theirs, their_keys = (_grid(part, group) for part in parts)
        per_row = math.prod(mine.shape[:3]) * group.length
        rows = max(1, MOST_SCORES // per_row)
        blocks = zip(torch.split(mine, rows, -2), torch.split(theirs, rows, -2), strict=True)
        for index, (queries, wanted) in enumerate(blocks):
            begin = index * rows
            run = partial(_part, loss, _Rows(group, begin, begin + queries.shape[-2], sight))
            inputs = (queries, our_keys, wanted, their_keys)
            total = total + checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=False)
    return total


def _grid(rows_TxAD: Tensor, group: Group) -> Tensor:
    """A group's rows as (x, n, A, L, D)."""
    heads = to_heads(rows_TxAD, group)
    return heads.view(heads.shape[0], group.count, -1, *heads.shape[2:])


def _part(
    loss: Callable[[Tensor, Tensor, _Block], Tensor],
    rows: _Rows,
    queries: Tensor,
    our_keys: Tensor,
    wanted: Tensor,
    their_keys: Tensor,
) -> Tensor:
    """The loss of one block."""
    # The block too is made again on the way back: all of them are as large as the scores.
    block = _block(rows, queries.device)
    return loss(_scores(queries, our_keys), _scores(wanted, their_keys), block)


def _block(rows: _Rows, device: torch.device) -> _Block:
    group, sight = rows.group, rows.sight
    keys = torch.arange(group.length, device=device)
    queries = keys[rows.begin : rows.end, None]
    unseen = torch.zeros_like(queries < keys)
    if sight.reach is not None:
        unseen = unseen | ((queries - keys).abs() > sight.reach)
    if sight.causal:
        unseen = unseen | (keys > queries)
    if group.is_padding is None:
        return _Block(unseen, torch.ones((), device=device))
    # (n, 1, 1, L): under heads and rows alike.
    is_row = (~group.is_padding[..., 0, rows.begin : rows.end]).float()
    return _Block(unseen | group.is_padding, is_row)


def _scores(left_xnALD: Tensor, right_xnALD: Tensor) -> Tensor:
    """Products of all rows by all, over sqrt(D): float32 (x, n, A, rows, L)."""
    products = left_xnALD @ right_xnALD.transpose(-1, -2)
    return products.float() / math.sqrt(left_xnALD.shape[-1])


def _score_error(mine: Tensor, theirs: Tensor, block: _Block) -> Tensor:
    seen = (~block.unseen).float()
    squares = (mine - theirs).square() * seen
    # A padding row of a causal sequence may see nothing; it counts for nothing too.
    means = squares.sum(-1) / seen.sum(-1).clamp_min(1.0)
    return (means * block.is_row).mean(2).sum()


def _divergence(mine: Tensor, theirs: Tensor, block: _Block) -> Tensor:
    # Not -inf: what nobody sees must come to 0 * 0 and not to 0 * infinity.
    least = torch.finfo(torch.float32).min
    ours = F.log_softmax(mine.masked_fill(block.unseen, least), -1)
    wanted = F.log_softmax(theirs.masked_fill(block.unseen, least), -1)
    divergence = (wanted.exp() * (wanted - ours)).sum(-1)
    return (divergence * block.is_row).mean(2).sum()
