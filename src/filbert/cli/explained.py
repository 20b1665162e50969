"""An explanation on the terminal: coloured words, the largest shares as bars, and the caveat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from filbert.errors import printable
from filbert.inspection.attributions import CAVEATS, Explanation
from filbert.inspection.coloured import colour_of, is_marked, number, parts_of, sum_sentence

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

BAR_WIDTH = 20


def print_explanation(explanation: Explanation, console: Console, *, top: int) -> None:
    """Print one explanation.

    Args:
        explanation: of a claim that has been named above.
        console: where to; without colours it shows the table alone.
        top: words in the table.
    """
    from rich.text import Text

    console.print(Text(f"\n{explanation.method}", style="bold"))
    claim = explanation.claim
    if console.color_system is not None:
        for which, name in enumerate(claim.names):
            title = f"{name}: " if len(claim.names) > 1 else ""
            console.print(Text().append(title, "dim").append_text(coloured(explanation, which)))
        console.print()
    # On a narrow terminal the words go first.
    console.print(_table(explanation, top, min(BAR_WIDTH, max(console.width - 40, 0) // 2)))
    if len(claim.words) > top:
        more = f" and {len(claim.words) - top} more words; --top, --out or --json shows them."
        console.print(Text(more, style="dim"))
    console.print(Text(sum_sentence(explanation)))
    signs = "" if explanation.value is None else "Above 0 speaks for the answer, below against it. "
    console.print(Text(signs + CAVEATS[explanation.method], style="dim"))


def coloured(explanation: Explanation, which: int) -> Text:
    """One of the texts, its words on the colours of their shares."""
    from rich.text import Text

    found = Text()
    for text, word, share in parts_of(explanation, which):
        clean = "".join(c if c.isprintable() else " " for c in text)
        if word is None:
            found.append(clean)
            continue
        colour, strength = colour_of(share, explanation)
        # On white: a terminal has no half-transparent colours.
        red, green, blue = (round(255 - (255 - part) * strength * 0.75) for part in colour)
        style = f"black on rgb({red},{green},{blue})" if strength >= 0.05 else ""
        found.append(clean, f"{style} underline" if is_marked(word, explanation) else style)
    return found


def _table(explanation: Explanation, top: int, longest: int) -> Table:
    """The words with the largest shares; bars of `longest` cells at most, none without room."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column("word", overflow="fold")
    table.add_column("share", justify="right", no_wrap=True)
    if longest:
        table.add_column("bar", no_wrap=True)
    signed = explanation.value is not None and bool((explanation.shares < 0).any())
    for word, share in explanation.ranked()[:top]:
        colour, strength = colour_of(share, explanation)
        length = round(strength * longest)
        blocks = "█" * length
        bar = Text(blocks, f"rgb{colour}".replace(" ", ""))
        if signed and share < 0:
            bar = Text(" " * (longest - length)) + bar + Text("│")
        elif signed:
            bar = Text(" " * longest + "│") + bar
        name = Text(printable(word.text), "underline" if is_marked(word, explanation) else "")
        table.add_row(name, number(share, explanation), *([bar] if longest else []))
    return table
