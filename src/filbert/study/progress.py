"""What is shown of the run in progress: a bar, or a line a minute where nobody watches."""

from __future__ import annotations

from collections.abc import Sequence

from rich.progress import Progress, TaskID

from filbert.study.recipe import Contestant
from filbert.study.times import Times, told
from filbert.train.log import say

_BETWEEN_LINES = 60.0


class RunProgress:
    """Called while a run goes on.

    Args:
        bar: of the study; disabled where stderr is no terminal.
        shown: the line of it.
        title: of the run.
        times: of the runs so far.
        current: the contestant.
        waiting: those of the runs that have not begun.
        everyone: all of them.
        steps: of the run, where they are known.
        begun: fraction of the training that an earlier process had done.
    """

    def __init__(
        self,
        bar: Progress,
        shown: TaskID,
        *,
        title: str,
        times: Times,
        current: Contestant,
        waiting: Sequence[Contestant],
        everyone: Sequence[Contestant],
        steps: int | None,
        begun: float,
    ) -> None:
        self.bar, self.shown, self.title, self.times = bar, shown, title, times
        self.current, self.waiting, self.everyone = current, waiting, everyone
        self.steps, self.begun = steps, begun
        self._told = 0.0

    def __call__(self, elapsed: float, fraction: float | None) -> None:
        """Show that so many seconds have gone, and which fraction of the training is done."""
        if fraction is not None:
            # A killed run does some of its steps again.
            self.begun = min(self.begun, fraction)
        rest = self.times.left(
            self.waiting,
            self.everyone,
            current=self.current,
            elapsed=elapsed,
            fraction=fraction,
            begun=self.begun,
        )
        self.bar.update(
            self.shown,
            visible=True,
            description=self.title.replace("[", r"\["),
            total=self.steps or 1,
            completed=int((fraction or 0.0) * (self.steps or 1)),
            left=told(rest),
        )
        if self.bar.disable and elapsed - self._told >= _BETWEEN_LINES:
            self._told = elapsed
            done = "" if fraction is None else f"{fraction:.0%} trained, "
            say(f"{self.title}: {done}{told(rest)}")
