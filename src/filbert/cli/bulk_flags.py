"""The options that predict and embed share: how the model runs, and how long work goes on."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.cli.flags import STDIO, refuse_own_source
from filbert.data.streams import require_file
from filbert.errors import ConfigError

ENGINES = ("local", "ray")


@dataclass(frozen=True, kw_only=True)
class BulkFlags:
    """How a file of any length goes through a model.

    Attributes:
        max_length: cut texts to this many tokens; the model's own limit when not given.
        max_tokens: tokens per packed batch.
        precision: float32, bf16, int8, or auto: bf16 where it is faster and keeps the answers.
        backend: torch, or onnxruntime for a folder that filbert export made.
        device: cpu, cuda, ...; the first GPU when there is one.
        resume: go on where a run with the same --out ended before its time; see docs/bulk.md.
        overwrite: drop what such a run left, and begin anew.
        engine: local, or ray for the machines of a Ray cluster.
        workers: processes on that cluster; one per machine or GPU when not given.
    """

    max_length: int | None = None
    max_tokens: int | None = None
    precision: str = "float32"
    backend: str = "torch"
    device: str | None = None
    resume: bool = False
    overwrite: bool = False
    engine: str = "local"
    workers: int | None = None

    @property
    def loading(self) -> dict[str, Any]:
        """The options of `Predictor.load` among them."""
        names = ("precision", "backend", "device", "max_length", "max_tokens")
        return {name: getattr(self, name) for name in names}


def check_options(source: str, out: str | None, flags: BulkFlags) -> None:
    """Refuse options that contradict each other, and rows that are not there, before a model is
    loaded.
    """
    if flags.engine not in ENGINES:
        raise ConfigError(f"--engine {flags.engine!r} is not one of {', '.join(ENGINES)}.")
    if flags.workers is not None and flags.engine != "ray":
        raise ConfigError("--workers is for --engine ray; the local engine uses all cores.")
    if flags.workers is not None and flags.workers < 1:
        raise ConfigError(f"--workers is {flags.workers}; it must be at least 1.")
    if not is_stream(out):
        refuse_own_source(source, out)
    if flags.resume and flags.overwrite:
        raise ConfigError(
            "--resume goes on with what an earlier run did, --overwrite drops it. Give one."
        )
    if flags.resume and is_stream(out):
        raise ConfigError("--resume needs --out FILE: what went elsewhere is not kept.")
    if flags.resume and not is_regular(source):
        raise ConfigError("--resume reads the rows again, and a stream is gone. Give a file.")
    if source != "-":
        require_file(source, once=True)


def is_stream(out: str | None) -> bool:
    """Whether answers go to standard output, a device or a pipe."""
    if out is None or out == STDIO:
        return True
    try:
        mode = os.stat(out).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def is_regular(source: str) -> bool:
    """Whether rows come from a file that can be read twice."""
    return source != "-" and Path(source).is_file()
