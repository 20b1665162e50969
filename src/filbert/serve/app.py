"""`filbert serve`: loads the models, makes the application, and runs it with uvicorn."""

from __future__ import annotations

import json
import logging
import logging.config
import math
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from filbert.errors import ConfigError, FilbertError, FormatError
from filbert.files import THREADS_VARIABLE
from filbert.inference.precision import int8_warning
from filbert.inference.predictor import Predictor
from filbert.serve.engine import Engine, Engines
from filbert.serve.errors import refusal_of, response_to
from filbert.serve.limits import Limits
from filbert.serve.logs import log_config
from filbert.serve.metrics import FOLDER_VARIABLE, Metrics
from filbert.serve.queries import query_of
from filbert.serve.routes import about, openai, own, tei
from filbert.serve.settings import ModelSettings, Settings

log = logging.getLogger(__name__)

# uvicorn starts workers as new processes, which read the options from this variable.
_OPTIONS_VARIABLE = "FILBERT_SERVE_OPTIONS"
# uvicorn does not restart a worker that ends with this status.
_STARTUP_FAILURE = 3
_ERROR_FILE = "error"

# Response headers that scripts of other origins may read.
_EXPOSED_HEADERS = (
    "x-compute-tokens", "x-inference-time", "x-queue-time", "x-tokenization-time", "x-total-time",
    "x-num-tokens", "x-truncated", "retry-after",
)  # fmt: skip

# The most seconds for the models' threads to end after the last request.
_LAST_SECONDS = 2.0


def make_app(engines: Engines, settings: Settings, metrics: Metrics) -> FastAPI:
    """Make the application over engines, which it starts and stops.

    Raises:
        ConfigError: Keys or origins of the settings are invalid.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for engine in engines.values():
            engine.start()
        yield
        # uvicorn has waited for the requests before.
        for engine in engines.values():
            await engine.close(min(_LAST_SECONDS, settings.grace_seconds))

    app = FastAPI(
        title="filbert",
        version=version("filbert"),
        description="Encoder models behind the APIs of text-embeddings-inference, OpenAI and "
        "bert-as-service, and filbert's own.",
        # These pages load scripts from other addresses.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.engines, app.state.settings, app.state.metrics = engines, settings, metrics
    on_gpu = any(engine.predictor.device.type == "cuda" for engine in engines.values())
    waiting = {name: engine.waiting for name, engine in engines.items()}
    metrics.watch(waiting, torch.cuda.memory_reserved if on_gpu else None)

    async def refuse(request: Request, error: Exception) -> Response:
        return response_to(refusal_of(error), request.url.path)

    # FastAPI has handlers of its own for these two; `Limits` handles the rest.
    for kind in (RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refuse)
    routers = (tei.router, own.router, openai.router, openai.bert_as_service, about.router)
    for router in routers:
        app.include_router(router)
    if settings.page:
        app.router.routes += about.page_routes
    # The last one added is the outermost.
    app.add_middleware(Limits, settings=settings, metrics=metrics, routes=app.routes)
    if origins := settings.origins():
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            # Clients send headers of their own, such as x-stainless-os.
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
    return app


def load_app(
    models: Mapping[str, str], settings: Settings, model_settings: ModelSettings
) -> FastAPI:
    """Load the models, run each once, and make the application."""
    if THREADS_VARIABLE not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // settings.workers))
    metrics, engines = Metrics(), Engines()
    for name, model in models.items():
        loading = model_settings.loading
        if loading["precision"] == "int8":
            from filbert.onnx_export import int8_engine

            model, loading = int8_engine(model, loading)
        predictor = Predictor.load(model, packed=True, **loading)
        predictor.warm_up()
        query = query_of(predictor, "health")
        if not all(query.outputs(query.prepare([(0, "")]).examples)):
            raise FormatError(
                f"{model} gives numbers that are not finite. Its weights are damaged."
            )
        engine = Engine(name, predictor, settings=model_settings, metrics=metrics)
        engines[name] = engine
        task = predictor.task.spec.name if predictor.task else "no task"
        facts = f"{task}, {predictor.max_length} tokens, {predictor.number_format}"
        warning = int8_warning(predictor.precision, predictor.checkpoint, predictor.task)
        more = "" if warning is None else f"; {warning}"
        log.info("%s (%s): %s%s", name, facts, ", ".join(engine.can), more)
    return make_app(engines, settings, metrics)


def run(models: Mapping[str, str], settings: Settings, model_settings: ModelSettings) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish the running requests.

    Raises:
        ConfigError: Invalid options, or a port that is taken.
        KeyboardInterrupt: Ctrl-C, after the last answer.
    """
    settings.bearer_keys()
    settings.origins()
    check_address(settings.host, settings.port)
    options = _uvicorn_options(settings)
    # uvicorn raises the signal again after the last answer; also while models are loaded. A model's
    # thread may still be at work, which aborts the process while Python ends.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if settings.workers == 1:
        logging.config.dictConfig(options["log_config"])
        app = load_app(models, settings, model_settings)
        server = uvicorn.Server(uvicorn.Config(app, **options))
        server.run()
        # Where the loop ends first, asyncio forgets the Ctrl-C that uvicorn raises again.
        if server.started:
            raise KeyboardInterrupt
        return
    with tempfile.TemporaryDirectory(prefix="filbert-serve-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        options_of_all = [dict(models), asdict(settings), asdict(model_settings)]
        os.environ[_OPTIONS_VARIABLE] = json.dumps(options_of_all)
        factory = "filbert.serve.app:app_from_environment"
        uvicorn.run(factory, factory=True, workers=settings.workers, **options)
        error = Path(folder, _ERROR_FILE)
        if error.exists():
            raise FormatError(error.read_text(encoding="utf-8"))


def app_from_environment() -> FastAPI:
    """Return the application of a worker process. Its parent reports why it could not be made."""
    models, settings, model_settings = json.loads(os.environ[_OPTIONS_VARIABLE])
    try:
        return load_app(models, Settings(**settings), ModelSettings(**model_settings))
    except FilbertError as error:
        path = Path(os.environ[FOLDER_VARIABLE], _ERROR_FILE)
        path.write_text(str(error), encoding="utf-8")
        sys.exit(_STARTUP_FAILURE)


def _uvicorn_options(settings: Settings) -> dict[str, Any]:
    return {
        "host": settings.host,
        "port": settings.port,
        # The other parser, httptools, does not limit the size of headers.
        "http": "h11",
        "ws": "none",
        "lifespan": "on",
        "timeout_keep_alive": 60,
        # A worker that loads a large model may not answer for longer than the default of 5 seconds.
        "timeout_worker_healthcheck": 15,
        "timeout_graceful_shutdown": math.ceil(settings.grace_seconds),
        "log_config": log_config(as_json=not sys.stderr.isatty()),
        "server_header": False,
        "proxy_headers": False,
    }


def check_address(host: str, port: int) -> None:
    """Raise a ConfigError unless the address can be listened on, before models are loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", error)
        raise ConfigError(
            f"Cannot listen on port {port} of {host}: {reason}. Give another --host or --port (0 "
            "takes a free one)."
        ) from error
