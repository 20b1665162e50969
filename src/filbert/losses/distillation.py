"""Distillation losses between a student and its teacher.

K rows, C classes, T tokens, S sequences, H hidden size, A heads, D head size. A group is n
neighbouring sequences of near-equal length (model/attention.py), the longest of L tokens.

Every function returns the sum over its rows, float32; the caller divides by the number of rows of
the whole batch. The loss of one row is a mean over its width, so models of different widths give
losses of the same size. The teacher's tensors carry no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from filbert.model.attention import AttentionPlan, Group, to_heads

# Attention scores of one model that are in memory at a time: 16 MB of float32.
MAX_SCORES = 2**22


def soft_targets(student_KC: Tensor, teacher_KC: Tensor, temperature: float) -> Tensor:
    """Return T^2 KL(softmax(teacher / T) || softmax(student / T)) of two sets of logits.

    The square keeps the size of the gradient independent of the temperature T > 0.

    Source: Hinton et al. 2015, section 2.
    """
    student = F.log_softmax(student_KC.float() / temperature, -1)
    teacher = F.log_softmax(teacher_KC.float() / temperature, -1)
    return F.kl_div(student, teacher, reduction="sum", log_target=True) * temperature**2


def soft_binary_targets(student_KC: Tensor, teacher_KC: Tensor, temperature: float) -> Tensor:
    """Return `soft_targets` of C independent binary labels, as a mean over the labels."""
    student, teacher = student_KC.float() / temperature, teacher_KC.float() / temperature
    yes = teacher.sigmoid() * (F.logsigmoid(teacher) - F.logsigmoid(student))
    no = (-teacher).sigmoid() * (F.logsigmoid(-teacher) - F.logsigmoid(-student))
    return (yes + no).mean(-1).sum() * temperature**2


def cosine_distance(student_TH: Tensor, teacher_TH: Tensor) -> Tensor:
    """Return 1 minus the cosine of two vectors. Source: Sanh et al. 2019, section 3."""
    return (1.0 - F.cosine_similarity(student_TH.float(), teacher_TH.float(), dim=-1)).sum()


def squared_error(student_TH: Tensor, teacher_TH: Tensor) -> Tensor:
    """Return the mean squared difference. Source: Jiao et al. 2020, equations 8 and 9."""
    return (student_TH.float() - teacher_TH.float()).square().mean(-1).sum()


def patient_distance(student_SH: Tensor, teacher_SH: Tensor) -> Tensor:
    """Return `squared_error` of two vectors after scaling both to length 1.

    Source: Sun et al. 2019, equation 7. A mean over the width as in their code, for which their
    weights (10 to 1,000) were chosen; the formula of the paper has the sum.
    """
    return squared_error(
        F.normalize(student_SH.float(), dim=-1), F.normalize(teacher_SH.float(), dim=-1)
    )


# Attention scores and relations
#
# A token has one score per token of its sequence, so memory would grow with the square of the
# length. Scores are computed for a block of query tokens at a time, and again in the backward pass.


def score_error(student_T2AD: Tensor, teacher_T2AD: Tensor, plan: AttentionPlan) -> Tensor:
    """Return the squared difference of attention scores before softmax, summed over tokens.

    It is a mean over the heads and over the tokens that a token attends to.

    Args:
        student_T2AD: Queries and keys. The head sizes may differ, the number of heads may not.
        plan: The batch that both models read, and which tokens a token attends to.

    Source: Jiao et al. 2020, equation 7. Their mean is over padded texts; here every token has the
    same weight.
    """
    sides = [*torch.split(student_T2AD, 1, 1), *torch.split(teacher_T2AD, 1, 1)]
    return _sum_over_blocks(_squared_differences, sides, plan)


def relation_divergence(student_TxAD: Tensor, teacher_TxAD: Tensor, plan: AttentionPlan) -> Tensor:
    """Return KL(teacher || student) of the relations softmax(a a / sqrt(D)) between tokens.

    It is a mean over the heads, summed over tokens and over the x kinds of vectors (queries, keys
    and values).

    Args:
        student_TxAD: The vectors, split into as many heads as the teacher's.
        plan: As for `score_error`.

    Source: Wang et al. 2021 (MiniLMv2), equations 4 to 6.
    """
    sides = [student_TxAD, student_TxAD, teacher_TxAD, teacher_TxAD]
    return _sum_over_blocks(_divergence, sides, plan)


# (student's scores, teacher's scores, bool: excluded pairs, float: 1 for a token and 0 for padding)
_BlockLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _sum_over_blocks(loss: _BlockLoss, sides: Sequence[Tensor], plan: AttentionPlan) -> Tensor:
    """Sum a loss over all blocks; `sides` are left and right factors of student and teacher."""
    # Of whole sequences, also where a token attends to its neighbours only.
    groups = AttentionPlan(plan.batch).groups
    # One split of all tokens, because the gradient of a slice is a tensor of full size.
    sizes = [group.end - group.start for group in groups]
    parts = [torch.split(side, sizes) for side in sides]
    total = sides[0].new_zeros((), dtype=torch.float32)
    for group, *of_group in zip(groups, *parts, strict=True):
        left, right, wanted_left, wanted_right = (_by_sequence(p, group) for p in of_group)
        rows = max(1, MAX_SCORES // (math.prod(left.shape[:3]) * group.length))
        blocks = zip(torch.split(left, rows, -2), torch.split(wanted_left, rows, -2), strict=True)
        for index, (queries, wanted) in enumerate(blocks):
            run = partial(_block_loss, loss, group, index * rows, plan)
            inputs = (queries, right, wanted, wanted_right)
            total = total + checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=False)
    return total


def _by_sequence(rows_TxAD: Tensor, group: Group) -> Tensor:
    """Return the rows of a group as (x, n, A, L, D)."""
    heads = to_heads(rows_TxAD, group)
    return heads.view(heads.shape[0], group.count, -1, *heads.shape[2:])


def _block_loss(
    loss: _BlockLoss,
    group: Group,
    begin: int,
    plan: AttentionPlan,
    queries: Tensor,
    keys: Tensor,
    wanted_queries: Tensor,
    wanted_keys: Tensor,
) -> Tensor:
    """Return the loss of the query tokens from `begin` of every sequence of a group."""
    end = begin + queries.shape[-2]
    # Recomputed in the backward pass too: all masks together are as large as the scores.
    key = torch.arange(group.length, device=queries.device)
    query = key[begin:end, None]
    excluded = torch.zeros_like(query < key)
    if plan.reach is not None:
        excluded = excluded | ((query - key).abs() > plan.reach)
    if plan.causal:
        excluded = excluded | (key > query)
    is_token = torch.ones((), device=queries.device)
    if group.is_padding is not None:
        # (n, 1, 1, L), broadcast over heads and rows.
        excluded = excluded | group.is_padding
        is_token = (~group.is_padding[..., 0, begin:end]).float()
    return loss(_scores(queries, keys), _scores(wanted_queries, wanted_keys), excluded, is_token)


def _scores(left_xnALD: Tensor, right_xnALD: Tensor) -> Tensor:
    """Return the products of all rows with all rows over sqrt(D), float32 (x, n, A, rows, L)."""
    products = left_xnALD @ right_xnALD.transpose(-1, -2)
    return products.float() / math.sqrt(left_xnALD.shape[-1])


def _squared_differences(
    student: Tensor, teacher: Tensor, excluded: Tensor, is_token: Tensor
) -> Tensor:
    included = (~excluded).float()
    squares = (student - teacher).square() * included
    # A padding row of a causal sequence may attend to no token.
    means = squares.sum(-1) / included.sum(-1).clamp_min(1.0)
    return (means * is_token).mean(2).sum()


def _divergence(student: Tensor, teacher: Tensor, excluded: Tensor, is_token: Tensor) -> Tensor:
    # Not -inf, because an excluded pair must give 0 * 0 and not 0 * infinity.
    least = torch.finfo(torch.float32).min
    found = F.log_softmax(student.masked_fill(excluded, least), -1)
    wanted = F.log_softmax(teacher.masked_fill(excluded, least), -1)
    divergence = (wanted.exp() * (wanted - found)).sum(-1)
    return (divergence * is_token).mean(2).sum()
