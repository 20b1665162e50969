"""The training loop. It uses only the `Objective` protocol of a task and has no callbacks."""

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
from filbert.model.cpu import all_memory_kept
from filbert.model.precision import Precision
from filbert.tasks.base import Objective
from filbert.train.course import Course
from filbert.train.distributed import Parallel, Trainable
from filbert.train.features import Features
from filbert.train.log import RunLog
from filbert.train.optimizer import new_optimizer
from filbert.train.options import RunOptions, TrainOptions
from filbert.train.progress import FALLING, Progress, Saver
from filbert.train.signals import Stop
from filbert.train.step import Forward, Gradient, accumulate, model_forward

# Smaller micro-batches only cost time (docs/log.md). Larger ones cost memory: about 0.6 MB per
# token for an encoder of 6 layers and width 384.
_MAX_TOKENS_CPU = 8_192
_MAX_TOKENS_CUDA = 65_536

Evaluate = Callable[[dict[str, Tensor]], dict[str, Any]]


@dataclass
class Outcome:
    """The result of a training run, created by `train`.

    Attributes:
        status: "done", or "stopped early" when the patience was used up.
        steps: Number of optimizer steps.
        best_step: The step that `weights` come from.
        best_value: The selection metric at that step; None without dev rows.
        metric: Name of the selection metric.
        num_tokens: Number of tokens trained on, without padding.
        fill: Tokens as a share of the attention positions, padding included.
        seconds: Training time without evaluations.
        cpu_seconds: CPU time of this rank in the same periods.
        clock_before: Seconds that earlier, interrupted processes of this run took.
        weights: Weights on the CPU, named as in Model.state_dict(); empty except on the first rank.
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


@dataclass(frozen=True)
class _Run:
    """The objects of one run that stay the same over all steps."""

    model: Trainable
    wrapped: torch.nn.Module
    task: Objective
    course: Course
    options: TrainOptions
    run: RunOptions
    precision: Precision
    parallel: Parallel
    optimizer: torch.optim.Optimizer
    saver: Saver
    log: RunLog

    def is_over(self, progress: Progress) -> bool:
        """Whether the length of the run is reached or the patience is used up."""
        return self.course.is_over(progress) or self.is_patience_over(progress)

    def is_patience_over(self, progress: Progress) -> bool:
        """Whether `patience` evaluations in a row brought no better metric."""
        return bool(self.options.patience) and progress.since >= self.options.patience

    def must_save(self, progress: Progress, *, is_due: bool) -> bool:
        """Whether a state is saved after this step: every `save_every` steps or as `is_due`."""
        every = self.run.save_every
        return is_due if every is None else every > 0 and progress.step % every == 0


def max_tokens_of(options: TrainOptions, device: torch.device) -> int:
    """Tokens per micro-batch: the option, or the default of the device."""
    default = _MAX_TOKENS_CUDA if device.type == "cuda" else _MAX_TOKENS_CPU
    return options.max_tokens or default


@all_memory_kept()
def train(
    model: Trainable,
    task: Objective,
    *,
    course: Course,
    options: TrainOptions,
    run: RunOptions,
    precision: Precision,
    evaluate: Evaluate | None,
    log: RunLog,
    parallel: Parallel,
    keep_best: bool = True,
    features: Features | None = None,
    states: Path | None = None,
    fingerprint: str = "",
) -> Outcome:
    """Train `model` in place.

    Args:
        model: Encoder and head, on its device.
        task: Gives targets, counts and losses.
        course: Gives micro-batches and learning rate of every step, and the end of the run.
        options: Hyper-parameters.
        run: Seed and saved states.
        precision: Number format of the matrix products; the weights stay float32.
        evaluate: Computes dev metrics of weights, on the first rank. None without dev rows; then
            the weights of the last step are kept.
        log: Receives losses and metrics.
        parallel: The group of processes.
        keep_best: Return the weights of the best evaluation instead of those of the last step.
        features: Outputs of a frozen encoder; the encoder is not run then.
        states: Folder for saved states, which `run.resume` continues from; None saves nothing.
        fingerprint: Hash of everything that a resumed run must share with the interrupted one.

    Raises:
        RunError: A gradient is not finite; the message names the step and its rows.
        Interrupted: A signal arrived; the state is saved.
        ConfigError: The state to resume belongs to another run.
    """
    wrapped = parallel.wrap(model)
    optimizer = new_optimizer(model, options, precision=run.precision)
    saver = Saver(states, fingerprint, wrapped, optimizer, parallel)
    whole = _Run(
        model, wrapped, task, course, options, run, precision, parallel, optimizer, saver, log
    )
    progress = Progress(options.metric or task.spec.selection_metric)
    if states is not None and run.resume:
        saver.resume(progress, log)
    done, length = course.place(progress)
    log.start(length, done, progress.step, in_seconds=course.seconds is not None)
    earlier = progress.clock
    _loop(whole, progress, _forward(whole, features), evaluate, keep_best=keep_best)
    return _outcome(whole, progress, earlier)


def _loop(
    run: _Run,
    progress: Progress,
    forward: Forward,
    evaluate: Evaluate | None,
    *,
    keep_best: bool,
) -> None:
    """Make optimizer steps until the run is over."""
    course, parallel, loaders = run.course, run.parallel, _loaders(run)
    # Evaluating and saving count for a time budget, so this clock also runs between two steps.
    earlier, began = progress.clock, time.perf_counter()
    with Stop() as stop:
        # A resumed run whose patience was already used up makes no further step.
        while not run.is_over(progress):
            started, cpu_started = time.perf_counter(), time.process_time()
            if course.enter(progress):
                run.log.say(f"step {progress.step}: phase {progress.phase + 1} begins")
            loader = loaders[progress.phase]
            rate = course.learning_rate(progress)
            gradient = _gradient(run, forward, loader, progress)
            norm = parallel.clip(run.wrapped, run.options.clip)
            if not math.isfinite(norm):
                raise RunError(_not_finite(progress, gradient.loss, loader))
            _update(run.optimizer, rate)
            clock_before, now = progress.clock, time.perf_counter()
            progress.clock = earlier + now - began
            progress.seconds += now - started
            progress.cpu_seconds += time.process_time() - cpu_started
            _count(run, progress, gradient)
            _log_step(run, progress, gradient, loader, lr=rate, norm=norm, seconds=now - started)
            is_due = course.is_due(progress, clock_before)
            if evaluate is not None and is_due:
                _evaluate(run, evaluate, progress, loader, keep_best=keep_best)
            if run.must_save(progress, is_due=is_due):
                run.saver.save(progress)
            is_last = run.is_over(progress)
            if parallel.any(stop.name is not None) and not is_last:
                run.saver.save(progress)
                what = stop.name or "another process"
                raise Interrupted(_interrupted(what, progress, run.saver))


def _forward(run: _Run, features: Features | None) -> Forward:
    """The forward pass: of the whole model, or of the head over stored encoder outputs."""
    device = run.parallel.device
    if features:
        return features.forward(run.parallel.forward_of(run.wrapped, "read"), device)
    return model_forward(run.wrapped, device)


def _loaders(run: _Run) -> list[Batches]:
    """The batches of each phase; on a GPU they are made ahead of time in a thread."""
    loaders = [phase.loader for phase in run.course.phases]
    if run.parallel.device.type != "cuda":
        return loaders
    return [Ahead(loader) for loader in loaders]


def _gradient(run: _Run, forward: Forward, loader: Batches, progress: Progress) -> Gradient:
    """Compute the gradient of the next step; if memory runs out, with smaller micro-batches."""
    step, inside = progress.step + 1, progress.step - progress.phase_start
    parallel = run.parallel
    run.model.train()
    while True:
        try:
            return accumulate(
                forward,
                run.wrapped,
                run.task,
                loader.step(inside, parallel.rank, parallel.world),
                parallel=parallel,
                precision=run.precision,
                seed=(run.run.seed, step),
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
        # Outside the handler, because its traceback keeps the tensors of the failed pass alive.
        run.model.zero_grad(set_to_none=True)
        if parallel.device.type == "cuda":
            torch.cuda.empty_cache()
        run.log.say(
            f"step {step}: out of memory; micro-batches now hold {loader.max_tokens:,} tokens "
            f"(the batch and its gradient stay the same)"
        )


def _update(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Make one optimizer step with the learning rate times the share of each group."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _count(run: _Run, progress: Progress, gradient: Gradient) -> None:
    """Add a finished step to the progress; with a time budget, share the times of rank 0."""
    if run.course.seconds is not None:
        # All ranks must agree on the end of the run and on when dev is evaluated.
        times = [progress.clock, progress.seconds]
        progress.clock, progress.seconds = run.parallel.broadcast(times)
    progress.step += 1
    progress.tokens += gradient.num_tokens
    progress.places += gradient.num_places


def _log_step(
    run: _Run,
    progress: Progress,
    gradient: Gradient,
    loader: Batches,
    *,
    lr: float,
    norm: float,
    seconds: float,
) -> None:
    """Write the losses and the speed of one step to the log."""
    phase = {"phase": progress.phase + 1} if len(run.course.phases) > 1 else {}
    losses = {"loss": gradient.loss}
    losses |= dict(zip(run.task.spec.loss_names, gradient.parts, strict=True))
    run.log.step(
        run.course.place(progress)[0],
        step=progress.step,
        epoch=loader.epochs_at(progress.step - progress.phase_start),
        **phase,
        **losses,
        lr=lr,
        grad_norm=norm,
        sequences=gradient.num_sequences,
        tokens_per_second=gradient.num_tokens / seconds,
        fill=progress.tokens / max(progress.places, 1),
        seconds=progress.seconds,
    )


def _evaluate(
    run: _Run, evaluate: Evaluate, progress: Progress, loader: Batches, *, keep_best: bool
) -> None:
    """Compute dev metrics of the current weights and keep the weights if they are the best."""
    parallel = run.parallel
    weights = parallel.full_state(run.wrapped)[0]
    metrics = parallel.broadcast(evaluate(weights) if parallel.is_first else None)
    epoch = loader.epochs_at(progress.step - progress.phase_start)
    run.log.evaluation(progress.step, epoch, metrics)
    metric = progress.defined(metrics)
    if metrics.get(progress.metric) is None and keep_best:
        way = (
            f"is chosen by its {metric}" if metric != progress.metric else "is the last one so far"
        )
        run.log.say(f"dev has no {progress.metric}, so the best step {way}")
    if keep_best:
        progress.offer(weights, metrics)


def _outcome(run: _Run, progress: Progress, clock_before: float) -> Outcome:
    is_chosen = progress.best_step > 0
    weights = progress.best if is_chosen else run.parallel.full_state(run.wrapped)[0]
    sign = -1 if progress.metric in FALLING else 1
    is_known = is_chosen and math.isfinite(progress.best_value)
    return Outcome(
        status="done" if run.course.is_over(progress) else "stopped early",
        steps=progress.step,
        best_step=progress.best_step or progress.step,
        best_value=sign * progress.best_value if is_known else None,
        metric=progress.metric if is_chosen else None,
        num_tokens=progress.tokens,
        fill=progress.tokens / max(progress.places, 1),
        seconds=progress.seconds,
        cpu_seconds=progress.cpu_seconds,
        clock_before=clock_before,
        weights={name: tensor.clone() for name, tensor in weights.items()},
    )


def _not_finite(progress: Progress, loss: float, loader: Batches) -> str:
    rows: Sequence[list[Example]] = loader.rows_of(progress.step - progress.phase_start)
    numbers = ", ".join(str(row[0].row + 1) for row in rows[:8])
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return (
        f"Step {progress.step + 1}: the gradient is not finite (loss {loss:.4g}), on training rows "
        f"{numbers}{more}. Try a lower --lr, a longer --warmup, or --precision float32."
    )


def _interrupted(what: str, progress: Progress, saver: Saver) -> str:
    if saver.folder is None:
        return f"interrupted by {what} after step {progress.step}; no state was kept."
    return (
        f"interrupted by {what} after step {progress.step}; its state is saved. "
        f"Continue with the same command and --resume."
    )
