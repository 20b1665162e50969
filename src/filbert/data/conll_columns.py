"""CoNLL columns: a word a line, its columns between tabs (between spaces where there is no tab).

The word stands first and its tag last; a blank line ends a sentence. Lines that begin with
-DOCSTART- part documents and are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from filbert.data.records import Row
from filbert.data.row import WITH_COLUMNS
from filbert.data.streams import (
    MAX_FIELD,
    BadRow,
    Lines,
    OnError,
    Report,
    kind_of,
    require_file,
    shown,
)
from filbert.errors import InputError

SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".ner")

# The longest sentence. Longer ones are always a file without blank lines.
MAX_WORDS = 1_000_000

_BLANKS = " \t\r\n"
_TAG = re.compile(r"O|[BIESLU]-\S+")
# Lines that are looked at to tell words from sentences.
_LOOK = 200


def is_conll(path: str | Path, *, labelled: bool) -> bool:
    """Whether a file holds CoNLL columns: by its name, or by the lines at its beginning.

    Such have equally many columns (sentences are not of one length) and end, where no tags are
    wanted or in a .tsv, in O, B-PER and the like.
    """
    kind = kind_of(path)[0]
    if kind in SUFFIXES:
        return True
    if str(path) == "-" or (kind in WITH_COLUMNS and kind != ".tsv"):
        return False
    require_file(path, once=True)
    if not Path(path).is_file():
        return False
    lines = Lines(path)
    try:
        found = [line.rstrip(_BLANKS) for line in islice(lines, _LOOK)]
    finally:
        lines.close()
    words = [line for line in found if line and not line.startswith("-DOCSTART-")]
    counts = {len(line.split("\t" if "\t" in line else None)) for line in words}
    if len(words) < 3 or len(counts) > 1 or counts == {1}:
        return False
    by_tags = not labelled or kind == ".tsv"
    return not by_tags or all(_TAG.fullmatch(_columns(line)[1]) for line in words)


def read_conll(
    path: str | Path, *, labelled: bool = True, on_error: OnError | None = None
) -> Iterator[Row]:
    """A row per sentence: `tokens`, `tags` and `lines` (the line of every word); `Row.line` is the
    first of them. The file is looked at before the first row is asked for.

    Args:
        path: of the file; compressed or not.
        labelled: if not, one column will do and no `tags` are read.
        on_error: is given each bad sentence instead of it being raised, once.

    Raises:
        InputError: no such file, no sentence in it, or a bad one without `on_error`.
    """
    require_file(path, once=not labelled)
    return _guarded(path, labelled, Report(on_error))


def _guarded(path: str | Path, labelled: bool, report: Report) -> Iterator[Row]:
    num_rows = 0
    try:
        for row in _sentences(path, labelled, report):
            num_rows += 1
            yield row
    except InputError as error:
        if report.on_error is None or not (num_rows or report.count):
            raise
        report(error)
    if not num_rows and not report.count:
        raise InputError(f"{shown(path)}: no sentence; the file is empty.")


class _Sentence:
    """The sentence that is being read."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.tags: list[str] = []
        self.lines: list[int] = []
        self.size = 0
        self.wrong: str | None = None  # the first thing that was, with its place
        self.columns: int | None = None  # of a line

    def uneven(self, content: str) -> str | None:
        """What is wrong when a line has more or fewer columns than those before it.

        A line that lacks its last column must not make the one before it the tag.
        """
        parts = content.split("\t") if "\t" in content else filter(None, content.split(" "))
        count = sum(1 for _ in parts)
        before, self.columns = self.columns, count
        if before in (None, count):
            return None
        return f"{count} columns, and {before} in the lines before it. Fill them in."

    def row(self, path: str, labelled: bool) -> Row:
        values: dict[str, Any] = {"tokens": self.tokens, "lines": self.lines}
        if labelled:
            values["tags"] = self.tags
        return Row(values, path, self.lines[0])


def _sentences(path: str | Path, labelled: bool, report: Report) -> Iterator[Row]:
    name = shown(path)
    lines = Lines(path)
    sentence = _Sentence()
    tags_seen: dict[str, str] = {}  # one object per tag, not per word
    for number, line in enumerate(lines, 1):
        damage = lines.bad.pop(number, None) if lines.bad else None
        if damage is None:
            content = line.rstrip(_BLANKS)
            if not content or content.startswith("-DOCSTART-"):
                yield from _finished(sentence, str(path), labelled, report)
                sentence = _Sentence()
                continue
            if sentence.wrong is not None:
                continue
            token, tag = _columns(content)
            damage = _damage(token, tag, labelled)
            if damage is None and (labelled or "\t" in content):
                damage = sentence.uneven(content)
        elif sentence.wrong is not None:
            continue
        if damage is None and (
            len(sentence.tokens) == MAX_WORDS or sentence.size + len(token) > MAX_FIELD
        ):
            damage = (
                f"the sentence from line {sentence.lines[0]} on has more than {MAX_WORDS:,} words "
                f"or {MAX_FIELD:,} characters. Put a blank line between sentences."
            )
        if damage is not None:
            sentence.wrong = f"{name}:{number}: {damage}"
            continue
        sentence.tokens.append(token)
        sentence.lines.append(number)
        sentence.size += len(token) + 1
        if labelled:
            if len(tags_seen) > 10_000:
                tags_seen.clear()
            sentence.tags.append(tags_seen.setdefault(tag, tag))
    yield from _finished(sentence, str(path), labelled, report)


def _finished(sentence: _Sentence, path: str, labelled: bool, report: Report) -> Iterator[Row]:
    if sentence.wrong is not None:
        report(BadRow(sentence.wrong))
    elif sentence.tokens:
        yield sentence.row(path, labelled)


def _columns(content: str) -> tuple[str, str]:
    """First and last column; the last is empty where there is only one."""
    if "\t" in content:
        token, _, rest = content.partition("\t")
        return token.strip(" "), rest.rpartition("\t")[2].strip(" ")
    token, _, rest = content.strip(" ").partition(" ")
    return token, rest.rpartition(" ")[2]


def _damage(token: str, tag: str, labelled: bool) -> str | None:
    if not token:
        return "the first column, the word, is empty. Fill it in."
    if labelled and not tag:
        return "one column only; a word and its tag are wanted, with a tab between them."
    return None
