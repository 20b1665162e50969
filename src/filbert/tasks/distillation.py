"""Distillation: what a student learns from a teacher beside, or instead of, what the text says.

No labelled rows: this is an `Objective`, whose losses are made where student and teacher meet, in
`model.student.Student`.

L layers of the student, M of the teacher; lessons number them from 1, with 0 for the embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.errors import ConfigError
from filbert.losses.cross_entropy import cross_entropy
from filbert.losses.matching import Lesson
from filbert.losses.student import Taught
from filbert.model.config import EncoderConfig
from filbert.tasks.base import Targets
from filbert.tasks.pretraining import masked_words

# Wang et al. 2021, section 4.1: the teacher's width to the number of its relation heads.
_RELATION_HEADS = ((1024, 64), (0, 48))


@dataclass(frozen=True)
class PretrainingDistillation:
    """Lessons over raw text, with the words' scores and the masked words themselves where asked.

    The loss is the sum of every kind's mean, times its weight.

    Attributes:
        lessons: as the `Student` has them.
        soft_weight: of the soft targets over the vocabulary; 0 for none.
        soft_at_masked: those at the masked words only.
        masked_weight: of the masked words themselves; 0 for none.
    """

    lessons: tuple[Lesson, ...]
    soft_weight: float = 0.0
    soft_at_masked: bool = False
    masked_weight: float = 0.0
    selection_metric = "loss"
    whole_batch = False
    pair = "none"

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Of the lessons, the soft targets and the masked words, those that there are."""
        words = (("soft_loss", self.soft_weight), ("mlm_loss", self.masked_weight))
        return (*(x.name for x in self.lessons), *(name for name, weight in words if weight))

    @property
    def weights(self) -> tuple[float, ...]:
        """Of each kind."""
        words = (self.soft_weight, self.masked_weight)
        return (*(x.weight for x in self.lessons), *(weight for weight in words if weight))

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Where words are masked, (K,), what they were, (K,), and how long the sequences are."""
        groups = tuple(len(example.input_ids) for example in examples)
        return Targets(*masked_words(examples), groups=groups)

    def count(self, targets: Targets) -> tuple[float, ...]:
        """Tokens, sequences or masked words, as each kind is counted."""
        assert targets.groups is not None
        tokens, masked = float(sum(targets.groups)), float(len(targets.values))
        found = list(lesson_counts(self.lessons, targets.groups))
        if self.soft_weight:
            found.append(masked if self.soft_at_masked else tokens)
        return (*found, masked) if self.masked_weight else tuple(found)

    def loss(self, output: Taught, targets: Targets) -> Tensor:
        """The SUM of each kind times its weight, float32."""
        sums = list(output.sums.unbind())
        if self.masked_weight:
            sums.append(cross_entropy(output.student, targets.values))
        return torch.stack([w * kind for w, kind in zip(self.weights, sums, strict=True)])


def lesson_counts(lessons: Sequence[Lesson], lengths: Sequence[int]) -> tuple[float, ...]:
    """What each lesson's sum runs over in a batch of sequences of these lengths: how many."""
    numbers = {"tokens": float(sum(lengths)), "sequences": float(len(lengths))}
    return tuple(numbers[lesson.counted_by] for lesson in lessons)


# Which layers learn from which


def spread(num_kept: int, num_layers: int) -> tuple[int, ...]:
    """Layers to begin a smaller model with, from 0: the first, the last, and evenly between.

    Six of twelve are 0, 2, 4, 7, 9, 11, as in Sanh et al. 2019.
    """
    if num_kept == 1:
        return (0,)
    return tuple(round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept))


def even_map(num_student: int, num_teacher: int) -> tuple[int, ...]:
    """For each student layer the teacher's, from 1: every M / L-th up to the last.

    Source: Jiao et al. 2020, section 4.1.
    """
    return tuple(max(1, round(i * num_teacher / num_student)) for i in range(1, num_student + 1))


def layer_pairs(
    layer_map: Sequence[int] | None, student: EncoderConfig, teacher: EncoderConfig
) -> tuple[tuple[int, int], ...]:
    """Pairs of a student's and a teacher's layer, from 1.

    Args:
        layer_map: for each student layer the teacher's, from 0; `even_map` when not given.
        student: of the one that learns.
        teacher: of the other.

    Raises:
        ConfigError: there are not as many as the student has layers, or one is not there.
    """
    layers = student.num_hidden_layers
    if layer_map is None:
        mapped: Sequence[int] = even_map(layers, teacher.num_hidden_layers)
    else:
        mapped = [number + 1 for number in layer_map]
    if len(mapped) != layers:
        raise ConfigError(
            f"layer_map names {len(mapped)} of the teacher's layers; the student has {layers} and "
            "needs one for each."
        )
    wrong = [number - 1 for number in mapped if not 1 <= number <= teacher.num_hidden_layers]
    if wrong:
        raise ConfigError(
            f"layer_map names layer {wrong[0]}; the teacher has 0 to "
            f"{teacher.num_hidden_layers - 1}."
        )
    return tuple(enumerate(mapped, 1))


# Methods: which lessons they are made of


def cosine_lessons(
    student: EncoderConfig, teacher: EncoderConfig, weight: float = 1.0
) -> tuple[Lesson, ...]:
    """The cosine of the last hidden states. Source: Sanh et al. 2019, section 3."""
    last = (student.num_hidden_layers, teacher.num_hidden_layers)
    return (Lesson("cosine", (last,), weight),) if weight else ()


def tinybert_lessons(
    student: EncoderConfig, teacher: EncoderConfig, layer_map: Sequence[int] | None = None
) -> tuple[Lesson, ...]:
    """Embeddings, hidden states and attention scores. Source: Jiao et al. 2020, section 3.1."""
    pairs = layer_pairs(layer_map, student, teacher)
    return (Lesson("embeddings", ((0, 0),)), Lesson("hidden", pairs), Lesson("scores", pairs))


def minilm_lessons(
    student: EncoderConfig,
    teacher: EncoderConfig,
    teacher_layer: int | None = None,
    relation_heads: int | None = None,
) -> tuple[Lesson, ...]:
    """Relations of queries, keys and values in one teacher layer, learnt by the student's last.

    Source: Wang et al. 2021, section 3.

    Args:
        student: of any width.
        teacher: of the one that is learnt from.
        teacher_layer: its number from 0; the last when not given. The paper has the last for base
            models and number 20 of 24 for BERT-large.
        relation_heads: 48, or 64 for a teacher of width 1024 and above, when not given; as many as
            the teacher's heads where that does not divide both widths.
    """
    last = teacher.num_hidden_layers
    theirs = last if teacher_layer is None else teacher_layer + 1
    heads = relation_heads or _usual_heads(student, teacher)
    return (Lesson("relations", ((student.num_hidden_layers, theirs),), heads=heads),)


def patient_lessons(
    student: EncoderConfig,
    teacher: EncoderConfig,
    layer_map: Sequence[int] | None = None,
    weight: float = 1.0,
) -> tuple[Lesson, ...]:
    """The first token's states in all layers but the student's last, whose answer is learnt.

    The weight is of the mean over layers, as in the code of the paper.

    Source: Sun et al. 2019, section 3.2 ("skip").
    """
    pairs = layer_pairs(layer_map, student, teacher)[:-1]
    return (Lesson("patient", pairs, weight / len(pairs)),) if pairs and weight else ()


def _usual_heads(student: EncoderConfig, teacher: EncoderConfig) -> int:
    usual = next(heads for width, heads in _RELATION_HEADS if teacher.hidden_size >= width)
    divides = not student.hidden_size % usual and not teacher.hidden_size % usual
    return usual if divides else teacher.attention.heads
