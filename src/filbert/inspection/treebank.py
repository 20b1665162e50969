"""Dependency trees from CoNLL-U files, and which token of a model belongs to which of their words.

Format: universaldependencies.org/format.html (CoNLL-U): ten columns between tabs (ID FORM LEMMA
UPOS XPOS FEATS HEAD DEPREL DEPS MISC), a blank line after every sentence, # before a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from filbert.data.streams import Lines, Report, chomp, require_file, shown
from filbert.errors import InputError, printable
from filbert.text.encoding import Encoding

NUM_COLUMNS = 10
ROOT = "root"
_ID, _FORM, _HEAD, _RELATION, _MISC = 0, 1, 6, 7, 9
_ENTITY = re.compile(r"(?:^|\|)Entity=([^|]*)")


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A sentence and who depends on whom.

    A contraction (ID 1-2, as French "du") is one word with the head and relation of its topmost
    part, since its parts share their characters. Empty nodes (8.1) are left out.

    Attributes:
        text: the words, with spaces but where SpaceAfter=No.
        words: w texts.
        starts, ends: int64 (w,), characters [start, end) of each in `text`.
        heads: int64 (w,), the word that each depends on, from 0; -1 for the root.
        relations: w names, subtypes included (nsubj:pass).
        entities: what MISC says under Entity, for each word; "" where nothing.
        is_new_document: a `# newdoc` stands before it.
        where: file and line of its first word.
    """

    text: str
    words: tuple[str, ...]
    starts: np.ndarray
    ends: np.ndarray
    heads: np.ndarray
    relations: tuple[str, ...]
    entities: tuple[str, ...]
    is_new_document: bool
    where: str


def read_treebank(path: str | Path) -> Iterator[Tree]:
    """The trees of a file, compressed or not; `-` is stdin.

    Raises:
        InputError: a line is broken, or the heads are no tree; with file and line.
    """
    if str(path) != "-":
        require_file(path, once=True)
    found = False
    lines, report = Lines(path), Report(None)
    block: list[tuple[int, list[str]]] = []
    is_new = False
    number = 0
    for number, raw in enumerate(lines, 1):
        lines.report_bad(number, number, report)
        line = chomp(raw)
        if line.startswith("#") and not block:
            is_new |= line[1:].split(maxsplit=1)[:1] == ["newdoc"]
        elif line.startswith("#"):
            raise InputError(
                f"{shown(path)}:{number}: a comment within a sentence. Put it before the sentence, "
                "or a blank line before it."
            )
        elif line.strip():
            block.append((number, _columns(line, f"{shown(path)}:{number}")))
        elif block:
            found = True
            yield _tree(block, shown(path), is_new)
            block, is_new = [], False
    if block:
        found = True
        yield _tree(block, shown(path), is_new)
    if not found:
        raise InputError(f"{shown(path)}: no sentence. A CoNLL-U file is wanted.")


def _columns(line: str, where: str) -> list[str]:
    columns = line.split("\t")
    if len(columns) != NUM_COLUMNS:
        raise InputError(
            f"{where}: {len(columns)} columns between tabs; CoNLL-U has {NUM_COLUMNS} (ID FORM "
            "LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC)."
        )
    if not columns[_FORM]:
        raise InputError(f"{where}: FORM, the second column, is empty.")
    return columns


def _tree(block: list[tuple[int, list[str]]], name: str, is_new: bool) -> Tree:
    """One sentence from its lines."""
    parts: list[tuple[int, list[str]]] = []  # one word of the tree each
    units: list[tuple[str, str, int, int]] = []  # form, misc, its parts [begin, end)
    inside = 0  # parts up to this one belong to a contraction that was read
    for line, columns in block:
        where = f"{name}:{line}"
        number = columns[_ID]
        if re.fullmatch(r"\d+\.\d+", number):
            continue
        if contraction := re.fullmatch(r"(\d+)-(\d+)", number):
            first, last = map(int, contraction.groups())
            if first != len(parts) + 1 or last < first or first <= inside:
                raise InputError(f"{where}: ID {number} does not begin at word {len(parts) + 1}.")
            units.append((columns[_FORM], columns[_MISC], first - 1, last))
            inside = last
            continue
        if number != str(len(parts) + 1):
            raise InputError(
                f"{where}: ID {printable(number)!r} stands where {len(parts) + 1} is wanted."
            )
        parts.append((line, columns))
        if len(parts) > inside:
            units.append((columns[_FORM], columns[_MISC], len(parts) - 1, len(parts)))
    if inside > len(parts) or not parts:
        raise InputError(f"{name}:{block[0][0]}: this sentence has not all words of a contraction.")
    heads = _heads(parts, name)
    owner = np.empty(len(parts), dtype=np.int64)
    for unit, (*_, begin, end) in enumerate(units):
        owner[begin:end] = unit
    tops = [
        next(p for p in range(begin, end) if heads[p] < 0 or not begin <= heads[p] < end)
        for *_, begin, end in units
    ]
    starts, ends, text = [], [], ""
    for form, misc, *_ in units:
        starts.append(len(text))
        text += form
        ends.append(len(text))
        text += "" if "SpaceAfter=No" in misc.split("|") else " "
    entities = []
    for *_, begin, end in units:
        marks = [_ENTITY.search(parts[p][1][_MISC]) for p in range(begin, end)]
        entities.append("".join(mark.group(1) for mark in marks if mark))
    return Tree(
        text=text.rstrip(" "),
        words=tuple(form for form, *_ in units),
        starts=np.array(starts, dtype=np.int64),
        ends=np.array(ends, dtype=np.int64),
        heads=np.array([-1 if heads[top] < 0 else owner[heads[top]] for top in tops]),
        relations=tuple(parts[top][1][_RELATION] for top in tops),
        entities=tuple(entities),
        is_new_document=is_new,
        where=f"{name}:{block[0][0]}",
    )


def _heads(parts: list[tuple[int, list[str]]], name: str) -> list[int]:
    """The part that each depends on, from 0; -1 for the root. They must be a tree."""
    heads: list[int] = []
    for line, columns in parts:
        head = columns[_HEAD]
        if not head.isascii() or not head.isdigit() or int(head) > len(parts):
            raise InputError(
                f"{name}:{line}: HEAD is {printable(head)!r}; a word of the sentence is wanted, "
                f"1 to {len(parts)}, or 0 for the root."
            )
        if columns[_RELATION] in ("", "_"):
            raise InputError(f"{name}:{line}: DEPREL, the relation to the head, is missing.")
        heads.append(int(head) - 1)
    reached = np.array(heads)
    for _ in range(len(heads).bit_length()):  # as often as doubles the way upwards
        reached = np.where(reached < 0, -1, reached[reached])
    if (reached >= 0).any():
        at = int(np.argmax(reached >= 0))
        raise InputError(
            f"{name}:{parts[at][0]}: from this word the heads lead in a circle, never to the root."
        )
    return heads


def words_of(encoding: Encoding, tree: Tree) -> np.ndarray:
    """The word of each token, int64 (n,): the first that it shares a character with; else -1."""
    assert encoding.offsets is not None
    assert encoding.sequence is not None
    begin, end = encoding.offsets[:, 0], encoding.offsets[:, 1]
    word = np.searchsorted(tree.ends, begin, side="right")
    known = np.minimum(word, len(tree.words) - 1)
    is_in = (encoding.sequence == 0) & (end > begin) & (word < len(tree.words))
    return np.where(is_in & (tree.starts[known] < end), known, -1)
