"""The training loop. It knows tasks only by their protocol; no callbacks, only plain ifs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.data.loader import Loader
from filbert.errors import ConfigError, Interrupted, RunError
from filbert.model.heads import Model
from filbert.speed.precision import Precision
from filbert.tasks.base import Task
from filbert.train.distributed import Parallel
from filbert.train.features import Features
from filbert.train.log import RunLog
from filbert.train.optimizer import learning_rate, new_optimizer
from filbert.train.options import TrainOptions
from filbert.train.signals import Stop
from filbert.train.state import State, clean_state, newest_state, save_state
from filbert.train.step import Gradient, accumulate, model_forward

# Smaller micro-batches only cost time (docs/log.md); larger ones cost memory: about 0.6 MB a token
# for a 6 x 384 encoder.
MAX_TOKENS_CPU = 8_192
MAX_TOKENS_CUDA = 65_536

# Of these figures less is better.
FALLING = ("loss", "mse")


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
    weights: dict[str, Tensor]


@dataclass
class _Progress:
    """What a run has come to so far, and a resumed one starts from.

    Attributes:
        step: optimiser steps made.
        tokens, places, seconds: as in `Outcome`, over all steps.
        metric: what the best step is chosen by.
        best_step, best_value: of the best evaluation; more is better, whatever the metric.
        since: evaluations since then.
        best: the weights of the best step, on the host.
    """

    metric: str
    step: int = 0
    tokens: int = 0
    places: int = 0
    seconds: float = 0.0
    best_step: int = 0
    best_value: float = -math.inf
    since: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, weights: dict[str, Tensor], metrics: dict[str, Any]) -> None:
        """Keep these weights if they are the best so far."""
        if metrics[self.metric] is None and "loss" in metrics:
            # Dev rows of one class have no ROC AUC; the loss is always defined.
            self.metric = "loss"
        found = metrics[self.metric]
        # Predictions that are all alike have no correlation: the worst there is.
        value = -math.inf if found is None else float(found)
        value = -value if self.metric in FALLING else value
        self.since += 1
        if value > self.best_value or not self.best_step:
            self.best_value, self.best_step, self.since = value, self.step, 0
            self.best = {name: tensor.clone() for name, tensor in weights.items()}

    def facts(self) -> dict[str, Any]:
        """All but the weights, for a state's facts."""
        return {k: v for k, v in vars(self).items() if k != "best"}


def num_steps(loader: Loader, options: TrainOptions) -> int:
    """Optimiser steps of the whole run."""
    return options.steps or max(1, math.ceil(options.epochs * loader.steps_per_epoch))


def train(
    model: Model,
    task: Task,
    loader: Loader,
    options: TrainOptions,
    *,
    precision: Precision,
    evaluate: Callable[[dict[str, Tensor]], dict[str, Any]] | None,
    log: RunLog,
    parallel: Parallel,
    features: Features | None = None,
    states: Path | None = None,
    fingerprint: str = "",
) -> Outcome:
    """Train `model` in place.

    Args:
        model: encoder and head, on its device.
        task: gives targets, counts and losses.
        loader: gives the micro-batches of every step.
        options: how.
        precision: of the matrix products; the weights stay float32.
        evaluate: gives the dev metrics of weights, on the first rank; None without dev rows, then
            the last step's weights are kept.
        log: takes the figures.
        parallel: the other ranks.
        features: outputs of a frozen encoder, instead of running it.
        states: where states are saved and, with `options.resume`, continued from; None for nowhere.
        fingerprint: of everything a resumed run must share with the interrupted one.

    Raises:
        RunError: a gradient is not finite (the step and its rows are named), or memory ran out.
        Interrupted: a signal came; the state is saved.
        ConfigError: the state to resume belongs to another run.
    """
    steps = num_steps(loader, options)
    every = options.eval_every or loader.steps_per_epoch
    wrapped = parallel.wrap(model)
    optimizer = new_optimizer(model, options)
    so_far = _Progress(options.metric or task.selection_metric)
    if states is not None and options.resume:
        _resume(states, so_far, wrapped, optimizer, parallel, fingerprint, log)
    device = parallel.device
    forward = (
        features.forward(parallel.forward_of(wrapped, "read"), device)
        if features
        else model_forward(wrapped, device)
    )
    saver = _Saver(states, fingerprint, wrapped, optimizer, parallel)
    log.start(steps, so_far.step)
    status = "done"
    with Stop() as stop:
        while so_far.step < steps:
            started = time.perf_counter()
            model.train()
            step = so_far.step + 1
            gradient = _gradient(
                forward, wrapped, model, task, loader, parallel, precision, options, step, log
            )
            norm = parallel.clip(wrapped, options.clip)
            if not math.isfinite(norm):
                raise RunError(_not_finite(step, gradient.loss, loader))
            rate = learning_rate(step - 1, steps=steps, warmup=options.warmup, peak=options.lr)
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            elapsed = time.perf_counter() - started
            so_far.step = step
            so_far.tokens += gradient.num_tokens
            so_far.places += gradient.num_places
            so_far.seconds += elapsed
            log.step(
                step=step,
                epoch=step / loader.steps_per_epoch,
                loss=gradient.loss,
                lr=rate,
                grad_norm=norm,
                tokens_per_second=gradient.num_tokens / elapsed,
                fill=so_far.tokens / max(so_far.places, 1),
                seconds=so_far.seconds,
            )
            is_due = step % every == 0 or step == steps
            if evaluate is not None and is_due:
                _evaluate(evaluate, so_far, loader, saver, log)
            if is_due if options.save_every is None else _is_multiple(step, options.save_every):
                saver.save(so_far)
            if options.patience and so_far.since >= options.patience and step < steps:
                status = "stopped early"
                break
            if parallel.any(stop.name is not None) and step < steps:
                saver.save(so_far)
                raise Interrupted(_interrupted(stop.name or "another process", so_far, saver))
    is_chosen = so_far.best_step > 0
    weights = so_far.best if is_chosen else parallel.full_state(wrapped)[0]
    sign = -1 if so_far.metric in FALLING else 1
    return Outcome(
        status=status,
        steps=so_far.step,
        best_step=so_far.best_step or so_far.step,
        best_value=sign * so_far.best_value if is_chosen else None,
        metric=so_far.metric if is_chosen else None,
        num_tokens=so_far.tokens,
        fill=so_far.tokens / max(so_far.places, 1),
        seconds=so_far.seconds,
        weights={name: tensor.clone() for name, tensor in weights.items()},
    )


def _gradient(
    forward: Any,
    wrapped: torch.nn.Module,
    model: Model,
    task: Task,
    loader: Loader,
    parallel: Parallel,
    precision: Precision,
    options: TrainOptions,
    step: int,
    log: RunLog,
) -> Gradient:
    """One step's gradient; when memory runs out, with smaller micro-batches."""
    while True:
        try:
            return accumulate(
                forward,
                wrapped,
                task,
                loader.step(step - 1, parallel.rank, parallel.world),
                parallel=parallel,
                precision=precision,
                seed=(options.seed, step),
                stand_in=loader.rows[0],
            )
        except torch.OutOfMemoryError as error:
            longest = max(sum(len(e.input_ids) for e in row) for row in loader.rows_of(step - 1))
            if parallel.world > 1 or loader.max_tokens <= longest:
                raise RunError(
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
    so_far: _Progress,
    loader: Loader,
    saver: _Saver,
    log: RunLog,
) -> None:
    """Dev metrics of the weights as they are, and whether they are the best; on all ranks alike."""
    parallel = saver.parallel
    weights = parallel.full_state(saver.wrapped)[0]
    metrics = parallel.broadcast(evaluate(weights) if parallel.is_first else None)
    log.evaluation(so_far.step, so_far.step / loader.steps_per_epoch, metrics)
    if metrics[so_far.metric] is None and "loss" in metrics:
        log.say(f"dev has no {so_far.metric}, so the best step is chosen by its loss")
    so_far.offer(weights, metrics)


@dataclass
class _Saver:
    """Saves states; knows which one holds the best weights already."""

    folder: Path | None
    fingerprint: str
    wrapped: torch.nn.Module
    optimizer: torch.optim.Optimizer
    parallel: Parallel
    best_step: int = -1
    saved: int = -1

    def save(self, so_far: _Progress) -> None:
        """Save the run as it is, on the first rank; unless that was done at this step."""
        if self.folder is None or so_far.step == self.saved:
            return
        weights, moments = self.parallel.full_state(self.wrapped, self.optimizer)
        if self.parallel.is_first:
            tensors = {f"model.{name}": tensor for name, tensor in weights.items()}
            tensors |= {f"optimizer.{name}": tensor for name, tensor in moments.items()}
            tensors |= {f"best.{name}": tensor for name, tensor in so_far.best.items()}
            facts = so_far.facts() | {"fingerprint": self.fingerprint}
            unchanged = {"best"} if so_far.best and self.best_step == so_far.best_step else set()
            state = State(step=so_far.step, tensors=tensors, facts=facts)
            save_state(self.folder, state, unchanged=unchanged)
        self.saved, self.best_step = so_far.step, so_far.best_step


def _resume(
    states: Path,
    so_far: _Progress,
    wrapped: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    parallel: Parallel,
    fingerprint: str,
    log: RunLog,
) -> None:
    """Put model, optimiser and progress where the newest complete state left them."""
    if parallel.is_first:
        clean_state(states)
    parallel.barrier()
    state, skipped = newest_state(states)
    for sentence in skipped:
        log.say(sentence)
    if state is None:
        log.say("no complete state to resume from; starting from the first step")
        return
    if state.facts["fingerprint"] != fingerprint:
        raise ConfigError(
            "The interrupted run had other options, data or model, so it cannot be resumed with "
            "these. Give the same command, or start anew with --overwrite."
        )
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "best": {}}
    for name, tensor in state.tensors.items():
        group, _, rest = name.partition(".")
        groups[group][rest] = tensor
    parallel.load_state(wrapped, optimizer, groups["model"], groups["optimizer"])
    for name in vars(_Progress("")):
        if name != "best":
            setattr(so_far, name, state.facts[name])
    so_far.best = groups["best"] if parallel.is_first else {}
    log.say(f"resumed after step {so_far.step}")


def _is_multiple(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _not_finite(step: int, loss: float, loader: Loader) -> str:
    rows: Sequence[list[Example]] = loader.rows_of(step - 1)
    numbers = ", ".join(str(row[0].row + 1) for row in rows[:8])
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return (
        f"Step {step}: the gradient is not finite (loss {loss:.4g}), on training rows {numbers}"
        f"{more}. Try a lower --lr, a longer --warmup, or --precision float32."
    )


def _interrupted(what: str, so_far: _Progress, saver: _Saver) -> str:
    if saver.folder is None:
        return f"interrupted by {what} after step {so_far.step}; no state was kept."
    return (
        f"interrupted by {what} after step {so_far.step}; its state is saved. "
        f"Continue with the same command and --resume."
    )
