"""Documents from text files, in order and in bounded memory, and the sentences of their lines."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

from filbert.data.records import has_columns, read_rows
from filbert.data.streams import MAX_FIELD, Lines, name_of, raised, require_file
from filbert.errors import InputError

# Characters. A longer plain-text document is split before the line that would exceed it, because
# some files of a gigabyte have no blank line. No line is longer than this either.
MAX_DOCUMENT = MAX_FIELD


# Paragraphs or sentences, stripped; at least one, none empty.
Document = tuple[str, ...]


def read_documents(
    paths: Sequence[str | Path],
    *,
    text_column: str = "text",
    pair_column: str | None = None,
) -> Iterator[Document]:
    """Yield the documents of all files, one file after the other.

    In plain text a blank line separates documents. In JSON Lines, Parquet, CSV and TSV a row is a
    document, and its line breaks separate lines. Rows without text are skipped.

    Args:
        paths: Files, compressed (.gz, .xz, .zst) or not; "-" is standard input, as plain text.
        pair_column: Column with one more text of the same document; "text_pair" is optional.

    Raises:
        InputError: A file is missing, damaged or without text; or a line is not UTF-8, contains a
            NUL or is longer than MAX_FIELD characters.
    """
    for path in paths:
        if has_columns(path):
            documents = _row_documents(path, text_column, pair_column)
        else:
            documents = _plain(path)
        is_empty = True
        for document in documents:
            is_empty = False
            yield document
        if is_empty:
            raise InputError(f"{name_of(path)}: no text in it. Leave the file out, or fill it.")


def _plain(path: str | Path) -> Iterator[Document]:
    if str(path) != "-":
        require_file(path, once=True)
    pending: list[str] = []
    size = 0
    with closing(Lines(path)) as lines:
        for number, line in chain(enumerate(lines, 1), [(0, "")]):
            lines.report_bad(number, raised)
            text = line.strip()
            if pending and (not text or size + len(text) > MAX_DOCUMENT):
                yield tuple(pending)
                pending, size = [], 0
            if text:
                pending.append(text)
                size += len(text)


def _row_documents(
    path: str | Path, text_column: str, pair_column: str | None
) -> Iterator[Document]:
    # As for tasks, a column that the user named must exist.
    is_named = pair_column not in (None, "text_pair")
    rows = read_rows(
        path,
        columns={"text": text_column} | ({"text_pair": str(pair_column)} if is_named else {}),
        required=("text",),
        optional=("text_pair",) if pair_column == "text_pair" else (),
    )
    for row in rows:
        parts = "\n".join([row.values["text"], row.values.get("text_pair") or ""]).splitlines()
        if lines := tuple(line for part in parts if (line := part.strip())):
            yield lines


# Characters. A block ends with the document that reaches this size. Shards end with a block, so
# this must depend on the input alone.
BLOCK_CHARACTERS = 2**19

# Documents whose hashes are stored, in 312 MB; later ones are compared with these only.
MAX_REMEMBERED = 4_000_000


def blocks_of(documents: Iterable[Document], counts: Counter[str]) -> Iterator[list[Document]]:
    """Yield documents in blocks, without those that equal an earlier one by 64 bits of BLAKE2b.

    Adds read_documents, read_lines, read_bytes (of UTF-8, with a newline per line) and
    duplicate_documents to `counts`, as far as they were read.
    """
    seen: set[bytes] = set()
    pending: list[Document] = []
    size = 0
    for document in documents:
        text = "\n".join(document).encode("utf-8", "surrogatepass")
        counts.update(read_documents=1, read_lines=len(document), read_bytes=len(text) + 1)
        digest = hashlib.blake2b(text, digest_size=8).digest()
        if digest in seen:
            counts["duplicate_documents"] += 1
        else:
            pending.append(document)
            if len(seen) < MAX_REMEMBERED:
                seen.add(digest)
        size += sum(map(len, document))
        if size >= BLOCK_CHARACTERS:
            yield pending
            pending, size = [], 0
    if size:
        yield pending


# Sentences of running text, by rules for many languages

# CJK marks, which end a sentence without a space after them: 。！？｡．
_WIDE = "\u3002\uff01\uff1f\uff61\uff0e"
# Marks before white space in other scripts: Arabic, Devanagari, Ethiopic, Khmer, and doubled ones.
_SPACED = "\u061f\u06d4\u0964\u0965\u1362\u17d4\u203c\u2047\u2048\u2049"
_ELLIPSES = "\u2026\u2025\u22ef"
_CLOSING = "\"'\u2019\u201d\u00bb\u203a)]}\u300d\u300f\uff09\u3011\u300b\u3009\u3015\uff63\uff3d"
_OPENING = "\"'\u2018\u201c\u201e\u00ab\u2039([{\u00bf\u00a1\u2014\u2013\u2012\u2015*_#>\u2022-"

# Where a sentence may end: marks, closing quotes and brackets (in French after a space; in German
# the quotes that open elsewhere), and footnote marks as in "end.[3]". The pattern begins with one
# class of characters, because the regular expression engine searches for that quickly.
_CANDIDATE = re.compile(
    rf"[.!?{_ELLIPSES}{_WIDE}{_SPACED}]+"
    rf"(?P<closing>(?:[{re.escape(_CLOSING)}]|[ \u00a0\u202f][\u00bb\u203a](?=\s|$)"
    r"|[\u201c\u2018\u00ab\u2039](?=\s|$))*(?:\[\d+\])*)"
)
# Kana, ideographs and their extensions; Korean puts spaces between its sentences.
_CJK_LETTER = re.compile(
    "[\u2e80-\u2fdf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
# Before these a CJK sentence continues.
_GOES_ON = re.compile("\\s*[\uff0c\u3001\uff1b\uff1a\u30fb,;:]")

_BEFORE_NEXT = re.compile(rf"[\s{re.escape(_OPENING)}]*")
_WORD = re.compile(r"[^\W_]+")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_ROMAN = re.compile(r"[IVXLC]+")
# Numbers of lists and chapters: "1.", "2.3.", "IV.", "(b."
_ENUMERATION = re.compile(
    rf"[\s{re.escape(_OPENING)}]*(?:\d{{1,3}}(?:\.\d{{1,3}})*|[IVXLCivxlc]{{1,6}}|[A-Za-z])"
)
_LONGEST_ENUMERATION = 16
_LONGEST_WORD = 48


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations, in lower case and without the full stop. A sentence never ends with these.
_NEVER = _words(
    """mr mrs ms messrs dr prof rev gen col capt lt sgt cpl cmdr adm gov sen mme mlle mgr fr hr hrn
    dhr mevr sra srta dra mt vs viz cf approx ca resp vgl bzw bspw z.b d.h u.a e.g i.e n.b"""
)
# It ends with these only if the next word is a common first word.
_UNSURE = _words(
    """st sr jr inc ltd co corp bros llc etc esq dept univ assn ave blvd rd usw usf al est min max
    fig figs eq eqs ref refs ed eds hon sig rep pres maj supt ft ud uds mm v"""
)
# It does not end with these before a number, in digits or Roman.
_COUNTED = _words(
    """no nos nr art sec ch chap vol vols pp par para pt bk ver op jan feb mar apr jun jul aug sep
    sept oct nov dec abs kap bd"""
)
_STARTERS = _words(
    """the a an this that these those there here it he she we they i you his her their our my its
    in on at by for from with without to of as if when while after before since although though
    because however but and or so yet nor then thus therefore meanwhile who what where why how which
    is are was were do does did has have had can could will would shall should may might must no not
    yes all both some many most several each every one two three another such suddenly perhaps
    der die das ein eine er sie es wir ich und aber le la les un une il elle on nous je el los las
    ella"""
)
_GERMAN_MONTHS = _words(
    """januar j\u00e4nner februar m\u00e4rz april mai juni juli august september oktober november
    dezember jahrhundert"""
)


def split_sentences(line: str) -> list[str]:
    """Return the sentences of a line of running text.

    White space between two sentences belongs to the second one, so joining them gives the line.
    """
    if not line:
        return []
    ends = list(_ends(line))
    return [line[begin:end] for begin, end in zip([0, *ends], [*ends, len(line)], strict=True)]


def _ends(line: str) -> Iterator[int]:
    """Yield the ends of all sentences but the last."""
    start = 0
    length = len(line.rstrip())
    for match in _CANDIDATE.finditer(line):
        begin, end = match.span()
        if end >= length:
            return
        marks = line[begin : match.start("closing")]
        if _is_wide(line, begin, marks, line[end]):
            is_end = not _GOES_ON.match(line, end)
        else:
            is_end = line[end].isspace() and _is_end(line, start, begin, marks, end)
        if is_end:
            yield end
            start = end


def _is_wide(line: str, begin: int, marks: str, behind: str) -> bool:
    """Return whether the marks end a sentence without white space after them, as in CJK text."""
    before = line[begin - 1] if begin else ""
    if any(mark in _WIDE for mark in marks):
        # "\uff13\uff0e\uff15" is a number.
        return not (marks == "\uff0e" and before.isdigit() and behind.isdigit())
    # CJK texts also use ASCII ? and ! and the ellipsis directly before the next letter.
    return marks[0] != "." and bool(before and _CJK_LETTER.match(before))


def _is_end(line: str, start: int, begin: int, marks: str, end: int) -> bool:
    """Return whether a sentence from `start` ends with the marks at `begin`, before a space."""
    at = _BEFORE_NEXT.match(line, end).end()  # type: ignore[union-attr]
    if at == len(line) or line[at].islower():
        return False
    match = _WORD.match(line, at)
    word = match[0] if match else line[at]
    following = word.lower()
    if len(marks) > 1 or marks in _ELLIPSES:
        is_ellipsis = all(mark in "." + _ELLIPSES for mark in marks)
        return not (is_ellipsis and following == "i")
    if marks != ".":
        return True
    if begin - start <= _LONGEST_ENUMERATION and _ENUMERATION.fullmatch(line, start, begin):
        return False
    words = line[max(start, begin - _LONGEST_WORD) : begin].rsplit(None, 2)
    ended = words[-1].lstrip(_OPENING) if words else ""
    key = ended.lower()
    is_initial = len(word) == 1 and line[at + 1 : at + 2] == "."
    is_starter = following in _STARTERS and not is_initial
    if key in _NEVER:
        return False
    if len(ended) == 1 and key != ended.upper():
        # "J. R. Smith", but "taller than I. He" and "vitamin C. The".
        is_plain = len(words) > 1 and words[-2].islower()
        return is_plain and (ended == "I" or is_starter)
    if key in _UNSURE or _DOTTED.fullmatch(ended):
        return is_starter
    if key in _COUNTED:
        is_roman = key != "no" and _ROMAN.fullmatch(word)
        return not (following[0].isdigit() or is_roman)
    return not (ended.isdigit() and len(ended) < 3 and following in _GERMAN_MONTHS)
