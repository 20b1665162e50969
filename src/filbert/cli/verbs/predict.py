"""filbert predict."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from filbert.data.columns import ColumnNames


def predict(
    model: str,
    file: str = "-",
    /,
    *,
    out: str | None = None,
    columns: Annotated[ColumnNames | None, Parameter(name="*")] = None,
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
    """Answer every row: one JSON object a line.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id of a fine-tuned model.
    file:
        CSV, TSV, JSONL, Parquet or one text per line, compressed or not; - is stdin.
    out:
        file to write instead of stdout.
    columns:
        names of the columns.
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
    from filbert.bulk.job import Job
    from filbert.bulk.work import Answers
    from filbert.cli.bulk import check_options, work_through
    from filbert.cli.flags import file_name
    from filbert.train.options import names_of

    source = file_name(file)
    check_options(source, out, engine=engine, workers=workers, resume=resume, overwrite=overwrite)
    names = columns or ColumnNames()
    if names.choice_columns:
        names = replace(names, choice_columns=names_of(names.choice_columns))
    options = {
        "precision": precision,
        "backend": backend,
        "device": device,
        "graphs": graphs,
        "max_length": max_length,
        "max_tokens": max_tokens,
    }
    job = Job(model, options, Answers)
    work = job.open()
    rows = work.predictor.known_task().read(source, names, labelled=False)
    work_through(
        job,
        work,
        rows,
        what="predict",
        source=source,
        out=out,
        engine=engine,
        workers=workers,
        resume=resume,
        overwrite=overwrite,
    )
