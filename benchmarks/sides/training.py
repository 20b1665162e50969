"""Sides that fine-tune a classifier: forward, backward, clipping and AdamW on the sample's rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.data.examples import Example
from sides.job import Job
from sides.tokenizing import Once, sample_texts

BATCH, _STEPS, _LONGEST = 32, 2, 256


def _examples(job: Job) -> list[list[Example]]:
    """Batches of the same token ids for every side, with made-up labels."""
    place = Path(job.model)
    tokenizer = read_tokenizer(place)
    longest = min(_LONGEST, read_checkpoint(place).config.max_tokens_per_sequence)
    texts = sample_texts(Path(job.data), BATCH * _STEPS)
    examples = [
        Example(i, e.input_ids, e.token_type_ids, e.num_tokens, target=i % 2)
        for i, e in enumerate(tokenizer.encode(texts, max_length=longest))
    ]
    return [examples[at : at + BATCH] for at in range(0, len(examples), BATCH)]


def _timed(batches: list[list[Example]], step: Callable[[list[Example]], object]) -> Once:
    """A turn: an optimiser step on every batch. `step` returns when its figures are there."""
    rows = sum(map(len, batches))
    tokens = sum(len(example.input_ids) for batch in batches for example in batch)

    def once() -> dict[str, Any]:
        started = time.perf_counter()
        for batch in batches:
            step(batch)
        return {"seconds": time.perf_counter() - started, "texts": rows, "tokens": tokens}

    return once


def filbert(job: Job, precision: str) -> Once:
    """The trainer's own step."""
    from filbert.checkpoints.checkpoint import with_new_head
    from filbert.data.columns import ColumnNames
    from filbert.data.records import Row
    from filbert.model.precision import choose_precision
    from filbert.tasks.base import TaskOptions
    from filbert.tasks.classification import Classification
    from filbert.train.base_model import freeze
    from filbert.train.distributed import start
    from filbert.train.optimizer import new_optimizer
    from filbert.train.options import TrainOptions
    from filbert.train.step import accumulate, model_forward

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    rows = [Row({"text": "", "label": str(i)}, "sample", i + 1) for i in range(2)]
    task = Classification.from_options(TaskOptions(), ColumnNames()).fit(rows)
    checkpoint = with_new_head(read_checkpoint(Path(job.model)), "sequence", num_labels=2)
    model = checkpoint.build().to(job.device).train()
    freeze(model, None)
    options = TrainOptions()
    optimizer = new_optimizer(model, options, precision=precision)
    chosen = choose_precision(precision, torch.device(job.device))
    with start(None, job.device) as parallel:
        forward = model_forward(model, parallel.device)

    def step(batch: list[Example]) -> None:
        accumulate(
            forward,
            model,
            task,
            [batch],
            parallel=parallel,
            precision=chosen,
            seed=(0, 1),
            stand_in=batch[:1],
        )
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return _timed(_examples(job), step)


def transformers(job: Job, precision: str) -> Once:
    """Its classifier in torch's usual loop, padded to the longest of a batch."""
    library: Any = import_module("transformers")
    library.logging.set_verbosity_error()
    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    model = library.AutoModelForSequenceClassification.from_pretrained(
        job.model, num_labels=2, dtype=torch.float32
    )
    model = model.to(job.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)

    def step(batch: list[Example]) -> None:
        from sides.torch_sides import padded

        ids, mask = (
            torch.from_numpy(part).to(job.device)
            for part in padded([example.input_ids for example in batch])
        )
        labels = torch.tensor([example.target for example in batch], device=job.device)
        kind = torch.device(job.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return _timed(_examples(job), step)
