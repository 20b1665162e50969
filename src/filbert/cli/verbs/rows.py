"""filbert predict and embed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from filbert.cli import arguments, bulk
from filbert.cli.output import check_lines_file, is_stream, warn_of_int8
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.inference.answer_file import TABLES
from filbert.train.options import names_of


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

    from filbert.inference.bulk import Job, answer_work, task_rows
    from filbert.inference.predictor import Predictor
    from filbert.inference.stored_task import columns_of_training

    options = vars(loading or arguments.LoadFlags()) | {"null_threshold": null_threshold}
    model, options = bulk.with_int8_engine(model, options, flags)
    predictor = Predictor.load(model, packed=True, **options)
    warn_of_int8(predictor)
    names = columns_of_training(predictor.checkpoint, file, arguments.columns_of(columns))
    rows = partial(task_rows, predictor.known_task(), file, names, keep)
    job = Job(model, options, partial(answer_work, kind=kind))
    bulk.work_through(job, job.make(predictor), rows, flags, verb="predict", source=file, out=out)


def embed(
    model: arguments.ModelName,
    file: arguments.TextFile = "-",
    /,
    *,
    out: arguments.File,
    pooling: arguments.Pooling = None,
    layers: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-1",
    normalize: Annotated[bool | None, Parameter(negative="--no-normalize")] = None,
    prompt: str | None = None,
    dimensions: int | None = None,
    text_column: arguments.TextColumn = "text",
    text_pair_column: arguments.TextPairColumn = None,
    separator: arguments.Separator = None,
    loading: arguments.Loading = None,
    flags: Annotated[bulk.BulkFlags | None, Parameter(name="*")] = None,
) -> None:
    """Turn every text into a vector, in the order of the rows and in fixed memory.

    Parameters
    ----------
    out:
        file to write; the ending decides: .npy (float32 matrix), .parquet or .jsonl.
    layers:
        layers to join, between commas: 0 is the embedding layer, -1 the last.
    normalize:
        scale to unit length; by default as in the folder's modules.json.
    prompt:
        name of the folder's prompt for every text, such as query; a Router has a route for it too.
    dimensions:
        keep only the first numbers of a vector, before the unit length (Matryoshka models).
    """
    from filbert.data.texts import read_texts
    from filbert.data.vectors import check_kind

    kind = Path(out).suffix
    check_kind(Path(out), pooling)
    if is_stream(out) and kind != ".jsonl":
        raise ConfigError(
            f"--out {out} is a stream, which takes .jsonl only, not {kind}. Name a file."
        )
    flags = flags or bulk.BulkFlags()
    bulk.check_options(file, out, flags, f"embed MODEL --out {out}")
    numbers = _numbers(layers)

    from filbert.inference.bulk import Job, vector_work
    from filbert.inference.predictor import VectorOptions

    how = VectorOptions(
        pooling=pooling, normalize=normalize, layers=numbers, prompt=prompt, dimensions=dimensions
    )
    make = partial(vector_work, kind=kind, how=how)
    names = ColumnNames(
        text_column=text_column, text_pair_column=text_pair_column, separator=separator
    )
    options = vars(loading or arguments.LoadFlags())
    if numbers == (-1,):
        model, options = bulk.with_int8_engine(model, options, flags)
    job, rows = Job(model, options, make), partial(read_texts, file, names)
    bulk.work_through(job, job.open(), rows, flags, verb="embed", source=file, out=out)


def _numbers(layers: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in layers.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--layers {layers!r}: give whole numbers between commas, such as -1,-2."
        ) from error
