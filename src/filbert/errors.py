"""The exceptions that filbert raises on purpose; any other exception is a bug."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

# difflib's usual limit, 0.6, proposes "intent" for "text"; 2 of 3 letters are enough for "bda".
_SIMILAR = 0.65

_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")

P = ParamSpec("P")
R = TypeVar("R")


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
    """A model folder, checkpoint or vocabulary is damaged or not of the format that it claims."""

    exit_status = 2


class RunError(FilbertError):
    """A run cannot continue: a non-finite loss, a lost process."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, after the state is saved; the message says how to resume."""


def checked_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function: an unknown keyword is a ConfigError with the nearest name.

    Messages name options as keywords; `on_terminal` returns them as they were raised.
    """
    signature = inspect.signature(function)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    @functools.wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in signature.parameters and not takes_all:
                hint = did_you_mean(name, signature.parameters)
                raise ConfigError(f"{function.__name__} has no option {name!r}.{hint}")
        try:
            return function(*args, **keywords)
        except (FilbertError, Interrupted) as error:
            error.__dict__.setdefault("raised_as", str(error))
            error.args = (as_keywords(str(error)),)
            raise

    return checked


def as_keywords(message: str) -> str:
    """Return a message with `text_column` for --text-column; one with a command is kept."""
    if re.search(r"filbert [a-z]+ .*--", message):
        return message
    return _FLAG.sub(lambda flag: f"`{flag[1].replace('-', '_')}`", message)


def on_terminal(error: BaseException) -> str:
    """Return the message of an error with options as flags."""
    return str(error.__dict__.get("raised_as", error))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a sentence with the most similar known name, after a blank; "" if none is similar."""
    near = get_close_matches(str(name), list(known), 1, _SIMILAR)
    return f" Did you mean {near[0]!r}?" if near else ""


def install_hint(extra: str) -> str:
    """Return a sentence on how to install optional packages from a clone."""
    return f'Run pip install -e ".[{extra}]" in your clone of filbert.'


@contextlib.contextmanager
def unreadable_as(kind: type[FilbertError]) -> Iterator[None]:
    """Convert an OSError about a file into an error of `kind`; also usable as a decorator."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise kind(f"A file cannot be read: {error.strerror or error}.") from error
        name = printable(str(error.filename), 200)
        raise kind(f"{name} cannot be read: {error.strerror or error}.") from error


def printable(text: str, limit: int = 60) -> str:
    """Return at most `limit` characters of an untrusted text, harmless in a message.

    Control characters and lone surrogates are escaped.
    """
    shortened = text[:limit]
    if not shortened.isprintable():
        shortened = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shortened)
    return shortened + ("..." if len(text) > limit else "")
