"""Write src/filbert/keywords.pyi: the options of `filbert.api` as types, for checkers and editors.

The options are those of the option classes, which also make the command line.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from filbert import api

STUB = Path(api.__file__).with_name("keywords.pyi")
HEAD = '''"""Keyword arguments of `filbert.api`; docs/figures/signatures.py writes them."""

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from typing_extensions import Required

from filbert.api import PathLike
from filbert.data.tables import Rows
'''


def stub() -> str:
    """Return one TypedDict for each class of options that a function of `filbert.api` takes."""
    classes = {}
    for function in vars(api).values():
        if not hasattr(function, "options"):
            continue
        kind, names = function.options
        parameters = inspect.signature(function).parameters
        lines = [f"class {kind.__name__.removesuffix('Options')}Keywords(TypedDict, total=False):"]
        for name in names:
            one = parameters[name]
            required = one.default is one.empty
            given = f"Required[{one.annotation}]" if required else one.annotation
            lines.append(f"    {name}: {given}")
        classes[lines[0]] = "\n".join(lines) + "\n"
    return "\n".join([HEAD, *classes.values()])


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
