"""filbert fill."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, LoadFlags, Loading, OutFile, Separator, TextColumn
from filbert.cli.bulk import answer_texts
from filbert.cli.flags import STDIO
from filbert.cli.output import check_lines_file, print_json, print_table, refuse_own_source
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, InputError, printable
from filbert.text.masks import EXAMPLE, MASK, check_masked, mask_spans

if TYPE_CHECKING:
    from rich.text import Text

    from filbert.inference.predictor import Predictor

# The model that fills a text if none is named.
BUILT_IN = "filbert-mini"
# Least number of characters of a text that are printed, for any width of the terminal.
LEAST_SHOWN = 32


def fill(
    model: str | None = None,
    text: str | None = None,
    /,
    *,
    file: Annotated[str | None, Parameter(name="--input")] = None,
    top: int = 5,
    json: AsJson = False,
    out: OutFile = None,
    text_column: TextColumn = "text",
    separator: Separator = None,
    loading: Loading = None,
) -> None:
    """Predict the words in place of every [MASK].

    Parameters
    ----------
    model:
        folder, built-in name or Hub id of a model with a masked-LM head; by default filbert-mini.
    text:
        such as "Paris is the [MASK] of France."
    file:
        CSV, TSV, JSONL, Parquet or one text per line, instead of a text; - is stdin. Prints one
        JSON object a line.
    top:
        candidates per mask.
    """
    if file is None and text is None:
        model, text = None, model
    if text == STDIO and file is None:
        text, file = None, STDIO
    _check(model, text, file, out)

    from filbert.data.texts import read_texts
    from filbert.inference.predictor import Predictor

    name = built_in() if model is None else model
    predictor = Predictor.load(name, **vars(loading or LoadFlags()))
    if file is not None:
        rows = read_texts(file, ColumnNames(text_column=text_column, separator=separator))
        for _ in answer_texts(
            "fill",
            predictor,
            rows,
            check=check_masked,
            run=lambda texts, counts: predictor.fill_texts(texts, top=top),
            source=file,
            out=out,
        ):
            pass
        return
    assert text is not None
    check_masked(text, predictor.tokenizer, "The text")
    (answer,) = predictor.fill_texts([text], top=top)
    print_json(answer) if json else _print_tables(text, answer, predictor)


def _check(model: str | None, text: str | None, file: str | None, out: str | None) -> None:
    """Refuse arguments that contradict each other before a model is loaded."""
    usage = f'Write: filbert fill [MODEL] "{EXAMPLE}"'
    if (text is None) == (file is None):
        problem = "There is nothing to fill" if text is None else "A text and --input are given"
        raise ConfigError(f"{problem}. {usage}")
    if model is None and text is not None and MASK not in text:
        raise InputError(f"{printable(text)!r} has no {MASK}. {usage}")
    if out is not None and file is None:
        raise ConfigError("--out is for --input; a single text is answered on the terminal.")
    if file is not None:
        refuse_own_source(file, out)
        check_lines_file(out)


def built_in() -> str:
    """Return the folder of the model that comes with filbert.

    Raises:
        InputError: This installation has none.
    """
    from filbert.checkpoints.opening import find_model

    try:
        return str(find_model(BUILT_IN, local_files_only=True))
    except InputError as error:
        raise InputError(
            f"The built-in model {BUILT_IN} is not in this installation. Name a model before the "
            'text: filbert fill bert-base-uncased "..."'
        ) from error


def _print_tables(text: str, answer: dict[str, Any], predictor: Predictor) -> None:
    """Print for each mask a title and its candidates: token, score and the filled text."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    console = Console(emoji=False)
    spans = mask_spans(text, predictor.tokenizer)
    for number, (span, candidates) in enumerate(zip(spans, answer["candidates"], strict=True)):
        if number:
            console.print()
        after = text[span[1] :]
        which = f"mask {number + 1} of {len(spans)}: " if len(spans) > 1 else ""
        title = _around(text[: span[0]], text[slice(*span)], after, console.width - len(which))
        console.print(Text(which).append_text(title))
        tokens = [printable(c["token"]) if c["token"].strip() else "(blank)" for c in candidates]
        # Next to the text: the token, its score ("100.0 %"), and the spaces between them.
        width = console.width - max(map(cell_len, tokens)) - len("100.0 %") - 6
        rows = []
        for candidate, token in zip(candidates, tokens, strict=True):
            sequence = candidate["sequence"]
            end = len(sequence) - len(after)
            start = end - len(candidate["token"].strip())
            line = _around(sequence[:start], sequence[start:end], after, width)
            rows.append((Text(token, style="bold"), f"{100 * candidate['score']:.1f} %", line))
        print_table(("", "", ""), rows, texts=(0, 2), console=console)
    if answer["truncated"]:
        print(
            f"{answer['num_tokens']:,} tokens are more than {predictor.max_length}: the model saw "
            "only the text around the masks.",
            file=sys.stderr,
        )


def _around(before: str, middle: str, after: str, width: int) -> Text:
    """Return a place in a text and its surroundings, on one line of about `width` characters."""
    from rich.text import Text

    width = max(width, LEAST_SHOWN) - len(middle)
    left, right = (" ".join(side.split("\n")) for side in (before, after))
    most = max(width // 2, width - len(right))
    if len(left) > most:
        # Cut at a whole word, in scripts that have words.
        end = left[len(left) - most + 1 :]
        left = "…" + (end.partition(" ")[2] or end)
    most = max(width // 2, width - len(left))
    if len(right) > most:
        start = right[: most - 1]
        right = (start.rpartition(" ")[0] or start) + "…"
    line = Text(printable(left, len(left)), style="dim")
    line.append(printable(middle), style="bold not dim")
    return line.append(printable(right, len(right)))
