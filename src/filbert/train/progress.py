"""The progress of a run, saving it, and resuming an interrupted run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.errors import ConfigError
from filbert.train.distributed import Parallel
from filbert.train.log import RunLog
from filbert.train.state import State, clean_state, newest_state, save_state

# Metrics of which lower values are better.
FALLING = ("loss", "mse", "mlm_loss", "replaced_loss", "perplexity")


@dataclass
class Progress:
    """The progress of a run, which a resumed run starts from.

    Attributes:
        metric: The metric that selects the best step.
        step: Number of optimizer steps.
        phase: Index of the current phase.
        phase_start: Number of steps before the current phase.
        tokens: Number of tokens trained on, without padding.
        places: Number of attention positions, padding included.
        seconds: Training time.
        cpu_seconds: CPU time of this rank in the same periods.
        clock: Seconds since the first step, with evaluations and saving.
        best_step: Step of the best evaluation.
        best_value: Its metric, negated for metrics of which lower is better.
        since: Number of evaluations after the best one.
        best: Weights of the best step, on the CPU.
    """

    metric: str
    step: int = 0
    phase: int = 0
    phase_start: int = 0
    tokens: int = 0
    places: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    clock: float = 0.0
    best_step: int = 0
    best_value: float = -math.inf
    since: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, weights: dict[str, Tensor], metrics: dict[str, Any]) -> None:
        """Store the weights if their metric is the best so far."""
        self.metric = self.defined(metrics)
        found = metrics.get(self.metric)
        # A correlation is undefined if all predictions are equal; that counts as the worst value.
        value = -math.inf if found is None else float(found)
        value = -value if self.metric in FALLING else value
        self.since += 1
        is_unknown = value == self.best_value == -math.inf
        if value > self.best_value or is_unknown or not self.best_step:
            self.best_value, self.best_step, self.since = value, self.step, 0
            self.best = {name: tensor.clone() for name, tensor in weights.items()}

    def defined(self, metrics: dict[str, Any]) -> str:
        """Return the metric to select by: the loss if the chosen metric is undefined.

        ROC AUC is undefined if all rows have one class. A correlation can become defined later, so
        it stays the metric, and until then the last weights count as the best.
        """
        if metrics.get(self.metric) is not None:
            return self.metric
        return "loss" if metrics.get("loss") is not None else self.metric

    def facts(self) -> dict[str, Any]:
        """Return all fields except the weights, for a saved state."""
        return {k: v for k, v in vars(self).items() if k != "best"}


@dataclass
class Saver:
    """Saves states of a run, and remembers which state has the best weights already."""

    folder: Path | None
    fingerprint: str
    wrapped: torch.nn.Module
    optimizer: torch.optim.Optimizer
    parallel: Parallel
    best_step: int = -1
    saved: int = -1

    def save(self, so_far: Progress) -> None:
        """Save the state of the run on the first rank, at most once per step."""
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

    def resume(self, so_far: Progress, log: RunLog) -> None:
        """Load model, optimizer and progress from the newest complete state.

        Raises:
            ConfigError: The state belongs to a run with other options, data or model.
        """
        assert self.folder is not None
        was_here = self.folder.is_dir()
        if self.parallel.is_first:
            clean_state(self.folder)
        self.parallel.barrier()
        state, skipped = newest_state(self.folder)
        for sentence in skipped:
            log.say(sentence)
        if state is None:
            if was_here:
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
            setattr(so_far, name, state.facts.get(name, getattr(so_far, name)))
        so_far.best = groups["best"] if self.parallel.is_first else {}
        log.say(f"resumed after step {so_far.step}")
