"""The forward pass as a program of one static shape, which torch.compile records once.

T tokens, S sequences, K rows asked for, all of a shape; L the longest sequence.

A micro-batch is filled to its phase's shape with dummies: sequences of id 0, which attend to
themselves alone, and rows asked for that are the last dummy's. What the model says about them is
cut off, so they have no gradient. The model sees borders as a tensor and no length as a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from filbert.data.examples import Example
from filbert.data.loader import Batches
from filbert.errors import ConfigError
from filbert.model.attention_plan import StaticBatch
from filbert.model.heads import PretrainingHead, VectorHead
from filbert.model.replaced import ReplacedTokenModel
from filbert.speed.layout import Bucket, Inputs, lay_out, views
from filbert.tasks.base import Objective, Targets
from filbert.train.distributed import Parallel, Trainable
from filbert.train.step import Output, model_forward

# Of torch.compile. CUDA graphs ("reduce-overhead") spare the launches of kernels, which only small
# models wait for; autotuning takes minutes more and is not known to pay.
MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_WITH_GRAPHS = ("reduce-overhead", "max-autotune")

# Room for the steps that were not looked at: tokens per micro-batch, sequences and masked rows.
_ROOM_TOKENS = 0.01
_ROOM_SEQUENCES = 0.1
_ROOM_ROWS = 0.03

# A micro-batch that fills less than this is quicker in the ordinary way.
_WORTH_FILLING = 0.5

# What a program is called on the model, where `Parallel.forward_of` finds it.
_NAME = "static_program"


class Shape(NamedTuple):
    """What all micro-batches of a phase are filled to.

    Attributes:
        num_tokens: T; real ones are fewer, so that the last token is a dummy.
        num_sequences: S.
        num_rows: K; None when the head answers for sequences or for all tokens.
        longest: L.
    """

    num_tokens: int
    num_sequences: int
    num_rows: int | None
    longest: int

    def takes(self, lengths: Sequence[int], num_rows: int | None) -> bool:
        """Whether a micro-batch of such sequences and so many rows fits in."""
        dummies = self.num_tokens - sum(lengths)
        spare = self.num_sequences - len(lengths)
        fits = (self.num_rows is None) == (num_rows is None)
        fits = fits and (num_rows or 0) <= (self.num_rows or 0)
        return fits and max(lengths) <= self.longest and 1 <= dummies <= spare * self.longest


def shape_of(
    micro_batches: Sequence[Sequence[Example]],
    task: Objective,
    *,
    most: int | None = None,
    longest: int = 2**31,
) -> Shape:
    """The smallest shape for all of these, with room for some more sequences and rows.

    Args:
        micro_batches: some of a phase, none empty.
        task: says which rows the head answers for.
        most: T at most; what they need and one when not given, in multiples of 128.
        longest: L at most; as above, in multiples of 8.
    """
    lengths = [[len(e.input_ids) for e in examples] for examples in micro_batches]
    length = min(_up(max(map(max, lengths)), 8), longest)
    fullest = max(map(sum, lengths))
    tokens = most or _up(fullest + 1, 128)
    # Dummies need sequences too.
    sequences = max(map(len, lengths)) + _ROOM_SEQUENCES * tokens / length
    asked = [_num_rows(task.targets(examples)) for examples in micro_batches]
    known = [number for number in asked if number is not None]
    rows = _up(max(known) * (1 + _ROOM_ROWS) * tokens / fullest, 64) if known else None
    return Shape(tokens, _up(sequences * (1 + _ROOM_SEQUENCES) + 1, 8), rows, length)


def even_shape(loader: Batches, task: Objective, *, world: int, longest: int) -> Shape:
    """A shape that the micro-batches of a phase nearly fill; cuts them so.

    A step's tokens are split evenly over as few micro-batches as `loader.max_tokens` allows, and
    that number is lowered to what each then needs: full ones and a small rest would be filled to
    the same shape. Looks at three steps of an epoch; every rank finds the same.
    """
    last = loader.steps_per_epoch - 1
    steps = sorted({0, last // 2, last})
    lengths = [
        [len(e.input_ids) for batch in loader.step(step, 0, world) for e in batch] for step in steps
    ]
    sizes, length = list(map(sum, lengths)), max(map(max, lengths))
    most = max(loader.max_tokens // 128 * 128, _up(length + 1, 128))
    whole = max(sizes) * (1 + _ROOM_TOKENS)
    # A micro-batch is full when the next sequence does not fit, up to a sequence before its end.
    count = math.ceil(whole / max(most - length, 1))
    most = min(most, _up(whole / count + length, 128))
    loader.max_tokens = most - 1
    again = [batch for step in steps for batch in loader.step(step, 0, world) if batch]
    return shape_of(again, task, most=most, longest=longest)


class StaticForward:
    """Stands in for `step.model_forward`.

    Micro-batches that do not fit the shape, or fill less than half of it, run in the ordinary way;
    the log says so once.

    Args:
        model: encoder and head, on its device.
        wrapped: what `parallel.wrap` gave.
        task: gives the targets.
        parallel: the other ranks.
        say: tells the user what is compiled, and what is not.
        mode: one of `MODES`; None records nothing and runs the same steps one by one.

    Attributes:
        shape: that all are filled to; None runs everything in the ordinary way.

    Raises:
        ConfigError: this task cannot be compiled, or not on this device.
    """

    def __init__(
        self,
        model: Trainable,
        wrapped: nn.Module,
        task: Objective,
        parallel: Parallel,
        *,
        say: Callable[[str], None] = lambda text: None,
        mode: str | None = MODES[0],
    ) -> None:
        assert parallel.kind != "fsdp"
        if task.whole_batch or isinstance(model.head, VectorHead):
            raise ConfigError("compile does not serve sentence vectors; leave it out.")
        if mode is not None and parallel.device.type == "cpu" and _has_dropout(model):
            # Its 64-bit draws (model/dropout.py) are not among what can be recorded.
            raise ConfigError(
                "compile on a processor needs --dropout 0. It is made for GPUs; leave it out here."
            )
        self.model, self.task, self.parallel = model, task, parallel
        self.shape: Shape | None = None
        self._settled: tuple[Batches, int] | None = None
        self._tell, self._said = say, set[str]()
        self._ordinary = model_forward(wrapped, parallel.device)
        self._with_graphs = mode in _WITH_GRAPHS
        program = _program(model)
        if mode is not None:
            program = torch.compile(program, mode=mode, dynamic=False, fullgraph=True)
        # DDP runs what it finds on the model itself.
        model.__dict__[_NAME] = program
        self._run = parallel.forward_of(wrapped, _NAME)

    def settle(self, loader: Batches) -> None:
        """Take the shape of a phase, if it or its `max_tokens` is new; may lower the latter."""
        if self._settled == (loader, loader.max_tokens):
            return
        longest = self.model.config.max_tokens_per_sequence
        self.shape = even_shape(loader, self.task, world=self.parallel.world, longest=longest)
        self._settled = (loader, loader.max_tokens)
        tokens, sequences, rows, longest = self.shape
        asked = "" if rows is None else f", {rows:,} of them asked for"
        self._tell(
            f"compile: micro-batches of {tokens:,} tokens in {sequences:,} sequences of up to "
            f"{longest}{asked}; the first takes long"
        )

    def __call__(self, examples: Sequence[Example], targets: Targets) -> Output:
        """The head's output for the real rows alone, as the ordinary forward pass gives it."""
        lengths = [len(example.input_ids) for example in examples]
        num_rows = _num_rows(targets)
        shape = self._shape_for(lengths, num_rows)
        if shape is None:
            return self._ordinary(examples, targets)
        if torch.is_grad_enabled():
            self._own_gradients()
        device = self.parallel.device
        inputs = fill(examples, shape, device)
        at = None if targets.at is None else _padded(targets.at, shape.num_rows, inputs[0].shape[0])
        values = _padded(targets.values, shape.num_rows, 1) if targets.are_seen else None
        output = self._run(*inputs, at, values, shape.longest)
        return self._cut(output, len(lengths), sum(lengths), num_rows)

    def _shape_for(self, lengths: Sequence[int], num_rows: int | None) -> Shape | None:
        """None for the ordinary way."""
        shape = self.shape
        if shape is None:
            return None
        if self._settled is not None and self._settled[0].max_tokens < self._settled[1]:
            # Memory ran out in the middle of a step.
            return None
        if not shape.takes(lengths, num_rows):
            self._say("does not fit the shape", lengths)
            return None
        if sum(lengths) < _WORTH_FILLING * shape.num_tokens:
            self._say("fills less than half of the shape", lengths)
            return None
        return shape

    def _say(self, what: str, lengths: Sequence[int]) -> None:
        if what not in self._said:
            self._said.add(what)
            self._tell(
                f"compile: a micro-batch of {sum(lengths):,} tokens in {len(lengths):,} sequences "
                f"{what}; such ones run uncompiled"
            )

    def _own_gradients(self) -> None:
        """Give every parameter a gradient of its own to add to.

        The first gradient becomes `grad` as it is, and in a CUDA graph it lies where the next
        replay writes: gradients of several micro-batches would silently be lost.
        """
        if self._with_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            for parameter in self.model.parameters():
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)

    def _cut(
        self, output: Output, num_sequences: int, num_tokens: int, num_rows: int | None
    ) -> Output:
        rows = num_tokens if num_rows is None else num_rows
        if isinstance(self.model, ReplacedTokenModel):
            ends = [rows, num_tokens, num_tokens]
        elif isinstance(self.model.head, PretrainingHead):
            ends = [rows, num_sequences]
        else:
            head = self.model.head
            ends = [rows if head is None or head.per_token else num_sequences]
        if isinstance(output, Tensor):
            return output[: ends[0]]
        return tuple(part[:end] for part, end in zip(output, ends, strict=True))


def fill(examples: Sequence[Example], shape: Shape, device: torch.device) -> Inputs:
    """Examples and dummies as the tensors of a `StaticBatch`, in one transfer."""
    on_gpu = device.type == "cuda"
    bucket = Bucket(shape.num_tokens, shape.num_sequences, shape.longest)
    buffer = torch.empty(bucket.num_places, dtype=torch.int64, pin_memory=on_gpu)
    ids = np.concatenate([example.input_ids for example in examples])
    types = np.concatenate([example.token_type_ids for example in examples])
    lay_out(buffer.numpy(), bucket, ids, types, [len(e.input_ids) for e in examples])
    return views(buffer.to(device, non_blocking=on_gpu), bucket)


def _program(model: Trainable) -> Callable[..., Output]:
    """The model's forward pass as a function of tensors."""
    # Bound now: DDP puts this program in its place while it runs.
    forward = cast("Callable[..., Output]", model.forward)

    def program(
        input_ids: Tensor,
        position_ids: Tensor,
        token_type_ids: Tensor,
        cu_seqlens: Tensor,
        starts: Tensor,
        at: Tensor | None,
        values: Tensor | None,
        longest: int,
    ) -> Output:
        batch: Any = StaticBatch(
            input_ids, position_ids, token_type_ids, cu_seqlens, starts, longest
        )
        return forward(batch, at) if values is None else forward(batch, at, values)

    return program


def _has_dropout(model: Trainable) -> bool:
    config = model.config
    return max(config.hidden_dropout, config.attention_dropout, config.head_dropout) > 0


def _padded(rows: Tensor, number: int | None, end: int) -> Tensor:
    """(K,), the last dummy's row in the places that are left over."""
    assert number is not None
    return nn.functional.pad(rows, (0, number - len(rows)), value=end - 1)


def _num_rows(targets: Targets) -> int | None:
    return None if targets.at is None else len(targets.at)


def _up(number: float, multiple: int) -> int:
    return -(-math.ceil(number) // multiple) * multiple
