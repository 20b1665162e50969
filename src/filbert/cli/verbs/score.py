"""filbert score."""

from __future__ import annotations

from filbert.cli.arguments import (
    Device,
    MaskedLM,
    MaxTokens,
    OutFile,
    Precision,
    Separator,
    TextColumn,
    TextFile,
)


def score(
    model: MaskedLM,
    file: TextFile = "-",
    /,
    *,
    out: OutFile = None,
    json: bool = False,
    tokens: bool = False,
    text_column: TextColumn = "text",
    separator: Separator = None,
    max_length: int | None = None,
    max_tokens: MaxTokens = None,
    precision: Precision = "float32",
    device: Device = None,
) -> None:
    """Compute how likely a model finds each text: every token is masked in turn and predicted.

    One JSON object a text is printed.

    Parameters
    ----------
    json:
        print the metrics of all texts together as JSON, in place of those of each; these still go
        to --out.
    tokens:
        print those of every token, too.
    max_length:
        most tokens that the model sees around the one it predicts; its own limit when not given.
    """
    import os
    import sys

    from filbert.cli.counts import answer_texts
    from filbert.cli.flags import STDIO, check_lines_file, print_json, refuse_own_source
    from filbert.data.columns import ColumnNames
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
    total = {"num_texts": 0, "num_scored": 0, "num_unknown": 0, "num_truncated": 0, "pll": 0.0}
    for answer in answer_texts(
        "score",
        predictor,
        rows,
        check=check_whole,
        run=lambda texts, counts: predictor.score_texts(
            texts, with_tokens=tokens, on_share=counts.share
        ),
        source=file,
        out=os.devnull if json and out is None else out,
    ):
        total["num_texts"] += 1
        total["num_truncated"] += answer["truncated"]
        for name in ("num_scored", "num_unknown", "pll"):
            total[name] += answer[name]
    scored, unknown = int(total["num_scored"]), total["num_unknown"]
    mean = perplexity(total["pll"], scored)
    if json:
        print_json(total | {"perplexity": mean})
    elif mean is not None:
        print(f"perplexity {mean:,.2f} over {scored:,} tokens", file=sys.stderr)
    if unknown:
        print(f"{unknown:,} of {scored:,} tokens are not in the vocabulary", file=sys.stderr)
