"""Run the command line in this process and keep what it printed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from filbert.cli.main import run


class Done(NamedTuple):
    """What a call of `filbert` left."""

    status: int
    out: str
    err: str


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """`call("predict", model, stdin="text")`."""

    def go(*arguments: object, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        status = run([str(a) for a in arguments])
        return Done(status, *capsys.readouterr())

    return go


@pytest.fixture
def model(film_run) -> Path:
    """The folder of a classifier of films."""
    return film_run.folder / "model"
