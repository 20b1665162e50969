"""filbert inspect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from filbert.inspection.show import Inspection

# Characters of a page that is worth a word of warning.
LARGE = 10_000_000


def inspect(
    model: str,
    text: str,
    text_b: str | None = None,
    /,
    *,
    out: str | None = None,
    print_text: Annotated[bool, Parameter(name="--text")] = False,
    layer: int | None = None,
    head: int | None = None,
    words: bool = False,
    and_model: Annotated[list[str] | None, Parameter(consume_multiple=False)] = None,
    and_text: Annotated[list[str] | None, Parameter(consume_multiple=False)] = None,
    neurons: list[str] | None = None,
    max_length: int | None = None,
    device: str | None = None,
) -> None:
    """Show where every attention head looks: a page for the browser, or a table on the terminal.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id.
    text:
        what the model reads; - is stdin.
    text_b:
        second text of a pair; - is stdin.
    out:
        HTML file to write; it needs no network and no other file.
    print_text:
        print a heat map on the terminal: in per cent, rows look at columns.
    layer:
        which layer, counted from 0: where the page opens, or what is printed (the mean over all
        when not given).
    head:
        which head of it, counted from 0 (the mean over all when not given).
    words:
        print words instead of the vocabulary's pieces; the page shows both.
    and_model:
        another model beside the first; may be given several times.
    and_text:
        another text beside the first; may be given several times.
    neurons:
        heads such as 3.7 (layer.head) whose queries and keys a page of a long text shall hold.
    max_length:
        cut the text to this many tokens; without it a text that is too long is refused.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    import sys

    from filbert.cli.flags import STDIO
    from filbert.cli.page_file import check_page, write_page
    from filbert.errors import ConfigError
    from filbert.inspection.show import inspect as look

    if out is None and not print_text:
        raise ConfigError(
            "Where shall it be shown? Name a page with --out page.html, or print with --text."
        )
    check_page(out, printed="--text" if print_text else None)
    heads = [_head(name) for name in neurons or ()]
    if [text, text_b, *(and_text or ())].count(STDIO) > 1:
        raise ConfigError("Only one of the texts can come from stdin.")
    first = _read(text)
    found = look(
        [model, *(and_model or ())],
        [first if text_b is None else (first, _read(text_b)), *map(_read, and_text or ())],
        layer=layer,
        head=head,
        neurons=heads,
        max_length=max_length,
        device=device,
    )
    for view in found.views:
        if view.truncated:
            print(
                f"{view.model} sees the first {len(view.tokens):,} of {view.num_tokens:,} tokens.",
                file=sys.stderr,
            )
    write_page(out, lambda: found.html)
    if out is not None and len(found.html) > LARGE:
        print(
            "The page is larger than 10 MB and slow to open. Show fewer texts, models or "
            "--neurons at once, or cut with --max-length.",
            file=sys.stderr,
        )
    if print_text:
        _print(found, layer, head, words)


def _read(text: str) -> str:
    from filbert.cli.flags import STDIO, typed_text

    return typed_text(text).strip() if text == STDIO else text


def _head(name: str) -> tuple[int, int]:
    from filbert.errors import ConfigError

    layer, dot, head = name.partition(".")
    if not (dot and layer.isdecimal() and head.isdecimal()):
        raise ConfigError(f"--neurons {name!r} is no head; write layer.head, such as 3.7.")
    return int(layer), int(head)


def _print(found: Inspection, layer: int | None, head: int | None, words: bool) -> None:
    from rich.console import Console

    from filbert.cli.heat_map import print_heat_map
    from filbert.inspection.maps import merged
    from filbert.inspection.view import chosen_map

    console = Console(highlight=False, markup=False, emoji=False)
    which = "all layers" if layer is None else f"layer {layer}"
    which += ", all heads" if head is None else f", head {head}"
    for number, view in enumerate(found.views):
        if number:
            console.print()
        console.print(f"{view.model}, {which}: per cent, rows look at columns", style="bold")
        weights = chosen_map(view, layer, head)
        if words:
            print_heat_map(merged(weights, view.units), view.words, console)
        else:
            print_heat_map(weights, view.tokens, console)
