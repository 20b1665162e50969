"""filbert fill and score."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli import arguments
from filbert.cli.bulk import answer_texts, check_source
from filbert.cli.output import check_lines_file, print_json, print_table, refuse_own_source
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, InputError, printable
from filbert.inference.answer_file import rounded
from filbert.text.masks import EXAMPLE, MASK, check_masked, mask_spans

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor

# The model that fills a text if none is named.
BUILT_IN = "filbert-mini"
_USAGE = f'Write: filbert fill [MODEL] "{EXAMPLE}"'


def fill(
    model: str | None = None,
    text: str | None = None,
    /,
    *,
    file: Annotated[str | None, Parameter(name="--input"), arguments.shown_as("FILE")] = None,
    top: int = 5,
    json: arguments.AsJson = False,
    out: arguments.OutFile = None,
    text_column: arguments.TextColumn = "text",
    separator: arguments.Separator = None,
    loading: arguments.Loading = None,
) -> None:
    """Predict the words in place of every [MASK].

    Parameters
    ----------
    model:
        a model with a masked-LM head; by default filbert-mini.
    text:
        such as "Paris is the [MASK] of France."
    file:
        texts to fill instead of one: CSV, TSV, JSONL, Parquet or lines; - is stdin.
    top:
        candidates per mask.
    """
    if file is None:
        model, text = (None, model) if text is None else (model, text)
        text, file = (None, arguments.STDIO) if text == arguments.STDIO else (text, None)
    if (text is None) == (file is None):
        problem = "There is nothing to fill" if text is None else "A text and --input are given"
        raise ConfigError(f"{problem}. {_USAGE}")
    if model is None and text is not None and MASK not in text:
        raise InputError(f"{printable(text)!r} has no {MASK}. {_USAGE}")
    if file is None and out is not None:
        raise ConfigError("--out is for --input; a single text is answered on the terminal.")
    from filbert.data.texts import read_texts
    from filbert.inference.fill import fill_masks
    from filbert.inference.predictor import Predictor

    check_lines_file(out)
    predictor = Predictor.load(model or BUILT_IN, **vars(loading or arguments.LoadFlags()))
    if text is not None:
        check_masked(text, predictor.tokenizer, "The text")
        (answer,) = fill_masks(predictor, [text], top=top)
        print_json(rounded(answer)) if json else _print_tables(text, answer, predictor)
        return
    assert file is not None
    refuse_own_source(file, out)
    rows = read_texts(file, ColumnNames(text_column=text_column, separator=separator))
    for _ in answer_texts(
        "fill",
        predictor,
        rows,
        check=check_masked,
        run=lambda texts, counts: fill_masks(predictor, texts, top=top),
        source=file,
        out=out,
    ):
        pass


def _print_tables(text: str, answer: dict[str, Any], predictor: Predictor) -> None:
    """Print for each mask a table of its candidates: token, score and the filled text."""
    from rich.text import Text

    spans = mask_spans(text, predictor.tokenizer)
    for number, (span, candidates) in enumerate(zip(spans, answer["candidates"], strict=True), 1):
        if len(spans) > 1:
            print("\n" if number > 1 else "", end="")
            print(f"mask {number} of {len(spans)}: {printable(text, 200)}")
        rows = []
        for one in candidates:
            token, sequence = one["token"], Text(printable(one["sequence"], 200))
            end = len(one["sequence"]) - len(text) + span[1]
            sequence.stylize("bold", max(0, end - len(token.strip())), end)
            name = printable(token) if token.strip() else "(blank)"
            rows.append((Text(name, style="bold"), f"{100 * one['score']:.1f} %", sequence))
        print_table(("", "", ""), rows, texts=(0, 2))
    if answer["truncated"]:
        print(
            f"{answer['num_tokens']:,} tokens are more than {predictor.max_length}: the model saw "
            "only the text around the masks.",
            file=sys.stderr,
        )


def score(
    model: arguments.MaskedLM,
    file: arguments.TextFile = "-",
    /,
    *,
    out: arguments.OutFile = None,
    json: arguments.AsJson = False,
    tokens: bool = False,
    text_column: arguments.TextColumn = "text",
    separator: arguments.Separator = None,
    loading: arguments.Loading = None,
) -> None:
    """Compute how likely a model finds each text: every token is masked in turn and predicted.

    Prints one JSON object a text; with --json, the metrics of all texts together instead.

    Parameters
    ----------
    tokens:
        also print the score of every token.
    """
    refuse_own_source(file, out)
    check_source(file, "score MODEL")
    check_lines_file(out)
    if json and out == arguments.STDIO:
        raise ConfigError("--json and --out - both go to stdout. Leave one out.")

    from filbert.data.texts import read_texts
    from filbert.inference.predictor import Predictor
    from filbert.inference.score import check_whole, perplexity, score_texts

    rows = read_texts(file, ColumnNames(text_column=text_column, separator=separator))
    predictor = Predictor.load(model, **vars(loading or arguments.LoadFlags()))
    total = {"num_texts": 0, "num_scored": 0, "num_unknown": 0, "num_truncated": 0, "pll": 0.0}
    for answer in answer_texts(
        "score",
        predictor,
        rows,
        check=check_whole,
        run=lambda texts, counts: score_texts(
            predictor, texts, with_tokens=tokens, on_share=counts.share
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
        print_json(rounded(total | {"perplexity": mean}))
    elif mean is not None:
        print(f"perplexity {mean:,.2f} over {scored:,} tokens", file=sys.stderr)
    if unknown:
        print(f"{unknown:,} of {scored:,} tokens are not in the vocabulary", file=sys.stderr)
