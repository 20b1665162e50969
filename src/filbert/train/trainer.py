"""The training loop. It knows tasks only by their protocol; no callbacks, only plain ifs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.data.loader import Ahead, Batches
from filbert.errors import ConfigError, Interrupted, RunError
from filbert.speed.memory import all_memory_kept
from filbert.speed.precision import Precision
from filbert.tasks.base import Objective
from filbert.train.course import Course
from filbert.train.distributed import Parallel, Trainable
from filbert.train.features import Features
from filbert.train.log import RunLog
from filbert.train.optimizer import new_optimizer
from filbert.train.options import TrainOptions
from filbert.train.progress import FALLING, Progress, Saver
from filbert.train.signals import Stop
from filbert.train.step import Forward, Gradient, accumulate, model_forward

# Smaller micro-batches only cost time (docs/log.md); larger ones cost memory: about 0.6 MB a token
# for a 6 x 384 encoder.
_MAX_TOKENS_CPU = 8_192
_MAX_TOKENS_CUDA = 65_536


@dataclass
class Outcome:
    """What a training run came to.

    Attributes:
        status: "done", or "stopped early" when patience ran out.
        steps: optimiser steps made.
        best_step: the step whose weights `weights` are.
        best_value: the selection metric there; None without dev rows.
        metric: the name of the selection metric.
        num_tokens: real tokens trained on.
        fill: real tokens as a share of the places inside attention, over the run.
        seconds: of training, evaluations not counted.
        cpu_seconds: the same of this rank's processors.
        clock_before: seconds from the first step on of the interrupted processes of this run.
        weights: by the names of Model.state_dict(), on the host; empty on all ranks but the first.
    """

    status: str
    steps: int
    best_step: int
    best_value: float | None
    metric: str | None
    num_tokens: int
    fill: float
    seconds: float
    cpu_seconds: float
    clock_before: float
    weights: dict[str, Tensor]


def max_tokens_of(options: TrainOptions, device: torch.device) -> int:
    """Tokens per micro-batch, as asked or as fits the device."""
    usual = _MAX_TOKENS_CUDA if device.type == "cuda" else _MAX_TOKENS_CPU
    return options.max_tokens or usual


@all_memory_kept()
def train(
    model: Trainable,
    task: Objective,
    course: Course,
    options: TrainOptions,
    *,
    precision: Precision,
    evaluate: Callable[[dict[str, Tensor]], dict[str, Any]] | None,
    log: RunLog,
    parallel: Parallel,
    keep_best: bool = True,
    features: Features | None = None,
    states: Path | None = None,
    fingerprint: str = "",
) -> Outcome:
    """Train `model` in place.

    Args:
        model: encoder and head, on its device.
        task: gives targets, counts and losses.
        course: gives the micro-batches and the learning rate of every step, and says when it is
            over.
        options: how.
        precision: of the matrix products; the weights stay float32.
        evaluate: gives the dev metrics of weights, on the first rank; None without dev rows, then
            the last step's weights are kept.
        log: takes the figures.
        parallel: the other ranks.
        keep_best: the weights of the best evaluation are the outcome; else those of the last step.
        features: outputs of a frozen encoder, instead of running it.
        states: where states are saved and, with `options.resume`, continued from; None for nowhere.
        fingerprint: of everything a resumed run must share with the interrupted one.

    Raises:
        RunError: a gradient is not finite (the step and its rows are named).
        Interrupted: a signal came; the state is saved.
        ConfigError: the state to resume belongs to another run.
    """
    wrapped = parallel.wrap(model)
    optimizer = new_optimizer(model, options)
    so_far = Progress(options.metric or task.selection_metric)
    saver = Saver(states, fingerprint, wrapped, optimizer, parallel)
    if states is not None and options.resume:
        saver.resume(so_far, log)
    device = parallel.device
    forward: Forward
    if features:
        forward = features.forward(parallel.forward_of(wrapped, "read"), device)
    else:
        forward = model_forward(wrapped, device)
    # A processor has nothing else to do while it works.
    on_gpu = device.type == "cuda"
    loaders = [Ahead(phase.loader) if on_gpu else phase.loader for phase in course.phases]
    done, whole = course.place(so_far)
    log.start(whole, done, so_far.step, in_seconds=course.seconds is not None)
    # Evaluating and saving count for a time budget, so the clock runs on between two steps.
    earlier, began = so_far.clock, time.perf_counter()
    with Stop() as stop:
        # A run that was killed after it had stopped early goes no step further.
        while not course.is_over(so_far) and not _is_patience_over(options, so_far):
            started, cpu_started = time.perf_counter(), time.process_time()
            if course.enter(so_far):
                log.say(f"step {so_far.step}: phase {so_far.phase + 1} begins")
            loader = loaders[so_far.phase]
            model.train()
            rate = course.learning_rate(so_far)
            gradient = _gradient(
                forward, wrapped, model, task, loader, parallel, precision, options, so_far, log
            )
            norm = parallel.clip(wrapped, options.clip)
            if not math.isfinite(norm):
                raise RunError(_not_finite(so_far, gradient.loss, loader))
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            now = time.perf_counter()
            clock_before = so_far.clock
            so_far.clock = earlier + now - began
            so_far.seconds += now - started
            so_far.cpu_seconds += time.process_time() - cpu_started
            if course.seconds is not None:
                # All ranks must agree when it is over, and when dev is measured.
                so_far.clock, so_far.seconds = parallel.broadcast([so_far.clock, so_far.seconds])
            so_far.step += 1
            so_far.tokens += gradient.num_tokens
            so_far.places += gradient.num_places
            kinds = dict(zip(task.loss_names, gradient.parts, strict=True))
            log.step(
                course.place(so_far)[0],
                step=so_far.step,
                epoch=loader.epochs_at(so_far.step - so_far.phase_start),
                **({"phase": so_far.phase + 1} if len(course.phases) > 1 else {}),
                **{"loss": gradient.loss} | kinds,
                lr=rate,
                grad_norm=norm,
                sequences=gradient.num_sequences,
                tokens_per_second=gradient.num_tokens / (now - started),
                fill=so_far.tokens / max(so_far.places, 1),
                seconds=so_far.seconds,
            )
            is_due = course.is_due(so_far, clock_before)
            if evaluate is not None and is_due:
                _evaluate(evaluate, so_far, loader, saver, log, keep_best)
            if is_due if options.save_every is None else _is_multiple(so_far, options.save_every):
                saver.save(so_far)
            is_last = course.is_over(so_far) or _is_patience_over(options, so_far)
            if parallel.any(stop.name is not None) and not is_last:
                saver.save(so_far)
                raise Interrupted(_interrupted(stop.name or "another process", so_far, saver))
    is_chosen = so_far.best_step > 0
    weights = so_far.best if is_chosen else parallel.full_state(wrapped)[0]
    sign = -1 if so_far.metric in FALLING else 1
    is_known = is_chosen and math.isfinite(so_far.best_value)
    return Outcome(
        status="done" if course.is_over(so_far) else "stopped early",
        steps=so_far.step,
        best_step=so_far.best_step or so_far.step,
        best_value=sign * so_far.best_value if is_known else None,
        metric=so_far.metric if is_chosen else None,
        num_tokens=so_far.tokens,
        fill=so_far.tokens / max(so_far.places, 1),
        seconds=so_far.seconds,
        cpu_seconds=so_far.cpu_seconds,
        clock_before=earlier,
        weights={name: tensor.clone() for name, tensor in weights.items()},
    )


def _gradient(
    forward: Forward,
    wrapped: torch.nn.Module,
    model: Trainable,
    task: Objective,
    loader: Batches,
    parallel: Parallel,
    precision: Precision,
    options: TrainOptions,
    so_far: Progress,
    log: RunLog,
) -> Gradient:
    """The next step's gradient; when memory runs out, with smaller micro-batches."""
    step, inside = so_far.step + 1, so_far.step - so_far.phase_start
    while True:
        try:
            return accumulate(
                forward,
                wrapped,
                task,
                loader.step(inside, parallel.rank, parallel.world),
                parallel=parallel,
                precision=precision,
                seed=(options.seed, step),
                stand_in=loader.stand_in,
            )
        except torch.OutOfMemoryError as error:
            longest = max(sum(len(e.input_ids) for e in row) for row in loader.rows_of(inside))
            if parallel.world > 1 or loader.max_tokens <= longest:
                raise ConfigError(
                    f"Step {step}: out of memory with {loader.max_tokens} tokens per micro-batch. "
                    f"Lower --max-tokens or --max-length."
                ) from error
            loader.max_tokens = max(loader.max_tokens // 2, longest)
        # Outside the handler, whose traceback would hold on to the tensors of the failed pass.
        model.zero_grad(set_to_none=True)
        if parallel.device.type == "cuda":
            torch.cuda.empty_cache()
        log.say(
            f"step {step}: out of memory; micro-batches now hold {loader.max_tokens:,} tokens "
            f"(the batch and its gradient stay the same)"
        )


def _evaluate(
    evaluate: Callable[[dict[str, Tensor]], dict[str, Any]],
    so_far: Progress,
    loader: Batches,
    saver: Saver,
    log: RunLog,
    keep_best: bool,
) -> None:
    """Dev metrics of the weights as they are, and whether they are the best; on all ranks alike."""
    parallel = saver.parallel
    weights = parallel.full_state(saver.wrapped)[0]
    metrics = parallel.broadcast(evaluate(weights) if parallel.is_first else None)
    epoch = loader.epochs_at(so_far.step - so_far.phase_start)
    log.evaluation(so_far.step, epoch, metrics)
    metric = so_far.defined(metrics)
    if metrics.get(so_far.metric) is None and keep_best:
        way = f"is chosen by its {metric}" if metric != so_far.metric else "is the last one so far"
        log.say(f"dev has no {so_far.metric}, so the best step {way}")
    if keep_best:
        so_far.offer(weights, metrics)


def _is_patience_over(options: TrainOptions, so_far: Progress) -> bool:
    return bool(options.patience) and so_far.since >= options.patience


def _is_multiple(so_far: Progress, every: int) -> bool:
    return every > 0 and so_far.step % every == 0


def _not_finite(so_far: Progress, loss: float, loader: Batches) -> str:
    rows: Sequence[list[Example]] = loader.rows_of(so_far.step - so_far.phase_start)
    numbers = ", ".join(str(row[0].row + 1) for row in rows[:8])
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return (
        f"Step {so_far.step + 1}: the gradient is not finite (loss {loss:.4g}), on training rows "
        f"{numbers}{more}. Try a lower --lr, a longer --warmup, or --precision float32."
    )


def _interrupted(what: str, so_far: Progress, saver: Saver) -> str:
    if saver.folder is None:
        return f"interrupted by {what} after step {so_far.step}; no state was kept."
    return (
        f"interrupted by {what} after step {so_far.step}; its state is saved. "
        f"Continue with the same command and --resume."
    )
