"""filbert score."""

from __future__ import annotations


def score(
    model: str,
    file: str = "-",
    /,
    *,
    out: str | None = None,
    json: bool = False,
    tokens: bool = False,
    text_column: str = "text",
    separator: str | None = None,
    max_length: int | None = None,
    max_tokens: int | None = None,
    precision: str = "float32",
    device: str | None = None,
) -> None:
    """Say how likely a model finds each text: every token is masked in turn and guessed.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id of a model with a masked-LM head.
    file:
        CSV, TSV, JSONL, Parquet or one text per line, compressed or not; - is stdin. One JSON
        object a text is printed.
    out:
        file to write instead of stdout.
    json:
        print the figures of all texts together as JSON, in place of those of each; these still go
        to --out.
    tokens:
        say it of every token, too.
    text_column:
        name of the column with the text.
    separator:
        character between the fields of a CSV or TSV file, such as ";".
    max_length:
        most tokens that the model sees around the one it guesses; its own limit when not given.
    max_tokens:
        tokens per packed batch.
    precision:
        float32, bf16, or auto for the faster of the two on this machine.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    import json as writer
    import os
    import sys
    from collections.abc import Iterator
    from pathlib import Path

    from filbert.cli.counts import Counts
    from filbert.cli.flags import STDIO, check_lines_file, output, print_json, refuse_own_source
    from filbert.data.columns import ColumnNames
    from filbert.data.records import ExpectedRows
    from filbert.data.texts import read_texts
    from filbert.errors import ConfigError

    refuse_own_source(file, out)
    check_lines_file(out)
    if json and out == STDIO:
        raise ConfigError("--json and --out - both go to stdout. Leave one out.")
    rows = read_texts(file, ColumnNames(text_column=text_column, separator=separator))

    from filbert.inference.predictor import Predictor
    from filbert.inference.score import check_whole, perplexity

    predictor = Predictor.load(
        model, precision=precision, device=device, max_length=max_length, max_tokens=max_tokens
    )
    expected = ExpectedRows(file).after if Path(file).is_file() else lambda rows: None
    pll, scored, unknown = 0.0, 0, 0
    place = os.devnull if json and out is None else out
    with Counts("score", predictor.max_length, expected) as counts, output(place) as stream:

        def texts() -> Iterator[str]:
            for row in counts.rows(rows, lambda row: [row.values["text"]]):
                yield check_whole(row.values["text"], predictor.tokenizer, row.where)

        for answer in predictor.score_texts(texts(), with_tokens=tokens, on_share=counts.share):
            pll += answer["pll"]
            scored += answer["num_scored"]
            unknown += answer["num_unknown"]
            counts.answered(answer["truncated"])
            stream.write(writer.dumps(answer, ensure_ascii=False) + "\n")
    total = {
        "num_texts": counts.num_answered,
        "num_scored": scored,
        "num_unknown": unknown,
        "num_truncated": counts.num_truncated,
        "pll": pll,
        "perplexity": perplexity(pll, scored),
    }
    if json:
        print_json(total)
    elif total["perplexity"] is not None:
        print(f"perplexity {total['perplexity']:,.2f} over {scored:,} tokens", file=sys.stderr)
    if unknown:
        print(f"{unknown:,} of {scored:,} tokens are not in the vocabulary", file=sys.stderr)
