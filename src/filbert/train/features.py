"""Outputs of a frozen encoder, computed once; training then runs only pooler and head.

T tokens, S sequences, H hidden size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from filbert.batch import PackedBatch
from filbert.data.examples import Example, collate
from filbert.data.loader import Loader
from filbert.inference.forward import default_max_tokens, encode, forward
from filbert.model.heads import Model
from filbert.model.pooling import row_read
from filbert.model.precision import Precision
from filbert.tasks.base import Targets
from filbert.train.base_model import is_encoder_frozen
from filbert.train.log import progress_bar, say

# Features above this size are not kept, because they could exhaust the memory.
MOST_BYTES = 8 * 2**30


@dataclass(frozen=True)
class Features:
    """Hidden states of many examples.

    Attributes:
        states: By `id` of the example: float32 (n, H) on the CPU. For heads that read the pooled
            vector, only the row of the token that it is computed from.
        examples: References that keep the ids valid.
        one_only: Whether only that token is kept.
    """

    states: dict[int, Tensor]
    examples: Sequence[Example]
    one_only: bool

    def forward(
        self, read: Callable[..., Any], device: torch.device
    ) -> Callable[[Sequence[Example], Targets], Tensor]:
        """Return a forward pass of pooler and head (`Model.read`) over the stored states."""

        def run(examples: Sequence[Example], targets: Targets) -> Tensor:
            rows = torch.cat([self.states[id(example)] for example in examples]).to(device)
            batch = collate([_one_token(e) for e in examples] if self.one_only else examples)
            output: Tensor = read(rows, batch.to(device), targets.at)
            return output

        return run


def frozen_features(
    model: Model, loader: Loader, precision: Precision, took: dict[str, float]
) -> Features | None:
    """Compute the encoder outputs for the training rows, if it is frozen and they fit into memory.

    Args:
        model: The model, on its device.
        loader: Has the training rows.
        precision: Number format of the matrix products.
        took: Seconds by name, for run.json; those of this function are added.
    """
    if not is_encoder_frozen(model):
        return None
    clock, cpu = time.perf_counter(), time.process_time()
    examples = [example for row in loader.rows for example in row]
    size = num_bytes(model, examples)
    if size > MOST_BYTES:
        say(
            f"frozen encoder: its outputs would take {size / 2**30:.0f} GiB, "
            f"so it runs in every step"
        )
        return None
    with progress_bar() as bar:
        shown = bar.add_task("features of the frozen encoder", total=len(examples))
        features = compute_features(
            model,
            examples,
            max_tokens=default_max_tokens(model.device),
            precision=precision,
            on_batch=lambda count: bar.update(shown, advance=count),
        )
    took["features_seconds"] = time.perf_counter() - clock
    took["training_cpu_seconds"] += time.process_time() - cpu
    say(
        f"frozen encoder: outputs of {len(examples):,} sequences computed once, "
        f"{size / 2**20:.0f} MiB, {took['features_seconds']:.1f} s"
    )
    return features


def one_only(model: Model) -> bool:
    """Whether the head reads only one token of a sequence: the first or the last."""
    return (
        model.head is not None
        and model.head.reads_pooled
        and model.config.pooling.token in ("cls", "last")
    )


def num_bytes(model: Model, examples: Sequence[Example]) -> int:
    """Return the size of the features of `examples` in bytes."""
    rows = len(examples) if one_only(model) else sum(len(e.input_ids) for e in examples)
    return 4 * rows * model.config.hidden_size


def compute_features(
    model: Model,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    precision: Precision,
    on_batch: Callable[[int], None] = lambda num_examples: None,
) -> Features:
    """Compute the outputs of the encoder for all examples, without dropout."""
    only_one = one_only(model)

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        token, causal = model.config.pooling.token, model.config.attention.causal
        at = row_read(batch, token, causal=causal) if only_one else None
        return (encode(model, batch, at),)

    states: dict[int, Tensor] = {}
    outputs = forward(model, examples, read, max_tokens=max_tokens, precision=precision)
    for indices, (hidden,) in outputs:
        sizes = [1 if only_one else len(examples[i].input_ids) for i in indices]
        for index, rows in zip(indices, torch.split(hidden, sizes), strict=True):
            # A view would keep the memory of the whole batch.
            states[id(examples[index])] = rows.clone()
        on_batch(len(indices))
    return Features(states, examples, only_one)


def _one_token(example: Example) -> Example:
    # In a sequence of one token, the first is also the last.
    return replace(
        example, input_ids=example.input_ids[:1], token_type_ids=example.token_type_ids[:1]
    )
