"""The course of a run: which phase a step belongs to, its learning rate, and when it is over.

A run is measured in optimiser steps, or in seconds when the user gave a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from filbert.data.loader import Batches
from filbert.train.options import TrainOptions
from filbert.train.progress import Progress
from filbert.train.schedule import rate_at_fraction, rate_at_step

# With a time budget and nothing else said, dev is measured so many times at most, and not again
# before everything beside training has become this share of the time.
_EVALUATIONS = 20
_BESIDE = 0.05


class Phase(NamedTuple):
    """A part of a run that has its own batches, such as longer sequences.

    Attributes:
        loader: gives them; its steps count from the beginning of the phase.
        share: of the steps, or of the time.
    """

    loader: Batches
    share: float = 1.0


class Course:
    """The course of one run.

    Args:
        phases: in order; their shares add up to 1.
        options: steps, epochs (passes over the rows of the first phase) or time; learning rate,
            schedule, warm-up; how often to evaluate.
        interval: steps between evaluations where `options` do not say; an epoch when not given.

    Attributes:
        steps: of the whole run; None when it is measured in seconds.
        seconds: of the whole run; None when it is measured in steps.
    """

    def __init__(
        self, phases: Sequence[Phase], options: TrainOptions, *, interval: int | None = None
    ) -> None:
        assert math.isclose(sum(phase.share for phase in phases), 1.0)
        self.phases = phases
        self.options = options
        self.seconds = options.time_seconds
        self.steps = None if self.seconds else num_steps(phases[0].loader, options)
        self.interval = interval
        self._ends = list(accumulate(phase.share for phase in phases))

    def is_over(self, so_far: Progress) -> bool:
        """Whether there is nothing left to do."""
        if self.seconds is not None:
            return so_far.step > 0 and so_far.clock >= self.seconds
        assert self.steps is not None
        return so_far.step >= self.steps

    def enter(self, so_far: Progress) -> bool:
        """Move on to the next phase if its time has come; says whether it has."""
        last = len(self.phases) - 1
        before = so_far.phase
        while so_far.phase < last and self._is_past(so_far, self._ends[so_far.phase]):
            so_far.phase += 1
            so_far.phase_start = so_far.step
        return so_far.phase != before

    def loader(self, so_far: Progress) -> Batches:
        """Of the phase that the next step belongs to."""
        return self.phases[so_far.phase].loader

    def learning_rate(self, so_far: Progress) -> float:
        """Of the next step."""
        options = self.options
        if self.seconds is not None:
            done = min(so_far.clock / self.seconds, 1.0 - 1e-6)
            return rate_at_fraction(options.schedule, done, warmup=options.warmup, peak=options.lr)
        assert self.steps is not None
        return rate_at_step(
            options.schedule, so_far.step, steps=self.steps, warmup=options.warmup, peak=options.lr
        )

    def is_due(self, so_far: Progress, clock_before: float) -> bool:
        """Whether dev is to be measured after the step just made.

        Args:
            so_far: after the step.
            clock_before: the clock before it.
        """
        if self.is_over(so_far):
            return True
        if self.options.eval_every is not None:
            return so_far.step % self.options.eval_every == 0
        if self.seconds is not None:
            part = self.seconds / _EVALUATIONS
            is_time = int(so_far.clock / part) > int(clock_before / part)
            return is_time and so_far.clock - so_far.seconds <= _BESIDE * so_far.clock
        return so_far.step % (self.interval or self.loader(so_far).steps_per_epoch) == 0

    def place(self, so_far: Progress) -> tuple[float, float]:
        """How far the run is, and how long it is, in its own measure; for a bar."""
        if self.seconds is not None:
            return so_far.clock, self.seconds
        assert self.steps is not None
        return so_far.step, self.steps

    @property
    def length(self) -> str:
        """How long it is, for people."""
        if self.seconds is not None:
            return f"{self.seconds:,.0f} seconds in steps"
        return f"{self.steps:,} steps"

    def _is_past(self, so_far: Progress, share: float) -> bool:
        done, whole = self.place(so_far)
        return done >= (round(share * whole) if self.seconds is None else share * whole)


def num_steps(loader: Batches, options: TrainOptions) -> int:
    """Optimiser steps of a run that is measured in them."""
    return options.steps or max(1, loader.steps_for(options.epochs))
