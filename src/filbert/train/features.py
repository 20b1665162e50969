"""Outputs of a frozen encoder, computed once; training then runs only pooler and head.

T tokens, S sequences, H hidden size.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from filbert.batch import PackedBatch, onto
from filbert.data.examples import Example, collate
from filbert.data.loader import Loader
from filbert.inference.forward import forward
from filbert.model.heads import Model
from filbert.model.pooling import row_read
from filbert.model.precision import Precision
from filbert.tasks.base import Targets
from filbert.train.base_model import is_encoder_frozen
from filbert.train.log import progress_bar, say
from filbert.train.step import Forward, Output

# Features above this size are not kept, because they could exhaust the memory.
MOST_BYTES = 8 * 2**30


def frozen_features(
    model: Model, loader: Loader, precision: Precision, took: dict[str, float]
) -> Forward | None:
    """Compute the encoder outputs for the training rows, if it is frozen and they fit into memory.

    The forward pass that is returned runs pooler and head over these outputs. It recognises the
    examples of the loader by their `id`, so the loader must outlive it. The seconds that this takes
    are added to `took`, by name, for run.json.
    """
    if not is_encoder_frozen(model):
        return None
    clock, cpu = time.perf_counter(), time.process_time()
    examples = [example for row in loader.rows for example in row]
    head, config = model.head, model.config
    token = config.pooling.token
    one_only = head is not None and head.reads_pooled and token in ("cls", "last")
    sizes = [1 if one_only else len(example.input_ids) for example in examples]
    num_bytes = 4 * sum(sizes) * config.hidden_size
    if num_bytes > MOST_BYTES:
        say(
            f"frozen encoder: its outputs would take {num_bytes / 2**30:.0f} GiB, "
            f"so it runs in every step"
        )
        return None

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        at = row_read(batch, token, causal=config.attention.causal) if one_only else None
        return (model.encoder(batch, at),)

    # By `id` of the example: float32 (n, H) on the CPU. For heads that read the pooled vector, only
    # the row of the token that it is computed from.
    states: dict[int, Tensor] = {}
    with progress_bar() as bar:
        shown = bar.add_task("features of the frozen encoder", total=len(examples))
        outputs = forward(model, examples, read, precision=precision)
        for indices, (hidden,) in outputs:
            parts = torch.split(hidden, [sizes[i] for i in indices])
            for index, rows in zip(indices, parts, strict=True):
                # A view would keep the memory of the whole batch.
                states[id(examples[index])] = rows.clone()
            bar.update(shown, advance=len(indices))
    took["features_seconds"] = time.perf_counter() - clock
    took["training_cpu_seconds"] += time.process_time() - cpu
    say(
        f"frozen encoder: outputs of {len(examples):,} sequences computed once, "
        f"{num_bytes / 2**20:.0f} MiB, {took['features_seconds']:.1f} s"
    )

    def run(examples: Sequence[Example], targets: Targets) -> Output:
        rows = onto(model.device, torch.cat([states[id(one)] for one in examples]))
        batch = collate([_one_token(e) for e in examples] if one_only else examples)
        return model.read(rows, batch.to(model.device), targets.at)

    return run


def _one_token(example: Example) -> Example:
    # In a sequence of one token, the first is also the last.
    return replace(
        example, input_ids=example.input_ids[:1], token_type_ids=example.token_type_ids[:1]
    )
