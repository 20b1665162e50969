"""filbert embed."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


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
    max_length: int | None = None,
    max_tokens: int | None = None,
    precision: str = "float32",
    backend: str = "torch",
    device: str | None = None,
    graphs: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    engine: str = "local",
    workers: int | None = None,
) -> None:
    """Turn every text into a vector, in the order of the rows and in fixed memory.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id.
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
    max_length:
        cut texts to this many tokens; the model's own limit when not given.
    max_tokens:
        tokens per packed batch.
    precision:
        float32, bf16, or auto for the faster of the two on this machine.
    backend:
        torch, or onnxruntime for a folder that filbert export made.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    graphs:
        on a GPU, replay recorded CUDA graphs for small batches; see docs/gpu.md.
    resume:
        go on where a run with the same --out ended before its time; see docs/bulk.md.
    overwrite:
        drop what such a run left, and begin anew.
    engine:
        local, or ray for the machines of a Ray cluster.
    workers:
        processes on that cluster; one per machine or GPU when not given.
    """
    from functools import partial
    from pathlib import Path

    from filbert.bulk.job import Job
    from filbert.bulk.work import Vectors
    from filbert.cli.bulk import check_options, work_through
    from filbert.cli.flags import file_name
    from filbert.data.columns import ColumnNames
    from filbert.data.texts import read_texts
    from filbert.data.vectors import check_kind
    from filbert.errors import ConfigError

    source = file_name(file)
    check_kind(Path(out), pooling)
    check_options(source, out, engine=engine, workers=workers, resume=resume, overwrite=overwrite)
    try:
        chosen = tuple(int(part) for part in layers.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--layers {layers!r}: give whole numbers between commas, such as -1,-2."
        ) from error
    options = {
        "precision": precision,
        "backend": backend,
        "device": device,
        "graphs": graphs,
        "max_length": max_length,
        "max_tokens": max_tokens,
    }
    make = partial(
        Vectors, kind=Path(out).suffix, pooling=pooling, normalize=normalize, layers=chosen
    )
    job = Job(model, options, make)
    rows = read_texts(
        source, ColumnNames(text_column=text_column, text_pair_column=text_pair_column)
    )
    work_through(
        job,
        job.open(),
        rows,
        what="embed",
        source=source,
        out=out,
        engine=engine,
        workers=workers,
        resume=resume,
        overwrite=overwrite,
    )
