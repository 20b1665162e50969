"""Rows of a file through a model: the options, the checks before, the counts and the summary."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from filbert.cli.arguments import STDIO
from filbert.cli.output import is_stream, output, progress_printer, refuse_own_source
from filbert.data.records import Row, expected_rows
from filbert.data.streams import require_file
from filbert.errors import ConfigError, InputError, printable
from filbert.inference.answer_file import answer_line
from filbert.report import numbers
from filbert.train.log import progress_bar
from filbert.train.options import check_choice, check_range

if TYPE_CHECKING:
    from filbert.inference.bulk import Job, Output, Work

# Seconds of a run whose speed is printed.
_SPEED_AFTER = 10


@dataclass(frozen=True, kw_only=True)
class BulkFlags:
    """How a file of any length goes through a model.

    Attributes:
        resume: continue an interrupted run with the same --out; see docs/bulk.md.
        overwrite: delete what such a run wrote, and start again.
        engine: local, or ray for the machines of a Ray cluster.
        workers: processes on that cluster; by default one per machine or GPU.
    """

    resume: bool = False
    overwrite: bool = False
    engine: str = "local"
    workers: int | None = None


def with_int8_engine(
    model: str, loading: dict[str, Any], flags: BulkFlags
) -> tuple[str, dict[str, Any]]:
    """Return the folder and the options that compute int8 fastest here, if int8 is asked for."""
    if loading["precision"] != "int8" or flags.engine != "local":
        return model, loading
    # 50 ms of imports, for int8 only.
    from filbert.onnx_export import int8_engine

    return int8_engine(model, loading)


def check_source(source: str, command: str) -> None:
    """Refuse a missing file before a model is loaded; for a text, name how `command` reads one."""
    if source == STDIO:
        return
    if not os.path.exists(source) and (" " in source or "." not in source):
        raise InputError(
            f"{printable(source)!r}: no such file. A text is given on stdin: echo 'a text' | "
            f"filbert {command}"
        )
    require_file(source, once=True)


def check_options(source: str, out: str | None, flags: BulkFlags, command: str) -> None:
    """Refuse contradicting options and missing files before a model is loaded."""
    check_choice("--engine", flags.engine, ("local", "ray"))
    check_range(flags, ("workers",), "be at least 1", lambda n: n >= 1)
    if flags.workers is not None and flags.engine != "ray":
        raise ConfigError("--workers is for --engine ray; the local engine uses all cores.")
    if flags.engine == "ray" and not is_regular(source):
        raise ConfigError("--engine ray reads the rows in another process. Give a file.")
    refuse_own_source(source, out)
    if flags.resume and flags.overwrite:
        raise ConfigError("--resume continues an earlier run, --overwrite deletes it. Give one.")
    if flags.resume and is_stream(out):
        raise ConfigError("--resume needs --out FILE: other output is not kept.")
    if flags.resume and not is_regular(source):
        raise ConfigError("--resume reads the rows again, which a stream cannot. Give a file.")
    check_source(source, command)


def is_regular(source: str) -> bool:
    """Return whether rows come from a file that can be read twice."""
    return source != STDIO and Path(source).is_file()


def work_through(
    job: Job,
    work: Work,
    rows: Callable[[], Iterable[Row]],
    flags: BulkFlags,
    *,
    verb: str,
    source: str,
    out: str | None,
) -> None:
    """Answer all rows of a file, which `rows` returns; other processes get the work as `job`.

    `check_options` has accepted the flags. `verb` is the name for the progress bar.
    """
    from filbert.inference.bulk import Stream, answers_here, pending_chunks, unfinished

    with ExitStack() as stack:
        if is_stream(out):
            target: Output = Stream(stack.enter_context(output(out)))
        else:
            file = unfinished(
                Path(out or ""),
                work,
                is_resumable=is_regular(source),
                resume=flags.resume,
                overwrite=flags.overwrite,
                say=lambda line: print(line, file=sys.stderr),
            )
            target = stack.enter_context(file)
        counts = stack.enter_context(Counts(verb, work.predictor.max_length, source, out))
        for entry in target.entries:
            counts.done(entry.rows, entry.empty, entry.truncated, is_resumed=True)
        pending = pending_chunks(work, rows(), tuple(target.entries))
        if flags.engine == "ray":
            from filbert.inference.ray import answers_on_ray

            parts = answers_on_ray(job, work, pending, flags.workers)
        else:
            ahead = is_regular(source)
            parts = answers_here(work, pending, on_share=counts.share, ahead=ahead)

        with closing(parts):
            for entry, content in parts:
                target.add(entry, content)
                counts.done(entry.rows, entry.empty, entry.truncated)


class Counts:
    """Counts answered, empty and truncated rows; shows progress and a summary.

    Args:
        source: The file, from which the number of its rows is estimated.
        out: The output. There is no bar between answers on a terminal.
    """

    def __init__(self, verb: str, max_length: int, source: str, out: str | None) -> None:
        self.max_length = max_length
        self.num_rows = self.num_empty = self.num_truncated = self.num_resumed = 0
        self._verb = verb
        self._expected = expected_rows(source) if is_regular(source) else None
        self._progress = progress_bar("seen")
        self._progress.disable |= out in (None, STDIO) and sys.stdout.isatty()
        self._bar = self._progress.add_task(verb, total=None, seen="")
        self._print_line = progress_printer()
        self._start = time.monotonic()

    def __enter__(self) -> Counts:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._progress.stop()
        if kind is None:
            for line in self._summary():
                print(line, file=sys.stderr)

    def done(self, rows: int, empty: int, truncated: int, *, is_resumed: bool = False) -> None:
        """Count answered rows; `is_resumed`: by an earlier run."""
        before, self.num_rows = self.num_rows, self.num_rows + rows
        self.num_resumed += rows if is_resumed else 0
        self.num_empty += empty
        self.num_truncated += truncated
        if rows > 1 or before // 256 < self.num_rows // 256:
            self._show(self.num_rows)

    def texts(self, rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
        """Yield the text of each row with its place, and count the empty ones."""
        for row in rows:
            self.num_empty += not row.values["text"].strip()
            yield row.values["text"], row.where

    def write(self, answer: Mapping[str, Any], stream: IO[str]) -> None:
        """Write and count the answer to one row."""
        stream.write(answer_line(answer, {}))
        self.done(1, 0, answer["truncated"])

    def share(self, rows: int, share: float) -> None:
        """Show that this share of the next `rows` rows is answered."""
        self._show(self.num_rows + int(rows * share))

    def _rate(self, answered: int) -> float:
        """Return rows per second, without those that an earlier run has answered."""
        return (answered - self.num_resumed) / max(time.monotonic() - self._start, 1e-9)

    def _show(self, answered: int) -> None:
        total = None if self._expected is None else self._expected(self.num_rows)
        rate = self._rate(answered)
        seen = f"{rate:,.0f} rows/s"
        self._progress.update(self._bar, completed=answered, total=total, seen=seen)
        of, left = "", ""
        if total is not None:
            of = f" of about {total:,}"
            left = f", {numbers.seconds(max(0, total - answered) / rate)} left" if rate else ""
        self._print_line(f"{self._verb}: {answered:,} rows{of}, {seen}{left}")

    def _summary(self) -> list[str]:
        lines = [f"{self.num_rows:,} row{'' if self.num_rows == 1 else 's'}"]
        seconds = time.monotonic() - self._start
        if seconds >= _SPEED_AFTER:
            if self.num_resumed:
                lines[0] += f", {self.num_rows - self.num_resumed:,} of them"
            lines[0] += f" in {numbers.seconds(seconds)}, {self._rate(self.num_rows):,.0f} rows/s"
        if self.num_empty:
            lines.append(f"{self.num_empty:,} of them hold an empty text")
        if self.num_truncated:
            limit = f"{self.max_length} tokens"
            lines.append(f"{self.num_truncated:,} of them are longer than {limit} and were cut")
        return lines
