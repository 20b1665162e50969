"""A student with its teacher in one module: which layers are compared, and how.

T tokens in the batch, K rows of the head, S sequences, H hidden size, N layer losses.

Layers are numbered from 0: 0 is the embeddings, i the output of the i-th layer or its attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from filbert.batch import PackedBatch, pack
from filbert.errors import ConfigError
from filbert.losses import distillation
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, Trace, traced
from filbert.model.heads import Model
from filbert.model.pooling import row_read
from filbert.model.positions import rotate

# Logits of one model over the vocabulary that are in memory at a time: 128 MB of float32.
_MAX_LOGITS = 2**25

# Which layers are compared, and how

# Kinds of losses by what they read of a layer.
_OF_HIDDEN = ("cosine", "embeddings", "hidden", "patient")
_OF_ATTENTION = ("scores", "relations")
# Kinds with a learned projection from the student's width to the teacher's.
_PROJECTED = ("embeddings", "hidden")


@dataclass(frozen=True)
class LayerLoss:
    """A loss between layers of the student and layers of the teacher, or between their words.

    Attributes:
        kind: cosine, embeddings, hidden or patient (hidden states), scores or relations
            (attention), or soft (the scores over the vocabulary of two masked-LM heads).
        layers: Pairs of a student's and a teacher's layer; their losses are added.
        weight: Factor of the mean loss.
        heads: Of "relations": the number of heads that the vectors are split into.
        temperature: Of "soft": both scores are divided by it.
        masked_only: Of "soft": compare the masked tokens instead of all.
    """

    kind: str
    layers: tuple[tuple[int, int], ...] = ()
    weight: float = 1.0
    heads: int = 0
    temperature: float = 1.0
    masked_only: bool = False

    @property
    def name(self) -> str:
        """The name of the loss in logs."""
        return f"{self.kind}_loss"

    def count(self, lengths: Sequence[int], num_masked: int = 0) -> float:
        """Return the number of sequences, masked tokens or tokens that the sum runs over."""
        if self.masked_only:
            return float(num_masked)
        return float(len(lengths) if self.kind == "patient" else sum(lengths))


def check_layer_losses(
    losses: Sequence[LayerLoss], student: EncoderConfig, teacher: EncoderConfig
) -> None:
    """Check that the losses can be computed between two models."""
    sides = {"student": student, "teacher": teacher}
    for loss in losses:
        needs_width = loss.kind in _OF_HIDDEN and loss.kind not in _PROJECTED
        if needs_width and student.hidden_size != teacher.hidden_size:
            raise ConfigError(
                f"{loss.kind}: the student's hidden_size is {student.hidden_size} and the "
                f"teacher's {teacher.hidden_size}; this loss needs equal sizes."
            )
        for pair in loss.layers:
            for (name, config), number in zip(sides.items(), pair, strict=True):
                if not 0 <= number <= config.num_hidden_layers:
                    raise ConfigError(
                        f"{loss.kind}: the {name}'s layer {number - 1} is requested; it has 0 to "
                        f"{config.num_hidden_layers - 1}."
                    )
            if loss.kind in _OF_ATTENTION:
                _check_attention(loss, pair, (student, teacher))


def _check_attention(
    loss: LayerLoss, pair: tuple[int, int], configs: tuple[EncoderConfig, EncoderConfig]
) -> None:
    heads = [config.heads_of(n - 1) for config, n in zip(configs, pair, strict=True)]
    widths = [config.head_size * count for config, count in zip(configs, heads, strict=True)]
    masks = [
        (c.attention.causal, c.attention.window if c.is_local(n - 1) else None)
        for c, n in zip(configs, pair, strict=True)
    ]
    if loss.kind == "scores" and heads[0] != heads[1]:
        raise ConfigError(
            f"scores: the student has {heads[0]} attention heads and the teacher {heads[1]}; "
            "they are compared head by head. Use a student with as many heads, or method minilm."
        )
    if loss.kind == "relations" and any(width % loss.heads for width in widths):
        raise ConfigError(
            f"relation_heads is {loss.heads}, which does not divide the widths of both models, "
            f"{widths[0]} and {widths[1]}."
        )
    if masks[0] != masks[1]:
        raise ConfigError(
            f"{loss.kind}: the student's layer {pair[0] - 1} and the teacher's {pair[1] - 1} have "
            "different attention masks (causal, or a window). Pair other layers."
        )


# The module that is trained


class StudentOutput(NamedTuple):
    """The result of one forward pass.

    Attributes:
        student: Output of the head; the last hidden states without a head.
        teacher: The same of the teacher; empty if it is not compared.
        sums: One sum per loss, float32 (N,).
    """

    student: Tensor
    teacher: Tensor
    sums: Tensor


class Student(nn.Module):
    """A model in training with its projections and its teacher.

    Its state has the names of the model, and "projections..." that are not saved with it.

    Args:
        teacher: A model with the same vocabulary.
        losses: Losses that passed `check_layer_losses`.
        compares_outputs: Whether the output of the teacher's head is computed.
    """

    def __init__(
        self,
        model: Model,
        teacher: Model,
        losses: Sequence[LayerLoss],
        *,
        compares_outputs: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.head = model.head
        self.projections = _new_projections(losses, model.config, teacher.config)
        # In a tuple it belongs neither to the student's state nor to its parameters.
        self._hidden = (teacher.eval().requires_grad_(False),)
        self.losses = tuple(losses)
        self.compares_outputs = compares_outputs

    @property
    def teacher(self) -> Model:
        """The frozen teacher, in eval mode; `to` does not move it."""
        return self._hidden[0]

    @property
    def config(self) -> EncoderConfig:
        """The student's configuration."""
        return self.encoder.config

    @property
    def model(self) -> Model:
        """The student alone, with the same modules."""
        return Model(self.encoder, self.head)

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> StudentOutput:
        """Read a batch with both models and compare them; heads read the rows `at`, int64 (K,)."""
        tokens_TH, mine = self._encode(self.encoder, batch, side=0)
        with torch.no_grad(), torch.autocast(tokens_TH.device.type, enabled=False):
            theirs_TH, theirs = self._encode(self.teacher.encoder, batch, side=1)
            answer = tokens_TH.new_empty(0)
            if self.compares_outputs:
                answer = _tensor(self.teacher.read(theirs_TH, batch, at))
        sums = []
        for loss in self.losses:
            if loss.kind == "soft":
                sums.append(self._soft_words(loss, tokens_TH, theirs_TH, batch, at))
            else:
                parts = [self._compared(loss, pair, mine, theirs, batch) for pair in loss.layers]
                sums.append(sum(parts[1:], parts[0]))
        output = _tensor(self.model.read(tokens_TH, batch, at))
        return StudentOutput(output, answer, torch.stack(sums) if sums else tokens_TH.new_zeros(0))

    def _compared(
        self,
        loss: LayerLoss,
        pair: tuple[int, int],
        student: Trace,
        teacher: Trace,
        batch: PackedBatch,
    ) -> Tensor:
        """Return the sum of a loss over the batch for one pair of layers."""
        if loss.kind in _OF_HIDDEN:
            mine_TH, theirs_TH = student.hidden[pair[0]], teacher.hidden[pair[1]]
            if loss.kind in self.projections:
                mine_TH = self.projections[loss.kind](mine_TH)
            if loss.kind == "cosine":
                return distillation.cosine_distance(mine_TH, theirs_TH)
            if loss.kind == "patient":
                at = row_read(batch, "cls", causal=self.config.attention.causal)
                return distillation.patient_distance(mine_TH[at], theirs_TH[at])
            return distillation.squared_error(mine_TH, theirs_TH)
        plans = (student.plans[pair[0]], teacher.plans[pair[1]])
        qkv = (student.qkv[pair[0]], teacher.qkv[pair[1]])
        if loss.kind == "relations":
            first, second = (part.reshape(*part.shape[:2], loss.heads, -1) for part in qkv)
            return distillation.relation_divergence(first, second, plans[0])
        first, second = (
            (part if plan.angles is None else rotate(part, plan.angles))[:, :2]
            for part, plan in zip(qkv, plans, strict=True)
        )
        return distillation.score_error(first, second, plans[0])

    def _encode(self, encoder: Encoder, batch: PackedBatch, side: int) -> tuple[Tensor, Trace]:
        """Return an encoder's output and what the layer losses read inside it."""
        layers: dict[str, set[int]] = {"hidden": set(), "qkv": set()}
        for loss in self.losses:
            part = "hidden" if loss.kind in _OF_HIDDEN else "qkv"
            layers[part] |= {pair[side] for pair in loss.layers}
        if not any(layers.values()):
            return encoder(batch), Trace()
        with traced(encoder, layers["hidden"], layers["qkv"]) as trace:
            tokens_TH = encoder(batch)
        last = encoder.config.num_hidden_layers
        if last in layers["hidden"]:
            # After the final norm, which is not part of the last layer in pre-norm models.
            trace.hidden[last] = tokens_TH
        return tokens_TH, trace

    def _soft_words(
        self,
        loss: LayerLoss,
        student_TH: Tensor,
        teacher_TH: Tensor,
        batch: PackedBatch,
        at: Tensor | None,
    ) -> Tensor:
        """Return `soft_targets` over the vocabulary, computed a few rows at a time."""
        if at is None or not loss.masked_only:
            at = torch.arange(batch.num_tokens, device=student_TH.device)

        def compare(student_TH: Tensor, rows: Tensor) -> Tensor:
            with torch.no_grad(), torch.autocast(student_TH.device.type, enabled=False):
                wanted = _tensor(self.teacher.read(teacher_TH, batch, rows))
            return distillation.soft_targets(
                _tensor(self.model.read(student_TH, batch, rows)), wanted, loss.temperature
            )

        total = student_TH.new_zeros((), dtype=torch.float32)
        for rows in torch.split(at, max(1, _MAX_LOGITS // self.config.vocab_size)):
            total = total + checkpoint(
                compare, student_TH, rows, use_reentrant=False, preserve_rng_state=False
            )
        return total


def _new_projections(
    losses: Sequence[LayerLoss], student: EncoderConfig, teacher: EncoderConfig
) -> nn.ModuleDict:
    """Create the projections between the widths, drawn from torch's default generator.

    Source: Jiao et al. 2020, equations 8 and 9 (no bias).
    """
    projections = nn.ModuleDict()
    for loss in losses:
        if loss.kind in _PROJECTED and student.hidden_size != teacher.hidden_size:
            projections[loss.kind] = nn.Linear(student.hidden_size, teacher.hidden_size, bias=False)
    for projection in projections.values():
        # This standard deviation keeps the length of vectors.
        nn.init.normal_(projection.weight, std=teacher.hidden_size**-0.5)  # type: ignore[arg-type]
    return projections


def freeze_unreached(student: Student, *, answers: bool) -> int:
    """Freeze the parameters that no loss reaches, because DDP would wait for their gradients.

    Relations of a last layer, for example, do not reach what follows its attention. `answers`: the
    output of the head is part of the loss.

    Returns:
        The number of weights that were frozen.
    """
    was_training = student.training
    student.eval()
    output = student(pack([[0, 0]]).to(next(student.parameters()).device))
    reached = output.sums.sum()
    if answers:
        reached = reached + output.student.float().sum()
    reached.backward()
    unreached = [p for p in student.parameters() if p.requires_grad and p.grad is None]
    for parameter in unreached:
        parameter.requires_grad_(False)
    student.zero_grad(set_to_none=True)
    student.train(was_training)
    return sum(parameter.numel() for parameter in unreached)


def _tensor(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    assert isinstance(output, Tensor), "no student has the head of a pair objective"
    return output
