"""A text whose words are coloured by their shares, and the sentence on whether they add up."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filbert.inspection.attributions import Explanation
    from filbert.inspection.claims import Word

# Blue speaks for, vermilion against, green has no sign: told apart by all kinds of sight.
# Source: Okabe and Ito 2008, "Color Universal Design".
FOR, AGAINST, UNSIGNED = (0, 114, 178), (213, 94, 0), (0, 158, 115)
# The strongest colour still lets dark and light letters be read.
_STRONGEST = 0.65


def colour_of(share: float, explanation: Explanation) -> tuple[tuple[int, int, int], float]:
    """Red, green and blue of a word, 0 to 255, and how strong they are, 0 to 1."""
    strength = min(1.0, abs(share) / explanation.largest)
    if explanation.value is None:
        return UNSIGNED, strength
    return FOR if share > 0 else AGAINST, strength


def parts_of(explanation: Explanation, which: int) -> Iterator[tuple[str, Word | None, float]]:
    """One of the texts in pieces: words with their shares, and None for what lies between."""
    claim = explanation.claim
    text, done = claim.texts[which], 0
    for word, share in zip(claim.words, explanation.shares.tolist(), strict=True):
        if word.which != which:
            continue
        # Some vocabularies take one character for two words; it is shown once.
        start = max(word.start, done)
        if start > done:
            yield text[done:start], None, 0.0
        if word.end > start or word.start == word.end:
            yield (text[start : word.end] or word.text), word, share
        done = max(done, word.end)
    if done < len(text):
        yield text[done:], None, 0.0


def is_marked(word: Word, explanation: Explanation) -> bool:
    """Whether the claim speaks of this word."""
    return any(
        which == word.which and start < word.end and word.start < end
        for which, start, end in explanation.claim.marks
    )


def texts_html(explanation: Explanation) -> str:
    """The texts as markup that needs no style sheet: a paragraph each, escaped."""
    names = explanation.claim.names
    found = []
    for which, name in enumerate(names):
        spans = "".join(_span(*part, explanation) for part in parts_of(explanation, which))
        title = f"<small>{html.escape(name)}</small><br>" if len(names) > 1 else ""
        found.append(
            f'<p class="coloured" style="line-height:1.9;white-space:pre-line">{title}{spans}</p>'
        )
    return "\n".join(found).encode("utf-8", "replace").decode("utf-8")


def _span(text: str, word: Word | None, share: float, explanation: Explanation) -> str:
    if word is None:
        return html.escape(text)
    (red, green, blue), strength = colour_of(share, explanation)
    style = (
        f"background:rgba({red},{green},{blue},{strength * _STRONGEST:.3f});"
        "border-radius:3px;padding:.12em .06em"
    )
    if is_marked(word, explanation):
        style += ";box-shadow:0 2px 0 currentColor"
    return f'<span style="{style}" title="{number(share, explanation)}">{html.escape(text)}</span>'


def number(share: float, explanation: Explanation) -> str:
    """A share as people read it: with its sign, or as a percentage."""
    return f"{share:.1%}" if explanation.value is None else f"{share:+.3f}"


def sum_sentence(explanation: Explanation) -> str:
    """Whether the shares add up, with the completeness error."""
    unit, total = explanation.claim.unit, float(explanation.pieces.sum())
    if explanation.value is None:
        return f"Words: {explanation.shares.sum():.1%}; special tokens: {explanation.specials:.1%}."
    if explanation.error is None or explanation.difference is None or explanation.empty is None:
        return f"The {unit} is {explanation.value:.3f}; a share is what it loses without the word."
    way = {"mask": "the mask token", "pad": "the padding token", "zero": "a zero vector"}
    # Gradient times input takes the special tokens too; on the way of the integral they stay.
    what = "token" if explanation.method == "gradient" else "word"
    parts = f"All words together: {total:+.3f}"
    if abs(explanation.specials) > 5e-4:
        parts += f" (special tokens {explanation.specials:+.3f} of it)"
    parts += (
        f". The {unit} is {explanation.value:+.3f}, and {explanation.empty:+.3f} with "
        f"{way[explanation.baseline or 'zero']} for every {what}: {explanation.difference:+.3f}. "
        f"Completeness error {explanation.error:+.3f}"
    )
    if abs(explanation.difference) > 5e-4:
        parts += f" ({abs(explanation.error / explanation.difference):.1%})"
    return parts + (f", {explanation.steps} steps." if explanation.steps else ".")
