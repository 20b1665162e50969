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
    device: str | None = None,
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
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    from pathlib import Path

    from filbert.cli.counts import Counts
    from filbert.cli.flags import file_name, unfinished
    from filbert.data.columns import ColumnNames
    from filbert.data.texts import read_texts, text_of
    from filbert.data.vectors import check_kind, open_vectors
    from filbert.errors import ConfigError
    from filbert.predict import Predictor

    check_kind(Path(out), pooling)
    try:
        chosen = [int(part) for part in layers.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"--layers {layers!r}: give whole numbers between commas, such as -1,-2."
        ) from error
    predictor = Predictor.load(
        model, precision=precision, device=device, max_length=max_length, max_tokens=max_tokens
    )
    names = ColumnNames(text_column=text_column, text_pair_column=text_pair_column)
    rows = read_texts(file_name(file), names)
    width = predictor.vector_size(pooling, chosen)
    with (
        Counts("embed", predictor.max_length) as counts,
        unfinished(Path(out)) as part,
        open_vectors(part, Path(out).suffix, width, per_token=pooling == "none") as vectors,
    ):
        texts = (text_of(row) for row in counts.rows(rows, lambda row: [text_of(row)]))
        for vector in predictor.embed_texts(
            texts,
            pooling=pooling,
            normalize=normalize,
            layers=chosen,
            on_encoding=lambda encoding: counts.answered(encoding.truncated),
        ):
            vectors.write(vector)
