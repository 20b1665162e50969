"""The servers that serve.py compares: how each is started, and where it takes a text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import sides


class Place(NamedTuple):
    """What a server is started with: the model's folder, a port, and infinity's environment."""

    model: str
    port: int
    infinity: Path


@dataclass(frozen=True)
class Side:
    """A server.

    Attributes:
        command: starts it.
        path: takes OpenAI's request for vectors.
        missing: why it cannot be started here; empty when it can.
    """

    command: Callable[[Place], list[str]]
    path: str
    missing: Callable[[Place], str] = lambda place: ""


def _filbert(*options: str) -> Side:
    def command(place: Place) -> list[str]:
        given = [f"m={place.model}", "--port", str(place.port), *options]
        return [sys.executable, "-m", "filbert", "serve", *given]

    return Side(command, "/v1/embeddings")


def _infinity(place: Place) -> list[str]:
    program = str(place.infinity / "bin" / "infinity_emb")
    options = f"v2 --model-id {place.model} --served-model-name m --engine torch --device cpu"
    return [program, *options.split(), "--host", "127.0.0.1", "--port", str(place.port)]


def _plain(place: Place) -> list[str]:
    return [
        sys.executable,
        str(Path(sides.__file__).with_name("plain_server.py")),
        place.model,
        str(place.port),
    ]


SIDES = {
    "filbert": _filbert(),
    "filbert, 2 workers": _filbert("--workers", "2"),
    "filbert, bf16": _filbert("--precision", "bf16"),
    "filbert, bf16, 2 workers": _filbert("--precision", "bf16", "--workers", "2"),
    "infinity": Side(
        _infinity,
        "/embeddings",
        lambda place: (
            ""
            if os.access(place.infinity / "bin" / "infinity_emb", os.X_OK)
            else f"no infinity_emb in {place.infinity}"
        ),
    ),
    "FastAPI + sentence-transformers": Side(
        _plain,
        "/v1/embeddings",
        lambda place: "" if find_spec("sentence_transformers") else "it is not installed",
    ),
}
# Nothing is fetched, nothing is told to anybody.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "DO_NOT_TRACK": "1",
    "INFINITY_ANONYMOUS_USAGE_STATS": "0",
}
