"""Blocks of documents to token ids, in worker processes, in order."""

from __future__ import annotations

import math
import os
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

from filbert.data.sentences import split_sentences
from filbert.data.shards import Shard, token_type
from filbert.errors import FilbertError, RunError
from filbert.text.surrogates import without_halves
from filbert.text.tokenizer import Tokenizer

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
