"""The size of a pre-training run and its expected time on this machine, from a few timed steps."""

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
from filbert.train.pretrain import TextRun, prepare
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.progress import Phase
from filbert.train.step import accumulate, model_forward

# Micro-batches that are timed in each phase, after one that is not.
_TIMED = 3


def dry_run(options: PretrainOptions) -> dict[str, Any]:
    """Return sizes and expected time; only the shards of a text corpus are written.

    Returns:
        parameters, steps (None under a time budget), tokens, flops, memory_bytes, seconds,
        tokens_per_second, and `phases` with the same by phase.

    Raises:
        ConfigError: Under torchrun, because this is for one process.
        InputError, ConfigError, FormatError: As `pretrain`.
    """
    with start(options.run.distributed, options.run.device) as parallel:
        if parallel.world > 1:
            raise ConfigError("--dry-run is one process's trial; start it without torchrun.")
        job = prepare(options, parallel)
        phases = [_estimate(job, phase, parallel) for phase in job.phases]
    seconds, tokens, flops = (
        sum(phase[key] for phase in phases) for key in ("seconds", "tokens", "flops")
    )
    return {
        "parameters": sum(p.numel() for p in job.model.parameters()),
        "steps": job.schedule.steps,
        "tokens": tokens,
        "flops": flops,
        "memory_bytes": _peak_memory(parallel.device),
        "seconds": seconds,
        "tokens_per_second": tokens / max(seconds, 1e-9),
        "precision": job.precision.name,
        "phases": phases,
        "notes": [*job.checkpoint.notes],
    }


def _estimate(job: TextRun, phase: Phase, parallel: Parallel) -> dict[str, Any]:
    """Return the sizes of a phase, and its time from a few micro-batches and one update."""
    loader = phase.loader
    assert isinstance(loader, PretrainLoader)
    # A step of full size, after any warm-up of the batch.
    step = next(
        s
        for s in range(sys.maxsize)
        if loader.begin_of(s + 1) - loader.begin_of(s) == loader.batch_size
    )
    micro_batches = loader.step(step)
    examples = [e for batch in micro_batches for e in batch]
    tokens, flops = sum(len(e.input_ids) for e in examples), _flops(job, examples)
    per_step = _seconds_per_step(job, micro_batches, tokens, parallel)
    # In steps of full size; while the batch grows, steps are smaller.
    if job.schedule.seconds is not None:
        full = phase.share * job.schedule.seconds / per_step
        rows = full * loader.batch_size
        steps = bisect_left(range(sys.maxsize), rows, key=loader.begin_of)
    else:
        assert job.schedule.steps is not None
        exact = phase.share * job.schedule.steps
        steps = round(exact)
        full = exact - steps + loader.begin_of(steps) / loader.batch_size
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


def _seconds_per_step(
    job: TextRun, micro_batches: Sequence[list[Example]], tokens: int, parallel: Parallel
) -> float:
    """Time a few micro-batches, scaled to all tokens of a step, and one optimiser step."""
    forward = model_forward(job.model, parallel.device)
    run = job.options.run
    optimizer = new_optimizer(job.model, job.options.train, precision=run.precision)
    job.model.train()
    seconds, timed_tokens = 0.0, 0
    for number, examples in enumerate([*micro_batches] * (_TIMED + 1)):
        if number > _TIMED:
            break
        clock = time.perf_counter()
        accumulate(
            forward,
            job.model,
            job.task,
            [examples],
            parallel=parallel,
            precision=job.precision,
            seed=(run.seed, 0),
            stand_in=examples,
        )
        if number:
            seconds += time.perf_counter() - clock
            timed_tokens += sum(len(e.input_ids) for e in examples)
    clock = time.perf_counter()
    for group in optimizer.param_groups:
        # The weights must stay as they are for the next phase.
        group["lr"] = 0.0
    optimizer.step()
    update = time.perf_counter() - clock
    optimizer.zero_grad(set_to_none=True)
    return tokens / timed_tokens * seconds + update


def _flops(job: TextRun, examples: Sequence[Example]) -> float:
    """Return the FLOPs of a step over these rows, forward and backward."""
    config, lengths = job.model.config, [len(e.input_ids) for e in examples]
    num_masked = sum(len(e.target.positions) for e in examples)
    if isinstance(job.model, ReplacedTokenModel):
        # The discriminator's head: a dense layer over all tokens, and one logit.
        head = 6.0 * config.hidden_size * (config.hidden_size + 1) * sum(lengths)
        small = training_flops(job.model.generator.config, lengths, num_masked=num_masked)
        return small + head + training_flops(config, lengths, num_masked=0)
    num_pooled = len(examples) if job.task.pair != "none" else 0
    return training_flops(config, lengths, num_masked=num_masked, num_pooled=num_pooled)


def _peak_memory(device: torch.device) -> int:
    """Return the peak memory of the GPU, or of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Kilobytes, but bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
