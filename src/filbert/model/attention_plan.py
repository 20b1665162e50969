"""How a batch is attended to: which sequences share a product, and how far a token sees.

T tokens in the batch, S sequences, A heads. A group is n neighbouring sequences of (nearly) equal
length, laid out as (n * A, L, D); L is the longest of the group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from filbert.batch import PackedBatch
from filbert.model.rotary import Rotary

# A group may hold at most this share of padding, and (unless it is one sequence) this many scores
# per head. On a processor 12 heads of 2**15 four-byte scores are 1.5 MB, which stays in the caches
# between product, softmax and product; a GPU would rather launch few kernels.
_MAX_PADDING = 0.05
_MAX_SCORES_CPU, _MAX_SCORES_GPU = 2**15, 2**22


@dataclass(frozen=True)
class Group:
    """Neighbouring sequences that share one attention product.

    Attributes:
        start, end: rows of the batch, [start, end).
        count: number of sequences n.
        length: the longest, L.
        gather: row of the group for each of the n * L places, int64; None when all lengths are
            equal, as then the rows are already in order. Empty places repeat the sequence's first
            row and are masked.
        place: the place of each row, int64 (end - start,); None as above.
        is_padding: bool (n, 1, 1, L); None as above.
        unseen: bool (n or 1, 1, L, L), the places that a place may not look at, for those who see
            no further than their neighbourhood or not ahead; an empty place sees itself, as a
            softmax over nothing is not a number. None when everyone sees all real places.
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
        """What is added to scores, float32: 0, and minus infinity for what may not be looked at."""
        hidden = self.is_padding if self.unseen is None else self.unseen
        if hidden is None:
            return None
        return torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, float("-inf"))


@dataclass(frozen=True)
class AttentionPlan:
    """How one batch is attended to; made once per batch, used by every layer of a kind.

    Attributes:
        batch: that it is for.
        reach: how far a token sees to either side; None for the whole sequence.
        rotary: turns queries and keys first; None where positions are in the embeddings.
        causal: whether a token sees no later one.
    """

    batch: PackedBatch
    reach: int | None = None
    rotary: Rotary | None = None
    causal: bool = False

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Of all the batch's sequences, in order.

        Made when they are first asked for: a kernel that reads the borders does without, and on a
        GPU each group would be three transfers that the host waits for.
        """
        return tuple(_groups(self))

    @property
    def fill(self) -> float:
        """Real tokens as a share of the places inside attention, in (0, 1]."""
        places = sum(group.count * group.length for group in self.groups)
        return self.batch.num_tokens / places if places else 1.0


def max_scores_on(device: torch.device) -> int:
    """Scores per head that a run of several sequences may have: `max_scores` of `group_lengths`."""
    return _MAX_SCORES_CPU if device.type == "cpu" else _MAX_SCORES_GPU


def group_lengths(lengths: tuple[int, ...], max_scores: int) -> list[tuple[int, int]]:
    """Cut lengths into runs [first, last) of near-equal ones, at most 5 % padding each.

    Args:
        lengths: of the sequences of a batch.
        max_scores: per head, in a run of several.
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


def plan_attention(
    batch: PackedBatch,
    reach: int | None = None,
    rotary: Rotary | None = None,
    *,
    causal: bool = False,
) -> AttentionPlan:
    """Group the sequences of a batch.

    Neighbours of near-equal length share a group, so sort by length first.

    Args:
        batch: T tokens.
        reach: how far a token sees to either side; None for the whole sequence.
        rotary: of the batch's positions, where queries and keys are to be turned.
        causal: a token sees itself and those before it; not together with `reach`.
    """
    assert not causal or reach is None, "EncoderConfig refuses causal local layers"
    return AttentionPlan(batch, reach, rotary, causal)


def _groups(plan: AttentionPlan) -> list[Group]:
    batch, reach = plan.batch, plan.reach
    device = batch.input_ids.device
    ahead = _ahead(batch.max_seqlen, device) if plan.causal else None
    borders = list(accumulate(batch.lengths, initial=0))
    groups = []
    for first, last in group_lengths(batch.lengths, max_scores_on(device)):
        lengths = batch.lengths[first:last]
        longest = max(lengths)
        group = Group(borders[first], borders[last], last - first, longest)
        if min(lengths) < longest:
            count = torch.tensor(lengths)
            starts = torch.tensor(borders[first:last]) - borders[first]
            places = torch.arange(longest)
            padding = places >= count[:, None]
            gather = (starts[:, None] + places).masked_fill(padding, 0) + starts[:, None] * padding
            group = Group(
                group.start,
                group.end,
                group.count,
                longest,
                gather.flatten().to(device),
                (~padding).flatten().nonzero().flatten().to(device),
                padding[:, None, None, :].to(device),
            )
        if reach is not None and longest > reach + 1:
            group = replace(group, unseen=_unseen(group, reach, device))
        if ahead is not None:
            # Empty places come last, so that what is ahead of a real one covers them.
            group = replace(group, unseen=ahead[:longest, :longest][None, None])
        groups.append(group)
    return groups


def _unseen(group: Group, reach: int, device: torch.device) -> Tensor:
    apart = distance(group.length, device)
    if group.is_padding is None:
        return (apart > reach)[None, None]
    return (group.is_padding | (apart > reach)) & (apart > 0)


def _ahead(length: int, device: torch.device) -> Tensor:
    """Whether a place comes after another: bool (L, L), queries by keys."""
    places = torch.arange(length, device=device)
    return places > places[:, None]


def distance(length: int, device: torch.device) -> Tensor:
    """Between any two places, int64 (L, L)."""
    places = torch.arange(length, device=device)
    return (places[:, None] - places).abs()
