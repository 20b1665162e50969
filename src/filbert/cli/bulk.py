"""What predict and embed share: rows in, answers out, with progress, resuming and engines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from filbert.cli.bulk_flags import BulkFlags, is_regular, is_stream
from filbert.cli.counts import Counts
from filbert.cli.flags import output
from filbert.data.records import ExpectedRows, Row
from filbert.inference.bulk import (
    Engine,
    Job,
    Output,
    Stream,
    Work,
    carry_out,
    local_engine,
    unfinished,
)


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
        expected = ExpectedRows(source).after if is_regular(source) else _unknown
        with (
            Counts(what, work.predictor.max_length, expected) as counts,
            _engine(flags, job, work, counts, ahead=is_regular(source)) as chosen,
        ):
            for entry in answers.entries:
                counts.kept(entry.rows, entry.truncated)
            read = counts.rows(rows, work.sequences)
            carry_out(work, read, answers, engine=chosen, on_part=counts.done)


def _engine(
    flags: BulkFlags, job: Job, work: Work, counts: Counts, *, ahead: bool
) -> AbstractContextManager[Engine]:
    if flags.engine == "ray":
        from filbert.inference.ray import on_ray

        return on_ray(job, work, flags.workers)
    return nullcontext(local_engine(work, counts.share, ahead=ahead))


@contextmanager
def _output(out: str | None, work: Work, flags: BulkFlags, *, source: str) -> Iterator[Output]:
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


def _unknown(rows: int) -> None:
    return None
