"""filbert fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import Device, MaxTokens, Precision, Separator, TextColumn

if TYPE_CHECKING:
    from rich.text import Text

    from filbert.inference.predictor import Predictor

# What fills a text when no model is named.
BUILT_IN = "filbert-mini"

# Characters of a text that are shown at least, whatever the terminal's width.
LEAST_SHOWN = 32


def fill(
    model: str | None = None,
    text: str | None = None,
    /,
    *,
    file: Annotated[str | None, Parameter(name="--input")] = None,
    top: int = 5,
    json: bool = False,
    out: str | None = None,
    text_column: TextColumn = "text",
    separator: Separator = None,
    max_length: int | None = None,
    max_tokens: MaxTokens = None,
    precision: Precision = "float32",
    device: Device = None,
) -> None:
    """Predict the words in place of every [MASK].

    Parameters
    ----------
    model:
        folder, built-in name or Hub id of a model with a masked-LM head; may be left out: then it
        is filbert-mini.
    text:
        such as "Paris is the [MASK] of France."
    file:
        CSV, TSV, JSONL, Parquet or one text per line, instead of a text; - is stdin. One JSON
        object a line is printed.
    top:
        candidates per mask.
    json:
        print JSON instead of a table.
    out:
        file to write instead of stdout, for --input.
    max_length:
        cut texts around their masks to this many tokens; the model's own limit when not given.
    """
    from filbert.cli.flags import STDIO, check_lines_file, print_json, refuse_own_source
    from filbert.data.columns import ColumnNames
    from filbert.errors import ConfigError, InputError, printable
    from filbert.text.masks import EXAMPLE, MASK, check_masked

    if file is None and text is None:
        model, text = None, model
    if text == STDIO and file is None:
        text, file = None, STDIO
    if (text is None) == (file is None):
        problem = "There is nothing to fill" if text is None else "A text and --input are given"
        raise ConfigError(f'{problem}. Write: filbert fill [MODEL] "{EXAMPLE}"')
    if model is None and text is not None and MASK not in text:
        raise InputError(
            f'{printable(text)!r} has no {MASK}. Write: filbert fill [MODEL] "{EXAMPLE}"'
        )
    if out is not None and file is None:
        raise ConfigError("--out is for --input; a single text is answered on the terminal.")
    if file is not None:
        refuse_own_source(file, out)
        check_lines_file(out)
    from filbert.cli.counts import answer_texts
    from filbert.data.texts import read_texts
    from filbert.inference.predictor import Predictor

    predictor = Predictor.load(
        model if model is not None else built_in(),
        precision=precision,
        device=device,
        max_length=max_length,
        max_tokens=max_tokens,
    )
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
    if json:
        print_json(answer)
    else:
        _print_tables(text, answer, predictor)


def built_in() -> str:
    """The folder of the model that comes with filbert.

    Raises:
        InputError: this installation has none.
    """
    from filbert.checkpoints.opening import find_model
    from filbert.errors import InputError

    try:
        return str(find_model(BUILT_IN, local_files_only=True))
    except InputError as error:
        raise InputError(
            f"The built-in model {BUILT_IN} is not in this installation. Name a model before the "
            'text: filbert fill bert-base-uncased "..."'
        ) from error


def _print_tables(text: str, answer: dict[str, Any], predictor: Predictor) -> None:
    import sys

    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from filbert.errors import printable
    from filbert.text.masks import mask_spans

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
        room = console.width - max(map(cell_len, tokens)) - len("100.0 %") - 6
        table = Table(box=None, padding=(0, 1), show_header=False)
        for justify in ("left", "right", "left"):
            table.add_column(justify=justify, no_wrap=justify == "right", overflow="fold")
        for candidate, token in zip(candidates, tokens, strict=True):
            sequence, score = candidate["sequence"], candidate["score"]
            end = len(sequence) - len(after)
            start = end - len(candidate["token"].strip())
            shown = _around(sequence[:start], sequence[start:end], after, room)
            table.add_row(Text(token, style="bold"), f"{100 * score:.1f} %", shown)
        console.print(table)
    if answer["truncated"]:
        print(
            f"{answer['num_tokens']:,} tokens are more than {predictor.max_length}: the model saw "
            "what is around the masks.",
            file=sys.stderr,
        )


def _around(before: str, middle: str, after: str, room: int) -> Text:
    """A place in a text and what stands around it, on one line of about `room` characters."""
    from rich.text import Text

    from filbert.errors import printable

    room = max(room, LEAST_SHOWN) - len(middle)
    left, right = (" ".join(side.split("\n")) for side in (before, after))
    most = max(room // 2, room - len(right))
    if len(left) > most:
        # From the next whole word on, where the script has words.
        kept = left[len(left) - most + 1 :]
        left = "…" + (kept.partition(" ")[2] or kept)
    most = max(room // 2, room - len(left))
    if len(right) > most:
        kept = right[: most - 1]
        right = (kept.rpartition(" ")[0] or kept) + "…"
    line = Text(printable(left, len(left)), style="dim")
    line.append(printable(middle), style="bold not dim")
    return line.append(printable(right, len(right)))
