"""filbert score."""

from __future__ import annotations

import os
import sys

from filbert.cli.arguments import (
    STDIO,
    AsJson,
    LoadFlags,
    Loading,
    MaskedLM,
    OutFile,
    Separator,
    TextColumn,
    TextFile,
)
from filbert.cli.bulk import answer_texts
from filbert.cli.output import check_lines_file, print_json, refuse_own_source
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError


def score(
    model: MaskedLM,
    file: TextFile = "-",
    /,
    *,
    out: OutFile = None,
    json: AsJson = False,
    tokens: bool = False,
    text_column: TextColumn = "text",
    separator: Separator = None,
    loading: Loading = None,
) -> None:
    """Compute how likely a model finds each text: every token is masked in turn and predicted.

    Prints one JSON object a text; with --json, the metrics of all texts together instead.

    Parameters
    ----------
    tokens:
        also print the score of every token.
    """
    refuse_own_source(file, out)
    check_lines_file(out)
    if json and out == STDIO:
        raise ConfigError("--json and --out - both go to stdout. Leave one out.")

    from filbert.data.texts import read_texts
    from filbert.inference.predictor import Predictor
    from filbert.inference.score import check_whole, perplexity

    rows = read_texts(file, ColumnNames(text_column=text_column, separator=separator))
    predictor = Predictor.load(model, **vars(loading or LoadFlags()))
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
