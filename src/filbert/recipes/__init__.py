"""The recipes that come with filbert, and reading any recipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, InputError, did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).parent
# Endings of tables, which are no recipes.
_ROWS = (".csv", ".tsv", ".jsonl", ".parquet")
# What a study's recipe may say of the call that reads it, and not of the study.
_CALL = ("out", "only", "overwrite", "json")


def recipe_path(name: str, verb: str) -> Path:
    """Return the path of a recipe for "pretrain", "distill" or "compare".

    `name` is a file or a built-in recipe; neither is an InputError.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    known = [file.stem for file in built_in(verb)]
    if name not in known:
        hint = did_you_mean(name, known)
        some = "one of " if len(known) > 1 else ""
        raise InputError(
            f"{name} is no recipe. Give a TOML file, or {some}{', '.join(known)}.{hint}"
        )
    return _FOLDER / f"{name}.toml"


def built_in(verb: str) -> list[Path]:
    """Return the built-in recipes of "pretrain", "distill" or "compare"."""
    return [path for path in sorted(_FOLDER.glob("*.toml")) if _verb_of(path) == verb]


def _verb_of(path: Path) -> str:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    if "contestants" in content:
        return "compare"
    return "distill" if "method" in content.get("loss", {}) else "pretrain"


def read_recipe(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        InputError: there is no such file.
        ConfigError: it is not TOML; the place is named.
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return content
    except OSError as error:
        raise InputError(
            f"{path}: the recipe cannot be read: {error.strerror}. Check the path."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 (byte {error.start + 1}). Save it as UTF-8."
        ) from error
    except ValueError as error:
        hint = "Fix it there."
        if path.suffix in _ROWS:
            hint = f"A recipe is a TOML file. For a table of rows, pass --data {path}."
        raise ConfigError(f"{path} is not valid TOML: {error}. {hint}") from error


def call_of_study(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a study's recipe that sets options of the call.

    A switch that is neither true nor false is a ConfigError.
    """
    found = {name: content[name] for name in _CALL if name in content}
    for name in ("overwrite", "json"):
        if not isinstance(found.get(name, False), bool):
            raise ConfigError(f"The recipe's {name} is {found[name]!r}; it must be true or false.")
    return found
