"""A model over many examples, in packed batches of near-equal length.

T tokens in the batch, S sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch, split
from filbert.data.examples import Example, collate
from filbert.inference.onnx_session import SessionModel, sharing_cores
from filbert.inference.streams import batches_on, finished
from filbert.model.config import EncoderConfig
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.model.shapes import few_shapes

# Of one batch; on a processor several run side by side (see inference/streams.py). Larger ones gain
# nothing there, smaller ones spend more on each call; docs/log.md.
MAX_TOKENS_CPU = 2_048
MAX_TOKENS_CUDA = 32_768
# The widest activations of a batch, by number format, in values: more leaves a core's caches, and
# fewer spend more on each product. Int8 makes codes of float32 ones, so it wants the smallest.
_WIDEST = {"float32": 12 * 2**18, "bf16": 24 * 2**18, "int8": 9 * 2**18}
# Tokens of the first passes: of a short text, a longer one, and the short one once more.
_FIRST = (16, 128, 16)


def default_max_tokens(
    device: torch.device, config: EncoderConfig | None = None, number_format: str = "float32"
) -> int:
    """Tokens per packed batch where the user has not said.

    Args:
        device: where the model runs.
        config: of a model for inference; without it the batch is as large as for the smallest one.
        number_format: of its products: float32, bf16 or int8.
    """
    if device.type == "cuda":
        return MAX_TOKENS_CUDA
    if config is None:
        return MAX_TOKENS_CPU
    return max(512, min(MAX_TOKENS_CPU, _WIDEST[number_format] // config.feed_forward.width))


def run_model(
    model: Model | SessionModel,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    precision: Precision,
    on_batch: Callable[[int], None] = lambda num_tokens: None,
) -> list[Tensor]:
    """The head's output of every example, in order, float32 on the host.

    (n, ...) with a row per token for heads over tokens, else what the head gives a sequence.
    """
    in_eval_mode(model)
    device = model.device

    def launch(indices: list[int]) -> Callable[[], tuple[list[int], Sequence[Tensor]]]:
        batch = collate([examples[i] for i in indices])
        with torch.inference_mode(), precision.autocast(device):
            output = model(few_shapes(batch.to(device), model))
        assert isinstance(output, Tensor)
        arrived = to_host(output[: batch.num_tokens if per_token(model) else batch.num_sequences])

        def finish() -> tuple[list[int], Sequence[Tensor]]:
            pieces = pieces_of(arrived(), batch, model)
            on_batch(batch.num_tokens)
            return indices, pieces

        return finish

    outputs: list[Tensor | None] = [None] * len(examples)
    with sharing_cores(model):
        batches = batches_on(device, [len(e.input_ids) for e in examples], max_tokens)
        for indices, pieces in finished(launch, batches, device):
            for index, piece in zip(indices, pieces, strict=True):
                outputs[index] = piece
    return [output for output in outputs if output is not None]


def in_eval_mode(model: nn.Module) -> None:
    """Go through its parts only where it has to be: for one short text that is 3 % of the time."""
    if model.training:
        model.eval()


def first_pass(model: Model | SessionModel, precision: Precision, max_length: int) -> None:
    """Run a model over a few tokens, so that no answer pays for what is made once."""
    in_eval_mode(model)
    # Whether an export gives hidden states is no matter yet.
    run = model.session.run if isinstance(model, SessionModel) else model
    with sharing_cores(model), torch.inference_mode(), precision.autocast(model.device):
        for count in _FIRST:
            ids = np.zeros(min(count, max_length), dtype=np.int64)
            run(collate([Example(0, ids, ids, len(ids))]).to(model.device))


def to_host(output: Tensor) -> Callable[[], Tensor]:
    """Begin to bring a result to the host; what comes back waits for it and gives it as float32."""
    if output.device.type != "cuda":
        return lambda: output.float().cpu()
    host = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
    host.copy_(output, non_blocking=True)
    there = torch.cuda.Event()  # type: ignore[no-untyped-call]
    there.record()

    def arrived() -> Tensor:
        there.synchronize()
        # A copy: pinned memory is scarce, and callers keep what they get.
        return host.to(torch.float32, copy=True)

    return arrived


def per_token(model: Model | SessionModel) -> bool:
    """Whether its output has a row a token rather than one a sequence."""
    return model.head is None or model.head.per_token


def pieces_of(output: Tensor, batch: PackedBatch, model: Model | SessionModel) -> Sequence[Tensor]:
    """A head's output by sequence."""
    return split(output, batch) if per_token(model) else output.unbind(0)
