"""The training loop: next batch, step, log, evaluate, save, stop.

It uses a task only through the `Objective` protocol, and has no callbacks.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from filbert.data.examples import Example
from filbert.errors import ConfigError, Interrupted, RunError
from filbert.model.cpu import all_memory_kept
from filbert.model.precision import Precision
from filbert.tasks.base import Objective
from filbert.train.distributed import Parallel, Trainable
from filbert.train.log import RunLog
from filbert.train.optimizer import new_optimizer
from filbert.train.options import RunOptions, TrainOptions
from filbert.train.schedule import Progress, Schedule
from filbert.train.state import (
    State,
    clean_state,
    learned_weights,
    load_moments,
    moments_of,
    newest_state,
    save_state,
)
from filbert.train.step import Forward, Gradient, accumulate, model_forward

if TYPE_CHECKING:
    from filbert.data.instances import Batches

# Smaller micro-batches only cost time (docs/log.md). Larger ones cost memory: about 0.6 MB per
# token for an encoder of 6 layers and width 384.
_MAX_TOKENS_CPU = 8_192
_MAX_TOKENS_CUDA = 65_536
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Context manager for Ctrl-C and SIGTERM; the first one ends a run after its step.

    The second one raises KeyboardInterrupt immediately.

    Attributes:
        name: Name of the signal that arrived, or None.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        # Python delivers signals to the main thread, and only that thread may set handlers.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None:
            raise KeyboardInterrupt
        self.name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def max_tokens_of(options: TrainOptions, device: torch.device, *, is_lora: bool = False) -> int:
    """Return the tokens per micro-batch: the option, or the default of the device.

    Without gradients and moments of the encoder most of the memory is that of the micro-batch.
    """
    default = _MAX_TOKENS_CUDA if device.type == "cuda" else _MAX_TOKENS_CPU
    return options.max_tokens or (default // 16 if is_lora else default)


@dataclass(eq=False, kw_only=True)
class Training:
    """A training run: what it consists of, and what changes from step to step.

    Attributes:
        model: Encoder and head, on its device; it is trained in place.
        schedule: Gives batches and learning rate of every step, and the end of the run.
        run: Seed, saving and resuming.
        precision: Number format of the matrix products; the weights stay float32.
        folder: Where metrics.jsonl and the saved states are written.
        fingerprint: Hash of everything that a resumed run must share with the interrupted one.
        evaluate: Computes dev metrics of the model, on the first rank; None without dev rows.
        keep_best: End with the weights of the best evaluation, not with those of the last step.
        forward: A forward pass over outputs of a frozen encoder, which is not run then.
    """

    model: Trainable
    task: Objective
    schedule: Schedule
    run: RunOptions
    precision: Precision
    parallel: Parallel
    folder: Path
    fingerprint: str
    evaluate: Callable[[], dict[str, Any]] | None = None
    keep_best: bool = True
    forward: Forward | None = None

    def __post_init__(self) -> None:
        options = self.schedule.options
        self.wrapped = self.parallel.wrap(self.model)
        self.optimizer = new_optimizer(self.model, options, precision=self.run.precision)
        self.progress = Progress(options.metric or self.task.spec.selection_metric)
        self.states = self.folder / "state"
        self.saved_step = -1

    @all_memory_kept()
    def train(self) -> Progress:
        """Train the model in place; on the first rank it ends with the best weights.

        Raises:
            RunError: A gradient is not finite; the message names the step and its rows.
            Interrupted: A signal arrived; the state is saved.
            ConfigError: The state to resume belongs to another run.
        """
        run, progress = self.run, self.progress
        folder = self.folder if self.parallel.is_first else None
        with RunLog(folder, tensorboard=run.tensorboard) as self.log:
            if run.resume:
                self._resume()
            progress.clock_before = progress.clock
            self._make_steps()
        # Only of parameters that learn; none on other ranks.
        self.model.load_state_dict(progress.best, strict=False)
        progress.best = {}
        return progress

    def _make_steps(self) -> None:
        """Make optimizer steps until the run is over."""
        progress, log, schedule, parallel = self.progress, self.log, self.schedule, self.parallel
        save_every = self.run.save_every
        forward = self.forward or model_forward(self.wrapped, parallel.device)
        done, length = schedule.position(progress)
        log.start(length, done, progress.step, in_seconds=schedule.seconds is not None)
        # Evaluating and saving count for a time budget, so this clock also runs between two steps.
        began = time.perf_counter()
        with Stop() as stop:
            # A resumed run whose patience was already used up makes no further step.
            while not self._is_over():
                started, cpu_started = time.perf_counter(), time.process_time()
                if schedule.enter(progress):
                    log.say(f"step {progress.step}: phase {progress.phase + 1} begins")
                loader = schedule.loader(progress)
                rate = schedule.learning_rate(progress)
                gradient = self._gradient(forward, loader)
                largest = schedule.options.clip or math.inf
                norm = float(clip_grad_norm_(self.wrapped.parameters(), largest))
                if not math.isfinite(norm):
                    raise RunError(_not_finite(progress, gradient.loss, loader))
                for group in self.optimizer.param_groups:
                    group["lr"] = rate * group["share"]
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)

                clock_of_last, now = progress.clock, time.perf_counter()
                progress.clock = progress.clock_before + now - began
                progress.seconds += now - started
                progress.cpu_seconds += time.process_time() - cpu_started
                if schedule.seconds is not None:
                    # All ranks must agree on the end of the run and on when dev is evaluated.
                    times = parallel.broadcast([progress.clock, progress.seconds])
                    progress.clock, progress.seconds = times
                progress.step += 1
                progress.tokens += gradient.num_tokens
                progress.places += gradient.num_places
                self._log_step(gradient, loader, lr=rate, norm=norm, seconds=now - started)
                is_due = schedule.is_due(progress, clock_of_last)
                if is_due:
                    self._evaluate(loader)
                if is_due if save_every is None else save_every and progress.step % save_every == 0:
                    self._save()
                if parallel.any(stop.name is not None) and not self._is_over():
                    self._save()
                    raise Interrupted(
                        f"interrupted by {stop.name or 'another process'} after step "
                        f"{progress.step}; its state is saved. Continue with the same command and "
                        "--resume."
                    )

    def _is_over(self) -> bool:
        """Return whether the length of the run is reached or the patience is used up."""
        progress, patience = self.progress, self.schedule.options.patience
        return self.schedule.is_over(progress) or bool(patience and progress.since >= patience)

    def _gradient(self, forward: Forward, loader: Batches) -> Gradient:
        """Compute the gradient of the next step; if memory runs out, with smaller micro-batches."""
        progress, parallel = self.progress, self.parallel
        step, inside = progress.step + 1, progress.step - progress.phase_start
        self.model.train()
        while True:
            try:
                return accumulate(
                    forward,
                    self.wrapped,
                    self.task,
                    loader.step(inside, parallel.rank, parallel.world),
                    parallel=parallel,
                    precision=self.precision,
                    seed=(self.run.seed, step),
                    stand_in=loader.stand_in,
                )
            except torch.OutOfMemoryError as error:
                longest = max(sum(len(e.input_ids) for e in row) for row in loader.rows_of(inside))
                if parallel.world > 1 or loader.max_tokens <= longest:
                    raise ConfigError(
                        f"Step {step}: out of memory with {loader.max_tokens} tokens per "
                        "micro-batch. Lower --max-tokens or --max-length."
                    ) from error
                loader.max_tokens = max(loader.max_tokens // 2, longest)
            # Outside the handler, because its traceback keeps the tensors of the failed pass alive.
            self.model.zero_grad(set_to_none=True)
            if parallel.device.type == "cuda":
                torch.cuda.empty_cache()
            self.log.say(
                f"step {step}: out of memory; micro-batches now hold {loader.max_tokens:,} tokens "
                f"(the batch and its gradient stay the same)"
            )

    def _log_step(
        self, gradient: Gradient, loader: Batches, *, lr: float, norm: float, seconds: float
    ) -> None:
        """Write the losses and the speed of one step to the log."""
        progress = self.progress
        phase = {"phase": progress.phase + 1} if len(self.schedule.phases) > 1 else {}
        losses = {"loss": gradient.loss}
        losses |= dict(zip(self.task.spec.loss_names, gradient.parts, strict=True))
        self.log.step(
            self.schedule.position(progress)[0],
            step=progress.step,
            epoch=loader.epochs_at(progress.step - progress.phase_start),
            **phase,
            **losses,
            lr=lr,
            grad_norm=norm,
            sequences=gradient.num_sequences,
            tokens_per_second=gradient.num_tokens / seconds,
            fill=progress.fill,
            seconds=progress.seconds,
        )

    def _evaluate(self, loader: Batches) -> None:
        """Compute dev metrics, if there are dev rows, and keep the weights if they are the best."""
        progress, parallel = self.progress, self.parallel
        if self.evaluate is None:
            return
        metrics = parallel.broadcast(self.evaluate() if parallel.is_first else None)
        epoch = loader.epochs_at(progress.step - progress.phase_start)
        self.log.evaluation(progress.step, epoch, metrics, progress.metric)
        if not self.keep_best:
            progress.offer(metrics)
            return
        metric = progress.defined(metrics)
        if metrics.get(progress.metric) is None:
            is_other = metric != progress.metric
            way = f"is chosen by its {metric}" if is_other else "is the last one so far"
            self.log.say(f"dev has no {progress.metric}, so the best step {way}")
        progress.offer(metrics, learned_weights(self.model) if parallel.is_first else {})

    # Saved states

    def _save(self) -> None:
        """Save the state of the run on the first rank, at most once per step."""
        progress = self.progress
        if progress.step == self.saved_step:
            return
        self.saved_step = progress.step
        if not self.parallel.is_first:
            return
        groups = {
            "model": learned_weights(self.model),
            "optimizer": moments_of(self.model, self.optimizer),
            "best": progress.best,
        }
        tensors = {f"{g}.{name}": one for g, group in groups.items() for name, one in group.items()}
        facts = progress.facts() | {"fingerprint": self.fingerprint}
        save_state(self.states, State(step=progress.step, tensors=tensors, facts=facts))

    def _resume(self) -> None:
        """Load model, optimizer and progress from the newest complete state."""
        parallel, progress = self.parallel, self.progress
        has_folder = self.states.is_dir()
        if parallel.is_first:
            clean_state(self.states)
        parallel.barrier()
        state, skipped = newest_state(self.states)
        for sentence in skipped:
            self.log.say(sentence)
        if state is None:
            if has_folder:
                self.log.say("no complete state to resume from; starting from the first step")
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
        assert groups["model"].keys() >= learned_weights(self.model).keys()
        self.model.load_state_dict(groups["model"], strict=False)
        load_moments(self.model, self.optimizer, groups["optimizer"])
        for name in progress.facts():
            setattr(progress, name, state.facts[name])
        progress.best = groups["best"] if parallel.is_first else {}
        self.log.say(f"resumed after step {progress.step}")


def _not_finite(progress: Progress, loss: float, loader: Batches) -> str:
    rows: Sequence[list[Example]] = loader.rows_of(progress.step - progress.phase_start)
    numbers = ", ".join(str(row[0].row + 1) for row in rows[:8])
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return (
        f"Step {progress.step + 1}: the gradient is not finite (loss {loss:.4g}), on training rows "
        f"{numbers}{more}. Try a lower --lr, a longer --warmup, or --precision float32."
    )
