"""The training loop. It knows tasks only by their protocol; no callbacks, only plain ifs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from filbert.data.examples import collate
from filbert.data.loader import Loader
from filbert.errors import RunError
from filbert.model.attention import group_lengths
from filbert.model.heads import Model
from filbert.speed.precision import Precision
from filbert.tasks.base import Task
from filbert.train.log import RunLog
from filbert.train.optimizer import learning_rate, new_optimizer
from filbert.train.options import TrainOptions

# Smaller micro-batches only cost time (docs/log.md); larger ones cost memory: about 0.6 MB a token
# for a 6 x 384 encoder.
MAX_TOKENS_CPU = 8_192
MAX_TOKENS_CUDA = 65_536


@dataclass
class Outcome:
    """What a training run came to.

    Attributes:
        status: "done", or "stopped early" when patience ran out.
        steps: optimiser steps made.
        best_step: the step whose weights the model holds now.
        best_value: the selection metric there; None without dev rows.
        metric: the name of the selection metric.
        num_tokens: real tokens trained on.
        fill: real tokens as a share of the places inside attention, over the run.
        seconds: of training, evaluations not counted.
    """

    status: str
    steps: int
    best_step: int
    best_value: float | None
    metric: str | None
    num_tokens: int
    fill: float
    seconds: float


@dataclass
class _Best:
    """The best weights so far, kept on the host."""

    metric: str
    value: float = -math.inf
    step: int = 0
    since: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, model: Model, step: int, metrics: dict[str, Any]) -> None:
        """Keep these weights if they are the best so far."""
        if metrics[self.metric] is None:
            # Dev rows of one class have no ROC AUC; the loss is always defined.
            self.metric = "loss"
        value = float(metrics[self.metric])
        value = -value if self.metric == "loss" else value
        self.since += 1
        if value > self.value or not self.state:
            self.value, self.step, self.since = value, step, 0
            self.state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}


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
    evaluate: Callable[[], dict[str, Any]] | None,
    log: RunLog,
) -> Outcome:
    """Train `model` in place and leave the weights of the best step on dev in it.

    Args:
        model: encoder and head, on its device.
        task: gives targets, counts and losses.
        loader: gives the micro-batches of every step.
        options: how.
        precision: of the matrix products; the weights stay float32.
        evaluate: gives the dev metrics of the model as it stands; None without dev rows, then the
            last step's weights are kept.
        log: takes the figures.

    Raises:
        RunError: a gradient is not finite; the step is named.
    """
    device = next(model.parameters()).device
    optimizer = new_optimizer(model, options)
    steps = num_steps(loader, options)
    every = options.eval_every or loader.steps_per_epoch
    best = _Best(options.metric or task.selection_metric)
    tokens_seen, places, seconds = 0, 0, 0.0
    status, step = "done", 0
    log.start(steps)
    for step in range(1, steps + 1):
        started = time.perf_counter()
        model.train()
        # All randomness of a step hangs on (seed, step) alone, so that a resumed run repeats it.
        torch.manual_seed(options.seed * 1_000_003 + step)
        micro_batches = loader.step(step - 1)
        targets = [task.targets(examples) for examples in micro_batches]
        count = sum(task.count(target) for target in targets)
        loss_sum, tokens = torch.zeros((), device=device), 0
        for examples, target in zip(micro_batches, targets, strict=True):
            batch = collate(examples).to(device)
            wanted = target._replace(
                values=target.values.to(device),
                at=None if target.at is None else target.at.to(device),
            )
            with precision.autocast(device):
                output = model(batch, wanted.at)
            loss = task.loss(output, wanted)
            (loss / count).backward()  # type: ignore[no-untyped-call]
            loss_sum += loss.detach()
            tokens += batch.num_tokens
            runs = group_lengths(batch.lengths)
            places += sum(max(batch.lengths[a:b]) * (b - a) for a, b in runs)
        mean_loss = float(loss_sum) / count
        norm = _clip(model, options.clip)
        if not math.isfinite(norm):
            raise RunError(
                f"Step {step}: the gradient is not finite (loss {mean_loss:.4g}). "
                f"Try a lower --lr, or --precision float32."
            )
        rate = learning_rate(step - 1, steps=steps, warmup=options.warmup, peak=options.lr)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        elapsed = time.perf_counter() - started
        tokens_seen, seconds = tokens_seen + tokens, seconds + elapsed
        log.step(
            step=step,
            epoch=step / loader.steps_per_epoch,
            loss=mean_loss,
            lr=rate,
            grad_norm=norm,
            tokens_per_second=tokens / elapsed,
            fill=tokens_seen / places,
            seconds=seconds,
        )
        if evaluate is not None and (step % every == 0 or step == steps):
            metrics = evaluate()
            log.evaluation(step, step / loader.steps_per_epoch, metrics)
            if metrics[best.metric] is None:
                log.say(f"dev has no {best.metric}, so the best step is chosen by its loss")
            best.offer(model, step, metrics)
            if options.patience and best.since >= options.patience and step < steps:
                status = "stopped early"
                break
    if best.state:
        model.load_state_dict(best.state)
    sign = -1 if best.metric == "loss" else 1
    return Outcome(
        status=status,
        steps=step,
        best_step=best.step or step,
        best_value=sign * best.value if best.state else None,
        metric=best.metric if best.state else None,
        num_tokens=tokens_seen,
        fill=tokens_seen / places,
        seconds=seconds,
    )


def _clip(model: Model, largest: float) -> float:
    """Global gradient norm before clipping; scales gradients down to `largest` unless that is 0."""
    trained = [p for p in model.parameters() if p.grad is not None]
    limit = largest if largest > 0 else math.inf
    return float(torch.nn.utils.clip_grad_norm_(trained, limit))
