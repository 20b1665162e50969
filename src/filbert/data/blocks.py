"""Tokenises blocks of documents in worker processes, in order."""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from filbert.data.sentences import split_sentences
from filbert.data.shards import Shard, token_type
from filbert.errors import FilbertError, RunError
from filbert.text.tokenizer import Tokenizer, without_halves

Block = Sequence[Sequence[str]]  # documents, each of lines

# Limit of the default number of worker processes, to keep memory under a gigabyte.
MAX_DEFAULT_WORKERS = 4

# Each worker uses one thread.
_SINGLE_THREADED = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
_CGROUP = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Return the number of cores that this process may use, within a container's CPU quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota() -> float | None:
    """Return the CPU seconds per second of this container; None for no limit.

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
    """Return the number of available cores, at most MAX_DEFAULT_WORKERS."""
    return min(available_cores(), MAX_DEFAULT_WORKERS)


class EncodedBlock(NamedTuple):
    """The tokens of a block, and counts of what was left out.

    Attributes:
        shard: Tokens and marks.
        empty_documents: Number of documents without a token.
        empty_sentences: Number of sentences without a token.
        unknown_tokens: Number of unknown tokens.
    """

    shard: Shard
    empty_documents: int
    empty_sentences: int
    unknown_tokens: int


class BlockEncoder:
    """Turns documents into token ids.

    Special tokens that are written in a text ("[SEP]", "</s>") are encoded as ordinary text.

    Args:
        tokenizer: Folder of the tokenizer.
        by_rules: Whether lines are split into sentences; otherwise a line is a sentence.
    """

    def __init__(self, tokenizer: Path, by_rules: bool) -> None:
        loaded = Tokenizer.load(tokenizer)
        self._backend = loaded.backend
        self._backend.encode_special_tokens = True
        self._unknown = loaded.unk_id
        self._type = token_type(loaded.vocab_size)
        self._split = split_sentences if by_rules else lambda line: [line]

    def __call__(self, block: Block) -> EncodedBlock:
        """Encode the documents of a block; those without a token are left out and counted."""
        documents = [[s for line in lines for s in self._split(line)] for lines in block]
        sentences = list(chain.from_iterable(documents))
        ids = self._ids(sentences)
        lengths = np.array([len(one) for one in ids], dtype=np.int64)
        tokens = np.fromiter(chain.from_iterable(ids), self._type)
        kept = lengths > 0
        starts = np.cumsum([0, *(len(document) for document in documents)])
        # Number of kept sentences before each document.
        before = np.concatenate([[0], np.cumsum(kept)])[starts]
        full = np.diff(before) > 0
        shard = Shard(
            tokens,
            np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int32),
            np.concatenate([[0], before[1:][full]]).astype(np.int32),
        )
        unknown = 0 if self._unknown is None else int((tokens == self._unknown).sum())
        return EncodedBlock(shard, int((~full).sum()), int((~kept).sum()), unknown)

    def _ids(self, sentences: list[str]) -> list[list[int]]:
        try:
            found = self._backend.encode_batch_fast(sentences, add_special_tokens=False)
        except TypeError:  # a lone surrogate
            clean = [without_halves(sentence) for sentence in sentences]
            found = self._backend.encode_batch_fast(clean, add_special_tokens=False)
        return [encoding.ids for encoding in found]


def encode_blocks(
    blocks: Iterable[Block], tokenizer: Path, *, by_rules: bool, workers: int
) -> Generator[EncodedBlock, None, None]:
    """Encode blocks in `workers` processes, or in this one for a single worker.

    At most 2 * workers + 1 blocks are in memory. Results are in the order of the blocks.

    Raises:
        RunError: A process was killed, for example because memory ran out.
    """
    if workers == 1:
        with _single_threaded():
            yield from map(BlockEncoder(tokenizer, by_rules), blocks)
        return
    with closing(_Workers(tokenizer, by_rules, workers)) as processes:
        pending: deque[Future[EncodedBlock]] = deque()
        for block in blocks:
            pending.append(processes.submit(block))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


@contextmanager
def _single_threaded() -> Iterator[None]:
    before = {name: os.environ.pop(name, None) for name in _SINGLE_THREADED}
    os.environ.update(_SINGLE_THREADED)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


class _Workers:
    """Worker processes, each used by a thread of its own.

    A worker is a new interpreter: a fork would break the threads of the tokenizers library, and
    multiprocessing would run the user's script again. It ends with its standard input, so also if
    this process is killed.
    """

    def __init__(self, tokenizer: Path, by_rules: bool, workers: int) -> None:
        code = f"import sys; sys.path[:] = {sys.path!r}; from filbert.data.blocks import serve; "
        self._command = [sys.executable, "-c", f"{code}serve({str(tokenizer)!r}, {by_rules})"]
        self._threads = ThreadPoolExecutor(workers)
        self._own = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []

    def submit(self, block: Block) -> Future[EncodedBlock]:
        """Encode a block as soon as a process is free."""
        return self._threads.submit(self._encode, block)

    def close(self) -> None:
        """Kill the processes and wait for the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        self._threads.shutdown(wait=True)
        for process in self._processes:
            process.kill()  # one may have been started after the first round
            with suppress(OSError), process:  # closes the pipes, of which one may hold a block
                pass

    def _encode(self, block: Block) -> EncodedBlock:
        if not hasattr(self._own, "process"):
            self._own.process = self._start()
        process = self._own.process
        try:
            pickle.dump(block, process.stdin)
            process.stdin.flush()
            answer: EncodedBlock | Exception = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise RunError(
                "A worker process has ended, perhaps because memory ran out. Run the same command "
                "again: it continues where it stopped. Fewer --workers need less memory."
            ) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | _SINGLE_THREADED,
        )
        self._processes.append(process)
        return process


def serve(tokenizer: str, by_rules: bool) -> None:
    """Run a worker process: encode the blocks from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is sent to the main process too
    blocks, results = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):
        encode = BlockEncoder(Path(tokenizer), by_rules)
        while True:
            block = pickle.load(blocks)
            try:
                answer: EncodedBlock | FilbertError = encode(block)
            except FilbertError as error:
                answer = error
            pickle.dump(answer, results)
            results.flush()
