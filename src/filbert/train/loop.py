"""The training loop: next batch, step, log, evaluate, save, stop.

It knows a task only through the `Objective` protocol, and has no callbacks.
"""

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
from filbert.data.loader import Batches
from filbert.errors import ConfigError, Interrupted, RunError
from filbert.model.cpu import all_memory_kept
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.tasks.base import Objective
from filbert.train.distributed import Parallel, Trainable, unwrapped
from filbert.train.features import Features
from filbert.train.log import RunLog
from filbert.train.optimizer import new_optimizer
from filbert.train.options import RunOptions, TrainOptions
from filbert.train.progress import FALLING, Progress, Schedule
from filbert.train.signals import Stop
from filbert.train.state import State, clean_state, newest_state, save_state
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
            Those that did not learn share the memory of a model on the CPU.
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


@dataclass
class _States:
    """The saved states of a run."""

    folder: Path | None
    fingerprint: str
    wrapped: torch.nn.Module
    optimizer: torch.optim.Optimizer
    parallel: Parallel
    saved_step: int = -1

    def save(self, progress: Progress) -> None:
        """Save the state of the run on the first rank, at most once per step."""
        if self.folder is None or progress.step == self.saved_step:
            return
        weights, moments = self.parallel.full_state(self.wrapped, self.optimizer)
        if self.parallel.is_first:
            weights = learned_weights(self.wrapped, weights)
            tensors = {f"model.{name}": tensor for name, tensor in weights.items()}
            tensors |= {f"optimizer.{name}": tensor for name, tensor in moments.items()}
            tensors |= {f"best.{name}": tensor for name, tensor in progress.best.items()}
            facts = progress.facts() | {"fingerprint": self.fingerprint}
            save_state(self.folder, State(step=progress.step, tensors=tensors, facts=facts))
        self.saved_step = progress.step

    def resume(self, progress: Progress, log: RunLog) -> None:
        """Load model, optimizer and progress from the newest complete state.

        Raises:
            ConfigError: The state belongs to a run with other options, data or model.
        """
        assert self.folder is not None
        has_folder = self.folder.is_dir()
        if self.parallel.is_first:
            clean_state(self.folder)
        self.parallel.barrier()
        state, skipped = newest_state(self.folder)
        for sentence in skipped:
            log.say(sentence)
        if state is None:
            if has_folder:
                log.say("no complete state to resume from; starting from the first step")
            return
        if state.facts["fingerprint"] != self.fingerprint:
            raise ConfigError(
                "The interrupted run had other options, data or model, so it cannot be resumed "
                "with these. Give the same command, or --overwrite in place of --resume."
            )
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "best": {}}
        for name, tensor in state.tensors.items():
            group, _, rest = name.partition(".")
            groups[group][rest] = tensor
        self.parallel.load_state(self.wrapped, self.optimizer, groups["model"], groups["optimizer"])
        for name in Progress("").facts():
            # States of earlier versions lack fields that were added later.
            setattr(progress, name, state.facts.get(name, getattr(progress, name)))
        progress.best = groups["best"] if self.parallel.is_first else {}
        log.say(f"resumed after step {progress.step}")


@dataclass(frozen=True)
class _Run:
    """What stays the same over all steps of `train`."""

    model: Trainable
    wrapped: torch.nn.Module
    task: Objective
    schedule: Schedule
    options: TrainOptions
    run: RunOptions
    precision: Precision
    parallel: Parallel
    log: RunLog
    evaluate: Evaluate | None
    keep_best: bool


def max_tokens_of(options: TrainOptions, device: torch.device, *, is_lora: bool = False) -> int:
    """Tokens per micro-batch: the option, or the default of the device.

    Without gradients and moments of the encoder most of the memory is that of the micro-batch.
    """
    default = _MAX_TOKENS_CUDA if device.type == "cuda" else _MAX_TOKENS_CPU
    return options.max_tokens or (default // 8 if is_lora else default)


@all_memory_kept()
def train(
    model: Trainable,
    task: Objective,
    *,
    schedule: Schedule,
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
        schedule: Gives batches and learning rate of every step, and the end of the run.
        options: Hyper-parameters.
        run: Seed, saving and resuming.
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
    whole = _Run(
        model, wrapped, task, schedule, options, run, precision, parallel, log, evaluate, keep_best
    )
    saved = _States(states, fingerprint, wrapped, optimizer, parallel)
    progress = Progress(options.metric or task.spec.selection_metric)
    if states is not None and run.resume:
        saved.resume(progress, log)
    clock_before = progress.clock
    forward = _forward(whole, features)
    _loop(whole, progress, forward=forward, optimizer=optimizer, states=saved)
    return _outcome(whole, progress, clock_before)


def _loop(
    run: _Run,
    progress: Progress,
    *,
    forward: Forward,
    optimizer: torch.optim.Optimizer,
    states: _States,
) -> None:
    """Make optimizer steps until the run is over."""
    schedule, parallel, log = run.schedule, run.parallel, run.log
    save_every = run.run.save_every
    done, length = schedule.position(progress)
    log.start(length, done, progress.step, in_seconds=schedule.seconds is not None)
    # Evaluating and saving count for a time budget, so this clock also runs between two steps.
    clock_before, began = progress.clock, time.perf_counter()
    with Stop() as stop:
        # A resumed run whose patience was already used up makes no further step.
        while not _is_over(run, progress):
            started, cpu_started = time.perf_counter(), time.process_time()
            if schedule.enter(progress):
                log.say(f"step {progress.step}: phase {progress.phase + 1} begins")
            loader = schedule.phases[progress.phase].loader
            rate = schedule.learning_rate(progress)
            gradient = _gradient(run, forward, loader, progress)
            norm = parallel.clip(run.wrapped, run.options.clip)
            if not math.isfinite(norm):
                raise RunError(_not_finite(progress, gradient.loss, loader))
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

            clock_of_last, now = progress.clock, time.perf_counter()
            progress.clock = clock_before + now - began
            progress.seconds += now - started
            progress.cpu_seconds += time.process_time() - cpu_started
            _count(run, progress, gradient)
            _log_step(run, progress, gradient, loader, lr=rate, norm=norm, seconds=now - started)
            is_due = schedule.is_due(progress, clock_of_last)
            if run.evaluate is not None and is_due:
                _evaluate(run, progress, loader)
            if is_due if save_every is None else save_every and progress.step % save_every == 0:
                states.save(progress)
            if parallel.any(stop.name is not None) and not _is_over(run, progress):
                states.save(progress)
                raise Interrupted(_interrupted(stop.name, progress, states.folder))


def _is_over(run: _Run, progress: Progress) -> bool:
    """Whether the length of the run is reached or the patience is used up."""
    patience = run.options.patience
    return run.schedule.is_over(progress) or bool(patience and progress.since >= patience)


def _forward(run: _Run, features: Features | None) -> Forward:
    """Return the forward pass: of the whole model, or of its head over stored encoder outputs."""
    device = run.parallel.device
    if features:
        assert isinstance(run.model, Model), "only a plain encoder is frozen"
        return features.forward(run.model.read, device)
    return model_forward(run.wrapped, device)


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


def _count(run: _Run, progress: Progress, gradient: Gradient) -> None:
    """Add a finished step to the progress; with a time budget, share the times of rank 0."""
    if run.schedule.seconds is not None:
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
    phase = {"phase": progress.phase + 1} if len(run.schedule.phases) > 1 else {}
    losses = {"loss": gradient.loss}
    losses |= dict(zip(run.task.spec.loss_names, gradient.parts, strict=True))
    run.log.step(
        run.schedule.position(progress)[0],
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


def _evaluate(run: _Run, progress: Progress, loader: Batches) -> None:
    """Compute dev metrics of the current weights and keep the weights if they are the best."""
    assert run.evaluate is not None
    parallel = run.parallel
    weights = parallel.full_state(run.wrapped)[0]
    metrics = parallel.broadcast(run.evaluate(weights) if parallel.is_first else None)
    epoch = loader.epochs_at(progress.step - progress.phase_start)
    run.log.evaluation(progress.step, epoch, metrics)
    metric = progress.defined(metrics)
    if metrics.get(progress.metric) is None and run.keep_best:
        way = (
            f"is chosen by its {metric}" if metric != progress.metric else "is the last one so far"
        )
        run.log.say(f"dev has no {progress.metric}, so the best step {way}")
    if run.keep_best:
        progress.offer(learned_weights(run.wrapped, weights), metrics)


def learned_weights(wrapped: torch.nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that training changes; the others stay those that it started from."""
    names = {n for n, p in unwrapped(wrapped).named_parameters() if p.requires_grad}
    return {name: tensor for name, tensor in weights.items() if name in names}


def _outcome(run: _Run, progress: Progress, clock_before: float) -> Outcome:
    is_chosen = progress.best_step > 0
    weights = run.parallel.full_state(run.wrapped)[0]
    learned = learned_weights(run.wrapped, weights)
    weights |= progress.best if is_chosen else {n: one.clone() for n, one in learned.items()}
    sign = -1 if progress.metric in FALLING else 1
    is_known = is_chosen and math.isfinite(progress.best_value)
    return Outcome(
        status="done" if run.schedule.is_over(progress) else "stopped early",
        steps=progress.step,
        best_step=progress.best_step or progress.step,
        best_value=sign * progress.best_value if is_known else None,
        metric=progress.metric if is_chosen else None,
        num_tokens=progress.tokens,
        fill=progress.tokens / max(progress.places, 1),
        seconds=progress.seconds,
        cpu_seconds=progress.cpu_seconds,
        clock_before=clock_before,
        weights=weights,
    )


def _not_finite(progress: Progress, loss: float, loader: Batches) -> str:
    rows: Sequence[list[Example]] = loader.rows_of(progress.step - progress.phase_start)
    numbers = ", ".join(str(row[0].row + 1) for row in rows[:8])
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return (
        f"Step {progress.step + 1}: the gradient is not finite (loss {loss:.4g}), on training rows "
        f"{numbers}{more}. Try a lower --lr, a longer --warmup, or --precision float32."
    )


def _interrupted(signal: str | None, progress: Progress, states: Path | None) -> str:
    what = f"interrupted by {signal or 'another process'} after step {progress.step}"
    if states is None:
        return f"{what}; no state was saved."
    return f"{what}; its state is saved. Continue with the same command and --resume."
