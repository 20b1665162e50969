"""Messages for wrong command lines and recipes: what was typed, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from cyclopts import CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from filbert.errors import did_you_mean, printable

_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}

# Options of `filbert` itself, which every verb has.
_OF_ALL = ("--recipe", "--threads")
# Names of options in other programs, and ours, where the nearest of ours is another or none.
_ELSEWHERE = {
    "adam-epsilon": "eps",
    "bert-config-file": "model",
    "data-dir": "train",
    "evaluation-strategy": "eval-every",
    "f": "input",
    "fp16": "precision",
    "gradient-accumulation-steps": "max-tokens",
    "init-checkpoint": "model",
    "learning-rate": "lr",
    "lr-scheduler-type": "schedule",
    "m": "model",
    "max-grad-norm": "clip",
    "max-steps": "steps",
    "mlm-probability": "mask-rate",
    "model-name-or-path": "model",
    "no-cuda": "device",
    "num-train-epochs": "epochs",
    "num-train-steps": "steps",
    "o": "out",
    "output": "out",
    "overwrite-output-dir": "overwrite",
    "resume-from-checkpoint": "resume",
    "save-steps": "save-every",
    "task-name": "task",
    "train-batch-size": "batch-size",
    "validation-file": "dev",
    "vocab-size": "size",
}


def sentence(error: CycloptsError) -> str:
    """Return what is wrong with a command line or a recipe, and what to do about it."""
    if isinstance(error, UnknownOptionError):
        return _unknown_option(error)
    if isinstance(error, MissingArgumentError):
        return _misspelt_flag(error) or _missing(error)
    if isinstance(error, CoercionError) and error.target_type in _KINDS and error.token:
        return _wrong_type(error)
    if isinstance(error, UnusedCliTokensError):
        left = " ".join(error.unused_tokens or ())
        problem = f"{_verb(error)} takes no further argument {left!r}"
        return f"{problem}. Quote a text with blanks. {_see(error)}"
    if isinstance(error, UnknownCommandError):
        what = re.split(r" Did you mean | Available commands:", _plain(str(error)))[0]
        hint = did_you_mean((error.unused_tokens or [""])[0], [*(error.app or ()), "train"])
        return f"{what}{hint} See filbert --help; options are written after the command."
    return _plain(str(error))


def _unknown_option(error: UnknownOptionError) -> str:
    """Return a message with the nearest flag or key, which cyclopts does not name for a recipe."""
    known = [name for argument in error.argument_collection for name in argument.names]
    in_recipe = error.token.source != "cli"
    asked = error.token.keyword or error.token.value
    if in_recipe:
        # A key within a table comes as "[table][key]".
        table, key = re.fullmatch(r"\[?([^\]]*)\]?(?:\[(.*)\])?", asked).groups()  # type: ignore[union-attr]
        if key is not None:
            return (
                f"{error.token.source}: there is no table [{table}]; {_verb(error)} reads keys "
                "above all tables. Put its keys there."
            )
        near = _nearest(table, known)
        hint = f"Did you mean {near.removeprefix('--').replace('-', '_')}?" if near else _see(error)
        return f"{error.token.source}: there is no option {table!r}. {hint}"
    near = _nearest(asked, [*known, *_OF_ALL])
    if " " in asked.strip():
        return (
            f"{printable(asked, 60)!r} begins like an option. Give a text that begins with - last, "
            "behind --."
        )
    if near == asked:
        return f"{asked} is behind --, where nothing is an option. Put it before."
    hint = f"Did you mean {near}?" if near else _see(error)
    return f"Unknown option: {asked}. {hint}"


def _nearest(asked: str, known: Sequence[str]) -> str | None:
    """Return the flag that was probably meant."""
    plain = asked.split("=")[0].lstrip("-").replace("_", "-").lower()
    meant = {f"--{theirs}": f"--{ours}" for theirs, ours in _ELSEWHERE.items()}
    meant = {name: ours for name, ours in meant.items() if ours in known}
    meant |= {name: name for name in known}
    near = get_close_matches(f"--{plain}", meant, 1, 0.7)
    return meant[near[0]] if near else None


def _misspelt_flag(error: MissingArgumentError) -> str:
    """Return a message about a misspelt flag, which explains why another one is missing."""
    if error.app is None:
        return ""
    collection = error.app.assemble_argument_collection()
    known = [*_OF_ALL, *(name for argument in collection for name in argument.names)]
    for token in error.unused_tokens or ():
        flag = token.split("=")[0]
        near = _nearest(flag, known) if flag.startswith("--") else None
        if near is not None and near != flag:
            return f"Unknown option: {flag}. Did you mean {near}?"
    return ""


def _missing(error: MissingArgumentError) -> str:
    assert error.argument is not None
    if error.keyword is not None or error.argument.tokens:
        name = error.keyword or error.argument.name
        return f"{name} needs a value: {_meaning(error)}. {_see(error)}"
    return f"{_verb(error)} needs {error.argument.name}: {_meaning(error)}. {_see(error)}"


def _meaning(error: MissingArgumentError) -> str:
    """Return the first sentence of a parameter's help."""
    assert error.argument is not None and error.app is not None
    documented = error.app.assemble_argument_collection(parse_docstring=True)
    texts = (one.parameter.help for one in documented if one.name == error.argument.name)
    return re.split(r"[.;](?= |$)", _plain(next(texts, None) or "see its help"))[0]


def _wrong_type(error: CoercionError) -> str:
    assert error.token is not None and error.target_type is not None
    source = "" if error.token.source in ("", "cli") else f"{error.token.source}: "
    name = (error.token.keyword or "").strip("[]")
    if not name and error.argument is not None:
        name = error.argument.name
    return f"{source}{name} is {error.token.value!r}; it must be {_KINDS[error.target_type]}."


def _verb(error: CycloptsError) -> str:
    return " ".join(error.command_chain or ("filbert",))


def _see(error: CycloptsError) -> str:
    return " ".join(["See filbert", *(error.command_chain or ()), "--help."])


def _plain(text: str) -> str:
    return " ".join(text.split())
