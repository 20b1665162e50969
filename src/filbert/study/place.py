"""The folder of a study: one process at a time, and never another study's."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, FormatError, InputError
from filbert.files import write_json


@contextmanager
def guarded(out: Path) -> Iterator[int]:
    """Hold the folder for this process; gives the descriptor of the lock, for the child to inherit.

    As long as a child holds it too, no second comparison begins, even when the parent was killed.

    Raises:
        ConfigError: it is a file, holds something that is no study, or is in use.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names the folder of the study.")
    holds = out.is_dir() and any(path.name != ".lock" for path in out.iterdir())
    if holds and not (out / "study.json").is_file() and not has_runs(out):
        raise ConfigError(f"{out} is not empty and holds no study; name a new folder with --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"The folder {out} cannot be used: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"Another comparison is running in {out}; wait for it, or name another --out."
            ) from error
        yield lock
    finally:
        os.close(lock)


def has_runs(out: Path) -> bool:
    """Whether runs of a study are there, whatever became of study.json."""
    return any(out.glob("contestants/*/seed-*/run.json"))


def read_state(out: Path) -> dict[str, Any]:
    """The content of study.json; {} where there is none.

    Raises:
        FormatError: it is damaged.
    """
    place = out / "study.json"
    if not place.exists():
        return {}
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
        if not isinstance(content.get("runs"), dict):
            raise ValueError("it lacks the runs")
    except (OSError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{place} is damaged ({error}). Remove it: finished runs tell by themselves what they "
            "are, and it is written anew."
        ) from error
    return dict(content)


def write_state(out: Path, state: dict[str, Any]) -> None:
    """Replace study.json."""
    write_json(out / "study.json", state)
