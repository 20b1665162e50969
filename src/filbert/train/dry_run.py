"""How large a pre-training run is and how long it would take here, after a few steps' trial."""

from __future__ import annotations

import resource
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import torch

from filbert.data.examples import Example
from filbert.data.instances import PretrainLoader
from filbert.errors import ConfigError
from filbert.model.flops import training_flops
from filbert.model.replaced import ReplacedTokenModel
from filbert.train.distributed import Parallel, start
from filbert.train.optimizer import new_optimizer
from filbert.train.pretrain import Job, prepare
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.step import accumulate, model_forward

# Micro-batches that are tried in each phase; the first is not timed.
_TRIED = 3


def dry_run(options: PretrainOptions) -> dict[str, Any]:
    """Sizes and expected time; nothing is kept but the shards of a text corpus.

    Returns:
        parameters, steps (None under a time budget), tokens, flops, memory_bytes, seconds,
        tokens_per_second, and `phases` with the same by phase.

    Raises:
        ConfigError: under torchrun; the trial is one process's.
        InputError, ConfigError, FormatError: as `pretrain`.
    """
    with start(options.distributed, options.device) as parallel:
        if parallel.world > 1:
            raise ConfigError("--dry-run is one process's trial; start it without torchrun.")
        job = prepare(options, parallel)
        device = parallel.device
        facts = [_trial(job, index, parallel) for index in range(len(job.phases))]
    seconds = sum(fact["seconds"] for fact in facts)
    parameters = sum(p.numel() for p in job.model.parameters())
    return {
        "parameters": parameters,
        "steps": job.course.steps,
        "tokens": sum(fact["tokens"] for fact in facts),
        "flops": sum(fact["flops"] for fact in facts),
        "memory_bytes": _peak_memory(device),
        "seconds": seconds,
        "tokens_per_second": sum(fact["tokens"] for fact in facts) / max(seconds, 1e-9),
        "precision": job.precision.name,
        "phases": facts,
        "notes": [*job.sources.checkpoint.notes],
    }


def _trial(job: Job, index: int, parallel: Parallel) -> dict[str, Any]:
    """Sizes of a phase, and its time from a few micro-batches and one optimiser step."""
    phase = job.phases[index]
    loader = phase.loader
    assert isinstance(loader, PretrainLoader)
    # A step of full size, after any warm-up of the batch.
    number = next(s for s in range(10**9) if _rows(loader, s) == loader.batch_size)
    micro_batches = loader.step(number)
    forward = model_forward(job.model, parallel.device)
    optimizer = new_optimizer(job.model, job.options, precision=job.options.precision)
    job.model.train()
    tried = (micro_batches * (_TRIED + 1))[: _TRIED + 1]
    spent = []
    for examples in tried:
        clock = time.perf_counter()
        accumulate(
            forward,
            job.model,
            job.task,
            [examples],
            parallel=parallel,
            precision=job.precision,
            seed=(job.options.seed, 0),
            stand_in=examples,
        )
        spent.append(time.perf_counter() - clock)
    tokens = sum(len(e.input_ids) for batch in micro_batches for e in batch)
    tried_tokens = sum(len(e.input_ids) for batch in tried[1:] for e in batch)
    clock = time.perf_counter()
    for group in optimizer.param_groups:
        # The weights must stay as they are for the next trial.
        group["lr"] = 0.0
    optimizer.step()
    updating = time.perf_counter() - clock
    optimizer.zero_grad(set_to_none=True)
    per_step = tokens / tried_tokens * sum(spent[1:]) + updating
    # Steps of full size with as many rows: while the batch grows, they are smaller.
    if job.course.seconds is not None:
        full = phase.share * job.course.seconds / per_step
        rows = full * loader.batch_size
        steps = bisect_left(range(sys.maxsize), rows, key=loader.begin_of)
    else:
        assert job.course.steps is not None
        exact = phase.share * job.course.steps
        steps = round(exact)
        full = exact - steps + loader.begin_of(steps) / loader.batch_size
    examples = [e for batch in micro_batches for e in batch]
    flops = _flops(job, examples)
    return {
        "max_length": loader.instances.options.max_length,
        "batch_size": loader.batch_size,
        "steps": steps,
        "tokens": round(full * tokens),
        "epochs": full * loader.batch_size / loader.num_rows,
        "flops": full * flops,
        "seconds": full * per_step,
        "tokens_per_second": tokens / per_step,
        "tflops_per_second": flops / per_step / 1e12,
    }


def _flops(job: Job, examples: Sequence[Example]) -> float:
    """Of a step over these rows, forward and backward."""
    config, lengths = job.model.config, [len(e.input_ids) for e in examples]
    num_masked = sum(len(e.target.positions) for e in examples)
    if isinstance(job.model, ReplacedTokenModel):
        # The discriminator's head: a dense layer over all tokens, and one logit.
        head = 6.0 * config.hidden_size * (config.hidden_size + 1) * sum(lengths)
        small = training_flops(job.model.generator.config, lengths, num_masked=num_masked)
        return small + head + training_flops(config, lengths, num_masked=0)
    num_pooled = len(examples) if job.task.pair != "none" else 0
    return training_flops(config, lengths, num_masked=num_masked, num_pooled=num_pooled)


def _rows(loader: PretrainLoader, step: int) -> int:
    return loader.begin_of(step + 1) - loader.begin_of(step)


def _peak_memory(device: torch.device) -> int:
    """Most memory that was in use: of the GPU, or of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Kilobytes, but bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
