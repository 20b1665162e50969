"""filbert predict."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from filbert.cli import arguments, bulk
from filbert.errors import ConfigError
from filbert.inference.answer_file import TABLES


def predict(
    model: Annotated[
        str,
        Parameter(
            help="folder, built-in name or Hub id of a fine-tuned model; several, between commas, "
            "answer with the mean of their probabilities, or of start and end scores."
        ),
    ],
    file: arguments.TextFile = "-",
    /,
    *,
    out: arguments.OptionalFile = None,
    keep_columns: str | None = None,
    null_threshold: arguments.NullThreshold = None,
    columns: arguments.Columns = None,
    loading: arguments.Loading = None,
    flags: Annotated[bulk.BulkFlags | None, Parameter(name="*")] = None,
) -> None:
    """Answer every row of a file with a fine-tuned model, in order.

    Parameters
    ----------
    out:
        file to write instead of stdout; the ending decides: .jsonl, .csv or .parquet.
    keep_columns:
        columns of the file, between commas, that are copied into the answers, such as id,text.
    """
    from filbert.cli.output import check_lines_file, is_stream, warn_of_int8
    from filbert.train.options import names_of

    flags, kind = flags or bulk.BulkFlags(), Path(out or "").suffix.lower()
    keep = names_of(keep_columns or ())
    bulk.check_options(file, out, flags, "predict MODEL")
    check_lines_file(out, TABLES)
    if kind in TABLES and is_stream(out):
        raise ConfigError(f"--out {out} is a stream, which holds JSON Lines. Name a file.")
    if keep and not bulk.is_regular(file):
        raise ConfigError(
            "--keep-columns reads the rows twice, which a stream cannot. Give a file."
        )

    from filbert.inference.bulk import Answers, Job, task_rows
    from filbert.inference.predictor import Predictor
    from filbert.inference.stored_task import columns_of_training

    options = vars(loading or arguments.LoadFlags()) | {"null_threshold": null_threshold}
    model, options = bulk.with_int8_engine(model, options, flags)
    predictor = Predictor.load(model, packed=True, **options)
    warn_of_int8(predictor)
    names = columns_of_training(predictor.checkpoint, file, arguments.columns_of(columns))
    rows = partial(task_rows, predictor.known_task(), file, names, keep)
    job = Job(model, options, partial(Answers, kind=kind))
    bulk.work_through(job, job.make(predictor), rows, flags, verb="predict", source=file, out=out)
