"""Every message that docs/errors.md quotes is one that the program writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
# Stands for a value in a text of the source.
HOLE = "\0"


def bare(text: str) -> str:
    """Words with a blank between them; quotes, brackets and stops do not count."""
    return " ".join(re.sub(r"[\"'`()\[\]]|[.,;:?](?=\s|$)", " ", text).split())


def quoted() -> list[str]:
    """What stands as code in the first column of the tables."""
    rows = re.findall(r"^\| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row)]


def written() -> Iterator[str]:
    """Every text of the source, with holes for its values."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (getattr(part, "value", None) for part in node.values)
                yield bare("".join(p if isinstance(p, str) else HOLE for p in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield bare(node.value)


def letters_of(sentence: str, pieces: list[str]) -> int:
    """How many letters of a sentence stand in pieces of a text, with anything between the pieces.

    The sentence begins where the first piece does, or with a word before the second where the
    first is empty. -1 where it does not.
    """
    first, *others = pieces
    if not first and others:
        word = sentence.split(" ")[0]
        first = word + others.pop(0)
        return letters_of(sentence, [first, *others]) - len(word)
    if first.startswith(sentence):
        return len(sentence)
    if not sentence.startswith(first):
        return -1
    at = found = len(first)
    for piece in others:
        if (place := sentence.find(piece, at)) < 0:
            ends = (n for n in range(len(piece), 0, -1) if sentence.endswith(piece[:n], at))
            return found + next(ends, 0)
        at, found = place + len(piece), found + len(piece)
    return found


def is_read_in(sentence: str, text: str) -> bool:
    """Whether a text says this, from any word of it on; the better part must be its own words."""
    pieces = text.split(HOLE)
    own = len(re.sub(r"\S*[\d/.]\S*", "", sentence))
    beginnings = (
        [piece[word.start() :], *pieces[at + 1 :]]
        for at, piece in enumerate(pieces)
        for word in re.finditer(r"(?<!\S)\S|$", piece)
    )
    return any(letters_of(sentence, some) >= 0.45 * own for some in beginnings)


def unwritten(message: str, texts: list[str]) -> list[str]:
    """The sentences of a message that no text says; where it quotes "...", it leaves words out."""
    found = []
    for part in re.split(r"\.\.\.|(?<=[.?]) (?=[A-Z])", re.sub(r"^\S+: ", "", message)):
        sentence = bare(part)
        pairs = re.findall(r"(?=\b([a-z]+ [a-z]+)\b)", sentence)
        near = (text for text in texts if any(pair in text for pair in pairs))
        if pairs and not any(is_read_in(sentence, text) for text in near):
            found.append(sentence)
    return found


def test_every_message_on_the_page_of_errors_stands_in_the_source():
    texts = [text for text in written() if 2 < len(text.split()) < 90]
    messages = quoted()
    assert len(messages) > 50
    assert {m: lost for m in messages if (lost := unwritten(m, texts))} == {}
    # Controls: one word is another.
    for message in (
        "The training rows have 1 label (ok); a classifier needs at least two.",
        "device 'cuda' is not there; there is cpu.",
        "Out of memory. Raise --max-tokens, --max-length or --batch-size, ...",
    ):
        assert unwritten(message, texts), message
