"""filbert predict."""

from __future__ import annotations

import json
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
    device: str | None = None,
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
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    from filbert.cli.counts import Counts
    from filbert.cli.flags import file_name, output
    from filbert.predict import Predictor
    from filbert.train.options import names_of

    predictor = Predictor.load(
        model, precision=precision, device=device, max_length=max_length, max_tokens=max_tokens
    )
    task = predictor.known_task()
    names = columns or ColumnNames()
    if names.choice_columns:
        names = replace(names, choice_columns=names_of(names.choice_columns))
    rows = task.read(file_name(file), names, labelled=False)
    with Counts("predict", predictor.max_length) as counts, output(out) as stream:
        for prediction in predictor.predict_rows(counts.rows(rows, task.sequences)):
            counts.answered(prediction["truncated"])
            stream.write(json.dumps(prediction, ensure_ascii=False) + "\n")
