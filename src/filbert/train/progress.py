"""How far a run has come, where that is saved, and how an interrupted run goes on from it."""

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

# Of these figures less is better.
FALLING = ("loss", "mse", "mlm_loss", "replaced_loss", "perplexity")


@dataclass
class Progress:
    """What a run has come to so far, and a resumed one starts from.

    Attributes:
        step: optimiser steps made.
        phase: which phase of the course it is in, from 0.
        phase_start: steps made before that phase.
        tokens: real tokens trained on.
        places: places inside attention, padding included.
        seconds: of training.
        cpu_seconds: the same of this rank's processors.
        clock: seconds of everything since the first step: training, evaluating, saving.
        metric: what the best step is chosen by.
        best_step, best_value: of the best evaluation; more is better, whatever the metric.
        since: evaluations since then.
        best: the weights of the best step, on the host.
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
        """Keep these weights if they are the best so far."""
        self.metric = self.defined(metrics)
        found = metrics.get(self.metric)
        # Predictions that are all alike have no correlation: the worst there is.
        value = -math.inf if found is None else float(found)
        value = -value if self.metric in FALLING else value
        self.since += 1
        is_unknown = value == self.best_value == -math.inf
        if value > self.best_value or is_unknown or not self.best_step:
            self.best_value, self.best_step, self.since = value, self.step, 0
            self.best = {name: tensor.clone() for name, tensor in weights.items()}

    def defined(self, metrics: dict[str, Any]) -> str:
        """The metric to choose by: its own, or the loss where rows of one class have no ROC AUC.

        A correlation may be there later, so it stays the metric; so long the last weights are best.
        """
        if metrics.get(self.metric) is not None:
            return self.metric
        return "loss" if metrics.get("loss") is not None else self.metric

    def facts(self) -> dict[str, Any]:
        """All but the weights, for a state's facts."""
        return {k: v for k, v in vars(self).items() if k != "best"}


@dataclass
class Saver:
    """Saves states; knows which one holds the best weights already."""

    folder: Path | None
    fingerprint: str
    wrapped: torch.nn.Module
    optimizer: torch.optim.Optimizer
    parallel: Parallel
    best_step: int = -1
    saved: int = -1

    def save(self, so_far: Progress) -> None:
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

    def resume(self, so_far: Progress, log: RunLog) -> None:
        """Put model, optimiser and progress where the newest complete state left them.

        Raises:
            ConfigError: the state belongs to a run with other options, data or model.
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
            # States of earlier versions lack what was added since.
            setattr(so_far, name, state.facts.get(name, getattr(so_far, name)))
        so_far.best = groups["best"] if self.parallel.is_first else {}
        log.say(f"resumed after step {so_far.step}")
