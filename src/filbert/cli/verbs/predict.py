"""filbert predict."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.cli.arguments import Columns, NullThreshold, OutFile, TextFile
from filbert.cli.bulk import BulkFlags, check_options


def predict(
    model: Annotated[str, Parameter(help="folder, built-in name or Hub id of a fine-tuned model.")],
    file: TextFile = "-",
    /,
    *,
    out: OutFile = None,
    null_threshold: NullThreshold = None,
    columns: Columns = None,
    flags: Annotated[BulkFlags | None, Parameter(name="*")] = None,
) -> None:
    """Answer every row: one JSON object a line."""
    from filbert.cli.flags import columns_of
    from filbert.cli.output import check_lines_file

    flags = flags or BulkFlags()
    check_options(file, out, flags)
    check_lines_file(out)

    from filbert.cli.bulk import work_through
    from filbert.cli.output import warn_of_int8
    from filbert.inference.bulk import Answers, Job
    from filbert.tasks.rows import read_task_rows

    job = Job(model, flags.loading | {"null_threshold": null_threshold}, Answers)
    work = job.open()
    warn_of_int8(work.predictor)
    rows = read_task_rows(work.predictor.known_task(), file, columns_of(columns), labelled=False)
    work_through(job, work, rows, flags, verb="predict", source=file, out=out)
