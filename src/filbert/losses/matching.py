"""What a student learns from the inside of its teacher: which layers, compared in which way.

T tokens in the batch, S sequences, H hidden size.

Layers are numbered from 0: 0 is the embeddings, i the output of the i-th
layer, or the attention inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.errors import ConfigError
from filbert.losses.distillation import cosine_distance, patient_distance, squared_error
from filbert.losses.relations import Sight, recut, relation_divergence, score_error
from filbert.model.config import EncoderConfig
from filbert.model.grouping import standing_rows
from filbert.model.rotary import rotate
from filbert.model.trace import Trace


class _Kind(NamedTuple):
    """What a kind of lesson needs.

    Attributes:
        source: of the trace, "hidden" or "qkv".
        counted_by: what its sum runs over, "tokens" or "sequences".
        projects: a learned projection takes the student's width to the teacher's where they differ.
    """

    source: str
    counted_by: str = "tokens"
    projects: bool = False


KINDS = {
    "cosine": _Kind("hidden"),
    "embeddings": _Kind("hidden", projects=True),
    "hidden": _Kind("hidden", projects=True),
    "patient": _Kind("hidden", counted_by="sequences"),
    "scores": _Kind("qkv"),
    "relations": _Kind("qkv"),
}


@dataclass(frozen=True)
class Lesson:
    """One comparison of a student with its teacher.

    Attributes:
        kind: a key of `KINDS`: cosine (of hidden states), embeddings and hidden (squared errors,
            each kind through a projection of its own where the widths differ), patient (of the
            tokens that stand for sequences), scores (of attention), relations (of queries, keys and
            values).
        layers: pairs of a student's and a teacher's layer; their losses are added.
        weight: of the mean loss.
        heads: relations: heads that the vectors are cut into again.
    """

    kind: str
    layers: tuple[tuple[int, int], ...]
    weight: float = 1.0
    heads: int = 0

    @property
    def name(self) -> str:
        """In logs."""
        return f"{self.kind}_loss"

    @property
    def counted_by(self) -> str:
        """What its sum runs over: "tokens" or "sequences"."""
        return KINDS[self.kind].counted_by

    def layers_of(self, source: str, side: int) -> set[int]:
        """The layers whose "hidden" or "qkv" it reads, of the student (side 0) or the teacher."""
        return {pair[side] for pair in self.layers if KINDS[self.kind].source == source}


def check_lessons(
    lessons: Sequence[Lesson], student: EncoderConfig, teacher: EncoderConfig
) -> None:
    """Make sure that two models can be compared so.

    Raises:
        ConfigError: a layer that is not there, widths or heads that do not fit.
    """
    for lesson in lessons:
        for pair in lesson.layers:
            for config, number, whose in zip((student, teacher), pair, _WHOSE, strict=True):
                if not 0 <= number <= config.num_hidden_layers:
                    raise ConfigError(
                        f"{lesson.kind}: {whose} layer {number - 1} is asked for; it has 0 to "
                        f"{config.num_hidden_layers - 1}."
                    )
        if KINDS[lesson.kind].source == "qkv":
            _check_attention(lesson, student, teacher)
        elif not KINDS[lesson.kind].projects and student.hidden_size != teacher.hidden_size:
            raise ConfigError(
                f"{lesson.kind}: the student's hidden_size is {student.hidden_size} and the "
                f"teacher's {teacher.hidden_size}; this comparison needs the same."
            )


_WHOSE = ("the student's", "the teacher's")


def _check_attention(lesson: Lesson, student: EncoderConfig, teacher: EncoderConfig) -> None:
    for ours, theirs in lesson.layers:
        heads = (student.heads_of(ours - 1), teacher.heads_of(theirs - 1))
        if lesson.kind == "scores" and heads[0] != heads[1]:
            raise ConfigError(
                f"scores: the student has {heads[0]} attention heads and the teacher {heads[1]}; "
                "they are compared head by head. Give the student as many, or take method minilm."
            )
        for config, count, whose in zip((student, teacher), heads, _WHOSE, strict=True):
            width = count * config.head_size
            if lesson.kind == "relations" and width % lesson.heads:
                raise ConfigError(
                    f"relation_heads is {lesson.heads}, which does not divide {whose} attention, "
                    f"{width} wide."
                )
        if _sight(student, ours) != _sight(teacher, theirs):
            raise ConfigError(
                f"{lesson.kind}: the student's layer {ours - 1} and the teacher's {theirs - 1} do "
                "not see the same tokens: one is causal, or sees a window only. Pair other layers."
            )


def _sight(config: EncoderConfig, layer: int) -> Sight:
    window = config.attention.window if config.is_local(layer - 1) else None
    return Sight(None if window is None else window // 2, config.attention.causal)


def new_projections(
    lessons: Sequence[Lesson], student: EncoderConfig, teacher: EncoderConfig
) -> nn.ModuleDict:
    """By kind, those that the lessons need: from the student's width to the teacher's, no bias.

    Drawn from torch's default generator. Source: Jiao et al. 2020, equations 8 and 9.
    """
    found = nn.ModuleDict()
    for lesson in lessons:
        if KINDS[lesson.kind].projects and student.hidden_size != teacher.hidden_size:
            found[lesson.kind] = nn.Linear(student.hidden_size, teacher.hidden_size, bias=False)
    for projection in found.values():
        # As large as what it stands for: vectors keep their length.
        nn.init.normal_(projection.weight, std=teacher.hidden_size**-0.5)  # type: ignore[arg-type]
    return found


def lesson_sum(
    lesson: Lesson,
    student: Trace,
    teacher: Trace,
    batch: PackedBatch,
    projections: nn.ModuleDict,
    *,
    causal: bool,
) -> Tensor:
    """The sum of a lesson's losses over a batch and its pairs of layers, float32 scalar.

    Args:
        lesson: one that `check_lessons` let through.
        student: with what the lesson reads.
        teacher: likewise.
        batch: that both have read.
        projections: as `new_projections` made them.
        causal: whether the student is.
    """
    compare = _COMPARISONS[lesson.kind]
    found = [
        compare(_Pair(lesson, student, teacher, ours, theirs, batch, projections, causal))
        for ours, theirs in lesson.layers
    ]
    return sum(found[1:], found[0])


class _Pair(NamedTuple):
    """Two layers and what there is to compare them by."""

    lesson: Lesson
    student: Trace
    teacher: Trace
    ours: int
    theirs: int
    batch: PackedBatch
    projections: nn.ModuleDict
    causal: bool

    def hidden(self) -> tuple[Tensor, Tensor]:
        """Of both, in the teacher's width."""
        mine, theirs = self.student.hidden[self.ours], self.teacher.hidden[self.theirs]
        if self.lesson.kind in self.projections:
            mine = self.projections[self.lesson.kind](mine)
        return mine, theirs

    def qkv(self) -> tuple[Tensor, Tensor]:
        return self.student.qkv[self.ours], self.teacher.qkv[self.theirs]

    def sight(self) -> Sight:
        plan = self.student.plans[self.ours]
        return Sight(plan.reach, plan.causal)


def _scores(pair: _Pair) -> Tensor:
    plans = (pair.student.plans[pair.ours], pair.teacher.plans[pair.theirs])
    turned = [
        qkv if plan.rotary is None else rotate(qkv, plan.rotary)
        for qkv, plan in zip(pair.qkv(), plans, strict=True)
    ]
    return score_error(turned[0][:, :2], turned[1][:, :2], pair.batch, pair.sight())


def _relations(pair: _Pair) -> Tensor:
    mine, theirs = (recut(qkv, pair.lesson.heads) for qkv in pair.qkv())
    return relation_divergence(mine, theirs, pair.batch, pair.sight())


def _patient(pair: _Pair) -> Tensor:
    at = standing_rows(pair.batch, causal=pair.causal)
    mine, theirs = pair.hidden()
    return patient_distance(mine[at], theirs[at])


_COMPARISONS: dict[str, Callable[[_Pair], Tensor]] = {
    "cosine": lambda pair: cosine_distance(*pair.hidden()),
    "embeddings": lambda pair: squared_error(*pair.hidden()),
    "hidden": lambda pair: squared_error(*pair.hidden()),
    "patient": _patient,
    "scores": _scores,
    "relations": _relations,
}
