"""filbert inspect with heads, neighbours and layers, and filbert explain."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import filbert
from filbert.cli import arguments
from filbert.cli.output import output, print_json, print_table
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, InputError, printable
from filbert.files import check_writable
from filbert.train.options import from_flat

if TYPE_CHECKING:
    from filbert.inspect.explain import Explanation
    from filbert.inspect.neighbours import LocatedSentence, WordNeighbours

# A page of so many characters is slow to open.
LARGE = 10_000_000


def inspect(
    model: arguments.ModelName,
    text: arguments.OneText,
    text_b: arguments.SecondText = None,
    /,
    *,
    out: Annotated[str, arguments.shown_as("FILE", "HTML file to write; - is stdout.")],
    layer: int | None = None,
    head: int | None = None,
    and_model: Annotated[list[str] | None, Parameter(consume_multiple=False)] = None,
    and_text: Annotated[list[str] | None, Parameter(consume_multiple=False)] = None,
    max_length: int | None = None,
    device: arguments.Device = None,
) -> None:
    """Show the attention of every head, as a page for the browser.

    Parameters
    ----------
    layer:
        layer from 0 that the page opens.
    head:
        head from 0 in that layer that the page opens.
    and_model:
        another model to compare; may be given several times.
    and_text:
        another text to compare; may be given several times.
    max_length:
        truncate the text to this many tokens; without it a text that is too long is refused.
    """
    _check_page(out)
    inspection = filbert.inspect(
        [model, *(and_model or ())],
        _items(text, text_b, and_text or ()),
        layer=layer,
        head=head,
        max_length=max_length,
        device=device,
    )
    for view in inspection.views:
        if view.truncated:
            cut = f"the first {len(view.tokens):,} of {view.num_tokens:,} tokens"
            print(f"{view.model} reads {cut}.", file=sys.stderr)
    _write_page(out, inspection.html)
    if len(inspection.html) > LARGE:
        advice = "Show fewer texts or models at once, or cut with --max-length."
        print(f"The page is larger than 10 MB and slow to open. {advice}", file=sys.stderr)


def _items(text: str, text_b: str | None, others: Sequence[str] = ()) -> list[Any]:
    """Return the texts and pairs to inspect, one of which may come from stdin."""
    texts = [text, *others, *(() if text_b is None else (text_b,))]
    if texts.count(arguments.STDIO) > 1:
        raise ConfigError("Only one of the texts can come from stdin.")
    texts = [arguments.text_on_stdin() if one == arguments.STDIO else one for one in texts]
    return texts if text_b is None else [(texts[0], texts[-1]), *texts[1:-1]]


def _check_page(out: str, *, as_json: bool = False) -> None:
    """Check before any work that the page can be written, and that it has stdout for itself."""
    if out == arguments.STDIO:
        if as_json:
            raise ConfigError(
                "--json and --out - both go to stdout. Give --out a file name, or leave one out."
            )
        return
    if Path(out).suffix.lower() not in ("", ".html", ".htm"):
        raise ConfigError(f"--out {out}: a page is one HTML file. Name it such as page.html.")
    check_writable(Path(out))


def _write_page(out: str, page: str) -> None:
    """Write the page, and report the size of a file on stderr."""
    with output(out) as stream:
        stream.write(page)
    if out != arguments.STDIO:
        print(f"Wrote {out} ({len(page.encode()) / 1e6:.1f} MB).", file=sys.stderr)


def heads(
    model: arguments.ModelName,
    file: arguments.TextFile,
    /,
    *,
    limit: arguments.AtLeastOne = 200,
    max_length: int = 512,
    text_column: arguments.TextColumn = "text",
    json: arguments.AsJson = False,
    device: arguments.Device = None,
) -> None:
    """Summarise every attention head: distance, entropy, and the share on special tokens.

    Parameters
    ----------
    limit:
        number of texts to read.
    max_length:
        truncate texts to this many tokens, or to what the model reads.
    """
    from itertools import islice

    from filbert.data.texts import holds_text, read_texts, text_of
    from filbert.inference.predictor import Predictor
    from filbert.inspect.heads import STATISTICS, summarise_heads

    predictor = Predictor.load(model, device=device)
    predictor.max_length = min(predictor.max_length, max_length)
    rows = filter(holds_text, read_texts(file, ColumnNames(text_column=text_column)))
    texts = [text_of(row, predictor.cleaning) for row in islice(rows, limit)]
    if not texts:
        raise InputError(f"{file} holds no text.")
    summary = summarise_heads(predictor, texts)
    if json:
        print_json(summary.to_dict())
        return
    print(f"{model}: {summary.num_texts:,} texts, {summary.num_tokens:,} tokens")
    records = summary.to_dict()["heads"]
    table = [[f"{v:.2f}" if isinstance(v, float) else str(v) for v in r.values()] for r in records]
    print_table(["layer", "head", *STATISTICS], table)
    for name, meaning in STATISTICS.items():
        print(f"{name}: {meaning}")


def neighbours(
    model: arguments.ModelName,
    file: arguments.TextFile,
    /,
    *,
    word: Annotated[tuple[str, ...], Parameter(consume_multiple=False)],
    layer: Annotated[int, Parameter(allow_leading_hyphen=True)] = -1,
    limit: int = 100,
    text_column: arguments.TextColumn = "text",
    sense_column: Annotated[str | None, arguments.shown_as("NAME")] = None,
    max_length: int | None = None,
    json: arguments.AsJson = False,
    device: arguments.Device = None,
) -> None:
    """Compare the contextual vectors of one word in different sentences.

    Parameters
    ----------
    word:
        whole word to look for, in any case; repeat for further forms: --word bank --word banks.
    layer:
        0 is the embedding layer, -1 the last layer.
    limit:
        number of occurrences to compare.
    sense_column:
        name of the column with the known sense of the word.
    max_length:
        cut texts around the word to this many tokens.
    """
    from filbert.inference.predictor import Predictor
    from filbert.inspect.neighbours import find_neighbours, word_pattern

    word_pattern(word)
    sentences = _sentences(file, ColumnNames(text_column=text_column), sense_column)
    predictor = Predictor.load(model, device=device, max_length=max_length)
    found = find_neighbours(predictor, word, sentences, layer=layer, limit=limit)
    if json:
        print_json(found.to_dict())
        return
    print(
        f"Layer {found.layer} of {model}: {len(found.occurrences)} of {found.num_found} occurrences"
    )
    _print_neighbours(found)


def _print_neighbours(found: WordNeighbours) -> None:
    """Print the nearest neighbour of each occurrence, and the mean cosine of every layer."""
    rows = []
    for number, one in enumerate(found.occurrences):
        nearest = found.nearest(number)
        text = one.text[max(0, one.start - 30) : one.end + 30].strip()
        cosine = f"{found.cosines[number, nearest]:.2f}"
        sense = one.sense or ""
        rows.append([str(number + 1), printable(text, 80), str(nearest + 1), cosine, sense])
    headings = ["", "sentence", "nearest", "cosine", "sense"]
    count = 4 if found.same_sense is None else 5
    print_table(headings[:count], [row[:count] for row in rows], texts=(1, 4))
    print()
    by_layer = [[str(layer), f"{mean:.2f}"] for layer, mean in enumerate(found.mean_cosine)]
    headings = ["layer", "mean cosine"]
    if found.same_sense is not None:
        headings.append("nearest has the same sense")
        by_layer = [
            [*row, f"{same:.2f}"] for row, same in zip(by_layer, found.same_sense, strict=True)
        ]
    print_table(headings, by_layer)


def _sentences(
    file: str, columns: ColumnNames, sense_column: str | None
) -> Sequence[LocatedSentence]:
    """Read the rows of a file with the sense of the word in each."""
    from filbert.data.texts import read_texts
    from filbert.inspect.neighbours import LocatedSentence

    sentences = []
    for row in read_texts(file, columns, extra=() if sense_column is None else (sense_column,)):
        sense = None if sense_column is None else str(row.values[sense_column] or "").strip()
        if sense == "":
            raise InputError(f"{row.where}: no {sense_column}. Fill it in, or drop the row.")
        sentences.append(LocatedSentence(row.values["text"], row.where, sense))
    return sentences


@arguments.flags_of(ColumnNames)
def layers(
    model: arguments.ModelName,
    /,
    *,
    task: Annotated[str, arguments.shown_as("TASK")],
    train: arguments.File,
    dev: arguments.File,
    max_length: arguments.MaxLength = None,
    json: arguments.AsJson = False,
    device: arguments.Device = None,
    **columns: Any,
) -> None:
    """Fit a linear probe on the frozen features of every layer and compare them on dev rows.

    Parameters
    ----------
    task:
        classification (one label) or tagging.
    train:
        labelled rows that the probes are fitted on.
    dev:
        labelled rows that the layers are compared on.
    """
    from filbert.inference.predictor import Predictor
    from filbert.inspect.layers import probe_layers

    predictor = Predictor.load(model, device=device, max_length=max_length)
    names = from_flat(ColumnNames, columns)
    scores = probe_layers(predictor, task, train=train, dev=dev, names=names)
    if json:
        print_json(scores)
        return
    num_rows, probes = scores["rows"], scores["layers"]
    print(f"{model}, frozen: {num_rows['train']:,} train rows, {num_rows['dev']:,} dev rows")
    metrics = [n for n, v in probes[0].items() if v is None or isinstance(v, float)]
    rows = [
        [str(one["layer"]), *("-" if one[n] is None else f"{one[n]:.4f}" for n in metrics)]
        for one in probes
    ]
    print_table(["layer", *metrics], rows)
    print(f"Best {scores['metric']}: layer {scores['best']}.")


BAR_WIDTH = 20


def explain(
    model: arguments.ModelName,
    text: arguments.OneText,
    text_b: arguments.SecondText = None,
    /,
    *,
    method: str = "integrated-gradients",
    target: str | None = None,
    word: str | None = None,
    steps: int | None = None,
    top: arguments.AtLeastOne = 10,
    json: arguments.AsJson = False,
    out: arguments.OutPage = None,
    device: arguments.Device = None,
) -> None:
    """Show which words support a model's answer, and which oppose it.

    The model has a task: classification, regression or tagging.

    Parameters
    ----------
    method:
        integrated-gradients, gradient (times input) or leave-one-out; several between commas, or
        all.
    target:
        label or tag to explain; the model's own answer if not given.
    word:
        tagging: the word, or its number from 1; the first word with a tag if not given.
    steps:
        points of the integral.
    top:
        words in the table.
    """
    from filbert.inference.predictor import Predictor
    from filbert.inspect.explain import attribute, explanation_page, find_target

    if out is not None:
        _check_page(out, as_json=json)
    points = _steps_by_method(method, steps)
    predictor = Predictor.load(model, device=device)
    chosen = find_target(predictor, _items(text, text_b)[0], target=target, word=word)
    explanations = [attribute(predictor, chosen, method=m, steps=n) for m, n in points.items()]
    if out is not None:
        _write_page(out, explanation_page(explanations, model))
    documents = [one.to_dict() for one in explanations]
    if json:
        print_json(documents if len(documents) > 1 else documents[0])
    for one in explanations if out != arguments.STDIO and not json else ():
        _print(one, top)


def _steps_by_method(method: str, steps: int | None) -> dict[str, int | None]:
    """Check the options, and return for each method asked for the number of steps."""
    from filbert.inspect.explain import METHODS, check_method

    names = METHODS if method == "all" else tuple(name.strip() for name in method.split(","))
    points = {name: steps if name == METHODS[0] or len(names) == 1 else None for name in names}
    for name, count in points.items():
        check_method(name, count)
    return points


def _print(explanation: Explanation, top: int) -> None:
    """Print the coloured texts, a table of the largest shares, and how to read them."""
    from rich.text import Text

    from filbert.inspect.explain import CAVEATS
    from filbert.train.log import console

    stdout = console()
    stdout.print(f"Why {explanation.target.description}? ({explanation.method})")
    for which, name in enumerate(explanation.target.names if stdout.color_system else ()):
        line = Text(f"{name}: ")
        for text, word, share in explanation.segments(which):
            clean = "".join(c if c.isprintable() else " " for c in text)
            (red, green, blue), strength = explanation.colour(share)
            # Blended with white, because terminals have no transparency.
            mixed = [round(255 - (255 - part) * strength * 0.75) for part in (red, green, blue)]
            style = f"black on rgb({mixed[0]},{mixed[1]},{mixed[2]})" if strength > 0.05 else ""
            line.append(clean, style if word is not None else "")
        stdout.print(line)
    ranked = explanation.ranked()
    for word, share in ranked[:top]:
        (red, green, blue), strength = explanation.colour(share)
        line = Text(f"{share:+.3f}  ")
        line.append("█" * round(strength * BAR_WIDTH), f"rgb({red},{green},{blue})")
        line.append(f" {printable(word.text)}")
        stdout.print(line, soft_wrap=True)
    if len(ranked) > top:
        stdout.print(f"and {len(ranked) - top} more words; see --top, --out or --json.")
    stdout.print(f"{explanation.summary} {CAVEATS[explanation.method]}")
