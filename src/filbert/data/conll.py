"""Sentences and their words: in files of any format, and in windows of tokens."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from filbert.data.columns import ColumnNames, first_value
from filbert.data.records import Row, guarded, has_columns
from filbert.data.streams import Lines, OnError, name_of, raised, require_file, suffix_of
from filbert.errors import InputError
from filbert.text.tokenizer import UNSPACED, Encoding

# CoNLL columns

SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".ner")

# The longest sentence. Longer ones are always a file without blank lines.
MAX_WORDS = 1_000_000

_BLANKS = " \t\r\n"
_TAG = re.compile(r"O|[BIESLU]-\S+")
# Lines that decide whether a file holds words or sentences.
_FIRST_LINES = 200


def is_conll(path: str | Path, *, labelled: bool) -> bool:
    """Return whether a file holds CoNLL columns: by its name, or by its first lines.

    Those have equally many columns (sentences are not of one length) and end, if no tags are read
    or in a .tsv, in O, B-PER and the like.
    """
    kind = suffix_of(path)
    if kind in SUFFIXES:
        return True
    if str(path) == "-" or (has_columns(path) and kind != ".tsv"):
        return False
    require_file(path, once=True)
    if not Path(path).is_file():
        return False
    with closing(Lines(path)) as lines:
        first = [line.rstrip(_BLANKS) for line in islice(lines, _FIRST_LINES)]
    words = [line for line in first if line and not line.startswith("-DOCSTART-")]
    counts = {len(line.split("\t" if "\t" in line else None)) for line in words}
    if len(words) < 3 or len(counts) > 1 or counts == {1}:
        return False
    by_tags = not labelled or kind == ".tsv"
    return not by_tags or all(_TAG.fullmatch(_columns(line)[-1]) for line in words)


def read_conll(
    path: str | Path, *, labelled: bool = True, on_error: OnError = raised
) -> Iterator[Row]:
    """Return a row per sentence: `tokens`, `tags` and `lines`, the line of every word.

    `Row.line` is the first of them. If not `labelled`, one column is enough and no `tags` are read.
    `on_error` and errors are those of `read_rows`.
    """
    require_file(path, once=not labelled)
    empty = f"{name_of(path)}: no sentence; the file is empty."
    return guarded(partial(_sentences, path, labelled), on_error, empty)


def _sentences(path: str | Path, labelled: bool, report: OnError) -> Iterator[Row]:
    with closing(Lines(path)) as lines:
        words: list[list[str]] = []  # the columns of each word
        numbers: list[int] = []
        problem: str | None = None
        for number, line in chain(enumerate(lines, 1), [(0, "")]):
            damage = lines.bad.pop(number, None)
            content = line.rstrip(_BLANKS)
            if damage is None and (not content or content.startswith("-DOCSTART-")):
                if problem is not None:
                    report(InputError(problem))
                elif words:
                    values: dict[str, Any] = {"tokens": [word[0] for word in words]}
                    if labelled:
                        values["tags"] = [sys.intern(word[-1]) for word in words]
                    yield Row(values | {"lines": numbers}, str(path), numbers[0])
                words, numbers, problem = [], [], None
            elif problem is None:
                columns = _columns(content)
                width = len(words[-1]) if words else len(columns)
                damage = damage or _damage(columns, width, len(words), labelled)
                if damage is not None:
                    problem = f"{name_of(path)}:{number}: {damage}"
                else:
                    words.append(columns)
                    numbers.append(number)


def _columns(content: str) -> list[str]:
    if "\t" in content:
        return [part.strip(" ") for part in content.split("\t")]
    return [part for part in content.split(" ") if part]


def _damage(columns: list[str], width: int, num_words: int, labelled: bool) -> str | None:
    """Return what is wrong with a line after `num_words` words of `width` columns."""
    if not columns[0]:
        return "the first column, the word, is empty. Fill it in."
    if labelled and (len(columns) < 2 or not columns[-1]):
        return "one column only; a word and its tag are expected, separated by a tab."
    # A line that lacks its last column must not make the one before it the tag.
    if labelled and width != len(columns):
        return f"{len(columns)} columns, and {width} in the lines before it. Fill them in."
    if num_words == MAX_WORDS:
        return f"more than {MAX_WORDS:,} words. Put a blank line between sentences."
    return None


# Words

_PIECE = re.compile(r"\w+|[^\w\s]")
_ANY_PIECE = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\w)+|[^\w\s]")
# Joiners, the soft hyphen and the word joiner: no word by themselves, and tokenizers drop them.
_JOINERS = "\u200c\u200d\u00ad\u2060"


@dataclass(frozen=True, slots=True, eq=False)
class Sentence:
    """A text and its n words.

    Attributes:
        text: As the user gave it; words given as a list are joined by spaces.
        words: n texts.
        starts, ends: int64 (n,), characters [start, end) of every word in `text`.
    """

    text: str
    words: list[str]
    starts: np.ndarray
    ends: np.ndarray


def split_words(text: str) -> list[tuple[int, int]]:
    """Return the characters [start, end) of the words of a text, without a vocabulary.

    A run of letters, digits and underscores is a word; so is every other character that is not
    white space, and every letter of a script without spaces between words, as in Chinese.
    Combining marks, variation selectors and joiners belong to the character before them.
    """
    if text.isascii():
        return [match.span() for match in _PIECE.finditer(text)]
    words: list[tuple[int, int]] = []
    for start, end in (match.span() for match in _ANY_PIECE.finditer(text)):
        if words and words[-1][1] == start and _continues(text, words[-1][0], start):
            words[-1] = (words[-1][0], end)
        else:
            words.append((start, end))
    return words


def _continues(text: str, word: int, place: int) -> bool:
    """Return whether the word that begins at `word` goes on at `place`."""
    if _is_mark(text[place]):
        return True
    if not _is_mark(text[place - 1]) or UNSPACED.match(text[place]):
        return False
    return text[word].isalnum() and (text[place].isalnum() or text[place] == "_")


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M" or character in _JOINERS


def sentence_of(row: Row) -> Sentence:
    """Return a row's `tokens` as they are, else the words of its `text`, or raise an InputError."""
    tokens = row.values.get("tokens")
    if tokens is None:
        text = row.values.get("text")
        if not isinstance(text, str):
            raise InputError(f"{row.where}: neither tokens (a list of texts) nor a text.")
        places = np.array(split_words(text), dtype=np.int64).reshape(-1, 2)
        words = [text[start:end] for start, end in places.tolist()]
        return Sentence(text, words, places[:, 0], places[:, 1])
    if not isinstance(tokens, list | tuple) or not all(isinstance(word, str) for word in tokens):
        raise InputError(f'{row.where}: "tokens" must be a list of texts, one for every word.')
    lengths = np.array([len(word) for word in tokens], dtype=np.int64)
    ends = np.cumsum(lengths + 1) - 1
    return Sentence(" ".join(tokens), list(tokens), ends - lengths, ends)


def place_of(row: Row, index: int) -> str:
    """Return the place of a word: its own line in CoNLL columns, else its number, from 1."""
    lines = row.values.get("lines")
    if lines is None:
        return f"{row.where}, word {index + 1}"
    return Row({}, row.path, lines[index]).where


# Windows


class SentenceWindow(NamedTuple):
    """The part of a sentence that one example shows.

    Attributes:
        words: the words that are predicted here, int64 (k,), ascending.
        rows: the first token of each, as its place in the example, int64 (k,).
        leaders: for every word of the sentence the one that is predicted for it, int64 (n,):
            itself; an earlier one, in whose first token it begins; or -1 if it has no token.
    """

    sentence: Sentence
    words: np.ndarray
    rows: np.ndarray
    leaders: np.ndarray


def stride_of(max_length: int) -> int:
    """Return the stride of windows: neighbours share a quarter of their tokens."""
    return max(1, (max_length - 2) * 3 // 4)


def spread(sentence: Sentence, encodings: Sequence[Encoding]) -> list[SentenceWindow]:
    """Assign each word to the window with the most tokens on the poorer side of the word.

    A word's first token is the first one that shares a character with it. A word without any, or
    whose first token is an earlier word's too (as in "!!" with some vocabularies), is in no window.
    """
    bodies = [np.flatnonzero(e.sequence == 0) for e in encodings]
    borders = [(e.start, e.start + len(body)) for e, body in zip(encodings, bodies, strict=True)]
    length = borders[-1][1]
    offsets = np.zeros((length, 2), dtype=np.int64)
    for encoding, body, (start, end) in zip(encodings, bodies, borders, strict=True):
        assert encoding.offsets is not None
        offsets[start:end] = encoding.offsets[body]
    words, first, last = _tokens_of_words(sentence, offsets)
    own = np.diff(first, prepend=-1) > 0
    leaders = np.full(len(sentence.words), -1, dtype=np.int64)
    leaders[words] = words[own][np.cumsum(own) - 1]
    words, first, last = words[own], first[own], last[own]
    best = np.full(len(words), -length - 1)
    owner = np.zeros(len(words), dtype=np.int64)
    for number, (start, end) in enumerate(borders):
        there = slice(*np.searchsorted(first, (start, end)))
        context = np.minimum(first[there] - start, end - 1 - last[there])
        owner[there] = np.where(context > best[there], number, owner[there])
        best[there] = np.maximum(context, best[there])
    order = np.argsort(owner, kind="stable")
    shares = np.split(order, np.searchsorted(owner[order], np.arange(1, len(borders))))
    return [
        SentenceWindow(sentence, words[mine], body[first[mine] - start], leaders)
        for mine, body, (start, _) in zip(shares, bodies, borders, strict=True)
    ]


def _tokens_of_words(
    sentence: Sentence, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the words that have a token, with the first and last token of each, int64 (k,)."""
    starts, ends = offsets[:, 0], offsets[:, 1]
    # Tokens of no character belong to no word. The others' borders never go back.
    reached = np.maximum.accumulate(np.where(ends > starts, ends, 0))
    first = np.searchsorted(reached, sentence.starts, side="right")
    there = first < len(offsets)
    there[there] = starts[first[there]] < sentence.ends[there]
    there &= sentence.ends > sentence.starts
    words = np.flatnonzero(there)
    after = np.searchsorted(np.maximum.accumulate(starts), sentence.ends[words], side="left")
    return words, first[words], np.maximum(after - 1, first[words])


# Files


def read_sentences(
    path: str | Path,
    names: ColumnNames,
    *,
    labelled: bool = True,
    on_error: OnError = raised,
) -> Iterator[Row]:
    """Return rows with `tokens` and `tags`, or with `text` and `spans`, of any format.

    If the file has a column with tokens, these are read. `is_conll` decides which files are read as
    CoNLL columns.

    Args:
        path: "-" is standard input: JSON Lines, or one text a line.
        labelled: Whether tags or spans must be there; if not, they are not read.
        on_error: As for `read_rows`, which raises the same errors.
    """
    if is_conll(path, labelled=labelled):
        return read_conll(path, labelled=labelled, on_error=on_error)
    if str(path) == "-":
        wanted = ("tokens", "tags", "text", "spans") if labelled else ("tokens", "text")
        return names.read(path, required=(), optional=wanted, on_error=on_error)
    if labelled and not has_columns(path):
        raise InputError(
            f"{path}: no CoNLL columns. Tagging needs a word and its tag a line, or rows with "
            "tokens and tags, or rows with a text and its spans."
        )
    is_text = names.tokens_column is None and first_value(path, names, "tokens") is None
    required = ("text", "spans") if is_text else ("tokens", "tags")
    return names.read(path, required=required if labelled else required[:1], on_error=on_error)
