"""How far a run is, and its schedule: phases, learning rates, evaluations and the end.

A learning rate is a curve over the steps of a run, or over its seconds if there is a time budget: t
of T with W of them for warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from filbert.tasks.base import gain
from filbert.train.options import TrainOptions, chosen_value

if TYPE_CHECKING:
    from filbert.data.instances import Batches

# (t, T, W, peak) -> rate; t in [0, T), W in [0, T). The peak is a parameter, because
# (peak * t) / W and peak * (t / W) differ in their last bits.
Curve = Callable[[float, float, float, float], float]

# Share of the run in which the rate of a trapezoid falls.
_COOLDOWN = 0.2
# With a time budget and no interval given, dev is measured so many times at most, and not again
# before everything except training has become this share of the time.
_EVALUATIONS = 20
_EVALUATION_SHARE = 0.05


@dataclass
class Progress:
    """The progress of a run, which a resumed run starts from, and its result at the end.

    Attributes:
        metric: The metric that selects the best step.
        phase_start: Number of steps before the current phase.
        tokens: Number of tokens trained on, without padding.
        places: Number of attention positions, padding included.
        cpu_seconds: CPU time of this rank in the same periods.
        clock: Seconds since the first step, with evaluations and saving.
        clock_before: That of earlier, interrupted processes of this run.
        best_step: The step with the best dev metric; 0 before the first evaluation.
        best_value: That metric, negated if lower is better.
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
    clock_before: float = 0.0
    best_step: int = 0
    best_value: float = -math.inf
    since: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)

    def offer(self, metrics: dict[str, Any], weights: dict[str, Tensor] | None = None) -> None:
        """Store the weights if their metric is the best so far; without weights, the metric."""
        self.metric = self.defined(metrics)
        # A correlation is undefined if all predictions are equal; that counts as the worst value.
        value = gain(self.metric, metrics.get(self.metric))
        self.since += 1
        is_unknown = value == self.best_value == -math.inf
        is_best = value > self.best_value or is_unknown or not self.best_step
        if weights is None or is_best:
            self.best_value, self.best_step, self.since = value, self.step, 0
            best = (weights or {}).items()
            self.best = {name: tensor.to("cpu", copy=True) for name, tensor in best}

    def defined(self, metrics: dict[str, Any]) -> str:
        """Return the metric to select by: the loss if the chosen metric is undefined.

        ROC AUC is undefined if all rows have one class. A correlation can become defined later, so
        it stays the metric, and until then the last weights count as the best.
        """
        if metrics.get(self.metric) is not None:
            return self.metric
        return "loss" if metrics.get("loss") is not None else self.metric

    @property
    def fill(self) -> float:
        """Tokens as a share of the attention positions."""
        return self.tokens / max(self.places, 1)

    @property
    def selected(self) -> dict[str, Any]:
        """The `step` of the weights, and the `metric` that chose it with its `value` there.

        Metric and value are None without dev rows.
        """
        is_chosen = self.best_step > 0
        is_known = is_chosen and math.isfinite(self.best_value)
        return {
            "step": self.best_step or self.step,
            "metric": self.metric if is_chosen else None,
            # The gain of a gain is the value.
            "value": gain(self.metric, self.best_value) if is_known else None,
        }

    def facts(self) -> dict[str, Any]:
        """Return the fields that a saved state has, except for the weights."""
        return {k: v for k, v in vars(self).items() if k not in ("best", "clock_before")}


class Phase(NamedTuple):
    """A part of a run that has its own batches, such as longer sequences.

    Attributes:
        loader: Gives the batches; its steps are counted from the beginning of the phase.
        share: Share of the run's steps, or of its time.
    """

    loader: Batches
    share: float = 1.0


class Schedule:
    """The steps of one run: phases, learning rates, evaluations and the end.

    A run is measured in optimizer steps, or in seconds if the user gave a time.

    Args:
        phases: In order; their shares add up to 1.
        options: Steps, epochs (passes over the rows of the first phase) or time; learning rate,
            schedule, warm-up; how often to evaluate.

    Attributes:
        interval: Steps between evaluations if `options` have none; None for an epoch.
        steps: Number of steps of the run; None if it is measured in seconds.
        seconds: Length of the run in seconds; None if it is measured in steps.
    """

    def __init__(self, phases: Sequence[Phase], options: TrainOptions) -> None:
        assert math.isclose(sum(phase.share for phase in phases), 1.0)
        self.phases = phases
        self.options = options
        self.seconds = options.time_seconds
        self.steps: int | None = None
        if self.seconds is None:
            loader = phases[0].loader
            self.steps = options.steps or max(1, loader.steps_for(chosen_value(options.epochs)))
        self.interval: int | None = None
        self._ends = list(accumulate(phase.share for phase in phases))

    def is_over(self, progress: Progress) -> bool:
        """Return whether the run has reached its length; it has one step at least."""
        done, whole = self.position(progress)
        return progress.step > 0 and done >= whole

    def enter(self, progress: Progress) -> bool:
        """Begin the phase of the next step; return whether it is a new one."""
        done, whole = self.position(progress)
        ends = [end * whole for end in self._ends[:-1]]
        phase = sum(done >= (round(end) if self.seconds is None else end) for end in ends)
        if phase <= progress.phase:
            return False
        progress.phase, progress.phase_start = phase, progress.step
        return True

    def loader(self, progress: Progress) -> Batches:
        """Return the loader of the current phase."""
        return self.phases[progress.phase].loader

    def learning_rate(self, progress: Progress) -> float:
        """Return the learning rate of the next step."""
        options = self.options
        done, whole = self.position(progress)
        if self.seconds is not None:
            done = min(done, (1.0 - 1e-6) * whole)
        peak = chosen_value(options.lr)
        return rate_at(options.schedule, done, whole, warmup=options.warmup, peak=peak)

    def is_due(self, progress: Progress, clock_before: float) -> bool:
        """Return whether to evaluate on dev after a step that began at `clock_before`."""
        if self.is_over(progress):
            return True
        if self.options.eval_every is not None:
            return progress.step % self.options.eval_every == 0
        if self.seconds is not None:
            part = self.seconds / _EVALUATIONS
            is_time = int(progress.clock / part) > int(clock_before / part)
            return (
                is_time and progress.clock - progress.seconds <= _EVALUATION_SHARE * progress.clock
            )
        return progress.step % (self.interval or self.loader(progress).steps_per_epoch) == 0

    def position(self, progress: Progress) -> tuple[float, float]:
        """Return how much is done, and the length of the run, both in steps or in seconds."""
        if self.seconds is not None:
            return progress.clock, self.seconds
        assert self.steps is not None
        return progress.step, self.steps

    @property
    def length(self) -> str:
        """Return the length of the run as a message has it."""
        if self.seconds is not None:
            return f"{self.seconds:,.0f} seconds of steps"
        return f"{self.steps:,} steps"


# Learning rates


def rate_at(schedule: str, done: float, whole: float, *, warmup: float, peak: float) -> float:
    """Return the learning rate of a step, or after a time.

    Args:
        schedule: One of `options.SCHEDULES`.
        done: The step, from 0, or the seconds so far; below `whole`. With warm-up the first step
            has rate 0; the last one has a rate above 0, except in a run of one step.
        warmup: Share of the run over which the rate rises, rounded down to whole steps or seconds.
    """
    return _CURVES[schedule](done, whole, int(warmup * whole), peak)


def _linear(t: float, whole: float, warm: float, peak: float) -> float:
    return peak * t / warm if t < warm else peak * (whole - t) / (whole - warm)


def _bert(t: float, whole: float, warm: float, peak: float) -> float:
    # The fall is counted from the first step, so the rate drops suddenly after the warm-up.
    return peak * t / warm if t < warm else peak * (1.0 - t / whole)


def _product(t: float, whole: float, warm: float, peak: float) -> float:
    return peak * (1.0 - t / whole) * (t / warm if t < warm else 1.0)


def _cosine(t: float, whole: float, warm: float, peak: float) -> float:
    if t < warm:
        return peak * t / warm
    return peak * 0.5 * (1.0 + math.cos(math.pi * (t - warm) / (whole - warm)))


def _trapezoid(t: float, whole: float, warm: float, peak: float) -> float:
    if t < warm:
        return peak * t / warm
    begin = max(warm, (1.0 - _COOLDOWN) * whole)
    return peak if t < begin else peak * (1.0 - math.sqrt((t - begin) / (whole - begin)))


def _constant(t: float, whole: float, warm: float, peak: float) -> float:
    return peak * t / warm if t < warm else peak


# Sources. linear, cosine, constant: transformers, `get_scheduler` (constant_with_warmup). bert:
# google-research/bert, optimization.py. electra, the product of rise and fall:
# google-research/electra, model/optimization.py.
# trapezoid: Hägele et al. 2024 (arXiv 2405.18392), section 3: the fall 1 - sqrt does better than a
# straight one, and over 20 % of the run as well as a cosine that was fitted to its length.
_CURVES: dict[str, Curve] = {
    "linear": _linear,
    "bert": _bert,
    "electra": _product,
    "cosine": _cosine,
    "trapezoid": _trapezoid,
    "constant": _constant,
}
