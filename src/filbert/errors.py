"""The errors that filbert raises on purpose; everything else is a mistake of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class FilbertError(Exception):
    """Base of all deliberate errors. `exit_status` is what the command line returns for it."""

    exit_status = 1


class InputError(FilbertError):
    """The user's data is wrong: a bad row, a missing file or column, an unknown label."""

    exit_status = 2


class ConfigError(FilbertError):
    """The user's options contradict each other, the model or the machine."""

    exit_status = 2


class FormatError(FilbertError):
    """A model folder, checkpoint or vocabulary is damaged or not what it says it is."""

    exit_status = 2


class RunError(FilbertError):
    """A run could not go on: a non-finite loss, a lost process."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, once everything is saved; the message says how to go on."""


def install_hint(extra: str) -> str:
    """The sentence that says how to install optional packages from a clone."""
    return f'Run pip install -e ".[{extra}]" in your clone of filbert.'


@contextlib.contextmanager
def unreadable_as(kind: type[FilbertError]) -> Iterator[None]:
    """Turn what the system says about files that it does not give out into an error for people.

    Also to be used as a decorator of a function that reads files.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise kind(f"A file cannot be read: {error.strerror or error}.") from error
        name = printable(str(error.filename), 200)
        raise kind(f"{name} cannot be read: {error.strerror or error}.") from error


def printable(text: str, limit: int = 60) -> str:
    """A name out of somebody's file, harmless in a message: control characters and halves of
    surrogate pairs are written as escapes, and what is behind `limit` characters is left out.
    """
    kept = text[:limit]
    if not kept.isprintable():
        kept = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in kept)
    return kept + ("..." if len(text) > limit else "")
