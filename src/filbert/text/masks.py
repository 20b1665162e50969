"""Finds masks in a text, and replaces them by candidates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from filbert.errors import FormatError, InputError, printable
from filbert.text.tokenizer import Tokenizer

# What users write, whatever the vocabulary calls it.
MASK = "[MASK]"
EXAMPLE = "Paris is the [MASK] of France."

_CLOSING = frozenset(".,!?;:)]}%…")
_BLANKS = " \t\u00a0"
# From Thai on, scripts are mostly written without spaces between words.
_UNSPACED = "\u0e00"


def mask_name(tokenizer: Tokenizer) -> str:
    """Return the vocabulary's own mask token, "[MASK]" or "<mask>", or raise a FormatError."""
    if tokenizer.mask_id is None:
        raise FormatError(
            "The vocabulary of this model has no mask token, so the model cannot fill one. "
            "Use filbert-mini or bert-base-uncased."
        )
    return tokenizer.specials["mask"]


def mask_spans(text: str, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Return the characters [start, end) of every mask: "[MASK]" or the vocabulary's own."""
    either = "|".join(re.escape(name) for name in {MASK, mask_name(tokenizer)})
    return [match.span() for match in re.finditer(either, text)]


def check_masked(text: Any, tokenizer: Tokenizer, where: str) -> str:
    """Return the same text if it has a mask, or raise an InputError that begins with `where`."""
    if not isinstance(text, str):
        raise InputError(f"{where} is a {type(text).__name__}; a text is expected.")
    if not mask_spans(text, tokenizer):
        own = mask_name(tokenizer)
        also = "" if own == MASK else f" or {own}"
        capitals = ", in capitals," if MASK.lower() in text.lower() else ""
        raise InputError(
            f"{where} has no mask: {printable(text)!r}. Write {MASK}{also}{capitals} where a word "
            f'is missing, as in "{EXAMPLE}"'
        )
    return text


def translated(
    text: str, spans: Sequence[tuple[int, int]], tokenizer: Tokenizer
) -> tuple[str, list[int]]:
    """Return the text with the vocabulary's own masks, and the end of each of them."""
    own = mask_name(tokenizer)
    parts: list[str] = []
    ends, length, done = [], 0, 0
    for start, stop in spans:
        parts += [text[done:start], own]
        length += start - done + len(own)
        ends.append(length)
        done = stop
    return "".join([*parts, text[done:]]), ends


class Piece(NamedTuple):
    """An entry without the vocabulary's marks; `joins`: it continues the word before it."""

    text: str
    joins: bool


def piece_of(number: int, tokenizer: Tokenizer) -> Piece:
    """Return the readable form of an id."""
    name = tokenizer.tokens([number])[0]
    if name in tokenizer.specials.values():
        return Piece(name, False)
    if tokenizer.kind == "wordpiece":
        prefix = tokenizer.backend.model.continuing_subword_prefix
        bare = name.removeprefix(prefix)
        return Piece(bare or name, bare != name and bool(bare))
    if tokenizer.kind == "symbols":
        return Piece(name, False)
    text = str(tokenizer.backend.decode([number], skip_special_tokens=False)).replace("▁", " ")
    # A token of white space only stays unchanged.
    return Piece(text.strip() or text or " ", name[:1] not in ("Ġ", "▁"))


def put(text: str, span: tuple[int, int], piece: Piece, tokenizer: Tokenizer) -> str:
    """Return the text with a candidate in place of the mask at `span`.

    Blanks before a continuation or closing punctuation are removed; a new word directly after
    another word gets a blank. Symbols are always between blanks.
    """
    before, after = text[: span[0]], text[span[1] :]
    if tokenizer.kind == "symbols":
        return f"{before.rstrip()} {piece.text} {after.lstrip()}".strip()
    bare = before.rstrip(_BLANKS)
    after_word = bare[-1:].isalnum() or bare.endswith((MASK, mask_name(tokenizer)))
    if bare and ((piece.joins and after_word) or set(piece.text) <= _CLOSING):
        before = bare
    elif not piece.joins and _is_spaced(before[-1:]) and _is_spaced(piece.text[:1]):
        before += " "
    return before + piece.text.strip() + after


def _is_spaced(character: str) -> bool:
    return character.isalnum() and character < _UNSPACED
