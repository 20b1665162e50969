"""Beam search with a length penalty, for any model that gives log-probabilities of the next token.

S sources, B hypotheses of each, N = S * B, L tokens of a hypothesis, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

# Vaswani et al. 2017, section 6.1: hypotheses of a beam, and the exponent of the length penalty.
BEAM, ALPHA = 4, 0.6


def beam_search(
    next_token: Callable[[Tensor, Tensor], Tensor],
    count: int,
    *,
    start: int,
    end: int,
    most: int,
    beam: int = BEAM,
    alpha: float = ALPHA,
) -> list[list[int]]:
    """Return the best token ids of each of `count` sources, without start and end.

    A text's score is its log-probability, with its end, divided by `penalty`.

    Args:
        next_token: Returns the log-probabilities (N, V) of the token after ids, int64 (N, L), which
            begin with `start`; they are of the sources with the numbers int64 (N,).
        start, end: Ids before and after a text.
        most: Longest text, its end included.
        beam: Hypotheses of a source that are continued.
        alpha: Exponent of the penalty; 0 for none.
    """
    best_score, best = torch.full((count,), -math.inf), [[end]] * count
    # The sources that are still searched, their hypotheses and the log-probabilities of these.
    sources = torch.arange(count)
    ids_SBL, total_SB = torch.full((count, 1, 1), start), torch.zeros(count, 1)
    for length in range(1, most + 1):
        next_NV = next_token(ids_SBL.flatten(0, 1), sources.repeat_interleave(total_SB.shape[1]))
        next_SBV = total_SB[..., None] + next_NV.float().cpu().view(*total_SB.shape, -1)
        ended_S, at_S = next_SBV[..., end].max(1)
        ended_S = ended_S / penalty(length, alpha)
        for row in (ended_S > best_score[sources]).nonzero().flatten().tolist():
            best_score[sources[row]] = ended_S[row]
            best[sources[row]] = ids_SBL[row, at_S[row], 1:].tolist()
        next_SBV[..., end] = -math.inf
        total_SB, at_SB = next_SBV.flatten(1).topk(min(beam, next_SBV[0].numel()))
        at_SB, token_SB = at_SB // next_SBV.shape[-1], at_SB % next_SBV.shape[-1]
        ids_SBL = ids_SBL.gather(1, at_SB[..., None].expand(-1, -1, length))
        ids_SBL = torch.cat((ids_SBL, token_SB[..., None]), -1)
        # No continuation has a better score than its log-probability now over the last penalty.
        alive = total_SB[:, 0] / penalty(most, alpha) > best_score[sources]
        sources, ids_SBL, total_SB = sources[alive], ids_SBL[alive], total_SB[alive]
        if not len(sources):
            break
    return best


def penalty(length: int, alpha: float) -> float:
    """Return what the log-probability of a text is divided by. Wu et al. 2016, equation 14."""
    return math.pow((5 + length) / 6, alpha)
