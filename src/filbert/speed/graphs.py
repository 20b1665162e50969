"""Inference in a few static shapes, each recorded once as a CUDA graph and then replayed.

T tokens, S sequences, L the longest sequence, H hidden size.

A small batch on a GPU waits for the launches of some two hundred kernels; a graph launches them all
at once. It can only repeat what was recorded, so a batch is filled to the smallest bucket that
takes it. Its dummies are sequences of their own and what the model says about them is cut off.
Larger batches than any bucket keep the GPU busy by themselves and run as they are.

On other devices the same steps run without a recording, for tests.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from threading import Lock
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.model.attention import kernel_serves
from filbert.model.attention_plan import StaticBatch
from filbert.model.encoder import Encoder
from filbert.model.heads import Model, PretrainingHead, VectorHead
from filbert.speed.layout import Bucket, Inputs, lay_out, views

log = logging.getLogger(__name__)

# Beyond this many tokens the kernels of BERT-base take longer than their launches.
LARGEST = 8_192
_SMALLEST = 16
# A bucket for many sequences has room for one in every so many tokens.
_TOKENS_PER_SEQUENCE = 16
# A padded grid may have this many places for each token.
_MAX_GRID = 2
# Kernels are loaded, and torch's own first measurements made, in passes that are not recorded.
_NUM_WARM = 3

# The head's output, or the encoder's.
Part = Literal["head", "encoder"]


def buckets_for(longest: int, largest: int = LARGEST) -> tuple[Bucket, ...]:
    """The shapes of programs, smallest first.

    T is 16, 32, 64, 96, 128, 192 ... `largest`, so at most half of a bucket is dummies, a third
    from 64 on. Up to `longest` there is one for a single sequence, which may fill it (S = 2), and
    for every T from 32 one for many, S = T / 16.

    Args:
        longest: most tokens of a sequence that the model serves.
        largest: T at most.
    """
    sizes = [_SMALLEST]
    while sizes[-1] < largest:
        last = sizes[-1]
        # A power of two and a half, then the next one.
        is_power = last & (last - 1) == 0
        sizes.append(last * 3 // 2 if is_power and last >= 64 else 1 << last.bit_length())
    found = []
    for tokens in sizes:
        if tokens <= longest:
            found.append(Bucket(tokens, 2, tokens))
        many = tokens // _TOKENS_PER_SEQUENCE
        if many > 2:
            found.append(Bucket(tokens, many, min(tokens, longest)))
    return tuple(found)


def bucket_for(lengths: Sequence[int], buckets: Sequence[Bucket]) -> Bucket | None:
    """The first of `buckets` that takes sequences of these lengths; None if there is none."""
    sizes = sum(lengths), len(lengths), max(lengths)
    return next((bucket for bucket in buckets if bucket.holds(*sizes)), None)


class Graphs:
    """A model's forward pass over packed batches, by programs of static shape where they help.

    Weights must stay where they are: programs read them from there. Several threads may call; one
    batch runs at a time.

    Args:
        model: encoder and head, in eval mode, on its device and in its number format; under
            autocast it runs in the ordinary way.
        buckets: as of `buckets_for`, smallest first; those for the model when not given.
        compile: a mode of torch.compile, which fuses what lies between matrix products; takes
            about a minute at the first batch of every part. Larger batches are compiled too.

    Attributes:
        buckets: without those whose padded grid would waste too much, where no kernel goes by the
            borders.
    """

    def __init__(
        self,
        model: Model,
        *,
        buckets: Sequence[Bucket] | None = None,
        compile: str | None = None,
    ) -> None:
        config, dtype = model.config, next(model.parameters()).dtype
        self.model, self.device = model.eval(), model.device
        self._by_borders = kernel_serves(self.device, dtype, config.head_size)
        given = buckets_for(config.max_tokens_per_sequence) if buckets is None else buckets
        self.buckets = tuple(bucket for bucket in given if self._is_worth(bucket))
        self._compile = compile
        self._programs: dict[Part, Callable[..., Tensor]] = {}
        self._placed: dict[tuple[Part, Bucket], _Placed] = {}
        self._lock = Lock()

    def _is_worth(self, bucket: Bucket) -> bool:
        tokens, sequences, longest = bucket
        return self._is_cheap or sequences * longest <= _MAX_GRID * tokens

    @property
    def _is_cheap(self) -> bool:
        """Whether empty places cost nothing, or nobody counts: the stand-in is for tests."""
        return self._by_borders or self.device.type != "cuda"

    def forward(self, batch: PackedBatch) -> Tensor:
        """As `model(batch)`, from a batch on the host: on the model's device, detached."""
        return self._run("head", batch)

    def encode(self, batch: PackedBatch) -> Tensor:
        """As `model.encoder(batch)`, (T, H), likewise."""
        return self._run("encoder", batch)

    def warm_up(self, *parts: Part) -> float:
        """Record every bucket now, so that no later batch pays for it; seconds that it took.

        All share one pool of memory, and the largest come first, so that the others fit into what
        it left: together they hold about what the ordinary pass over the largest bucket needs, and
        an output each.

        Args:
            parts: what will be asked for; both when none is named.
        """
        began = time.perf_counter()
        with torch.inference_mode(), self._on_device():
            for part in parts or ("head", "encoder"):
                for bucket in reversed(self.buckets if self._serves[part] else ()):
                    with self._lock:
                        self._placed_of(part, bucket).run()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        return time.perf_counter() - began

    @cached_property
    def _serves(self) -> dict[Part, bool]:
        encoder = isinstance(self.model.encoder, Encoder)
        # Vectors are cut by lengths, which a program does not know; pairs are no one tensor.
        head = not isinstance(self.model.head, VectorHead | PretrainingHead)
        return {"encoder": encoder, "head": encoder and head}

    def _on_device(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def _run(self, part: Part, batch: PackedBatch) -> Tensor:
        with torch.inference_mode(), self._on_device():
            # A recording under autocast would keep its own copies of the weights.
            if self._serves[part] and not torch.is_autocast_enabled(self.device.type):
                bucket = bucket_for(batch.lengths, self.buckets)
                if bucket is not None:
                    with self._lock:
                        placed = self._placed_of(part, bucket)
                        placed.fill(batch)
                        # The next batch may overwrite what a program gave.
                        return self._cut(part, placed.run(), batch).clone()
                if self._compile is not None and self._is_cheap:
                    return self._run_large(part, batch)
            whole = self.model if part == "head" else self.model.encoder
            return cast("Tensor", whole(batch.to(self.device)))

    def _placed_of(self, part: Part, bucket: Bucket) -> _Placed:
        if (part, bucket) not in self._placed:
            self._placed[part, bucket] = self._place(part, bucket)
        return self._placed[part, bucket]

    def _place(self, part: Part, bucket: Bucket) -> _Placed:
        placed = _Placed(bucket, self._program(part), self.device)
        placed.clear()
        if self.device.type == "cuda":
            began = time.perf_counter()
            placed.record(*self._recorder)
            log.debug("recorded %s of the %s in %.2f s", bucket, part, time.perf_counter() - began)
        return placed

    @cached_property
    def _recorder(self) -> tuple[Any, torch.cuda.Stream]:
        """The pool of all programs, and the stream that they are recorded on.

        One of this device: torch's own belongs to the first that it recorded on. One for all:
        cuBLAS keeps 32 MiB for every stream.
        """
        return torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def _program(self, part: Part) -> Callable[..., Tensor]:
        if part not in self._programs:
            program = _program(self.model, part, self._by_borders)
            if self._compile is not None:
                # One program for all shapes: a minute each would be too long.
                program = torch.compile(program, mode=self._compile, dynamic=True, fullgraph=True)
            self._programs[part] = program
        return self._programs[part]

    def _run_large(self, part: Part, batch: PackedBatch) -> Tensor:
        """A batch beyond all buckets, compiled, with hardly any dummies."""
        tokens, longest = _up(batch.num_tokens, 64), _up(batch.max_seqlen, 64)
        longest = min(longest, self.model.config.max_tokens_per_sequence)
        sequences = _up(batch.num_sequences + _up(63, longest) // longest, 2)
        placed = _Placed(Bucket(tokens, sequences, longest), self._program(part), self.device)
        placed.fill(batch)
        return self._cut(part, placed.run(), batch)

    def _cut(self, part: Part, output: Tensor, batch: PackedBatch) -> Tensor:
        head = self.model.head
        per_token = part == "encoder" or head is None or head.per_token
        return output[: batch.num_tokens if per_token else batch.num_sequences]


def graphs_for(model: nn.Module) -> Graphs | None:
    """Programs for a model, where they pay: on a GPU."""
    if isinstance(model, Model) and model.device.type == "cuda":
        return Graphs(model)
    return None


class _Placed:
    """A program of one bucket, and where its numbers come in and out.

    Args:
        bucket: its shape.
        program: a function of `Inputs` and L.
        device: where it runs.
    """

    def __init__(
        self, bucket: Bucket, program: Callable[..., Tensor], device: torch.device
    ) -> None:
        self._bucket, self._program = bucket, program
        on_gpu = device.type == "cuda"
        self._host = torch.zeros(bucket.num_places, dtype=torch.int64, pin_memory=on_gpu)
        # `to` would wait for all that the GPU has still to do.
        self._there = torch.empty_like(self._host, device=device) if on_gpu else self._host
        self._inputs: Inputs = views(self._there, bucket)
        self._sent = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._output: Tensor | None = None

    def clear(self) -> None:
        """Bring dummies there, for the time until there is a batch."""
        nothing = np.zeros(0, dtype=np.int64)
        self._send(nothing, nothing, ())

    def fill(self, batch: PackedBatch) -> None:
        """Bring a batch, which is on the host, to where the program reads it."""
        self._send(batch.input_ids.numpy(), batch.token_type_ids.numpy(), batch.lengths)

    def _send(self, ids: np.ndarray, types: np.ndarray, lengths: Sequence[int]) -> None:
        if self._sent is not None:
            # The transfer before may still be reading.
            self._sent.synchronize()
        lay_out(self._host.numpy(), self._bucket, ids, types, lengths)
        if self._sent is not None:
            self._there.copy_(self._host, non_blocking=True)
            self._sent.record()

    def record(self, pool: Any, stream: torch.cuda.Stream) -> None:
        """Record the program; its memory is in `pool`."""
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_NUM_WARM):
                self._program(*self._inputs, self._bucket.longest)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on with what they do meanwhile.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self._output = self._program(*self._inputs, self._bucket.longest)
        self._graph = graph

    def run(self) -> Tensor:
        """The output for all places of the bucket, which the next run may overwrite."""
        if self._graph is None:
            return self._program(*self._inputs, self._bucket.longest)
        self._graph.replay()
        assert self._output is not None
        return self._output


def _program(model: Model, part: Part, by_borders: bool) -> Callable[..., Tensor]:
    """The forward pass as a function of tensors."""
    whole = model if part == "head" else model.encoder

    def program(
        input_ids: Tensor,
        position_ids: Tensor,
        token_type_ids: Tensor,
        cu_seqlens: Tensor,
        starts: Tensor,
        longest: int,
    ) -> Tensor:
        batch: Any = StaticBatch(
            input_ids, position_ids, token_type_ids, cu_seqlens, starts, longest, by_borders
        )
        return cast("Tensor", whole(batch))

    return program


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
