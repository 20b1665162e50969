"""Distillation without labelled rows: layer losses, soft targets of words, and masked words.

This is an `Objective`; its losses are computed in `losses.student.Student`.

L layers of the student, M of the teacher; layer losses number them from 1, with 0 for the
embeddings, and options from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.errors import ConfigError
from filbert.losses.cross_entropy import cross_entropy
from filbert.losses.student import LayerLoss, StudentOutput
from filbert.model.config import EncoderConfig
from filbert.tasks.base import LossSpec, Targets
from filbert.tasks.pretraining import masked_words

# Wang et al. 2021, section 4.1: the number of relation heads by the least width of the teacher.
_RELATION_HEADS = ((1024, 64), (0, 48))


@dataclass(frozen=True)
class LayerDistillation:
    """The weighted sum of the mean of every loss.

    Attributes:
        layer_losses: The losses that the `Student` computes.
        soft_weight: Weight of the soft targets over the vocabulary; 0 for none.
        soft_at_masked: Whether these are computed at the masked words only.
        masked_weight: Weight of the masked-LM loss; 0 for none.
    """

    layer_losses: tuple[LayerLoss, ...]
    soft_weight: float = 0.0
    soft_at_masked: bool = False
    masked_weight: float = 0.0
    pair = "none"

    @property
    def _weighted(self) -> list[tuple[str, float]]:
        words = (("soft_loss", self.soft_weight), ("mlm_loss", self.masked_weight))
        return [(loss.name, loss.weight) for loss in self.layer_losses] + [w for w in words if w[1]]

    @property
    def spec(self) -> LossSpec:
        """The layer losses, then soft_loss and mlm_loss if they have a weight."""
        return LossSpec(tuple(name for name, _ in self._weighted), "loss")

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each loss."""
        return tuple(weight for _, weight in self._weighted)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return labels and rows of the masked words, (K,), and the lengths of the sequences."""
        lengths = tuple(len(example.input_ids) for example in examples)
        if not self.soft_weight and not self.masked_weight:
            return Targets(torch.empty(0), groups=lengths)
        return Targets(*masked_words(examples), groups=lengths)

    def count(self, targets: Targets) -> tuple[float, ...]:
        """Return the number of tokens, sequences or masked words of each loss."""
        lengths = targets.groups or ()
        masked = float(len(targets.values))
        counts = [loss.count(lengths) for loss in self.layer_losses]
        if self.soft_weight:
            counts.append(masked if self.soft_at_masked else float(sum(lengths)))
        return (*counts, masked) if self.masked_weight else tuple(counts)

    def loss(self, output: StudentOutput, targets: Targets) -> Tensor:
        """Return the sum of each loss times its weight, float32."""
        sums = list(output.sums.unbind())
        if self.masked_weight:
            sums.append(cross_entropy(output.student, targets.values))
        return torch.stack([w * kind for w, kind in zip(self.weights, sums, strict=True)])


# Layers of the teacher for the layers of the student


def spread(num_kept: int, num_layers: int) -> tuple[int, ...]:
    """Return layers to start a smaller model from, from 0: first, last and evenly between.

    Six of twelve are 0, 2, 4, 7, 9, 11, as in Sanh et al. 2019.
    """
    if num_kept == 1:
        return (0,)
    return tuple(round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept))


def even_map(num_student: int, num_teacher: int) -> tuple[int, ...]:
    """Return the teacher layer of each student layer, from 1: every M / L-th up to the last.

    Source: Jiao et al. 2020, section 4.1.
    """
    return tuple(max(1, round(i * num_teacher / num_student)) for i in range(1, num_student + 1))


def layer_pairs(
    layer_map: Sequence[int] | None, student: EncoderConfig, teacher: EncoderConfig
) -> tuple[tuple[int, int], ...]:
    """Return pairs of a student's and a teacher's layer, from 1.

    Args:
        layer_map: The teacher layer of each student layer, from 0; `even_map` if None.
        student: Configuration of the student.
        teacher: Configuration of the teacher.

    Raises:
        ConfigError: There is not one for each student layer, or one does not exist.
    """
    layers, there = student.num_hidden_layers, teacher.num_hidden_layers
    if layer_map is None:
        return tuple(enumerate(even_map(layers, there), 1))
    if len(layer_map) != layers:
        raise ConfigError(
            f"layer_map names {len(layer_map)} of the teacher's layers; the student has {layers} "
            "and needs one for each."
        )
    if wrong := [number for number in layer_map if not 0 <= number < there]:
        raise ConfigError(f"layer_map names layer {wrong[0]}; the teacher has 0 to {there - 1}.")
    return tuple(enumerate((number + 1 for number in layer_map), 1))


# The layer losses of each method


def cosine_losses(
    student: EncoderConfig, teacher: EncoderConfig, weight: float = 1.0
) -> tuple[LayerLoss, ...]:
    """Compare the last hidden states by their cosine. Source: Sanh et al. 2019, section 3."""
    last = (student.num_hidden_layers, teacher.num_hidden_layers)
    return (LayerLoss("cosine", (last,), weight),) if weight else ()


def tinybert_losses(
    student: EncoderConfig, teacher: EncoderConfig, layer_map: Sequence[int] | None = None
) -> tuple[LayerLoss, ...]:
    """Compare embeddings, hidden states and attention. Source: Jiao et al. 2020, section 3.1."""
    pairs = layer_pairs(layer_map, student, teacher)
    return (
        LayerLoss("embeddings", ((0, 0),)),
        LayerLoss("hidden", pairs),
        LayerLoss("scores", pairs),
    )


def minilm_losses(
    student: EncoderConfig,
    teacher: EncoderConfig,
    teacher_layer: int | None = None,
    relation_heads: int | None = None,
) -> tuple[LayerLoss, ...]:
    """Compare relations of queries, keys and values of the student's last layer.

    Source: Wang et al. 2021, section 3.

    Args:
        student: Of any width.
        teacher: Of any width.
        teacher_layer: From 0; the last if None. The paper uses the last layer of base models and
            layer 20 of BERT-large's 24.
        relation_heads: If None, 48, or 64 for a teacher of width 1,024 and above; the number of
            the teacher's heads if that does not divide both widths.
    """
    theirs = teacher.num_hidden_layers if teacher_layer is None else teacher_layer + 1
    usual = next(heads for width, heads in _RELATION_HEADS if teacher.hidden_size >= width)
    divides = not student.hidden_size % usual and not teacher.hidden_size % usual
    heads = relation_heads or (usual if divides else teacher.attention.heads)
    return (LayerLoss("relations", ((student.num_hidden_layers, theirs),), heads=heads),)


def patient_losses(
    student: EncoderConfig,
    teacher: EncoderConfig,
    layer_map: Sequence[int] | None = None,
    weight: float = 1.0,
) -> tuple[LayerLoss, ...]:
    """Compare the first token's states in all layers but the student's last.

    The weight is that of the mean over layers, as in the code of the paper.

    Source: Sun et al. 2019, section 3.2 ("skip").
    """
    pairs = layer_pairs(layer_map, student, teacher)[:-1]
    return (LayerLoss("patient", pairs, weight / len(pairs)),) if pairs and weight else ()
