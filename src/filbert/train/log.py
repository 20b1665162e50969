"""What a run logs while it works: metrics.jsonl, a progress bar, and TensorBoard if requested."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from filbert.files import write_atomically

# What colours mean on a terminal, by the first word of a line. A console of rich prints none where
# there is no terminal, with NO_COLOR or TERM=dumb; FORCE_COLOR sets them everywhere.
STYLES = {"filbert": "bold red", "error": "bold red", "warning": "yellow", "note": "dim"}
# Metrics of an evaluation that fit on a line.
_MOST_SHOWN = 4


def console(**options: Any) -> Console:
    """Return where lines and tables are printed: stdout, or with `stderr` stderr."""
    return Console(emoji=False, highlight=False, markup=False, **options)


def print_line(text: str, style: str = "", *, on: Console | None = None) -> None:
    """Print a line on stderr in `style`; its first word has the colour of what it means."""
    word, colon, rest = text.partition(": ")
    parts = [(word + colon, STYLES.get(word, style)), (rest, style)]
    (on or console(stderr=True)).print(Text.assemble(*parts), soft_wrap=True)


def progress_bar(*columns: str) -> Progress:
    """Return a bar with these extra fields on stderr: a terminal, or the output of a notebook."""
    # rich's own output for notebooks needs ipywidgets; they show a line that is written over, too.
    in_notebook = "ipykernel" in sys.modules
    stderr = console(stderr=True, force_jupyter=False, force_terminal=in_notebook or None)
    extra = [TextColumn("{task.fields[" + name + "]}") for name in columns]
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        *extra,
        TimeRemainingColumn(),
        console=stderr,
        refresh_per_second=2 if in_notebook else 10,
        disable=not stderr.is_terminal,
        transient=True,
    )


class RunLog:
    """Logs the metrics of one run.

    Args:
        folder: Where metrics.jsonl is written; None for all ranks but the first: they write and
            print nothing.
        tensorboard: Also write event files to folder/tensorboard.
    """

    def __init__(self, folder: Path | None, *, tensorboard: bool = False) -> None:
        self._file: TextIO | None = None
        self._board: Any = None
        self._path = None if folder is None else folder / "metrics.jsonl"
        if folder is not None and tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"))
        self._progress = progress_bar("loss", "speed")
        self._bar: TaskID | None = None

    def __enter__(self) -> RunLog:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()

    def say(self, text: str) -> None:
        """Print one line on stderr."""
        if self._path is not None:
            print_line(text, on=self._progress.console)

    def start(
        self, whole: float, done: float = 0, step: int = 0, *, in_seconds: bool = False
    ) -> None:
        """Start the log and the bar of the training, in optimizer steps or seconds.

        An earlier process has done `done` of the whole, up to the optimizer step `step`. Its lines
        of later steps, which will be repeated, are dropped, and one that was cut off.
        """
        if self._path is None:
            return
        earlier = []
        for line in self._path.read_text("utf-8").splitlines() if self._path.exists() else ():
            with suppress(ValueError):
                if json.loads(line)["step"] <= step:
                    earlier.append(line + "\n")
        write_atomically(self._path, "".join(earlier))
        self._file = self._path.open("a", encoding="utf-8", buffering=1)
        name = "train (seconds)" if in_seconds else "train"
        self._bar = self._progress.add_task(
            name, total=int(whole), completed=int(done), loss="", speed=""
        )

    def step(self, place: float, **metrics: float) -> None:
        """Log an optimizer step: how far the run is, and the metrics for metrics.jsonl by name."""
        self._write(metrics)
        if self._bar is not None:
            self._progress.update(
                self._bar,
                completed=int(place),
                loss=f"loss {metrics['loss']:.4f}",
                speed=f"{metrics['tokens_per_second']:,.0f} tokens/s",
            )
        self._scalars("train", int(metrics["step"]), metrics)

    def evaluation(
        self, step: int, epoch: float, metrics: dict[str, Any], selected_by: str
    ) -> None:
        """Log dev metrics after a step; of many, the one to select by and the loss are shown."""
        self._write({"step": step, "epoch": epoch, "split": "dev", "metrics": metrics})
        numbers = {k: v for k, v in metrics.items() if isinstance(v, float)}
        names = [*numbers] if len(numbers) <= _MOST_SHOWN else [selected_by, "loss"]
        shown = [f"{name} {numbers[name]:.4f}" for name in names if name in numbers]
        self.say(f"step {step}, dev: {', '.join(shown)}")
        self._scalars("dev", step, numbers)

    def _write(self, content: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(content) + "\n")

    def _scalars(self, group: str, step: int, metrics: dict[str, Any]) -> None:
        if self._board is not None:
            for name, value in metrics.items():
                self._board.add_scalar(f"{group}/{name}", value, step)


def say(text: str) -> None:
    """Print one line on stderr, outside of a run; under torchrun on the first process only."""
    if os.environ.get("RANK", "0") == "0":
        print_line(text)
