"""The folder of a corpus under way: what is finished in it, and what must go."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filbert.data.shards import MANIFEST, PROGRESS, TOKENIZER, read_manifest, verify_shard
from filbert.errors import ConfigError, FormatError, InputError
from filbert.files import write_json

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
