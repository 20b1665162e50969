"""Builds a corpus of token shards from text files, in a way that continues after a kill."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from filbert.data.blocks import EncodedBlock, encode_blocks
from filbert.data.documents import MAX_DOCUMENT, Blocks, read_documents
from filbert.data.records import file_digest
from filbert.data.shards import (
    FORMAT_VERSION,
    MANIFEST,
    PROGRESS,
    TOKENIZER,
    CorpusOptions,
    join_pieces,
    read_manifest,
    verify_shard,
    write_shard,
)
from filbert.errors import ConfigError, FormatError, InputError, Interrupted
from filbert.files import flush, read_json, write_json
from filbert.text.tokenizer import Tokenizer

# The name of a shard while it is written.
_UNFINISHED = ".shard.tmp"
# Tokens per shard; it ends with the block of text that reaches this number.
SHARD_TOKENS = 2**24
_OUR_FILES = ("shard-", _UNFINISHED, f".{PROGRESS}", f".{MANIFEST}", TOKENIZER, MANIFEST)
# Entries of a manifest that decide its bytes, as they are named in messages.
_DECISIVE = {
    "made_by": "versions of filbert or tokenizers",
    "tokenizer": "tokenizer",
    "inputs": "input files",
    "options": "options",
}


class BuildProgress(NamedTuple):
    """Bytes and documents read, tokens written, and seconds since the beginning."""

    num_bytes: int
    num_documents: int
    num_tokens: int
    seconds: float


class Built(NamedTuple):
    """The result of a build.

    Attributes:
        manifest: Content of manifest.json.
        num_bytes: Bytes of text that were tokenised; after a kill less than all of it.
        seconds: Time of the build, reading included.
        workers: Number of worker processes.
        kept_shards: Number of shards that were finished before.
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
    workers: int = 1,
    overwrite: bool = False,
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> Built:
    """Tokenise files into the folder `out`; `shards` describes the format.

    The bytes depend on the files, the tokenizer and `options` only. The same call after a kill
    continues after the last finished shard; for a complete corpus it does nothing.

    Args:
        paths: As in `read_documents`, without standard input.
        tokenizer: Used in `workers` processes of one thread each.
        out: Created; may hold an unfinished corpus of the same files and options.
        options: Defaults if None.
        workers: Processes that tokenise; 1 is this process.
        overwrite: Delete another or a damaged corpus in `out`.
        on_progress: Called after each block.

    Raises:
        InputError: A file cannot be read or has no text.
        ConfigError: `out` holds something else, or another process writes to it.
        FormatError: A finished shard in `out` has changed.
        RunError: A worker was killed.
        Interrupted: Ctrl-C.
    """
    options = options or CorpusOptions()
    if workers < 1:
        raise ConfigError(f"--workers {workers}; give 1 or more.")
    begin = time.perf_counter()
    plan = _plan(paths, tokenizer, options)
    with locked(Path(out)) as folder, _removed_if_nothing_is_built(folder):
        done = _resume(folder, plan, overwrite)
        kept, num_bytes = len(done["shards"]), 0
        if "counts" not in done:
            tokenizer.save(folder / TOKENIZER)
            blocks = Blocks(read_documents(paths, text_column=options.text_column))

            def report(num_tokens: int) -> None:
                if on_progress:
                    counts = (blocks.num_bytes, blocks.num_documents, num_tokens)
                    on_progress(BuildProgress(*counts, time.perf_counter() - begin))

            before, rest = _write_shards(folder, done, blocks, options, workers, report)
            num_bytes = blocks.num_bytes - before
            done = _finish(folder, done, blocks, rest)
    return Built(done, num_bytes, time.perf_counter() - begin, workers, kept)


def _plan(
    paths: Sequence[str | Path], tokenizer: Tokenizer, options: CorpusOptions
) -> dict[str, Any]:
    """Return everything that decides the bytes of the corpus."""
    if not paths:
        raise ConfigError("No files to read. Name at least one.")
    if any(str(path) == "-" for path in paths):
        raise ConfigError(
            "A corpus cannot be built from standard input, which cannot be read again after a "
            "kill. Save it to a file; .gz, .xz and .zst files are read as they are."
        )
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


# The folder


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Create the folder if needed and lock it for this process; a kill releases the lock.

    Raises:
        InputError: It cannot be created.
        ConfigError: Another process holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error.strerror}. Name another place."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder}: another filbert is writing there. Wait for it.") from None
        yield folder
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
            error.filename = str(folder)  # an error while writing to an open file names none
        raise
    finally:
        os.close(descriptor)


@contextmanager
def _removed_if_nothing_is_built(folder: Path) -> Iterator[None]:
    """Remove a new folder if bad input ends the build before its first shard."""
    is_new = not any(folder.iterdir())
    try:
        yield
    except (InputError, ConfigError):
        if is_new and not any(folder.glob("shard-*")):
            shutil.rmtree(folder)
        raise


def _resume(folder: Path, plan: dict[str, Any], overwrite: bool) -> dict[str, Any]:
    """Return the manifest of the finished corpus, or the plan with its finished shards.

    Deletes what a kill left behind, and another corpus if it may be overwritten.

    Raises:
        ConfigError: The folder holds other files, or another corpus.
        FormatError: A finished shard has changed.
    """
    is_complete = (folder / MANIFEST).is_file()
    shards: list[dict[str, Any]] = []
    if is_complete or (folder / PROGRESS).is_file():
        try:
            found = read_manifest(folder) if is_complete else _read_progress(folder / PROGRESS)
            other = _differences(found, plan)
            if other and found["shards"] and not overwrite:
                state = "a corpus" if is_complete else "an unfinished corpus"
                raise ConfigError(
                    f"{folder} holds {state} with other {', '.join(other)}. "
                    "Name another folder, or give --overwrite to delete it."
                )
            if not other:
                for shard in found["shards"]:
                    verify_shard(folder, shard)
                if is_complete:
                    (folder / PROGRESS).unlink(missing_ok=True)
                    return found
                shards = found["shards"]
        except FormatError as error:
            if not overwrite:
                raise FormatError(f"{error} To start again, give --overwrite.") from error
    elif any(path.name != f".{PROGRESS}.tmp" for path in folder.iterdir()):
        raise ConfigError(f"{folder} holds other files and no corpus. Name another folder.")
    done = plan | {"shards": shards}
    # Written first, so that a kill from here on leaves a folder that is known to be a corpus.
    write_json(folder / PROGRESS, done)
    kept = {shard["name"] for shard in shards}
    for path in folder.iterdir():
        if path.name.startswith(_OUR_FILES) and path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return done


def _read_progress(path: Path) -> dict[str, Any]:
    progress = read_json(path)
    try:
        _total(progress["shards"], "blocks")
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path} is damaged.") from error
    return progress


def _differences(found: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    """Return what differs between a corpus and a plan, as words for a message."""
    other = []
    for key, words in _DECISIVE.items():
        ours, theirs = plan[key], found.get(key)
        if key == "inputs" and isinstance(theirs, list):
            ours, theirs = ([one["sha256"] for one in side] for side in (ours, theirs))
        if key == "options" and isinstance(theirs, dict):
            names = [name for name in ours if ours[name] != theirs.get(name)]
            other += [f"--{name.replace('_', '-')}" for name in names]
        elif ours != theirs:
            other.append(words)
    return other


# Shards and manifest


def _write_shards(
    folder: Path,
    done: dict[str, Any],
    blocks: Blocks,
    options: CorpusOptions,
    workers: int,
    report: Callable[[int], None],
) -> tuple[int, list[EncodedBlock]]:
    """Encode the blocks behind the last finished shard, and write full shards.

    Returns:
        The bytes of text in finished shards, and the last blocks if they have no token.
    """
    num_tokens = _total(done["shards"], "tokens")
    pending: list[EncodedBlock] = []
    pending_tokens = 0
    source = iter(blocks)
    try:
        # The text is read from its beginning.
        for _ in islice(source, _total(done["shards"], "blocks")):
            pass
        before = blocks.num_bytes
        by_rules = options.sentences == "rules"
        results = encode_blocks(source, folder / TOKENIZER, by_rules=by_rules, workers=workers)
        with closing(results):
            for encoded in results:
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
        finished = len(done["shards"])
        raise Interrupted(
            f"interrupted: {finished} {'shard is' if finished == 1 else 'shards are'} finished "
            f"in {folder}. The same command continues from there."
        ) from None
    return before, pending


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
    folder: Path,
    done: dict[str, Any],
    blocks: Blocks,
    rest: Sequence[EncodedBlock],
) -> dict[str, Any]:
    """Write and return the manifest, which makes the corpus complete."""
    shards = done["shards"]
    if not shards:
        raise InputError("No text in the input becomes a token with this tokenizer.")
    everything = [*shards, *(encoded._asdict() for encoded in rest)]
    counts = {
        "documents": _total(shards, "documents"),
        "sentences": _total(shards, "sentences"),
        "tokens": _total(shards, "tokens"),
        "unknown_tokens": _total(shards, "unknown_tokens"),
        "read_documents": blocks.num_documents,
        "read_lines": blocks.num_lines,
        "read_bytes": blocks.num_bytes,
        "duplicate_documents": blocks.num_duplicates,
        "documents_without_tokens": _total(everything, "empty_documents"),
        "sentences_without_tokens": _total(everything, "empty_sentences"),
        "cuts_in_long_documents": blocks.num_cuts,
        "characters_where_cut": MAX_DOCUMENT,
    }
    manifest = {key: value for key, value in done.items() if key != "shards"}
    manifest |= {"counts": counts, "shards": shards}
    write_json(folder / MANIFEST, manifest)
    (folder / PROGRESS).unlink()
    flush(folder)
    return manifest


def _total(entries: Sequence[dict[str, Any]], key: str) -> int:
    return sum(entry[key] for entry in entries)
