"""filbert embed."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.cli.bulk_flags import BulkFlags, check_options, is_stream


def embed(
    model: str,
    file: str = "-",
    /,
    *,
    out: str,
    pooling: str | None = None,
    layers: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-1",
    normalize: Annotated[bool | None, Parameter(negative="--no-normalize")] = None,
    text_column: str = "text",
    text_pair_column: str | None = None,
    separator: str | None = None,
    flags: Annotated[BulkFlags | None, Parameter(name="*")] = None,
) -> None:
    """Turn every text into a vector, in the order of the rows and in fixed memory.

    Parameters
    ----------
    model:
        folder, built-in name (minilm, filbert-mini) or Hub id.
    file:
        CSV, TSV, JSONL, Parquet or one text per line; - is stdin.
    out:
        file to write; the ending decides: .npy (float32 matrix), .parquet or .jsonl.
    pooling:
        mean, cls (the first token; of a causal model the last), last, max, mean_sqrt_len, several
        with + between, or none for one vector a token. When not given: what the folder's
        modules.json says (which may also ask for a prompt, dense layers and unit length), else
        mean.
    layers:
        layers to join, between commas: 0 is the embedding layer, -1 the last.
    normalize:
        scale to unit length.
    text_column:
        name of the column with the text.
    text_pair_column:
        name of the column with the second text.
    separator:
        character between the fields of a CSV or TSV file, such as ";".
    flags:
        how the model runs, and how the work goes on.
    """
    from functools import partial
    from pathlib import Path

    from filbert.data.columns import ColumnNames
    from filbert.data.texts import read_texts
    from filbert.data.vectors import check_kind
    from filbert.errors import ConfigError

    check_kind(Path(out), pooling)
    if is_stream(out) and Path(out).suffix != ".jsonl":
        raise ConfigError(
            f"--out {out} is a stream, and a {Path(out).suffix} file is put together at its end. "
            "Name a file, or a stream that ends in .jsonl."
        )
    flags = flags or BulkFlags()
    check_options(file, out, flags)
    try:
        chosen = tuple(int(part) for part in layers.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--layers {layers!r}: give whole numbers between commas, such as -1,-2."
        ) from error

    from filbert.cli.bulk import work_through
    from filbert.inference.bulk import Job, Vectors

    make = partial(
        Vectors, kind=Path(out).suffix, pooling=pooling, normalize=normalize, layers=chosen
    )
    job = Job(model, flags.loading, make)
    names = ColumnNames(
        text_column=text_column, text_pair_column=text_pair_column, separator=separator
    )
    rows = read_texts(file, names)
    work_through(job, job.open(), rows, flags, what="embed", source=file, out=out)
