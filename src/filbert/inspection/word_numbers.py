"""Which tokens make a word as people read it, whatever the vocabulary parts by itself."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from filbert.text.encoding import Encoding


def with_words(encoding: Encoding, texts: Sequence[str]) -> Encoding:
    """The same tokens, numbered so that white space and marks part words in every vocabulary.

    SentencePiece leaves a full stop at its word, and Gemma's vocabulary parts nothing: all of a
    text is one word to it. Byte-level ones have tokens of nothing but white space, such as line
    ends; these belong to the word that they stand before, or at the end of a text to its last.

    Args:
        encoding: with offsets.
        texts: the one or two that it was made of.
    """
    assert encoding.offsets is not None and encoding.words is not None
    assert encoding.sequence is not None
    sides, given = encoding.sequence.tolist(), encoding.words.tolist()
    found = np.full(len(given), -1, dtype=np.int32)
    nowhere = (-1, -1, -1)
    # The last token's text, word by the vocabulary and place as a mark, and where it ended; the
    # word's number; blank tokens since.
    before, ended, number, waiting = nowhere, 0, -1, list[int]()
    for row, (side, own) in enumerate(zip(sides, given, strict=True)):
        if side < 0 or own < 0:
            before = nowhere
            continue
        if side != before[0]:
            number, waiting = -1, []
        start, end = encoding.offsets[row].tolist()
        piece = texts[side][start:end].lstrip()
        here = (side, own, end - len(piece) if _is_mark(piece) else -1)
        # Up to the first character of the token: it may hold the blank before its word.
        goes_on = here == before and not any(map(str.isspace, texts[side][ended : start + 1]))
        before, ended = here, end
        if waiting or not goes_on:
            waiting.append(row)
            if piece:
                number += 1
                found[waiting] = number
                waiting = []
                continue
        found[row] = max(number, 0)
    return replace(encoding, words=found)


def _is_mark(piece: str) -> bool:
    """Whether these are punctuation and symbols alone; vowel signs of a script are neither."""
    own = piece.rstrip()
    return bool(own) and all(unicodedata.category(character)[0] in "PS" for character in own)
