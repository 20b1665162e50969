"""A student beside its teacher: what is trained, what it is compared with, and by how much.

T tokens in the batch, K rows asked for, S sequences, N lessons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from filbert.batch import PackedBatch
from filbert.losses.distillation import soft_targets
from filbert.losses.matching import Lesson, lesson_sum, new_projections
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model
from filbert.model.trace import Trace, traced

_PROJECTIONS = "projections."
# Logits over a vocabulary of both models at a time: 128 MB of float32 each.
_MOST_LOGITS = 2**25


class Taught(NamedTuple):
    """What one pass gives.

    Attributes:
        student: the head's output; the last hidden states without a head.
        teacher: the teacher's, without a gradient; empty where nobody compares it.
        sums: one a lesson and, where the vocabulary's scores are compared, one more: float32.
    """

    student: Tensor
    teacher: Tensor
    sums: Tensor


class Teacher:
    """A model that is asked and never trained; in eval mode, without gradients.

    It is no nn.Module, so that a student that holds one has none of its tensors among its own: not
    in its state, nor in what is spread or exchanged between processes. Copies of a student share
    it.

    Args:
        model: in any float type, which its products run in.
        device: where to.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        self.model = model.to(device).eval().requires_grad_(False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Teacher:
        return self


class SoftWords(NamedTuple):
    """How the scores over the vocabulary are compared.

    Attributes:
        temperature: of both softmaxes.
        masked_only: at the masked rows instead of all of them.
    """

    temperature: float
    masked_only: bool = False


class Student(nn.Module):
    """A model in training, its learned projections, and the teacher it is compared with.

    The names of its state are those of the model, and "projections...", which are of no use later:
    see `own_weights`.

    Args:
        model: to train. It may have no head, where lessons are all there is to learn.
        teacher: of the same vocabulary.
        lessons: comparisons, as `check_lessons` let them through.
        words: compares the scores over the vocabulary too; both then have a masked-LM head.
        compares_outputs: whether the teacher's head is asked as well.

    Attributes:
        encoder, head: the model's.
        projections: by kind of lesson, where widths differ.
    """

    def __init__(
        self,
        model: Model,
        teacher: Teacher,
        lessons: Sequence[Lesson],
        *,
        words: SoftWords | None = None,
        compares_outputs: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.head = model.head
        self.projections = new_projections(lessons, model.config, teacher.model.config)
        self.teacher = teacher
        self.lessons = tuple(lessons)
        self.words = words
        self.compares_outputs = compares_outputs

    @property
    def config(self) -> EncoderConfig:
        """The student's own."""
        return self.encoder.config

    @property
    def model(self) -> Model:
        """The student alone, to measure it: the same modules."""
        return Model(self.encoder, self.head)

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> Taught:
        """Both read a batch, and are compared.

        Args:
            batch: T tokens.
            at: rows that the heads answer for, int64 (K,).
        """
        tokens_TH, mine = self._listen(self.encoder, batch, side=0)
        with torch.no_grad(), torch.autocast(tokens_TH.device.type, enabled=False):
            theirs_TH, theirs = self._listen(self.teacher.model.encoder, batch, side=1)
            answer = tokens_TH.new_empty(0)
            if self.compares_outputs:
                answer = _tensor(self.teacher.model.read(theirs_TH, batch, at))
        sums = [
            lesson_sum(
                lesson, mine, theirs, batch, self.projections, causal=self.config.attention.causal
            )
            for lesson in self.lessons
        ]
        if self.words is not None:
            rows = at if self.words.masked_only else None
            sums.append(self._soft_words(tokens_TH, theirs_TH, batch, rows))
        output = _tensor(self.model.read(tokens_TH, batch, at))
        return Taught(output, answer, torch.stack(sums) if sums else tokens_TH.new_zeros(0))

    def _listen(self, encoder: Encoder, batch: PackedBatch, side: int) -> tuple[Tensor, Trace]:
        """An encoder's output and what the lessons read inside it."""
        hidden, qkv = (
            {number for lesson in self.lessons for number in lesson.layers_of(source, side)}
            for source in ("hidden", "qkv")
        )
        if not hidden and not qkv:
            return encoder(batch), Trace()
        with traced(encoder, hidden, qkv) as trace:
            tokens_TH = encoder(batch)
        last = encoder.config.num_hidden_layers
        if last in hidden:
            # After the last LayerNorm, where it stands apart.
            trace.hidden[last] = tokens_TH
        return tokens_TH, trace

    def _soft_words(
        self, student_TH: Tensor, teacher_TH: Tensor, batch: PackedBatch, at: Tensor | None
    ) -> Tensor:
        """`soft_targets` over the vocabulary, some rows at a time and once more on the way back."""
        assert self.words is not None
        temperature = self.words.temperature
        if at is None:
            at = torch.arange(batch.num_tokens, device=student_TH.device)

        def compare(student_TH: Tensor, rows: Tensor) -> Tensor:
            with torch.no_grad(), torch.autocast(student_TH.device.type, enabled=False):
                wanted = _tensor(self.teacher.model.read(teacher_TH, batch, rows))
            found = _tensor(self.model.read(student_TH, batch, rows))
            return soft_targets(found, wanted, temperature)

        total = student_TH.new_zeros((), dtype=torch.float32)
        for rows in torch.split(at, max(1, _MOST_LOGITS // self.config.vocab_size)):
            total = total + checkpoint(
                compare, student_TH, rows, use_reentrant=False, preserve_rng_state=False
            )
        return total


def freeze_unreached(student: Student, batch: PackedBatch, *, answers: bool) -> int:
    """Switch off the gradients of parameters that no loss reaches.

    The relations of a last layer leave everything behind its attention as it is, and a head that
    answers nothing too. Several processes would wait for such gradients for ever.

    Args:
        student: changed in place.
        batch: a small one.
        answers: whether the head's output is part of what is learnt.

    Returns:
        How many numbers that are; those that were frozen before do not count.
    """
    was_training = student.training
    student.eval()
    taught = student(batch.to(next(student.parameters()).device))
    reached = taught.sums.sum()
    if answers:
        reached = reached + taught.student.float().sum()
    reached.backward()
    unreached = [p for p in student.parameters() if p.requires_grad and p.grad is None]
    for parameter in unreached:
        parameter.requires_grad_(False)
    student.zero_grad(set_to_none=True)
    student.train(was_training)
    return sum(parameter.numel() for parameter in unreached)


def own_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A student's state without its projections: by the names of Model.state_dict()."""
    return {name: value for name, value in weights.items() if not name.startswith(_PROJECTIONS)}


def _tensor(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    assert isinstance(output, Tensor), "no student has the head of a pair objective"
    return output
