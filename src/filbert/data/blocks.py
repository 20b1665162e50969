"""Blocks of documents to token ids, in worker processes, in order."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from filbert.data.shards import Shard, token_type
from filbert.errors import FilbertError, RunError
from filbert.text.tokenizer import Tokenizer, without_halves

# Sentence boundaries

# CJK marks, which end a sentence wherever they stand: 。！？｡．
_WIDE = "\u3002\uff01\uff1f\uff61\uff0e"
# And those of other scripts, in front of white space: Arabic, Devanagari, Ethiopic, Khmer, doubled.
_SPACED = "\u061f\u06d4\u0964\u0965\u1362\u17d4\u203c\u2047\u2048\u2049"
_ELLIPSES = "\u2026\u2025\u22ef"
_CLOSING = "\"'\u2019\u201d\u00bb\u203a)]}\u300d\u300f\uff09\u3011\u300b\u3009\u3015\uff63\uff3d"
_OPENING = "\"'\u2018\u201c\u201e\u00ab\u2039([{\u00bf\u00a1\u2014\u2013\u2012\u2015*_#>\u2022-"

# Where a sentence may end: marks; what closes behind them, also with a space as in French, and the
# quotes that open elsewhere but close in German; footnote marks as in "end.[3]". It begins with one
# class of characters, which the regular expression engine finds quickly.
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
# Behind these a CJK sentence goes on all the same.
_GOES_ON = re.compile("\\s*[\uff0c\u3001\uff1b\uff1a\u30fb,;:]")

_BEFORE_NEXT = re.compile(rf"[\s{re.escape(_OPENING)}]*")
_WORD = re.compile(r"[^\W_]+")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_ROMAN = re.compile(r"[IVXLC]+")
# A list number or a chapter's: "1.", "2.3.", "IV.", "(b."
_ENUMERATION = re.compile(
    rf"[\s{re.escape(_OPENING)}]*(?:\d{{1,3}}(?:\.\d{{1,3}})*|[IVXLCivxlc]{{1,6}}|[A-Za-z])"
)
_LONGEST_ENUMERATION = 16
_LONGEST_WORD = 48


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# All lower-cased and without their full stop. A sentence never ends with these.
_NEVER = _words(
    """mr mrs ms messrs dr prof rev gen col capt lt sgt cpl cmdr adm gov sen mme mlle mgr fr hr hrn
    dhr mevr sra srta dra mt vs viz cf approx ca resp vgl bzw bspw z.b d.h u.a e.g i.e n.b"""
)
# It ends with these only when the next word is one that sentences begin with.
_UNSURE = _words(
    """st sr jr inc ltd co corp bros llc etc esq dept univ assn ave blvd rd usw usf al est min max
    fig figs eq eqs ref refs ed eds hon sig rep pres maj supt ft ud uds mm v"""
)
# It does not end with these in front of a number, in digits or Roman.
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
    """The sentences of a line of running text.

    White space between two sentences begins the second one, so that joining them gives back the
    line, character by character.
    """
    if not line:
        return []
    ends = list(_ends(line))
    return [line[begin:end] for begin, end in zip([0, *ends], [*ends, len(line)], strict=True)]


def _ends(line: str) -> Iterator[int]:
    """Where a sentence ends and another one follows."""
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
    """Whether marks end a sentence without white space behind them, as in CJK text."""
    before = line[begin - 1] if begin else ""
    if any(mark in _WIDE for mark in marks):
        # "\uff13\uff0e\uff15" is a number.
        return not (marks == "\uff0e" and before.isdigit() and behind.isdigit())
    # CJK texts use ? and ! from ASCII too, and the ellipsis, directly in front of the next letter.
    return marks[0] != "." and bool(before and _CJK_LETTER.match(before))


def _is_end(line: str, start: int, begin: int, marks: str, end: int) -> bool:
    """Whether a sentence from `start` ends with the marks at `begin`; white space is at `end`."""
    at = _BEFORE_NEXT.match(line, end).end()  # type: ignore[union-attr]
    if at == len(line) or line[at].islower():
        return False
    found = _WORD.match(line, at)
    word = found[0] if found else line[at]
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


# Workers

Block = Sequence[Sequence[str]]  # documents, each of lines

# Characters. The library holds about 150 bytes a token while it works, so it gets a block in
# portions, and a longer sentence in pieces that are cut at white space where there is any.
PORTION = 2**18
MAX_PIECE = 2**16

# Worker processes where nobody says how many: all cores, but for so many that memory stays under a
# gigabyte.
MOST_WORKERS = 4

_QUIET = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}

# Where a container finds its own control group.
_CGROUP = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Cores that this process may use: of those that it may run on, as many as a container's share
    of processor time fills; all of the machine where the system does not say.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    share = _quota()
    # Part of a core is one that a thread can use, now and then.
    return cores if share is None else max(1, min(cores, math.ceil(share)))


def _quota() -> float | None:
    """Seconds of processor time that a container gets each second; None for no limit.

    Source: the kernel's admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (version
    1, where -1 is no limit).
    """
    try:
        if (both := _CGROUP / "cpu.max").is_file():
            quota, period = both.read_text().split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = ((_CGROUP / "cpu" / name).read_text() for name in names)
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # "max", or no such files
        return None


def default_workers() -> int:
    """The cores that this process may use, at most MOST_WORKERS."""
    return min(available_cores(), MOST_WORKERS)


class Encoded(NamedTuple):
    """What became of a block.

    Attributes:
        shard: its tokens and marks.
        empty_documents: how many documents had no token.
        empty_sentences: how many sentences had none.
        unknown_tokens: how many tokens are the unknown one.
    """

    shard: Shard
    empty_documents: int
    empty_sentences: int
    unknown_tokens: int


class BlockEncoder:
    """Turns documents into token ids.

    Special tokens that are written out in a text ("[SEP]", "</s>") are ordinary text here: nobody
    meant them, and a model that learns from them would take the text's end for granted.

    Args:
        tokenizer: a folder.
        by_rules: cut lines into sentences; otherwise a line is a sentence.
    """

    def __init__(self, tokenizer: Path, by_rules: bool) -> None:
        loaded = Tokenizer.load(tokenizer)
        self._backend = loaded.backend
        self._backend.encode_special_tokens = True
        self._unknown = loaded.unk_id
        self._type = token_type(loaded.vocab_size)
        self._by_rules = by_rules

    def __call__(self, block: Block) -> Encoded:
        """Encode the documents of a block; those without a token are left out and counted."""
        sentences: list[str] = []
        sizes: list[int] = []
        for lines in block:
            before = len(sentences)
            for line in lines:
                if self._by_rules:
                    sentences += split_sentences(line)
                else:
                    sentences.append(line)
            sizes.append(len(sentences) - before)
        tokens, lengths = self._encode(sentences)
        starts = np.cumsum([0, *sizes])
        kept = lengths > 0
        counts = np.concatenate([[0], np.cumsum(kept)])[starts]  # sentences before each document
        full = np.diff(counts) > 0
        documents = np.concatenate([[0], counts[1:][full]]).astype(np.int32)
        borders = np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int32)
        unknown = 0 if self._unknown is None else int((tokens == self._unknown).sum())
        empty_sentences = int((~kept).sum())
        return Encoded(
            Shard(tokens, borders, documents), int((~full).sum()), empty_sentences, unknown
        )

    def _encode(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all sentences end to end, and how many each has."""
        found: list[np.ndarray] = [np.empty(0, self._type)]
        lengths = np.zeros(len(sentences), np.int64)
        for portion in _portions(sentences):
            encodings = self._run([piece for _, piece in portion])
            ids = [encoding.ids for encoding in encodings]
            found.append(np.fromiter(chain.from_iterable(ids), self._type))
            np.add.at(lengths, [index for index, _ in portion], [len(one) for one in ids])
        return np.concatenate(found), lengths

    def _run(self, texts: list[str]) -> list[Any]:
        try:
            return list(self._backend.encode_batch_fast(texts, add_special_tokens=False))
        except TypeError:
            clean = [without_halves(text) for text in texts]
            return list(self._backend.encode_batch_fast(clean, add_special_tokens=False))


def _portions(sentences: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Pieces of sentences with the sentence's index, PORTION characters at a time."""
    held: list[tuple[int, str]] = []
    size = 0
    for index, sentence in enumerate(sentences):
        for piece in _pieces(sentence):
            held.append((index, piece))
            size += len(piece)
            if size >= PORTION:
                yield held
                held, size = [], 0
    if held:
        yield held


def _pieces(sentence: str) -> Iterator[str]:
    begin = 0
    while len(sentence) - begin > MAX_PIECE:
        end = sentence.rfind(" ", begin + 1, begin + MAX_PIECE)
        end = begin + MAX_PIECE if end < 0 else end
        yield sentence[begin:end]
        begin = end
    yield sentence[begin:]


def encode_blocks(
    blocks: Iterable[Block], tokenizer: Path, *, by_rules: bool, workers: int
) -> Generator[Encoded, None, None]:
    """Encode blocks in `workers` processes, or in this one if it is a single worker.

    At most 2 * workers + 1 blocks are in memory. Results come in the order of the blocks, so they
    do not depend on the number of workers.

    Raises:
        RunError: a process was killed, for example for want of memory.
    """
    if workers == 1:
        with _single_threaded():
            yield from map(BlockEncoder(tokenizer, by_rules), blocks)
        return
    crew = _Crew(tokenizer, by_rules, workers)
    try:
        pending: deque[Future[Encoded]] = deque()
        for block in blocks:
            pending.append(crew.submit(block))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        crew.close()


@contextmanager
def _single_threaded() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update(_QUIET)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Crew:
    """Worker processes, each spoken to by a thread of its own.

    They are started anew rather than forked, since the library's threads do not survive a fork;
    and without the multiprocessing module, which would run the user's script in each of them. A
    worker has the only far end of its pipe, so it reads the end, and goes, when we are killed.
    """

    def __init__(self, tokenizer: Path, by_rules: bool, workers: int) -> None:
        self._work = (str(tokenizer), by_rules)
        self._threads = ThreadPoolExecutor(workers)
        self._own = threading.local()
        self._started: list[tuple[Connection, subprocess.Popen[bytes]]] = []

    def submit(self, block: Block) -> Future[Encoded]:
        """Encode a block as soon as a process is free."""
        return self._threads.submit(self._encode, block)

    def close(self) -> None:
        """End the processes at once; what they work on is lost."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for _, process in self._started:
            process.kill()
        self._threads.shutdown(wait=True)
        for pipe, process in self._started:
            process.kill()  # one may have been started just now
            process.wait()
            pipe.close()

    def _encode(self, block: Block) -> Encoded:
        if not hasattr(self._own, "pipe"):
            self._own.pipe = self._start()
        try:
            self._own.pipe.send(block)
            answer: Encoded | Exception = self._own.pipe.recv()
        except (EOFError, OSError) as error:
            raise RunError(
                "A worker process has ended; is there enough memory for so many? Run the same "
                "command again: it goes on where it stopped. Fewer --workers need less."
            ) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        code = f"import sys; sys.path[:] = {sys.path!r}; from filbert.data.blocks import serve; "
        process = subprocess.Popen(
            [sys.executable, "-c", code + f"serve({theirs.fileno()}, *{self._work!r})"],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=os.environ | _QUIET,
        )
        theirs.close()
        self._started.append((ours, process))
        return ours


def serve(descriptor: int, tokenizer: str, by_rules: bool) -> None:
    """A worker process: encode what comes through the pipe until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; we are told
    with Connection(descriptor) as pipe:
        try:
            encode = BlockEncoder(Path(tokenizer), by_rules)
            while True:
                block = pipe.recv()
                try:
                    pipe.send(encode(block))
                except FilbertError as error:
                    pipe.send(error)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return
