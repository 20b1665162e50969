"""`filbert serve`: everything is checked, the port is taken, then processes load and answer.

The socket is bound before anything is loaded, so a taken port is told at once, but nobody is let
in before every model has answered: until then a connection is refused, never left waiting.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from filbert.errors import ConfigError, Interrupted, install_hint
from filbert.serve.connections import Counts
from filbert.serve.listening import allow_many_connections, bound, check_tls
from filbert.serve.operation import Operation, named_models
from filbert.serve.process import Together, work
from filbert.serve.settings import Settings
from filbert.serve.supervise import Post, supervise


def serve(models: Sequence[str], settings: Settings, operation: Operation) -> None:
    """Answer until SIGTERM or Ctrl-C, then finish what was begun.

    Args:
        models: folders, built-in names or Hub ids, each perhaps as NAME=MODEL.
        settings: what is let in.
        operation: how it runs.

    Raises:
        ConfigError: options that cannot be meant, a port that is taken.
        InputError, FormatError: a model that cannot be loaded.
        Interrupted: Ctrl-C, after the last answer.
        SystemExit: the first of several processes could not start, and has said why.
    """
    named = named_models(models)
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if not find_spec(name)]
    if missing:
        raise ConfigError(f"filbert serve needs {', '.join(missing)}. {install_hint('serve')}")
    settings.keys()
    settings.origins()
    check_tls(operation.certificate, operation.key)
    allow_many_connections()
    with bound(settings.host, settings.port) as listener:
        if operation.workers == 1:
            stopped = work(named, settings, operation, listener)
        else:
            stopped = _together(named, settings, operation, listener)
    if stopped == signal.SIGINT:
        raise Interrupted("stopped.")


def _together(
    named: Mapping[str, str], settings: Settings, operation: Operation, listener: socket.socket
) -> int:
    """Several processes; the signal that ended them."""
    with tempfile.TemporaryDirectory(prefix="filbert-serve-") as folder:
        # prometheus-client reads it when it is imported, here and in the workers.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        from filbert.serve.metrics import forget_worker

        together = Together(Path(folder), Counts(operation.workers))

        def one(post: Post) -> int:
            work(named, settings, operation, listener, together=together, post=post)
            return 0

        def ended(number: int, pid: int) -> None:
            together.counts.forget(number)
            forget_worker(Path(folder), pid)

        status, stopped = supervise(
            one,
            operation.workers,
            grace_seconds=settings.grace_seconds,
            stopping=listener.close,
            ended=ended,
        )
    if status:
        raise SystemExit(status)
    return stopped
