"""Text files into a corpus of token shards: any number of workers, stopped and gone on at will."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from filbert.data.blocks import Encoded, encode_blocks
from filbert.data.documents import MAX_DOCUMENT, CleanBlocks, read_documents
from filbert.data.records import file_digest
from filbert.data.shards import (
    FORMAT_VERSION,
    MANIFEST,
    PROGRESS,
    TOKENIZER,
    join_pieces,
    read_manifest,
    verify_shard,
    write_shard,
)
from filbert.data.streams import OnError
from filbert.errors import ConfigError, FormatError, InputError, Interrupted
from filbert.files import flush, write_json
from filbert.text.tokenizer import Tokenizer

# Unfinished corpora

# Where a shard is written before it gets its name.
UNFINISHED = ".shard.tmp"

_OURS = ("shard-", UNFINISHED, f".{PROGRESS}", f".{MANIFEST}", TOKENIZER, MANIFEST)


def look_into(folder: Path, plan: dict[str, Any], overwrite: bool) -> dict[str, Any]:
    """What of a plan is done: the manifest, or the plan with its finished shards.

    Another corpus, if it may be overwritten, and what a kill left behind are gone afterwards.

    Raises:
        ConfigError: the folder holds other files, or another corpus and not `overwrite`.
        FormatError: a finished shard has changed, and not `overwrite`.
    """
    is_complete = (folder / MANIFEST).is_file()
    if not is_complete and not (folder / PROGRESS).is_file():
        if any(path.name != f".{PROGRESS}.tmp" for path in folder.iterdir()):
            raise ConfigError(f"{folder} holds other files and no corpus. Name another folder.")
        found: dict[str, Any] = {"shards": []}
    else:
        found = _find(folder, plan, is_complete, overwrite)
        if "counts" in found:
            (folder / PROGRESS).unlink(missing_ok=True)
            return found
    done = plan | {"shards": found["shards"]}
    # First, so that a kill from here on leaves a folder that is known to be a corpus.
    write_json(folder / PROGRESS, done)
    kept = {shard["name"] for shard in done["shards"]}
    for path in folder.iterdir():
        if path.name.startswith(_OURS) and path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return done


def _find(folder: Path, plan: dict[str, Any], is_complete: bool, overwrite: bool) -> dict[str, Any]:
    nothing: dict[str, Any] = {"shards": []}
    try:
        found = read_manifest(folder) if is_complete else _read_progress(folder / PROGRESS)
        other = _differences(found, plan)
        if other and found["shards"] and not overwrite:
            state = "a corpus" if is_complete else "an unfinished corpus"
            raise ConfigError(
                f"{folder} holds {state} with other {', '.join(other)}. "
                "Name another folder, or give --overwrite to delete it."
            )
        if other:
            return nothing
        for shard in found["shards"]:
            verify_shard(folder, shard)
        return found
    except FormatError as error:
        if overwrite:
            return nothing
        raise FormatError(f"{error} To begin anew, give --overwrite.") from error


def _read_progress(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sum(shard["blocks"] for shard in found["shards"])
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} is damaged.") from error


def _differences(found: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    """What differs between a corpus and a plan, in words."""
    words = {
        "made_by": "versions of filbert or tokenizers",
        "tokenizer": "tokenizer",
        "inputs": "input files",
        "options": "options",
    }
    other = []
    for key, word in words.items():
        ours, theirs = plan[key], found.get(key)
        if key == "inputs" and isinstance(theirs, list):
            ours, theirs = ([one["sha256"] for one in side] for side in (ours, theirs))
        if key == "options" and isinstance(theirs, dict):
            names = [name.replace("_", "-") for name in ours if ours[name] != theirs.get(name)]
            other += [f"--{name}" for name in names]
        elif ours != theirs:
            other.append(word)
    return other


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """The folder, made if missing, for us alone; a killed process holds it no longer.

    Raises:
        InputError: it cannot be made.
        ConfigError: another process holds it.
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
            error.filename = str(folder)  # writing to an open file names none
        raise
    finally:
        os.close(descriptor)


# Building

SENTENCES = ("rules", "lines")

# Marks are int32, and a shard can exceed its size by one block.
MAX_SHARD_TOKENS = 2**30


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """What decides which bytes come out.

    Attributes:
        sentences: "rules" cuts lines into sentences, "lines" takes each line for one.
        drop_duplicate_lines: drop each line that was there before, not only documents.
        text_column: which column of a JSONL, Parquet, CSV or TSV file holds the text.
        shard_tokens: a shard ends with the block of text that reaches this many tokens.
        skip_bad_lines: leave out lines and rows that cannot be read, and count them.
    """

    sentences: str = "rules"
    drop_duplicate_lines: bool = False
    text_column: str = "text"
    shard_tokens: int = 2**24
    skip_bad_lines: bool = False

    def __post_init__(self) -> None:
        if self.sentences not in SENTENCES:
            raise ConfigError(f"--sentences {self.sentences} is not one of rules, lines.")
        if not 1 <= self.shard_tokens <= MAX_SHARD_TOKENS:
            raise ConfigError(
                f"--shard-tokens {self.shard_tokens}; give 1 to {MAX_SHARD_TOKENS:,} tokens."
            )


class Progress(NamedTuple):
    """How far it is: bytes read, documents read, tokens written, seconds since the beginning."""

    num_bytes: int
    num_documents: int
    num_tokens: int
    seconds: float


class Built(NamedTuple):
    """What a build came to.

    Attributes:
        manifest: the content of manifest.json.
        num_bytes: text that was tokenised this time; less than all of it after a kill.
        seconds: that this took, reading included.
        workers: that did it.
        kept_shards: shards that were there before.
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
    on_progress: Callable[[Progress], None] | None = None,
    on_bad: OnError | None = None,
) -> Built:
    """Tokenise files into the folder `out`; see `shards` for what lies there.

    The bytes written depend on the files, the tokenizer and `options` only. The same call after a
    kill goes on behind the last finished shard; where the corpus is complete, it does nothing.

    Args:
        paths: as in `read_documents`, but for standard input.
        tokenizer: at work in `workers` processes, each with one thread.
        out: is made; may hold an unfinished corpus of the same files and options.
        options: defaults if None.
        workers: processes that tokenise; 1: this one.
        overwrite: delete another or a damaged corpus that is in `out`.
        on_progress: called after each block.
        on_bad: is given each line that is skipped (`skip_bad_lines`).

    Raises:
        InputError: a file that cannot be read, or nothing in it.
        ConfigError: `out` holds something else, or is being written to by somebody else.
        FormatError: a finished shard in `out` has changed.
        RunError: a worker was killed.
        Interrupted: Ctrl-C.
    """
    options = options or CorpusOptions()
    if workers < 1:
        raise ConfigError(f"--workers {workers}; give 1 or more.")
    begin = time.perf_counter()
    plan = _plan(paths, tokenizer, options)
    with locked(Path(out)) as folder, _made_for_nothing(folder):
        done = look_into(folder, plan, overwrite)
        if "counts" in done:
            return Built(done, 0, time.perf_counter() - begin, workers, len(done["shards"]))
        kept = len(done["shards"])
        tokenizer.save(folder / TOKENIZER)
        job = _Job(folder, done, paths, options, on_bad)
        try:
            job.run(workers, lambda *facts: on_progress and on_progress(Progress(*facts)), begin)
        except KeyboardInterrupt:
            finished = len(done["shards"])
            raise Interrupted(
                f"interrupted: {finished} {'shard is' if finished == 1 else 'shards are'} finished "
                f"in {folder}. The same command goes on from there."
            ) from None
        manifest = job.finish()
    return Built(manifest, job.num_bytes, time.perf_counter() - begin, workers, kept)


@contextmanager
def _made_for_nothing(folder: Path) -> Iterator[None]:
    """Empty the folder again where bad input ends a build before its first shard."""
    if any(folder.iterdir()):
        yield
        return
    try:
        yield
    except (InputError, ConfigError):
        if not any(folder.glob("shard-*")):
            shutil.rmtree(folder)
        raise


class _Job:
    """A build under way: blocks out of the files, shards into the folder."""

    def __init__(
        self,
        folder: Path,
        done: dict[str, Any],
        paths: Sequence[str | Path],
        options: CorpusOptions,
        on_bad: OnError | None,
    ) -> None:
        self.num_bytes = 0
        self._folder = folder
        self._done = done
        self._options = options
        self._on_bad = on_bad
        self._num_bad = 0
        documents = read_documents(
            paths,
            text_column=options.text_column,
            on_error=self._skip if options.skip_bad_lines else None,
        )
        self._blocks = CleanBlocks(documents, drop_lines=options.drop_duplicate_lines)
        self._held: list[Encoded] = []

    def run(self, workers: int, report: Callable[..., object], begin: float) -> None:
        """Encode all blocks that are not in a finished shard, and write them."""
        by_rules = self._options.sentences == "rules"
        num_tokens = sum(shard["tokens"] for shard in self._done["shards"])
        held_tokens = 0
        with closing(
            encode_blocks(
                self._rest(), self._folder / TOKENIZER, by_rules=by_rules, workers=workers
            )
        ) as results:
            for encoded in results:
                self._held.append(encoded)
                held_tokens += len(encoded.shard.tokens)
                num_tokens += len(encoded.shard.tokens)
                if held_tokens >= self._options.shard_tokens:
                    self._close_shard()
                    held_tokens = 0
                report(
                    self._blocks.num_bytes,
                    self._blocks.num_documents,
                    num_tokens,
                    time.perf_counter() - begin,
                )
        if held_tokens:
            self._close_shard()

    def finish(self) -> dict[str, Any]:
        """Write the manifest, which makes the corpus complete."""
        shards = self._done["shards"]
        if not shards:
            raise InputError("No text in the input becomes a token with this tokenizer.")
        blocks = self._blocks
        # Results of blocks behind the last shard, all without a token, are in no shard's entry.
        rest = [encoded._asdict() for encoded in self._held]
        counts = {
            "documents": _total(shards, "documents"),
            "sentences": _total(shards, "sentences"),
            "tokens": _total(shards, "tokens"),
            "unknown_tokens": _total(shards, "unknown_tokens"),
            "read_documents": blocks.num_documents,
            "read_lines": blocks.num_lines,
            "read_bytes": blocks.num_bytes,
            "duplicate_documents": blocks.duplicate_documents,
            "duplicate_lines": blocks.duplicate_lines,
            "documents_of_duplicate_lines": blocks.emptied_documents,
            "documents_without_tokens": _total([*shards, *rest], "empty_documents"),
            "sentences_without_tokens": _total([*shards, *rest], "empty_sentences"),
            "cuts_in_long_documents": blocks.num_cuts,
            "characters_where_cut": MAX_DOCUMENT,
            "texts_not_remembered": blocks.seen.num_forgotten,
            "bad_lines": self._num_bad,
        }
        manifest = {key: value for key, value in self._done.items() if key != "shards"}
        manifest |= {"counts": counts, "shards": shards}
        write_json(self._folder / MANIFEST, manifest)
        (self._folder / PROGRESS).unlink()
        flush(self._folder)
        return manifest

    def _rest(self) -> Iterator[Sequence[Sequence[str]]]:
        """The blocks behind the last finished shard.

        The files are read from their beginning: that is cheap beside tokenising, and brings back
        what was seen before without it being kept anywhere.
        """
        finished = _total(self._done["shards"], "blocks")
        before = 0
        for number, block in enumerate(self._blocks):
            if number >= finished:
                self.num_bytes = self._blocks.num_bytes - before
                yield block
            else:
                before = self._blocks.num_bytes

    def _close_shard(self) -> None:
        shards = self._done["shards"]
        temporary = self._folder / UNFINISHED
        entry = write_shard(temporary, join_pieces([encoded.shard for encoded in self._held]))
        entry["name"] = f"shard-{len(shards):05}"
        entry["blocks"] = len(self._held)
        for key in ("empty_documents", "empty_sentences", "unknown_tokens"):
            entry[key] = sum(getattr(encoded, key) for encoded in self._held)
        self._held = []
        temporary.rename(self._folder / entry["name"])
        flush(self._folder)
        shards.append(entry)
        write_json(self._folder / PROGRESS, self._done)

    def _skip(self, error: InputError) -> None:
        self._num_bad += 1
        if self._on_bad:
            self._on_bad(error)


def _plan(
    paths: Sequence[str | Path], tokenizer: Tokenizer, options: CorpusOptions
) -> dict[str, Any]:
    """Everything that decides which bytes come out."""
    if not paths:
        raise ConfigError("No files to read. Name at least one.")
    if any(str(path) == "-" for path in paths):
        raise ConfigError(
            "A corpus cannot be built from standard input, which cannot be read again after a "
            "kill. Save it to a file; compressed ones (.gz, .xz, .zst) are read as they are."
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


def _total(entries: Sequence[dict[str, Any]], key: str) -> int:
    return sum(entry[key] for entry in entries)
