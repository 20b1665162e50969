"""filbert predict, embed, fill, score and serve."""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli import arguments, bulk
from filbert.cli.output import (
    check_lines_file,
    is_stream,
    output,
    print_json,
    print_table,
    refuse_own_source,
    warn_of_int8,
)
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, InputError, install_hint, printable
from filbert.inference.answer_file import TABLES, rounded
from filbert.serve.settings import ModelSettings, Settings, named_models
from filbert.text.masks import EXAMPLE, MASK, check_masked, mask_spans
from filbert.train.options import from_flat, names_of

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor

# The model that fills a text if none is named.
BUILT_IN = "filbert-mini"
_USAGE = f'Write: filbert fill [MODEL] "{EXAMPLE}"'
_SETTINGS, _MODEL_SETTINGS = Settings(), ModelSettings()
_FLAT = Parameter(name="*", negative_bool="no-")


@arguments.flags_of(ColumnNames)
def predict(
    model: Annotated[
        str,
        Parameter(
            help="folder, built-in name or Hub id of a fine-tuned model; several, between commas, "
            "answer with the mean of their probabilities, or of start and end scores."
        ),
    ],
    file: arguments.TextFile = "-",
    /,
    *,
    out: arguments.OptionalFile = None,
    keep_columns: str | None = None,
    null_threshold: arguments.NullThreshold = None,
    loading: arguments.Loading = None,
    flags: Annotated[bulk.BulkFlags | None, Parameter(name="*")] = None,
    **columns: Any,
) -> None:
    """Answer every row of a file with a fine-tuned model, in order.

    Parameters
    ----------
    out:
        file to write instead of stdout; the ending decides: .jsonl, .csv or .parquet.
    keep_columns:
        columns of the file, between commas, that are copied into the answers, such as id,text.
    """
    flags, kind = flags or bulk.BulkFlags(), Path(out or "").suffix.lower()
    keep = names_of(keep_columns or ())
    bulk.check_options(file, out, flags, "predict MODEL")
    check_lines_file(out, TABLES)
    if kind in TABLES and is_stream(out):
        raise ConfigError(f"--out {out} is a stream, which holds JSON Lines. Name a file.")
    if keep and not bulk.is_regular(file):
        raise ConfigError(
            "--keep-columns reads the rows twice, which a stream cannot. Give a file."
        )

    from filbert.inference.bulk import Job, answer_work, task_rows
    from filbert.inference.predictor import Predictor
    from filbert.inference.stored_task import columns_of_training

    options = vars(loading or arguments.LoadFlags()) | {"null_threshold": null_threshold}
    model, options = bulk.with_int8_engine(model, options, flags)
    predictor = Predictor.load(model, packed=True, **options)
    warn_of_int8(predictor)
    given = from_flat(ColumnNames, columns)
    names = columns_of_training(predictor.checkpoint, file, given)
    rows = partial(task_rows, predictor.known_task(), file, names, keep)
    job = Job(model, options, partial(answer_work, kind=kind))
    bulk.work_through(job, job.make(predictor), rows, flags, verb="predict", source=file, out=out)


def embed(
    model: arguments.ModelName,
    file: arguments.TextFile = "-",
    /,
    *,
    out: arguments.File,
    pooling: arguments.Pooling = None,
    layers: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-1",
    normalize: Annotated[bool | None, Parameter(negative="--no-normalize")] = None,
    prompt: str | None = None,
    dimensions: int | None = None,
    text_column: arguments.TextColumn = "text",
    text_pair_column: arguments.TextPairColumn = None,
    separator: arguments.Separator = None,
    loading: arguments.Loading = None,
    flags: Annotated[bulk.BulkFlags | None, Parameter(name="*")] = None,
) -> None:
    """Turn every text into a vector, in the order of the rows and in fixed memory.

    Parameters
    ----------
    out:
        file to write; the ending decides: .npy (float32 matrix), .parquet or .jsonl.
    layers:
        layers to join, between commas: 0 is the embedding layer, -1 the last.
    normalize:
        scale to unit length; by default as in the folder's modules.json.
    prompt:
        name of the folder's prompt for every text, such as query; a Router has a route for it too.
    dimensions:
        keep only the first numbers of a vector, before the unit length (Matryoshka models).
    """
    from filbert.data.texts import read_texts
    from filbert.data.vectors import check_kind

    kind = Path(out).suffix
    check_kind(Path(out), pooling)
    if is_stream(out) and kind != ".jsonl":
        raise ConfigError(
            f"--out {out} is a stream, which takes .jsonl only, not {kind}. Name a file."
        )
    flags = flags or bulk.BulkFlags()
    bulk.check_options(file, out, flags, f"embed MODEL --out {out}")
    numbers = _numbers(layers)

    from filbert.inference.bulk import Job, vector_work
    from filbert.inference.predictor import VectorOptions

    how = VectorOptions(
        pooling=pooling, normalize=normalize, layers=numbers, prompt=prompt, dimensions=dimensions
    )
    make = partial(vector_work, kind=kind, how=how)
    names = ColumnNames(
        text_column=text_column, text_pair_column=text_pair_column, separator=separator
    )
    options = vars(loading or arguments.LoadFlags())
    if numbers == (-1,):
        model, options = bulk.with_int8_engine(model, options, flags)
    job, rows = Job(model, options, make), partial(read_texts, file, names)
    bulk.work_through(job, job.open(), rows, flags, verb="embed", source=file, out=out)


def _numbers(layers: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in layers.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--layers {layers!r}: give whole numbers between commas, such as -1,-2."
        ) from error


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
        answer = predictor.fill(text, top=top)
        print_json(rounded(answer)) if json else _print_tables(text, answer, predictor)
        return
    assert file is not None
    refuse_own_source(file, out)
    rows = read_texts(file, ColumnNames(text_column=text_column, separator=separator))
    with bulk.Counts("fill", predictor.max_length, file, out) as counts, output(out) as stream:
        texts = (check_masked(t, predictor.tokenizer, where) for t, where in counts.texts(rows))
        for answer in fill_masks(predictor, texts, top=top):
            counts.write(answer, stream)


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
    bulk.check_source(file, "score MODEL")
    check_lines_file(out)
    if json and out == arguments.STDIO:
        raise ConfigError("--json and --out - both go to stdout. Leave one out.")

    from filbert.data.texts import read_texts
    from filbert.inference.predictor import Predictor
    from filbert.inference.score import check_whole, perplexity, score_texts

    rows = read_texts(file, ColumnNames(text_column=text_column, separator=separator))
    predictor = Predictor.load(model, **vars(loading or arguments.LoadFlags()))
    total = {"num_texts": 0, "num_scored": 0, "num_unknown": 0, "num_truncated": 0, "pll": 0.0}
    out = os.devnull if json and out is None else out
    with bulk.Counts("score", predictor.max_length, file, out) as counts, output(out) as stream:
        texts = (check_whole(t, predictor.tokenizer, where) for t, where in counts.texts(rows))
        for answer in score_texts(predictor, texts, with_tokens=tokens, on_share=counts.share):
            counts.write(answer, stream)
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


def serve(
    *models: str,
    settings: Annotated[Settings, _FLAT] = _SETTINGS,
    model_settings: Annotated[ModelSettings, _FLAT] = _MODEL_SETTINGS,
) -> None:
    """Answer over HTTP with one or several models, until SIGTERM or Ctrl-C.

    Parameters
    ----------
    models:
        folders, built-in names or Hub ids; NAME=MODEL sets the name in requests.
    """
    named = named_models(models)
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if not find_spec(name)]
    if missing:
        raise ConfigError(f"filbert serve needs {', '.join(missing)}. {install_hint('serve')}")
    from filbert.serve import app

    app.run(named, settings, model_settings)
