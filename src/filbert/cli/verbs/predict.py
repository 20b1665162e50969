"""filbert predict."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.cli.bulk_flags import BulkFlags, check_options
from filbert.data.columns import ColumnNames


def predict(
    model: str,
    file: str = "-",
    /,
    *,
    out: str | None = None,
    null_threshold: float | None = None,
    columns: Annotated[ColumnNames | None, Parameter(name="*")] = None,
    flags: Annotated[BulkFlags | None, Parameter(name="*")] = None,
) -> None:
    """Answer every row: one JSON object a line.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id of a fine-tuned model.
    file:
        CSV, TSV, JSONL, Parquet or one text per line, compressed or not; - is stdin.
    out:
        file to write instead of stdout.
    null_threshold:
        of question answering: the answer is "" where the null score is above it. When not given,
        the threshold stored with the model; models of other tools have none and always answer.
    columns:
        names of the columns.
    flags:
        how the model runs, and how the work goes on.
    """
    from filbert.cli.flags import check_lines_file, columns_of

    flags = flags or BulkFlags()
    check_options(file, out, flags)
    check_lines_file(out)

    from filbert.cli.bulk import work_through
    from filbert.cli.output import warn_of_int8
    from filbert.inference.bulk import Answers, Job
    from filbert.tasks.rows import read_task_rows

    names = columns_of(columns)
    loading = flags.loading | {"null_threshold": null_threshold}
    job = Job(model, loading, Answers)
    work = job.open()
    warn_of_int8(work.predictor)
    rows = read_task_rows(work.predictor.known_task(), file, names, labelled=False)
    work_through(job, work, rows, flags, what="predict", source=file, out=out)
