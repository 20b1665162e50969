"""What predict and embed share: rows in, answers out, with progress, resuming and engines."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from filbert.bulk.job import Job
from filbert.bulk.output import Output, Stream, unfinished
from filbert.bulk.run import Engine, carry_out, here
from filbert.bulk.work import Work
from filbert.cli.bulk_flags import BulkFlags
from filbert.cli.counts import Counts
from filbert.cli.flags import STDIO, output
from filbert.data.expected import ExpectedRows
from filbert.data.records import Row
from filbert.errors import ConfigError

ENGINES = ("local", "ray")


def check_options(source: str, out: str | None, flags: BulkFlags) -> None:
    """Refuse options that contradict each other, before a model is loaded."""
    if flags.engine not in ENGINES:
        raise ConfigError(f"--engine {flags.engine!r} is not one of {', '.join(ENGINES)}.")
    if flags.workers is not None and flags.engine != "ray":
        raise ConfigError("--workers is for --engine ray; the local engine uses all cores.")
    if flags.workers is not None and flags.workers < 1:
        raise ConfigError(f"--workers is {flags.workers}; it must be at least 1.")
    if not _is_stream(out) and source != "-" and out is not None and _are_same(source, out):
        raise ConfigError(
            f"--out {out} is the file that is read. Name another, or it would be lost."
        )
    if flags.resume and flags.overwrite:
        raise ConfigError("--resume keeps what an earlier run did, --overwrite drops it. Give one.")
    if flags.resume and _is_stream(out):
        raise ConfigError("--resume needs --out FILE: what went elsewhere is not kept.")
    if flags.resume and not _is_regular(source):
        raise ConfigError("--resume reads the rows again, and a stream is gone. Give a file.")


def _are_same(source: str, out: str) -> bool:
    try:
        return os.path.samefile(source, out)
    except OSError:  # one is not there yet
        return False


def work_through(
    job: Job,
    work: Work,
    rows: Iterable[Row],
    flags: BulkFlags,
    *,
    what: str,
    source: str,
    out: str | None,
) -> None:
    """All rows of a file through a model.

    Args:
        job: for other processes.
        work: the same in this one.
        rows: of the file.
        flags: that were checked.
        what: the verb.
        source: the file, for its length.
        out: where the answers go.
    """
    with _output(out, work, flags, source=source) as answers:
        if answers is None:
            return
        expected = ExpectedRows(source).after if _is_regular(source) else _unknown
        with (
            Counts(what, work.predictor.max_length, expected) as counts,
            _engine(flags, job, work, counts, ahead=_is_regular(source)) as chosen,
        ):
            carry_out(
                work,
                counts.rows(rows, work.sequences),
                answers,
                engine=chosen,
                watch=counts,
            )


def _engine(
    flags: BulkFlags, job: Job, work: Work, counts: Counts, *, ahead: bool
) -> AbstractContextManager[Engine]:
    if flags.engine == "ray":
        from filbert.bulk.on_ray import on_ray

        return on_ray(job, work, flags.workers)
    return nullcontext(here(work, counts.share, ahead=ahead))


@contextmanager
def _output(
    out: str | None, work: Work, flags: BulkFlags, *, source: str
) -> Iterator[Output | None]:
    if _is_stream(out):
        with output(out) as stream:
            yield Stream(stream)
        return
    assert out is not None
    with unfinished(
        Path(out),
        work,
        is_resumable=_is_regular(source),
        resume=flags.resume,
        overwrite=flags.overwrite,
        say=lambda line: print(line, file=sys.stderr),
    ) as file:
        yield file


def _is_stream(out: str | None) -> bool:
    """Standard output, a device or a pipe."""
    if out is None or out == STDIO:
        return True
    try:
        mode = os.stat(out).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _is_regular(source: str) -> bool:
    return source != "-" and Path(source).is_file()


def _unknown(rows: int) -> None:
    return None
