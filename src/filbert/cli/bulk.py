"""Rows of a file through a model: the options, the checks before, the counts and the summary.

`predict` and `embed` call `work_through`, `fill` and `score` call `answer_texts`.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from filbert.cli.arguments import Backend, Device, MaxLength, MaxTokens, Precision
from filbert.cli.flags import STDIO
from filbert.cli.output import output, refuse_own_source
from filbert.data.records import Row, expected_rows
from filbert.data.streams import require_file
from filbert.data.texts import holds_text
from filbert.errors import ConfigError
from filbert.text.tokenizer import Text
from filbert.train.log import progress_bar

if TYPE_CHECKING:
    from filbert.inference.bulk import Engine, Job, Output, Work
    from filbert.inference.predictor import Predictor
    from filbert.text.tokenizer import Tokenizer

ENGINES = ("local", "ray")
# Seconds between two lines if no terminal shows a bar, and of a run whose speed is printed.
_BETWEEN_LINES = 60
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

    max_length: MaxLength = None
    max_tokens: MaxTokens = None
    precision: Precision = "float32"
    backend: Backend = "torch"
    device: Device = None
    resume: bool = False
    overwrite: bool = False
    engine: str = "local"
    workers: int | None = None

    @property
    def loading(self) -> dict[str, Any]:
        """The options of `Predictor.load` among them."""
        names = ("precision", "backend", "device", "max_length", "max_tokens")
        return {name: getattr(self, name) for name in names}


def check_options(source: str, out: str | None, flags: BulkFlags) -> None:
    """Refuse contradicting options and missing files before a model is loaded."""
    if flags.engine not in ENGINES:
        raise ConfigError(f"--engine {flags.engine!r} is not one of {', '.join(ENGINES)}.")
    if flags.workers is not None and flags.engine != "ray":
        raise ConfigError("--workers is for --engine ray; the local engine uses all cores.")
    if flags.workers is not None and flags.workers < 1:
        raise ConfigError(f"--workers is {flags.workers}; it must be at least 1.")
    if not is_stream(out):
        refuse_own_source(source, out)
    if flags.resume and flags.overwrite:
        raise ConfigError("--resume continues an earlier run, --overwrite deletes it. Give one.")
    if flags.resume and is_stream(out):
        raise ConfigError("--resume needs --out FILE: other output is not kept.")
    if flags.resume and not is_regular(source):
        raise ConfigError("--resume reads the rows again, which a stream cannot. Give a file.")
    if source != STDIO:
        require_file(source, once=True)


def is_stream(out: str | None) -> bool:
    """Whether answers go to standard output, a device or a pipe."""
    if out is None or out == STDIO:
        return True
    try:
        mode = os.stat(out).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def is_regular(source: str) -> bool:
    """Whether rows come from a file that can be read twice."""
    return source != STDIO and Path(source).is_file()


def work_through(
    job: Job,
    work: Work,
    rows: Iterable[Row],
    flags: BulkFlags,
    *,
    verb: str,
    source: str,
    out: str | None,
) -> None:
    """Answer all rows of a file.

    Args:
        job: The work as other processes get it.
        work: The same in this process.
        rows: Rows of the file.
        flags: Options that `check_options` accepted.
        verb: Name for the progress bar.
        source: The file, for its number of rows.
        out: Where the answers go.
    """
    from filbert.inference.bulk import carry_out

    with (
        _answers(out, work, flags, source=source) as answers,
        Counts(verb, work.predictor.max_length, _expected(source)) as counts,
        _engine(flags, job, work, counts, ahead=is_regular(source)) as engine,
    ):
        for entry in answers.entries:
            counts.resumed(entry.rows, entry.truncated)
        read = counts.rows(rows, work.sequences)
        carry_out(work, read, answers, engine=engine, on_part=counts.done)


def _engine(
    flags: BulkFlags, job: Job, work: Work, counts: Counts, *, ahead: bool
) -> AbstractContextManager[Engine]:
    if flags.engine == "ray":
        from filbert.inference.ray import on_ray

        return on_ray(job, work, flags.workers)
    from filbert.inference.bulk import local_engine

    return nullcontext(local_engine(work, counts.share, ahead=ahead))


@contextmanager
def _answers(out: str | None, work: Work, flags: BulkFlags, *, source: str) -> Iterator[Output]:
    from filbert.inference.bulk import Stream, unfinished

    if is_stream(out):
        with output(out) as stream:
            yield Stream(stream)
        return
    assert out is not None
    with unfinished(
        Path(out),
        work,
        is_resumable=is_regular(source),
        resume=flags.resume,
        overwrite=flags.overwrite,
        say=lambda line: print(line, file=sys.stderr),
    ) as file:
        yield file


def answer_texts(
    verb: str,
    predictor: Predictor,
    rows: Iterable[Row],
    *,
    check: Callable[[str, Tokenizer, str], str],
    run: Callable[[Iterator[str], Counts], Iterator[dict[str, Any]]],
    source: str,
    out: str | None,
) -> Iterator[dict[str, Any]]:
    """Answer the texts of a file; write one JSON object a line, and yield it.

    Args:
        verb: Name for the progress bar.
        predictor: The model.
        rows: Rows of the file.
        check: Returns a text as `run` expects it; its last argument is the text's place.
        run: Answers texts.
        source: The file, for its number of rows.
        out: Where the lines go.
    """
    with (
        Counts(verb, predictor.max_length, _expected(source)) as counts,
        output(out) as stream,
    ):
        counted = counts.rows(rows, lambda row: [row.values["text"]])
        texts = (check(row.values["text"], predictor.tokenizer, row.where) for row in counted)
        for answer in run(texts, counts):
            counts.done(1, answer["truncated"])
            stream.write(json.dumps(answer, ensure_ascii=False) + "\n")
            yield answer


def _expected(source: str) -> Callable[[int], int | None]:
    """Return a function from the rows read so far to the number of all rows, None if unknown."""
    return expected_rows(source) if is_regular(source) else lambda rows: None


class Counts:
    """Counts rows, empty and truncated texts as they pass; shows progress and a summary.

    Args:
        verb: Name for the progress bar.
        max_length: Tokens that a text is truncated to.
        expected: Returns the number of all rows from the rows read so far, None if unknown.
    """

    def __init__(self, verb: str, max_length: int, expected: Callable[[int], int | None]) -> None:
        self.max_length = max_length
        self.num_rows = self.num_empty = self.num_emptied = 0
        self.num_answered = self.num_truncated = self.num_resumed = 0
        self._verb, self._expected = verb, expected
        self._progress = progress_bar("seen")
        self._bar = self._progress.add_task(verb, total=None, seen="")
        self._start = self._last_line = time.monotonic()

    def __enter__(self) -> Counts:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
        if error is None:
            for line in self._summary():
                print(line, file=sys.stderr)

    def rows(self, rows: Iterable[Row], sequences: Callable[[Row], list[Text]]) -> Iterator[Row]:
        """Yield the same rows, counted."""
        for row in rows:
            self.num_rows += 1
            texts = sequences(row)
            if not any("".join(text).strip() for text in texts):
                self.num_emptied += holds_text(row)
                self.num_empty += not holds_text(row)
            yield row

    def resumed(self, rows: int, truncated: int) -> None:
        """Count rows that an earlier run has answered."""
        self.num_resumed += rows
        self.done(rows, truncated)

    def done(self, rows: int, truncated: int) -> None:
        """Count answered rows."""
        before, self.num_answered = self.num_answered, self.num_answered + rows
        self.num_truncated += truncated
        if rows > 1 or before // 256 < self.num_answered // 256:
            self._show(self.num_answered)

    def share(self, rows: int, share: float) -> None:
        """Show that this share of the next `rows` rows is answered."""
        self._show(self.num_answered + int(rows * share))

    def _rate(self, answered: int) -> float:
        """Return rows per second, without those that an earlier run has answered."""
        return (answered - self.num_resumed) / max(time.monotonic() - self._start, 1e-9)

    def _show(self, answered: int) -> None:
        total, rate = self._expected(self.num_rows), self._rate(answered)
        seen = f"{rate:,.0f} rows/s"
        self._progress.update(self._bar, completed=answered, total=total, seen=seen)
        now = time.monotonic()
        if self._progress.disable and now - self._last_line >= _BETWEEN_LINES:
            self._last_line = now
            line = f"{self._verb}: {answered:,} rows"
            line += f", {seen}" if total is None else f" of about {total:,}, {seen}"
            if total is not None and rate:
                line += f", {_minutes(max(0, total - answered) / rate)} left"
            print(line, file=sys.stderr, flush=True)

    def _summary(self) -> list[str]:
        lines = [f"{self.num_rows:,} row{'' if self.num_rows == 1 else 's'}"]
        seconds = time.monotonic() - self._start
        if seconds >= _SPEED_AFTER:
            if self.num_resumed:
                lines[0] += f", {self.num_answered - self.num_resumed:,} of them"
            lines[0] += f" in {_minutes(seconds)}, {self._rate(self.num_answered):,.0f} rows/s"
        if self.num_empty:
            lines.append(f"{self.num_empty:,} of them hold an empty text")
        if self.num_emptied:
            lines.append(f"cleaning leaves nothing of {self.num_emptied:,} of them")
        if self.num_truncated:
            lines.append(
                f"{self.num_truncated:,} of them are longer than {self.max_length} tokens "
                "and were cut"
            )
        return lines


def _minutes(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"
