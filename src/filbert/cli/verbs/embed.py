"""filbert embed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from filbert.cli import arguments, bulk
from filbert.cli.output import is_stream
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError


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

    from filbert.inference.bulk import Job, Vectors
    from filbert.inference.predictor import VectorOptions

    how = VectorOptions(
        pooling=pooling, normalize=normalize, layers=numbers, prompt=prompt, dimensions=dimensions
    )
    make = partial(Vectors, kind=kind, how=how)
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
