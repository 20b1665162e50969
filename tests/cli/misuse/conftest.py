"""One kind of misuse: a command line, and the words that its one message must hold."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its content; folders have none."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


@pytest.fixture(scope="session")
def models(
    tiny_model: Path, masked_lm: Path, film_run, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The models that a command line may name in capitals."""
    film = film_run.folder / "model"
    # One that could have come from elsewhere: nothing says which bytes its files had.
    plain = tmp_path_factory.mktemp("plain") / "model"
    shutil.copytree(film, plain)
    story = json.loads((plain / "filbert.json").read_text())
    (plain / "filbert.json").write_text(json.dumps(story | {"files": {}}))
    return {"TINY": tiny_model, "FILM": film, "PLAIN": plain, "MASKED": masked_lm}


@pytest.fixture
def refused(
    call, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., str]]:
    """`refused(command, *words, files=..., stdin=...)`: the message, after all checks of it.

    Words of the command in capitals are models, and files that it names are made before.
    """
    monkeypatch.chdir(tmp_path)
    loggers = [logging.getLogger(), logging.getLogger("filbert")]
    handlers = [list(logger.handlers) for logger in loggers]

    def go(
        command: str,
        *words: str,
        files: dict[str, bytes] | None = None,
        stdin: str = "",
        status: int = 2,
    ) -> str:
        for name, content in (files or {}).items():
            if name in command:
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        before = listing(tmp_path)
        arguments = [
            re.sub(r"\b(TINY|FILM|PLAIN|MASKED)\b", lambda m: str(models[m[0]]), word)
            for word in shlex.split(command)
        ]
        done = call(*arguments, stdin=stdin)
        assert done.status == status, (done.status, done.out, done.err)
        assert "Traceback" not in done.err
        message = done.err.strip().splitlines()[-1]
        assert message.startswith("filbert: "), done.err
        missing = [word for word in words if word not in message]
        assert not missing, (missing, message)
        assert len(message) < 600, message
        assert listing(tmp_path) == before, set(listing(tmp_path)) ^ set(before)
        return message

    yield go
    # A server that was to start has sent the log to this test's stderr.
    for logger, before in zip(loggers, handlers, strict=True):
        logger.handlers[:] = before
