"""Builds a corpus of token shards from text files, in a way that continues after a kill."""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from filbert.data.documents import Document, blocks_of, read_documents, split_sentences
from filbert.data.records import file_digest
from filbert.data.shards import (
    FORMAT_VERSION,
    MANIFEST,
    PROGRESS,
    TOKENIZER,
    CorpusOptions,
    Shard,
    join_pieces,
    read_manifest,
    token_type,
    verify_shard,
    write_shard,
)
from filbert.errors import ConfigError, FormatError, InputError, Interrupted
from filbert.files import available_cores, flush, locked, read_json, write_json
from filbert.text.tokenizer import Tokenizer, tokenised

# The name of a shard while it is written.
_UNFINISHED = ".shard.tmp"
# Tokens per shard; it ends with the block of text that reaches this number.
SHARD_TOKENS = 2**24
_OUR_FILES = ("shard-", _UNFINISHED, f".{PROGRESS}", f".{MANIFEST}", TOKENIZER, MANIFEST)
# What `blocks_of` counts.
_READ = ("read_documents", "read_lines", "read_bytes", "duplicate_documents")
# Limit of the default number of threads; the work in Python, a quarter of all, is done by one.
_MOST_WORKERS = 4


class Built(NamedTuple):
    """The result of a build: manifest.json, and what this call did.

    After a kill `num_bytes`, of the text that was tokenised, are less than all of it; `kept_shards`
    were finished before. `seconds` include reading.
    """

    manifest: dict[str, Any]
    num_bytes: int
    seconds: float
    workers: int
    kept_shards: int


def build_corpus(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    options: CorpusOptions | None = None,
    workers: int | None = 1,
    overwrite: bool = False,
    on_progress: Callable[[int, int, float], None] = lambda *_: None,
) -> Built:
    """Tokenise files into the folder `out`; `shards` describes the format.

    The bytes depend on the files, the tokenizer and `options` only. The same call after a kill
    continues after the last finished shard; for a complete corpus it does nothing.

    Args:
        paths: As in `read_documents`, without standard input.
        tokenizer: The vocabulary; a copy is written into the corpus.
        out: Created; may hold an unfinished corpus of the same files and options.
        workers: Threads that tokenise; None: one per core, at most 4.
        overwrite: Delete another or a damaged corpus in `out`.
        on_progress: Called after each block with the bytes read, the tokens written, and the
            seconds since the beginning.

    Raises:
        InputError: A file cannot be read or has no text.
        ConfigError: `out` holds something else, or another process writes to it.
        FormatError: A finished shard in `out` has changed.
        Interrupted: Ctrl-C.
    """
    options = options or CorpusOptions()
    workers = min(available_cores(), _MOST_WORKERS) if workers is None else workers
    if workers < 1:
        raise ConfigError(f"--workers {workers}; give 1 or more.")
    begin = time.perf_counter()
    plan, folder = _plan(paths, tokenizer, options), Path(out)
    with locked(folder):
        done = _resume(folder, plan, overwrite)
        kept, num_bytes = len(done["shards"]), 0
        if "counts" not in done:
            tokenizer.save(folder / TOKENIZER)
            counts = Counter(dict.fromkeys(_READ, 0))
            columns = (options.text_column, options.text_pair_column)
            documents = read_documents(paths, text_column=columns[0], pair_column=columns[1])
            blocks = blocks_of(documents, counts)
            # After a kill the text is read from its beginning.
            for _ in islice(blocks, _total(done["shards"], "blocks")):
                pass
            num_bytes = -counts["read_bytes"]

            def report(num_tokens: int) -> None:
                on_progress(counts["read_bytes"], num_tokens, time.perf_counter() - begin)

            by_rules = options.sentences == "rules"
            encoded = encode_blocks(blocks, folder / TOKENIZER, by_rules=by_rules, workers=workers)
            rest = _write_shards(folder, done, encoded, report)
            num_bytes += counts["read_bytes"]
            done = _finish(folder, done, counts, rest)
    return Built(done, num_bytes, time.perf_counter() - begin, workers, kept)


def _plan(
    paths: Sequence[str | Path], tokenizer: Tokenizer, options: CorpusOptions
) -> dict[str, Any]:
    """Return everything that decides the bytes of the corpus."""
    return {
        "format": "filbert corpus",
        "version": FORMAT_VERSION,
        "made_by": {"filbert": version("filbert"), "tokenizers": version("tokenizers")},
        "tokenizer": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "options": asdict(options),
        "inputs": [
            {"path": str(path), "sha256": file_digest(path), "bytes": Path(path).stat().st_size}
            for path in paths
        ],
    }


def _resume(folder: Path, plan: dict[str, Any], overwrite: bool) -> dict[str, Any]:
    """Return the manifest of the finished corpus, or the plan with its finished shards.

    Deletes what a kill left behind, and another corpus if it may be overwritten.
    """
    is_complete = (folder / MANIFEST).is_file()
    shards: list[dict[str, Any]] = []
    if is_complete or (folder / PROGRESS).is_file():
        try:
            old = read_manifest(folder) if is_complete else read_json(folder / PROGRESS)
            other = _differences(old, plan)
            if other and old["shards"] and not overwrite:
                raise ConfigError(
                    f"{folder} holds a corpus with other {', '.join(other)}. Name another folder, "
                    "or give --overwrite to delete it."
                )
            if not other:
                for shard in old["shards"]:
                    verify_shard(folder, shard)
                if is_complete:
                    (folder / PROGRESS).unlink(missing_ok=True)
                    return old
                shards = old["shards"]
        except (FormatError, KeyError, TypeError) as error:
            if not overwrite:
                problem = error if isinstance(error, FormatError) else f"{folder} is damaged."
                raise FormatError(f"{problem} To start again, give --overwrite.") from error
    elif not all(path.name.startswith(f".{PROGRESS}.") for path in folder.iterdir()):
        raise ConfigError(f"{folder} holds other files and no corpus. Name another folder.")
    done = plan | {"shards": shards}
    # Written first, so that a kill from here on leaves a folder that is known to be a corpus.
    write_json(folder / PROGRESS, done)
    kept = {shard["name"] for shard in shards}
    for path in folder.iterdir():
        if path.name.startswith(_OUR_FILES) and path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return done


def _differences(old: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    """Return what differs between a corpus and a plan, as words for a message."""
    ours, theirs = plan["options"], old["options"]
    other = [f"--{key.replace('_', '-')}" for key in ours if ours[key] != theirs.get(key)]
    if [one["sha256"] for one in plan["inputs"]] != [one["sha256"] for one in old["inputs"]]:
        other.append("input files")
    words = {"made_by": "versions of filbert or tokenizers", "tokenizer": "tokenizer"}
    return other + [text for key, text in words.items() if plan[key] != old[key]]


# Shards and manifest


def _write_shards(
    folder: Path,
    done: dict[str, Any],
    blocks: Generator[EncodedBlock, None, None],
    report: Callable[[int], None],
) -> list[EncodedBlock]:
    """Write full shards; return the last blocks if they have no token."""
    num_tokens = _total(done["shards"], "tokens")
    pending: list[EncodedBlock] = []
    pending_tokens = 0
    try:
        with closing(blocks):
            for encoded in blocks:
                pending.append(encoded)
                pending_tokens += len(encoded.shard.tokens)
                num_tokens += len(encoded.shard.tokens)
                if pending_tokens >= SHARD_TOKENS:
                    _write_shard(folder, done, pending)
                    pending, pending_tokens = [], 0
                report(num_tokens)
        if pending_tokens:
            _write_shard(folder, done, pending)
            pending = []
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: {len(done['shards'])} shards are finished in {folder}. The same command "
            "continues from there."
        ) from None
    return pending


def _write_shard(folder: Path, done: dict[str, Any], pending: Sequence[EncodedBlock]) -> None:
    temporary = folder / _UNFINISHED
    entry = write_shard(temporary, join_pieces([encoded.shard for encoded in pending]))
    entry["name"] = f"shard-{len(done['shards']):05}"
    entry["blocks"] = len(pending)
    for key in ("empty_documents", "empty_sentences", "unknown_tokens"):
        entry[key] = sum(getattr(encoded, key) for encoded in pending)
    temporary.rename(folder / entry["name"])
    flush(folder)
    done["shards"].append(entry)
    write_json(folder / PROGRESS, done)


def _finish(
    folder: Path, done: dict[str, Any], read: Counter[str], rest: Sequence[EncodedBlock]
) -> dict[str, Any]:
    """Write and return the manifest, which makes the corpus complete."""
    shards = done["shards"]
    if not shards:
        raise InputError("No text in the input becomes a token with this tokenizer.")
    everything = [*shards, *(encoded._asdict() for encoded in rest)]
    sums = ("documents", "sentences", "tokens", "unknown_tokens")
    counts = {key: _total(shards, key) for key in sums} | {
        **read,
        "documents_without_tokens": _total(everything, "empty_documents"),
        "sentences_without_tokens": _total(everything, "empty_sentences"),
    }
    manifest = {key: value for key, value in done.items() if key != "shards"}
    manifest |= {"counts": counts, "shards": shards}
    write_json(folder / MANIFEST, manifest)
    (folder / PROGRESS).unlink()
    flush(folder)
    return manifest


def _total(entries: Sequence[dict[str, Any]], key: str) -> int:
    return sum(entry[key] for entry in entries)


# Blocks of documents as tokens


class EncodedBlock(NamedTuple):
    """The tokens of a block, and counts of unknown tokens and of what has no token."""

    shard: Shard
    empty_documents: int
    empty_sentences: int
    unknown_tokens: int


def _encode_block(tokenizer: Tokenizer, by_rules: bool, block: list[Document]) -> EncodedBlock:
    """Turn documents into token ids; those without a token are left out and counted."""
    if by_rules:
        documents = [[s for line in lines for s in split_sentences(line)] for lines in block]
    else:
        documents = [list(lines) for lines in block]
    sentences = list(chain.from_iterable(documents))
    ids = [encoding.ids for encoding in tokenised(tokenizer.backend, sentences)]
    lengths = np.array([len(one) for one in ids], dtype=np.int64)
    tokens = np.fromiter(chain.from_iterable(ids), token_type(tokenizer.vocab_size))
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
    unknown = tokenizer.unk_id
    num_unknown = 0 if unknown is None else int((tokens == unknown).sum())
    return EncodedBlock(shard, int((~full).sum()), int((~kept).sum()), num_unknown)


def encode_blocks(
    blocks: Iterable[list[Document]], tokenizer: Path, *, by_rules: bool, workers: int
) -> Generator[EncodedBlock, None, None]:
    """Encode blocks in `workers` threads, in order.

    The tokenizers library, which takes three quarters of the time, runs without Python's lock.
    Special tokens that are written in a text ("[SEP]", "</s>") are encoded as ordinary text.

    `tokenizer` is a folder. Lines are split into sentences if `by_rules`; otherwise, and of symbols
    always, a line is a sentence.
    """
    loaded = Tokenizer.load(tokenizer)
    loaded.backend.encode_special_tokens = True
    encode = partial(_encode_block, loaded, by_rules and loaded.kind != "symbols")
    pending: deque[Future[EncodedBlock]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for block in blocks:
            pending.append(pool.submit(encode, block))
            if len(pending) > workers:
                yield pending.popleft().result()
        for encoded in pending:
            yield encoded.result()
