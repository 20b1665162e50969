"""filbert predict."""

from __future__ import annotations

import json


def predict(
    model: str,
    file: str = "-",
    /,
    *,
    out: str | None = None,
    text_column: str = "text",
    text_pair_column: str | None = None,
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
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    from filbert.cli.counts import Counts
    from filbert.cli.flags import file_name, output
    from filbert.data.columns import ColumnNames
    from filbert.predict import Predictor

    predictor = Predictor.load(
        model, precision=precision, device=device, max_length=max_length, max_tokens=max_tokens
    )
    rows = ColumnNames(text=text_column, text_pair=text_pair_column).read(
        file_name(file), labelled=False
    )
    with Counts("predict", predictor.max_length) as counts, output(out) as stream:
        for prediction in predictor.predict_rows(counts.rows(rows)):
            counts.answered(prediction["truncated"])
            stream.write(json.dumps(prediction, ensure_ascii=False) + "\n")
