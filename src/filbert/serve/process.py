"""One process of a server: it loads the models, lets every one answer, and then lets people in."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filbert.errors import FormatError
from filbert.serve.connections import Counts, Door
from filbert.serve.listening import cannot_listen, url_of
from filbert.serve.memory import keep_less
from filbert.serve.operation import Operation
from filbert.serve.settings import Settings
from filbert.serve.supervise import ALONE, Post

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from filbert.predict import Predictor
    from filbert.serve.engine import Engine

# What is left to do once all is answered may take so long.
_LAST_SECONDS = 5.0


class Together(NamedTuple):
    """What several processes behind one port share."""

    figures: Path
    counts: Counts


def work(
    models: Mapping[str, str],
    settings: Settings,
    operation: Operation,
    listener: socket.socket,
    *,
    together: Together | None = None,
    post: Post = ALONE,
) -> int:
    """Load the models and answer until SIGTERM or SIGINT.

    Args:
        models: what to load, by name.
        settings: what is let in.
        operation: how it runs.
        listener: a bound socket, which several processes may share.
        together: what else they share.
        post: which of them this is.

    Returns:
        The signal that ended it.

    Raises:
        ConfigError: somebody else listens on the port by now.
        InputError, FormatError: a model cannot be loaded.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    keep_less()
    import torch
    import uvicorn

    from filbert.serve.access_log import log_requests

    log_requests(as_json=operation.log_json)
    torch.set_num_threads(max(1, torch.get_num_threads() // operation.workers))
    figures = None if together is None else together.figures
    app, lines = open_app(models, settings, operation, figures=figures)
    server = uvicorn.Server(_config(app, settings, operation))
    counts = Counts(1) if together is None else together.counts
    door = Door(server, listener, counts, post.number, settings.idle_seconds)
    heard: list[int] = []

    def stop(number: int, frame: Any) -> None:
        heard.append(number)
        server.should_exit = True

    def let_in() -> None:
        url = url_of(listener, is_tls=operation.certificate is not None)
        try:
            door.open()
        except OSError as error:
            raise cannot_listen(settings.host, settings.port, error) from error
        if post.is_first:
            print(f"filbert {version('filbert')} serves at {url}", *lines, sep="\n  ", flush=True)
        post.ready()

    # uvicorn has handlers of its own meanwhile, and calls these at the end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    asyncio.run(_answer(server, let_in))
    last = heard[0] if heard else signal.SIGTERM
    # Python waits at its end for threads that tokenise, which may be long at a text nobody wants.
    ending = threading.Timer(_LAST_SECONDS, os._exit, [128 + last if last == signal.SIGINT else 0])
    ending.daemon = True
    ending.start()
    return last


def open_app(
    models: Mapping[str, str],
    settings: Settings,
    operation: Operation,
    *,
    figures: Path | None = None,
) -> tuple[FastAPI, list[str]]:
    """The application over loaded models, and a line on each; also what Ray Serve runs.

    Args:
        models: what to load, by name.
        settings: what is let in.
        operation: how it runs.
        figures: folder in which several processes share their metrics.

    Raises:
        InputError, FormatError, ConfigError: a model cannot be loaded.
    """
    from filbert.predict import Predictor
    from filbert.serve.app import make_app
    from filbert.serve.engine import Engine, EngineLimits
    from filbert.serve.engines import Engines
    from filbert.serve.metrics import Metrics

    names = (field.name for field in fields(EngineLimits))
    limits = EngineLimits(
        **{name: getattr(settings, name) for name in names if hasattr(settings, name)}
    )
    metrics = Metrics(figures)
    engines = []
    for name, model in models.items():
        predictor = Predictor.load(model, packed=True, **operation.loading)
        predictor.warm_up()
        _see_that_it_works(predictor, model)
        engines.append(Engine(name, predictor, limits, metrics))
    return make_app(Engines(engines), settings, metrics), [_line(engine) for engine in engines]


def _see_that_it_works(predictor: Predictor, model: str) -> None:
    """One real forward pass.

    Raises:
        FormatError: it does not give numbers.
    """
    from filbert.serve.work import Probe

    probe = Probe(predictor)
    if not all(probe.outputs(probe.prepare([(0, "")]).examples)):
        raise FormatError(f"{model} gives numbers that are not finite. Its weights are damaged.")


def _line(engine: Engine) -> str:
    from filbert.stored_task import int8_warning

    predictor = engine.predictor
    task = predictor.task.name if predictor.task else "no task"
    line = (
        f"{engine.name} ({task}, {predictor.max_length} tokens, {predictor.number_format}): "
        f"{', '.join(engine.can)}"
    )
    warning = int8_warning(predictor.precision, predictor.checkpoint, predictor.task)
    return line if warning is None else f"{line}; {warning}"


def _config(app: FastAPI, settings: Settings, operation: Operation) -> uvicorn.Config:
    import uvicorn

    return uvicorn.Config(
        app,
        # The other one, httptools, lets the head of a request grow without end.
        http="h11",
        ws="none",
        lifespan="on",
        timeout_keep_alive=math.ceil(settings.idle_seconds),
        timeout_graceful_shutdown=math.ceil(settings.grace_seconds),
        ssl_certfile=operation.certificate,
        ssl_keyfile=operation.key,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


async def _answer(server: uvicorn.Server, let_in: Callable[[], None]) -> None:
    """Run the server, and open its door as soon as it stands."""
    serving = asyncio.create_task(server.serve(sockets=[]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.001)
    try:
        if server.started and not server.should_exit:
            let_in()
    except BaseException:
        server.should_exit = True
        raise
    finally:
        await serving


def _leave(number: int, frame: Any) -> None:
    """While models are loaded there is nothing to finish."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(0)
