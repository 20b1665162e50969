"""The one place outside training that runs a model over sequences.

Examples are sorted by length, packed, run, brought to the host and put back in order. A caller says
with a small function (`Read`) what is computed from a batch: a head's logits, vectors, hidden
states, attention maps.

T tokens in the batch, S sequences, K rows asked for, H hidden size.

On a CPU several batches run next to each other, each on its own cores: half of the calls in a layer
are too small to be shared out, and two threads on one batch wait for each other during a tenth
of their time. On a GPU batches run one after the other, and the host packs the next meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.checkpoints.sentence_transformers import SentenceVectors
from filbert.data.examples import Example, collate
from filbert.data.loader import by_length
from filbert.inference.onnx_session import SessionModel, sharing_cores
from filbert.model.config import EncoderConfig
from filbert.model.encoder import hidden_states
from filbert.model.heads import Model
from filbert.model.pooling import pool, row_read
from filbert.model.precision import Precision
from filbert.text.tokenizer import Tokenizer

_T = TypeVar("_T")

# Computes something from a batch on the model's device; gets the batch's examples, too.
Read = Callable[[PackedBatch, Sequence[Example]], tuple[Tensor, ...]]
# For each batch, the numbers of its examples and what `Read` returned, on the host.
Outputs = Iterator[tuple[list[int], tuple[Tensor, ...]]]

# Tokens of a batch. On a CPU larger ones gain nothing, because several run next to each other, and
# smaller ones spend more on each call; docs/log.md.
MAX_TOKENS_CPU = 2_048
MAX_TOKENS_CUDA = 32_768
# The widest activations of a batch, by number format, in values: more does not fit a core's caches,
# and fewer spend more on each product. Int8 makes codes of float32 ones, so it needs the smallest.
_WIDEST = {"float32": 12 * 2**18, "bf16": 24 * 2**18, "int8": 9 * 2**18}
# Tokens of the first passes: of a short text, a longer one, and the short one once more.
_FIRST = (16, 128, 16)
# Python runs one thread at a time, and some of it runs between products.
_MOST_STREAMS = 4


class LoadedModel(Protocol):
    """What a `Predictor` has that running its model takes."""

    model: Model | SessionModel
    tokenizer: Tokenizer
    max_length: int
    max_tokens: int
    precision: Precision


def default_max_tokens(
    device: torch.device, config: EncoderConfig | None = None, number_format: str = "float32"
) -> int:
    """Return the tokens per packed batch unless the user sets another number.

    Without a `config` the batch is as large as for the smallest model.
    """
    if device.type == "cuda":
        return MAX_TOKENS_CUDA
    if config is None:
        return MAX_TOKENS_CPU
    return max(512, min(MAX_TOKENS_CPU, _WIDEST[number_format] // config.feed_forward.width))


def forward(
    model: nn.Module,
    examples: Sequence[Example],
    read: Read,
    *,
    max_tokens: int | None = None,
    precision: Precision,
    one_at_a_time: bool = False,
    on_batch: Callable[[int], None] = lambda num_tokens: None,
) -> Outputs:
    """Run a model over examples in packed batches of near-equal length, the longest first.

    Args:
        model: Put into eval mode.
        read: Runs the model on a batch; called without gradients, in several threads on a CPU.
        max_tokens: Tokens per batch; a longer sequence is a batch of its own. If None,
            `default_max_tokens` of the device.
        one_at_a_time: For a `read` that uses hooks or the global random generator.
        on_batch: Called with the tokens of each finished batch.

    Yields:
        For each batch the numbers of its examples, and what `read` returned: on the host, bfloat16
        as float32.
    """
    if model.training:
        model.eval()  # Only then: going through the parts is 3 % of the time of one short text.
    device = device_of(model)

    def launch(indices: list[int]) -> Callable[[], tuple[list[int], tuple[Tensor, ...]]]:
        chosen = [examples[i] for i in indices]
        batch = collate(chosen)
        with torch.inference_mode(), precision.autocast(device):
            arriving = [_to_host(tensor) for tensor in read(batch.to(device), chosen)]

        def finish() -> tuple[list[int], tuple[Tensor, ...]]:
            tensors = tuple(arrived() for arrived in arriving)
            on_batch(batch.num_tokens)
            return indices, tensors

        return finish

    is_alone = one_at_a_time or device.type != "cpu"
    streams = 1 if is_alone else min(_MOST_STREAMS, torch.get_num_threads())
    most = max_tokens or default_max_tokens(device)
    batches = even_batches([len(e.input_ids) for e in examples], most, streams)
    with sharing_cores(model, streams if len(batches) > 1 else 1):
        yield from finished(launch, batches, streams, device)


def in_order(
    outputs: Outputs, count: int, num_rows: Sequence[int] | None = None
) -> list[tuple[Tensor, ...]]:
    """Collect the outputs of `forward` by example.

    Args:
        num_rows: Rows of each example; None for exactly one, which loses its dimension.
    """
    found: list[tuple[Tensor, ...]] = [()] * count
    for indices, tensors in outputs:
        pieces: Iterable[Sequence[Tensor]]
        if num_rows is None:
            pieces = (tensor.unbind() for tensor in tensors)
        else:
            sizes = [num_rows[i] for i in indices]
            pieces = (torch.split(tensor, sizes) for tensor in tensors)
        for index, *own in zip(indices, *pieces, strict=True):
            found[index] = tuple(own)
    return found


def run_model(
    model: Model | SessionModel,
    examples: Sequence[Example],
    *,
    max_tokens: int | None = None,
    precision: Precision,
    on_batch: Callable[[int], None] = lambda num_tokens: None,
) -> list[Tensor]:
    """Return the head's output for every example, in order, float32 on the host.

    (n, ...) with a row per token for heads over tokens, else what the head gives for a sequence.
    """
    per_token = model.head is None or model.head.per_token

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        output = model(batch)
        assert isinstance(output, Tensor)
        return (output,)

    outputs = forward(
        model, examples, read, max_tokens=max_tokens, precision=precision, on_batch=on_batch
    )
    lengths = [len(example.input_ids) for example in examples] if per_token else None
    return [output for (output,) in in_order(outputs, len(examples), lengths)]


def run_vectors(
    model: Model | SessionModel,
    examples: Sequence[Example],
    way: SentenceVectors,
    *,
    layers: tuple[int, ...],
    skip: int = 0,
    max_tokens: int,
    precision: Precision,
    on_batch: Callable[[int], None] = lambda num_tokens: None,
) -> list[np.ndarray]:
    """Return the vector of every example, in order, float32 (H * layers,); with "none" its matrix.

    Args:
        way: How vectors are made of hidden states.
        layers: Whose outputs are joined end to end; 0 for the embeddings, 1 to N.
        skip: Tokens of a prompt that are not pooled.
    """
    causal = model.config.attention.causal
    only_last = layers == (model.config.num_hidden_layers,)
    pooling = way.pooling
    before, after = ([m.to(model.device) for m in steps] for steps in (way.before, way.modules))

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        at = row_read(batch, pooling, causal=causal) if only_last and not skip else None
        if only_last:
            vectors = model.encoder(batch, at).float()
        else:
            vectors = hidden_states(model.encoder, batch, layers).float()
        for module in before:
            vectors = module(vectors)
        if at is None and pooling != "none":
            vectors = pool(vectors, batch, pooling, causal=causal, skip=skip)
        for module in after:
            vectors = module(vectors)
        vectors = vectors[..., : way.dimensions]
        return (nn.functional.normalize(vectors, dim=-1) if way.normalize else vectors,)

    outputs = forward(
        model,
        examples,
        read,
        max_tokens=max_tokens,
        precision=precision,
        # Other layers are read by hooks, which would run in all threads.
        one_at_a_time=not only_last,
        on_batch=on_batch,
    )
    lengths = [len(example.input_ids) for example in examples] if pooling == "none" else None
    # A copy: one vector that is kept must not hold its whole batch.
    return [vector.numpy().copy() for (vector,) in in_order(outputs, len(examples), lengths)]


def first_pass(model: Model | SessionModel, precision: Precision, max_length: int) -> None:
    """Run a model over a few tokens, so that no request waits for what is made once."""
    # An export need not give hidden states.
    run = model.session.run if isinstance(model, SessionModel) else model
    with sharing_cores(model), torch.inference_mode(), precision.autocast(model.device):
        for count in _FIRST:
            ids = np.zeros(min(count, max_length), dtype=np.int64)
            run(collate([Example(0, ids, ids, len(ids))]).to(model.device))


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model, on which its batches have to be."""
    if isinstance(model, Model | SessionModel):
        return model.device
    return next(model.parameters()).device


def _to_host(output: Tensor) -> Callable[[], Tensor]:
    """Begin to bring a result to the host; the function that is returned waits for it."""
    is_half = output.dtype in (torch.bfloat16, torch.float16)
    dtype = torch.float32 if is_half else output.dtype
    if output.device.type != "cuda":
        return lambda: output.to("cpu", dtype)
    host = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
    host.copy_(output, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def arrived() -> Tensor:
        copied.synchronize()
        # A copy: pinned memory is scarce, and callers keep what they get.
        return host.to(dtype, copy=True)

    return arrived


# Several batches at a time


def even_batches(lengths: Sequence[int], max_tokens: int, streams: int) -> list[list[int]]:
    """Return batches as `by_length` does, equally many and about equally large for all streams."""
    batches = by_length(lengths, max_tokens)
    if len(batches) < 2 or streams == 1:
        return batches
    count = -(-len(batches) // streams) * streams
    # The smallest limit that needs no more batches.
    low, high = -(-sum(lengths) // count), max_tokens
    while low < high:
        middle = (low + high) // 2
        if len(by_length(lengths, middle)) > count:
            low = middle + 1
        else:
            high = middle
    return by_length(lengths, high)


def finished(
    launch: Callable[[list[int]], Callable[[], _T]],
    batches: list[list[int]],
    streams: int,
    device: torch.device,
) -> Iterator[_T]:
    """Launch all batches, in any thread, and yield their results in order.

    The function that `launch` returns is called in this thread.
    """
    streams = min(streams, len(batches))
    if streams < 2:
        launched: deque[Callable[[], _T]] = deque()
        for batch in batches:
            launched.append(launch(batch))
            # On a GPU only after the next one is launched, too.
            if len(launched) > (device.type == "cuda"):
                yield launched.popleft()()
        for finish in launched:
            yield finish()
        return
    threads = torch.get_num_threads()
    ready = threading.Barrier(streams + 1)

    def begin() -> None:
        # The first question of a thread would undo what was set before it.
        torch.get_num_threads()
        torch.set_num_threads(max(1, threads // streams))
        ready.wait()

    pool = ThreadPoolExecutor(streams, "filbert-stream", begin)
    try:
        waiting = deque(pool.submit(launch, batch) for batch in batches)
        ready.wait()
        # For threads that are yet to come; those that have begun keep theirs.
        torch.set_num_threads(threads)
        while waiting:
            yield waiting.popleft().result()()
    finally:
        pool.shutdown(cancel_futures=True)
